package dashboard

import (
	"cmp"
	"context"
	"iter"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// A Server has the methods of the client that the dashboard uses.
type Server interface {
	filter.Lister
	Getter
	Changer
	Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error]
	// WatchNewest begins with the newest n changes up to a position.
	WatchNewest(ctx context.Context, position int64, n uint32, kinds ...tko.Kind) iter.Seq2[tko.Change, error]
}

// A Getter reads one entity, and the progress and plan of a rollout.
type Getter interface {
	filter.Getter
	Self
	RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error)
	RolloutPlan(ctx context.Context, id tko.RolloutID) (tko.RolloutPlan, error)
	PluginRuns(ctx context.Context, kind tko.Kind, id string) (tko.PluginRuns, error)
	Views(ctx context.Context) ([]tko.View, error)
}

// Self describes the server and the caller.
type Self interface {
	About(ctx context.Context) (tko.About, error)
	WhoAmI(ctx context.Context) (tko.Caller, error)
}

// A Changer changes entities. A dry run only counts.
type Changer interface {
	Remover
	ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error)
	ApproveDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (approved int, err error)
	RolloutDo(ctx context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error)
}

// A Remover deletes entities. A dry run only counts.
type Remover interface {
	PurgeDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (tko.Deleted, error)
	PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error)
	PurgeTemplates(ctx context.Context, sel tko.TemplateSelect, dryRun bool) (tko.Deleted, error)
	RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error)
	DeleteRollout(ctx context.Context, id tko.RolloutID) error
}

// Limits of what one request reads.
const (
	pageRows   = 200
	maxScanned = 10_000 // rows that one page with a state, or one count, reads
	enoughRead = 1000   // rows that such a page reads if it has found some
)

// kinds are the tabs that are lists.
var kinds = []tko.Kind{tko.KindDeployment, tko.KindSite, tko.KindTemplate, tko.KindPlugin, tko.KindRollout}

// A query is what a list shows.
type query struct {
	line   string
	filter filter.Filter
	state  tko.State
	reason string
}

// parseQuery reads a filter line. The words are those of the command's lists, and
// state and reason.
func parseQuery(kind tko.Kind, line string) (query, error) {
	values, err := filter.Query(line)
	if err != nil {
		return query{}, err
	}
	f, err := filter.Parse(kind, values, "state", "reason")
	if err != nil {
		return query{}, err
	}
	q := query{line: filter.Line(kind, values), filter: f, state: tko.State(values.Get("state")), reason: values.Get("reason")}
	if kind == tko.KindTemplate && (q.state != "" || q.reason != "") {
		return query{}, tko.Errorf(tko.ErrInvalid, "templates have no state: leave out state and reason")
	}
	if q.state != "" && !slices.Contains(tko.States(), q.state) {
		return query{}, tko.Errorf(tko.ErrInvalid, "state=%.40q is unknown: use failing, waiting, working, unknown or healthy", string(q.state))
	}
	return q, nil
}

// with returns the line of the query with one word replaced; "" removes it.
func (q query) with(name, value string) string {
	values, err := filter.Query(q.line)
	if err != nil {
		values = url.Values{}
	}
	values.Del(name)
	if value != "" {
		values.Set(name, value)
	}
	return filter.Line(q.filter.Kind(), values)
}

func (q query) matches(s tko.Summary) bool {
	return (q.state == "" || s.State == q.state) && (q.reason == "" || s.Reason == q.reason)
}

// A row is a row of a list.
type row struct {
	id         string
	summary    tko.Summary
	cells      []string // in the columns of its kind
	metadata   map[string]string
	changed    time.Time
	conditions []tko.Condition
	facts      []string // for the pane next to the list
}

// rows are the rows of lists.
var rows = filter.View[row]{Deployment: deploymentRow, Site: siteRow, Template: templateRow, Plugin: pluginRow, Rollout: rolloutRow}

