package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// A dialog asks before an action. The key that confirms it is never the one that has
// begun it: one entity without descendants needs the word yes, more need their count.
type dialog struct {
	action
	counted bool
	result  tko.Deleted
	seen    seen
	input   *input
	reason  *input
	// explaining is true while keys go to the reason, not to the confirmation.
	explaining bool
	running    bool
	err        error
}

// A seen is what the user has read of a rollout before its command.
type seen struct {
	plan string // digest
	wave string // name of the wave that waits for an approval, or ""
	text string // what will happen
}

// An action is a change of the entities with some IDs, or of all that a query selects.
type action struct {
	verb  string // approve or delete, or a command of a rollout
	kind  tko.Kind
	ids   []string
	query *query
}

type (
	planMsg struct {
		dialog *dialog
		result tko.Deleted
		seen   seen
		err    error
	}
	doneMsg struct {
		dialog *dialog
		result tko.Deleted
		err    error
	}
)

// actionKeys are the keys that begin actions.
var actionKeys = map[string]string{"A": "approve", "D": "delete"}

// plan counts what an action would change, and asks.
func (m *model) plan(verb string, l *list) tea.Cmd {
	if l.all {
		q := l.query
		return m.ask(action{verb: verb, kind: l.kind, query: &q})
	}
	return m.planFor(verb, l.kind, l.chosen())
}

func (m *model) planFor(verb string, kind tko.Kind, ids []string) tea.Cmd {
	if len(ids) == 0 {
		return nil
	}
	return m.ask(action{verb: verb, kind: kind, ids: ids})
}

func (m *model) ask(a action) tea.Cmd {
	if a.verb == "approve" && a.kind != tko.KindDeployment && a.kind != tko.KindRollout {
		m.notice = "only deployments and waves of rollouts can be approved"
		return nil
	}
	d := &dialog{action: a, input: newInput("", ""), reason: newInput("", "")}
	m.dialog = d
	return m.do(func(ctx context.Context) tea.Msg {
		if a.kind == tko.KindRollout {
			result, s, err := a.foresee(ctx, m.server)
			return planMsg{d, result, s, err}
		}
		result, err := a.run(ctx, m.server, true, 0)
		return planMsg{d, result, seen{}, err}
	})
}

func (m *model) planned(msg planMsg) {
	if m.dialog == msg.dialog {
		m.dialog.counted, m.dialog.result, m.dialog.seen, m.dialog.err = msg.err == nil, msg.result, msg.seen, msg.err
	}
}

func (m *model) done(msg doneMsg) {
	verb := "approved"
	if msg.dialog.verb == "delete" {
		verb = "deleted"
	}
	if m.dialog == msg.dialog {
		m.dialog.running = false
		m.dialog.err = msg.err
		if msg.err != nil {
			m.dialog.counted = false
			return
		}
		m.dialog = nil
		l := m.listOf(msg.dialog.kind)
		l.marks, l.all = map[string]bool{}, false
	}
	m.notice = verb + " " + amount(msg.result.Count, msg.dialog.kind)
	if msg.dialog.kind == tko.KindRollout {
		m.notice = fmt.Sprintf("rollout %s: %s is done", msg.dialog.ids[0], msg.dialog.verb)
	}
	if msg.err != nil {
		m.notice = msg.err.Error()
	}
}

func amount(n int, kind tko.Kind) string { return plural(n, string(kind), string(kind)+"s") }

// expected returns what the user must type.
func (d *dialog) expected() string {
	if d.result.Count == 1 && d.query == nil {
		return "yes"
	}
	return strconv.Itoa(d.result.Count)
}

func (m *model) dialogKey(k tea.KeyPressMsg) tea.Cmd {
	d := m.dialog
	switch k.String() {
	case "esc":
		if d.running {
			m.notice = "the action goes on"
		}
		m.dialog = nil
	case "tab":
		d.explaining = d.counted && !d.running && !d.explaining
	case "enter":
		if d.explaining {
			d.explaining = false
			return nil
		}
		if !d.counted || d.running || d.result.Count == 0 || d.input.text() != d.expected() {
			return nil
		}
		d.running = true
		a, confirmed, s, why := d.action, d.result.Reach(), d.seen, strings.TrimSpace(d.reason.text())
		return m.do(func(ctx context.Context) tea.Msg {
			if why != "" {
				author := tko.AuthorOf(ctx)
				author.Why = why
				ctx = tko.WithAuthor(ctx, author)
			}
			if a.kind == tko.KindRollout {
				result, err := a.command(ctx, m.server, s)
				return doneMsg{d, result, err}
			}
			result, err := a.run(ctx, m.server, false, confirmed)
			return doneMsg{d, result, err}
		})
	default:
		switch {
		case !d.counted || d.running:
		case d.explaining:
			d.reason.key(k)
		default:
			d.input.key(k)
		}
	}
	return nil
}

