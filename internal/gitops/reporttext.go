package gitops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/internal/gitops/forge"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// A pullPlan is the plan of a pull request, or why it can't be one.
type pullPlan struct {
	preview *Preview
	invalid error
	plain   bool // changes are shown without values
}

// state returns the state of the status.
func (p pullPlan) state() string {
	if p.problem() != "" {
		return forge.Failure
	}
	return forge.Success
}

// problem returns why the status is a failure; "" if it isn't.
func (p pullPlan) problem() string {
	switch {
	case p.invalid != nil:
		return "invalid"
	case p.refused() != nil:
		return "refused by Open Source MANO"
	case p.held() > 0:
		return "needs an approval"
	case p.preview.Unasked:
		return "network services aren't compared"
	}
	return ""
}

func (p pullPlan) refused() error {
	if p.preview == nil || p.preview.OSM == nil {
		return nil
	}
	return osm.Join(p.preview.OSM.Refused)
}

// held returns the number of changes that wait for an approval.
func (p pullPlan) held() int {
	if p.preview == nil {
		return 0
	}
	n := len(p.preview.Plan.Held)
	if p.preview.OSM != nil && p.preview.OSM.Approval != nil {
		n += len(p.preview.OSM.Approval.Instances)
	}
	return n
}

// worthAComment reports whether a pull request without a comment gets one.
func (p pullPlan) worthAComment() bool {
	return p.invalid != nil || len(p.lines()) > 0 || p.problem() != ""
}

// line returns the description of the status.
func (p pullPlan) line() string {
	if p.invalid != nil {
		first, _, _ := strings.Cut(p.invalid.Error(), "\n")
		return "invalid: " + first
	}
	count := p.count()
	if problem := p.problem(); problem != "" {
		return problem + "; " + count
	}
	return count
}

// count returns the number of changes by their verbs.
func (p pullPlan) count() string {
	n := map[string]int{}
	for _, a := range p.preview.Plan.Actions {
		n[a.Verb]++
	}
	if p.preview.OSM != nil {
		for _, c := range p.preview.OSM.Changes {
			n[c.Action]++
		}
	}
	n["held"] = p.held()
	var parts []string
	for _, verb := range []string{plan.Create, plan.Update, plan.Adopt, plan.Delete, osm.ActionUpgrade, osm.ActionRecreate} {
		if n[verb] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[verb], verb))
		}
		delete(n, verb)
	}
	held := n["held"]
	delete(n, "held")
	others := 0
	for _, count := range n {
		others += count
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d others", others))
	}
	if held > 0 {
		parts = append(parts, fmt.Sprintf("%d wait for an approval", held))
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case p.preview.Unasked: // what isn't compared isn't unchanged
		return "nothing else would change"
	}
	return "nothing would change"
}

// lines returns the changes, each with its details.
func (p pullPlan) lines() (all []string) {
	add := func(verb, kind, name, file, reason string, details []string) {
		var line strings.Builder
		fmt.Fprintf(&line, "%s %s %q", verb, kind, name)
		for _, note := range []string{file, reason} {
			if note != "" {
				line.WriteString(" (" + note + ")")
			}
		}
		if !p.plain {
			for _, detail := range details {
				line.WriteString("\n    " + detail)
			}
		}
		all = append(all, line.String())
	}
	for _, a := range p.preview.Plan.Actions {
		reason := a.Reason
		if a.With > 0 {
			reason = strings.TrimPrefix(fmt.Sprintf("%s; and %d below it", reason, a.With), "; ")
		}
		add(a.Verb, string(a.Kind), a.Name, a.File, reason, a.Changes)
	}
	for _, a := range p.preview.Plan.Held {
		add(a.Verb, string(a.Kind), a.Name, a.File, "waits for an approval", nil)
	}
	if p.preview.OSM == nil {
		return all
	}
	for _, c := range p.preview.OSM.Changes {
		add(c.Action, osm.KindOf(c.What), c.Name, c.Source, c.Reason, plan.Bounded(slices.Values(c.Paths)))
	}
	if asks := p.preview.OSM.Approval; asks != nil {
		for _, name := range asks.Instances {
			add(osm.ActionDelete, osm.InstanceKind, name, "", "waits for an approval", nil)
		}
	}
	return all
}

// notes returns what else there is to say.
func (p pullPlan) notes() []string {
	all := slices.Clone(p.preview.Plan.Messages)
	if p.preview.Unasked {
		all = append(all, "not compared: the network services of Open Source MANO, because the connection isn't the one of the source; only removals are shown")
	}
	if p.preview.OSM != nil {
		for _, problem := range slices.Concat(p.preview.OSM.Refused, p.preview.OSM.Warnings) {
			all = append(all, fmt.Sprintf("%s: %s %q: %v", problem.Source, osm.KindOf(problem.What), problem.Name, problem.Err))
		}
	}
	return all
}

const maxNotes = 20

// markdown returns the text of the comment, of bounded size. What authors wrote is only in
// blocks of code: there it can't mention users, or look like a text of TKO.
func (p pullPlan) markdown(source, head string) string {
	title := fmt.Sprintf("**TKO: plan of source `%s` at %.12s**\n\n", strings.ReplaceAll(source, "`", "'"), head)
	if p.invalid != nil {
		return title + "The revision is invalid. As long as it is, the source would change nothing.\n\n" + block(strings.Split(p.invalid.Error(), "\n"), forge.MaxComment/2)
	}
	text := title + p.count() + ".\n"
	if problem := p.problem(); problem != "" {
		text = title + "**" + problem + "**: " + p.count() + ".\n"
	}
	if lines := p.lines(); len(lines) > 0 {
		text += "\n" + block(lines, forge.MaxComment/2)
	}
	if notes := p.notes(); len(notes) > 0 {
		if more := len(notes) - maxNotes; more > 0 {
			notes = append(notes[:maxNotes:maxNotes], fmt.Sprintf("and %d more", more))
		}
		text += "\n" + block(notes, forge.MaxComment/4)
	}
	return text
}

// block returns a block of code with as many texts as fit.
func block(texts []string, limit int) string {
	var b strings.Builder
	for i, text := range texts {
		text = printableLines(text)
		if b.Len()+len(text) > limit {
			if i == 0 {
				b.WriteString(printable.Short(text, limit/2) + "\n")
				i++
			}
			if more := len(texts) - i; more > 0 {
				fmt.Fprintf(&b, "and %d more\n", more)
			}
			break
		}
		b.WriteString(text + "\n")
	}
	fence := "```"
	for strings.Contains(b.String(), fence) {
		fence += "`"
	}
	return fence + "text\n" + b.String() + fence + "\n"
}

// printableLines returns a text of several lines without characters that control terminals.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = printable.Text(lines[i])
	}
	return strings.Join(lines, "\n")
}
