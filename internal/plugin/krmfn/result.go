package krmfn

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// The severities of results.
const (
	severityError   = "error"
	severityWarning = "warning"
	severityInfo    = "info"
)

const (
	maxErrors  = 10  // results that become part of an error
	maxNotes   = 10  // results in notes for users
	maxResults = 100 // results of a run that are logged
	maxText    = 300 // bytes of each text of a result
)

// A result is a function's message about a resource or about its run.
type result struct {
	severity string
	message  string
	resource string // as krm.Identity.String returns it, with the namespace; may be empty
	field    string // dotted path; may be empty
	current  string // value of the field
	proposed string
}

// String returns `MESSAGE (apps/v1 Deployment "web", spec.replicas)`.
func (r result) String() string {
	message := r.message
	if message == "" {
		message = "a result without a message"
	}
	var where []string
	if r.resource != "" {
		where = append(where, r.resource)
	}
	if r.field != "" {
		field := r.field
		if r.current != "" {
			field += " is " + r.current
		}
		if r.proposed != "" {
			field += ", should be " + r.proposed
		}
		where = append(where, field)
	}
	if len(where) == 0 {
		return message
	}
	return fmt.Sprintf("%s (%s)", message, strings.Join(where, ", "))
}

// refusal returns the messages of the results of severity error, "" if there
// are none.
func refusal(results []result) string {
	var messages []string
	more := 0
	for _, r := range results {
		switch {
		case r.severity != severityError:
		case len(messages) == maxErrors:
			more++
		default:
			messages = append(messages, r.String())
		}
	}
	if more > 0 {
		messages = append(messages, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(messages, "; ")
}

func logResults(ctx context.Context, log *slog.Logger, results []result) {
	if log == nil {
		return
	}
	for i, r := range results {
		if i == maxResults {
			log.WarnContext(ctx, "function had too many results", "dropped_results", len(results)-maxResults)
			return
		}
		level := slog.LevelInfo
		if r.severity == severityWarning {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "function result", "severity", r.severity, "about", r.resource, "field", r.field, "result", r.message)
	}
}

// noteResults calls note with the results for users, warnings first.
func noteResults(note func(string), results []result) {
	if note == nil {
		return
	}
	noted := 0
	for _, severity := range []string{severityWarning, severityInfo} {
		for _, r := range results {
			if r.severity != severity {
				continue
			}
			noted++
			if noted <= maxNotes {
				note(severity + ": " + r.String())
			}
		}
	}
	if noted > maxNotes {
		note(fmt.Sprintf("and %d more", noted-maxNotes))
	}
}

func decodeResults(value any) ([]result, error) {
	if value == nil {
		return nil, nil
	}
	// In version v1alpha1, results are an object with a name and items.
	if old, ok := value.(map[string]any); ok {
		value = old["items"]
	}
	values, ok := value.([]any)
	if !ok && value != nil {
		return nil, fmt.Errorf("results is %s, not a list", TypeName(value))
	}
	results := make([]result, len(values))
	for i, value := range values {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("results[%d] is %s, not a map", i, TypeName(value))
		}
		r := krm.Resource(m)
		results[i] = result{
			severity: severityInfo, message: short(r["message"]), resource: about(r),
			field: get(r, "field", "path"), current: get(r, "field", "currentValue"), proposed: get(r, "field", "proposedValue"),
		}
		switch severity, ok := r["severity"]; {
		case !ok || severity == nil || severity == "" || severity == severityInfo:
		case severity == severityError || severity == severityWarning:
			results[i].severity = r.Text("severity")
		default:
			return nil, fmt.Errorf("results[%d].severity is %q: it can be error, warning or info", i, short(severity))
		}
	}
	return results, nil
}

// about returns the resource that a result refers to, as text.
func about(r krm.Resource) string {
	ref, ok := r["resourceRef"].(map[string]any)
	if !ok {
		return ""
	}
	reference := krm.Resource(ref)
	id := krm.Identity{GVK: krm.ParseGVK(short(ref["apiVersion"]), short(ref["kind"])), Name: short(ref["name"])}
	s := id.String()
	if namespace := reference.Text("namespace"); namespace != "" {
		s += fmt.Sprintf(" in namespace %q", short(namespace))
	}
	return s
}

func get(r krm.Resource, path ...string) string {
	value, _ := r.Get(path...)
	return short(value)
}

// short returns a value as text of at most maxText bytes, for messages.
func short(value any) string {
	var s string
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		s = value
	case map[string]any, []any:
		s = compact(value)
	default:
		s = fmt.Sprint(value)
	}
	return printable.Short(strings.ToValidUTF8(s, "\uFFFD"), maxText)
}