func why(s tko.Summary) string {
	if s.State == tko.StateHealthy || s.State == "" {
		return ""
	}
	return printable.Text(strings.TrimSuffix(s.Reason+": "+s.Message, ": "))
}

func metadataText(metadata map[string]string) string {
	var parts []string
	for key, value := range metadata {
		parts = append(parts, key+"="+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func fact(name, value string) string { return name + ": " + cmp.Or(value, "-") }

// detailFacts returns the details that are set.
func detailFacts(d tko.Details) (facts []string) {
	for _, f := range tko.DetailFields() {
		if text := *f.In(&d); text != "" {
			facts = append(facts, fact(strings.ToUpper(f.Name[:1])+f.Name[1:], text))
		}
	}
	return facts
}

func deploymentRow(d tko.Deployment) row {
	s := d.Summary()
	return row{
		id: string(d.ID), summary: s, cells: []string{string(d.Template), string(d.Site), why(s)}, metadata: d.Metadata, changed: d.Stamp.Updated, conditions: d.Stamp.Conditions,
		facts: []string{
			fact("Template", string(d.Template)), fact("Site", string(d.Site)), fact("Parent", string(d.Parent)),
			fact("Prepared", strconv.FormatBool(d.Prepared)) + ", approved: " + strconv.FormatBool(d.Approved), fact("Metadata", metadataText(d.Metadata)),
		},
	}
}

func siteRow(x tko.Site) row {
	s := x.Summary()
	return row{
		id: string(x.ID), summary: s, cells: []string{string(x.ID), string(x.Template), strconv.Itoa(x.DeploymentCount), why(s)}, metadata: x.Metadata, changed: x.Stamp.Updated, conditions: x.Stamp.Conditions,
		facts: append(detailFacts(x.Details), fact("Template", string(x.Template)), fact("Deployments", strconv.Itoa(x.DeploymentCount)), fact("Metadata", metadataText(x.Metadata))),
	}
}

func templateRow(x tko.Template) row {
	metadata := metadataText(x.Metadata)
	return row{
		id: string(x.ID), cells: []string{string(x.ID), strconv.Itoa(x.DeploymentCount), metadata}, metadata: x.Metadata, changed: x.Stamp.Updated, conditions: x.Stamp.Conditions,
		facts: append(detailFacts(x.Details), fact("Deployments", strconv.Itoa(x.DeploymentCount)), fact("Metadata", metadata)),
	}
}

func pluginRow(p tko.Plugin) row {
	s := p.Summary()
	var triggers []string
	for _, gvk := range p.Triggers {
		triggers = append(triggers, strings.TrimPrefix(gvk.Group+"/"+gvk.Version+","+gvk.Kind, "/"))
	}
	return row{
		id: p.ID(), summary: s, cells: []string{p.Type, p.Name, p.Executor, why(s)}, changed: p.Stamp.Updated, conditions: p.Stamp.Conditions,
		facts: []string{fact("Executor", p.Executor), fact("Triggers", strings.Join(triggers, " "))},
	}
}

func rolloutRow(r tko.Rollout) row {
	s := r.Summary()
	return row{
		id: string(r.ID), summary: s, cells: []string{string(r.ID), r.State, printable.Text(s.Message)}, metadata: r.Metadata, changed: r.Stamp.Updated, conditions: r.Stamp.Conditions,
		facts: []string{fact("Metadata", metadataText(r.Metadata))},
	}
}

// compareIDs compares IDs in the order of lists.
func compareIDs(a, b string) int {
	return strings.Compare(strings.Replace(a, "|", "\x00", 1), strings.Replace(b, "|", "\x00", 1))
}

// A page is a part of a list: the rows after an ID, up to and with another one.
type page struct {
	after string
	next  string // the ID that the next page is after; "" at the end of the list
	rows  []row
	stale bool // an entity in its range has changed
}

// covers reports whether an ID is in the range of the page.
func (p page) covers(id string) bool {
	return compareIDs(id, p.after) > 0 && (p.next == "" || compareIDs(id, p.next) <= 0)
}

// readPage reads the rows after an ID, up to and with the ID until if that isn't "".
// It reads a limited number of rows; if there are more, the page has a next one.
func readPage(ctx context.Context, s filter.Lister, q query, after, until string) (page, error) {
	p, scanned := page{after: after}, 0
	size, most := pageRows, pageRows+1
	if until != "" {
		size, most = 4*pageRows, 4*pageRows+1
	}
	if q.state != "" || q.reason != "" {
		most = maxScanned + 1
	}
	last := after
	for r, err := range rows.List(ctx, s, q.filter, tko.ListOptions{Window: tko.Window{After: after, Max: &most}}) {
		switch {
		case err != nil:
			return page{}, err
		case until != "" && compareIDs(r.id, until) > 0:
			p.next = until
			return p, nil
		case len(p.rows) == size || scanned == maxScanned || most > maxScanned && scanned >= enoughRead && len(p.rows) > 0:
			p.next = last
			return p, nil
		}
		scanned++
		last = r.id
		if q.matches(r.summary) {
			p.rows = append(p.rows, r)
		}
	}
	return p, nil
}

// maxProbes limits the requests that look for a place in a list.
const maxProbes = 80

// readBack returns the last page before the ID until, or of the whole list if that is "";
// it begins after the ID after, or later. Lists are read forwards only, so the range of
// IDs is halved until what is left fits into a page. starts are the IDs that the probes
// before it began after, in their order.
func readBack(ctx context.Context, s filter.Lister, q query, after, until string) (p page, starts []string, err error) {
	low, high := after, until
	if high == "" {
		high = strings.Repeat("~", 4) // above all IDs
	}
	middle := after
	for range maxProbes {
		if p, err = readPage(ctx, s, q, middle, until); err != nil {
			return page{}, nil, err
		}
		switch {
		case p.next == until && (len(p.rows) > 0 || middle == after):
			return p, starts, nil
		case p.next == until:
			high = middle
		default:
			starts, low = append(starts, middle), p.next
		}
		next := between(low, high)
		if next == middle { // no ID is between them: what follows low is all
			next = low
		}
		middle = next
	}
	return page{}, nil, tko.Errorf(tko.ErrInvalid, "the end of the list was not found with %d requests: set a filter", maxProbes)
}

// between returns a text in the middle between two texts of printable ASCII.
func between(low, high string) string {
	const first, base = ' ', 95
	digits := max(len(low), len(high)) + 1
	number := func(text string) *big.Int {
		n := new(big.Int)
		for i := range digits {
			digit := int64(0)
			if i < len(text) {
				digit = int64(min(max(int(text[i])-first, 0), base-1))
			}
			n.Add(n.Mul(n, big.NewInt(base)), big.NewInt(digit))
		}
		return n
	}
	n := number(low)
	n.Rsh(n.Add(n, number(high)), 1)
	text := make([]byte, digits)
	for i := digits - 1; i >= 0; i-- {
		var digit big.Int
		n.DivMod(n, big.NewInt(base), &digit)
		text[i] = byte(first + digit.Int64()) //nolint:gosec // a digit is less than the base
	}
	return strings.TrimRight(string(text), " ")
}

// A tally is the number of a query's entities in each state.
type tally struct {
	total  int
	more   bool // only the first ones were counted
	states map[tko.State]int
}

func countStates(ctx context.Context, s filter.Lister, q query) (tally, error) {
	t, most := tally{states: map[tko.State]int{}}, maxScanned+1
	for r, err := range rows.List(ctx, s, q.filter, tko.ListOptions{Window: tko.Window{Max: &most}}) {
		if err != nil {
			return tally{}, err
		}
		if t.total == maxScanned {
			t.more = true
			break
		}
		t.total++
		t.states[r.summary.State]++
	}
	return t, nil
}
