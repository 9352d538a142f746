package blame

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// The limits of a report.
const (
	maxBytes        = 3 << 20 // of paths and values, so that a response fits into gRPC's usual 4 MiB
	maxValue        = 200     // bytes of a value of a whole package
	maxHistoryValue = 4000    // bytes of a value of a history
	maxChanges      = 100
	maxUpstreams    = 10 // changes whose values are followed into a template
	maxNamed        = 5  // fields that an error names
)

// Report returns what a request asks for, from a revision on.
func Report(ctx context.Context, h History, newest Revision, types merge.Types, request tko.BlameRequest) (tko.Blame, error) {
	b := tko.Blame{Kind: request.Kind, ID: request.ID, Revision: newest.Number}
	if request.History {
		var err error
		b.Changes, err = changesAt(ctx, h, newest, types, request.Field)
		return b, err
	}
	fields, origins, err := New(h, types).Walk(ctx, newest, fieldFilter(request.Field))
	if err != nil {
		return tko.Blame{}, err
	}
	if len(fields) == 0 && request.Field != "" {
		return tko.Blame{}, noField(newest, types, request.Field)
	}
	b.Origins = origins
	redacted := map[krm.Identity]krm.Resource{}
	for _, r := range newest.Package.WithoutSecrets() {
		redacted[r.Identity()] = r
	}
	size := 0
	for _, f := range fields {
		v, hidden := Shown(merge.Value{V: f.Value, Present: true}, redacted[f.Resource], f.Path, types)
		one := tko.BlamedField{Resource: f.Resource.String(), Path: merge.PathText(f.Path), Hidden: hidden, Origin: f.Origin}
		if !hidden {
			one.Value = valueText(v, maxValue)
		}
		size += len(one.Resource) + len(one.Path) + len(one.Value) + 10
		if size > maxBytes {
			return tko.Blame{}, tko.Errorf(tko.ErrInvalid, "%s %q has too many fields for one response: name a resource, or a part of one", request.Kind, request.ID)
		}
		b.Fields = append(b.Fields, one)
	}
	return b, nil
}

// changesAt returns the changes of a field, followed into templates.
func changesAt(ctx context.Context, h History, newest Revision, types merge.Types, field string) ([]tko.FieldChange, error) {
	leaf, err := leafAt(ctx, h, newest, types, field)
	if err != nil {
		return nil, err
	}
	changes, err := New(h, types).Changes(ctx, newest, leaf.Resource, leaf.Path, maxChanges)
	if err != nil {
		return nil, err
	}
	var out []tko.FieldChange
	for i, c := range changes {
		one := tko.FieldChange{Resource: leaf.Resource.String(), Path: merge.PathText(leaf.Path), Hidden: c.Hidden, Origin: c.Origin}
		if !c.Hidden {
			one.Before, one.After = valueText(c.Before, maxHistoryValue), valueText(c.After, maxHistoryValue)
		}
		if c.Origin.Source == tko.SourceTemplate && c.After.Present && i < maxUpstreams {
			if one.Upstream, err = upstream(ctx, h, c.Origin, leaf, types); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// upstream returns where a template has a value from; nothing if the caller may not read
// the template.
func upstream(ctx context.Context, h History, o tko.Origin, leaf merge.Leaf, types merge.Types) ([]tko.Origin, error) {
	up, newest, err := h.Upstream(ctx, o.Template, o.TemplateRevision)
	if err != nil || up == nil {
		return nil, err
	}
	_, origins, err := New(up, types).Walk(ctx, newest, func(l merge.Leaf) bool { return leafText(l) == leafText(leaf) })
	return origins, err
}

// leafAt returns the leaf that a field names, of the newest revision that has it.
func leafAt(ctx context.Context, h History, newest Revision, types merge.Types, field string) (merge.Leaf, error) {
	named := fieldFilter(field)
	for at, read := newest, 0; ; read++ {
		var found []merge.Leaf
		for _, leaf := range merge.Leaves(at.Package, types) {
			if named(leaf) {
				found = append(found, leaf)
			}
		}
		for _, leaf := range found {
			if leafText(leaf) == field {
				return leaf, nil
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return merge.Leaf{}, tko.Errorf(tko.ErrInvalid, "%q has several fields: name one of them, for example %s", field, examplesOf(found))
		}
		if at.Number <= 1 || read == MaxRevisions {
			break
		}
		before, err := h.Revision(ctx, at.Number-1)
		if errors.Is(err, tko.ErrNotFound) || err == nil && before.UID != at.UID {
			break
		}
		if err != nil {
			return merge.Leaf{}, err
		}
		at = before
	}
	return merge.Leaf{}, noField(newest, types, field)
}

func examplesOf(leaves []merge.Leaf) string {
	var names []string
	for _, l := range leaves[:min(len(leaves), maxNamed)] {
		names = append(names, "'"+leafText(l)+"'")
	}
	return strings.Join(names, ", ")
}

// noField returns the error for a field that a package doesn't have. It names fields
// that end equally.
func noField(r Revision, types merge.Types, field string) error {
	_, path, ok := strings.Cut(field, `" `)
	if !ok {
		path = field
	}
	var near []merge.Leaf
	for _, l := range merge.Leaves(r.Package, types) {
		if text := merge.PathText(l.Path); text == path || strings.HasSuffix(text, "."+path) {
			near = append(near, l)
		}
	}
	if len(near) > 0 {
		return tko.Errorf(tko.ErrNotFound, "there is no field %.200q: name one of %s", field, examplesOf(near))
	}
	return tko.Errorf(tko.ErrNotFound, "there is no field %.200q: name a resource and a path, for example %s", field, examplesOf(merge.Leaves(r.Package, types)))
}

// leafText returns, for example, `apps/v1 Deployment "smf" spec.replicas`.
func leafText(l merge.Leaf) string { return l.Resource.String() + " " + merge.PathText(l.Path) }

// fieldFilter returns which leaves a text names: a resource, or a place in one.
func fieldFilter(field string) func(merge.Leaf) bool {
	return func(l merge.Leaf) bool {
		rest, ok := strings.CutPrefix(leafText(l), field)
		return ok && (field == "" || rest == "" || rest[0] == ' ' || rest[0] == '.' || rest[0] == '[')
	}
}

// valueText returns a value as JSON of so many bytes at most; "" if it is missing.
func valueText(v merge.Value, limit int) string {
	if !v.Present {
		return ""
	}
	data, err := json.Marshal(v.V)
	text := string(data)
	if err != nil {
		text = fmt.Sprint(v.V)
	}
	return printable.Short(text, limit)
}