// run carries out the action, or counts what it would change. The server refuses it if
// the count is no longer the confirmed one.
func (a action) run(ctx context.Context, s Server, dryRun bool, confirmed int) (tko.Deleted, error) {
	if a.query != nil {
		if confirmed > 0 {
			ctx = tko.WithConfirmation(ctx, confirmed)
		}
		return a.runQuery(ctx, s, dryRun)
	}
	if !dryRun {
		now, err := a.run(ctx, s, true, 0)
		if err != nil {
			return now, err
		}
		if now.Reach() != confirmed {
			return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "this would now %s %d, but %d were confirmed: nothing was changed; look at them again", a.verb, now.Reach(), confirmed)
		}
	}
	var sum tko.Deleted
	for _, id := range a.ids {
		one, err := a.runOne(ctx, s, id, dryRun)
		if errors.Is(err, tko.ErrNotFound) { // it went with its parent, or another client deleted it
			continue
		}
		if err != nil && sum.Count > 0 && !dryRun {
			err = fmt.Errorf("%s were changed before this error: %w", amount(sum.Count, a.kind), err)
		}
		if err != nil {
			return sum, err
		}
		sum.Count += one.Count
		sum.Descendants += one.Descendants
		sum.Orphaned += one.Orphaned
	}
	return sum, nil
}

func (a action) runOne(ctx context.Context, s Server, id string, dryRun bool) (tko.Deleted, error) {
	if a.verb == "delete" {
		would, err := s.RemoveEntity(ctx, a.kind, id, true)
		if err != nil || dryRun {
			return would, err
		}
		return s.RemoveEntity(tko.WithConfirmation(ctx, would.Reach()), a.kind, id, false)
	}
	d, err := s.Deployment(ctx, tko.DeploymentID(id), 0)
	if err != nil || !d.Prepared || d.Approved {
		return tko.Deleted{}, err
	}
	if dryRun {
		return tko.Deleted{Count: 1}, nil
	}
	n, err := s.ApproveDeployment(ctx, tko.DeploymentID(id))
	return tko.Deleted{Count: n}, err
}

func (a action) runQuery(ctx context.Context, s Changer, dryRun bool) (tko.Deleted, error) {
	f := a.query.filter
	if f.IsEmpty() {
		return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "the filter is empty: it would select everything")
	}
	if a.verb == "approve" {
		n, err := s.ApproveDeployments(ctx, f.Deployments(), dryRun)
		return tko.Deleted{Count: n}, err
	}
	switch a.kind {
	case tko.KindDeployment:
		return s.PurgeDeployments(ctx, f.Deployments(), dryRun)
	case tko.KindSite:
		return s.PurgeSites(ctx, f.Sites(), dryRun)
	case tko.KindTemplate:
		return s.PurgeTemplates(ctx, f.Templates(), dryRun)
	case tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription: // they are marked, or not listed
	}
	return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "plugins are deleted by their names only: mark them")
}

// lines returns the text of the dialog.
func (d *dialog) lines() []line {
	verb := strings.ToUpper(d.verb[:1]) + d.verb[1:]
	lines := []line{{text: verb + " " + d.what(), style: strong}, {}}
	switch {
	case d.err != nil:
		lines = append(lines, textLines("", errorText(d.err), failing)...)
		return append(lines, line{}, line{text: "esc closes this"})
	case d.running:
		return append(lines, line{text: "working…"}, line{text: "esc leaves it working", style: faint})
	case !d.counted:
		return append(lines, line{text: "counting…"}, line{text: "esc cancels", style: faint})
	case d.result.Count == 0 && d.verb == "approve":
		return append(lines, line{text: "Nothing to approve: none is prepared and waits for an approval."}, line{}, line{text: "esc closes this"})
	case d.result.Count == 0:
		return append(lines, line{text: "There is nothing to delete any more."}, line{}, line{text: "esc closes this"})
	}
	would := fmt.Sprintf("This will %s %s.", d.verb, amount(d.result.Count, d.kind))
	if d.result.Descendants > 0 {
		would = fmt.Sprintf("This will %s %s, %d of them descendants.", d.verb, amount(d.result.Count, d.kind), d.result.Descendants)
	}
	if d.seen.text != "" {
		would = d.seen.text
	}
	reason, confirm := "  Reason: ", "> "
	if d.explaining {
		reason, confirm = "> Reason: ", "  "
	}
	return append(lines, line{text: would}, line{}, line{text: printable.Text(reason + d.reason.text())},
		line{text: fmt.Sprintf("%sType %s and press enter, or esc to cancel: %s", confirm, d.expected(), d.input.text())}, line{text: "  tab changes the line", style: faint})
}

func (d *dialog) what() string {
	switch {
	case d.query != nil:
		return printable.Text("all " + string(d.kind) + "s that match " + d.query.line)
	case len(d.ids) == 1:
		return printable.Text(string(d.kind) + " " + d.ids[0])
	}
	return amount(len(d.ids), d.kind) + " that are marked"
}
