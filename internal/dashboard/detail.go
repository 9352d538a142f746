package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/sergi/go-diff/diffmatchpatch"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// Tabs of a detail.
const (
	tabWhy = iota
	tabPackage
	tabConditions
	tabHistory
	tabDiff
	tabTree
	tabRuns
	tabViews
)

var tabNames = []string{"why", "yaml", "conditions", "history", "diff", "tree", "runs", "views"}

// tabKeys are the keys that open tabs.
var tabKeys = map[string]int{"w": tabWhy, "y": tabPackage, "d": tabDiff, "H": tabHistory, "t": tabTree, "l": tabRuns}

// tabName returns the name of a tab: rollouts have their waves and their plan.
func tabName(kind tko.Kind, tab int) string {
	if kind == tko.KindRollout && tab == tabWhy {
		return "waves"
	}
	if kind == tko.KindRollout && tab == tabDiff {
		return "plan"
	}
	return tabNames[tab]
}

// tabsOf are the tabs of each kind.
var tabsOf = map[tko.Kind][]int{
	tko.KindDeployment: {tabWhy, tabPackage, tabConditions, tabHistory, tabDiff, tabTree, tabRuns},
	tko.KindSite:       {tabWhy, tabPackage, tabConditions, tabHistory, tabDiff, tabRuns},
	tko.KindTemplate:   {tabWhy, tabPackage, tabConditions, tabHistory, tabDiff},
	tko.KindPlugin:     {tabWhy, tabPackage, tabConditions, tabRuns},
	kindView:           {tabViews},
	tko.KindRollout:    {tabWhy, tabDiff, tabPackage, tabConditions, tabHistory},
}

// Limits of a detail.
const (
	maxRevisions = 20
	maxLines     = 100_000
	maxTrail     = 20
	listedFirst  = 12 // children of a group that are listed in a tree
	maxDepth     = 50 // ancestors in a tree
)

// A style is the look of a text.
type style int

const (
	plain style = iota
	strong
	faint
	added
	removed
	failing
	waiting
	working
	healthy
)

// styleOf are the styles of states; plain of others.
var styleOf = map[tko.State]style{tko.StateFailing: failing, tko.StateWaiting: waiting, tko.StateWorking: working, tko.StateHealthy: healthy}

// A line is a line of a detail. Enter opens what it names: an entity, or a list.
type line struct {
	text   string
	style  style
	kind   tko.Kind
	id     string
	filter string
	whole  bool     // it opens a list without a filter, too
	keys   []string // of metadata, that the list shows in columns
}

func (l line) opens() bool { return l.id != "" || l.filter != "" || l.whole }

// textLines returns the lines of a text, each after a prefix.
func textLines(prefix, text string, look style) []line {
	var lines []line
	for one := range strings.Lines(text) {
		lines = append(lines, line{text: prefix + printable.Text(strings.TrimSuffix(one, "\n")), style: look})
	}
	return lines
}

// A detail shows one entity.
type detail struct {
	kind tko.Kind
	id   string
	tab  int

	lines   []line
	shown   int // the tab whose lines these are, or -1
	loading bool
	stale   bool
	err     error

	top, cursor int
	search      string
	back        int // the revision that the difference ends with, counted from the newest
}

type contentMsg struct {
	kind  tko.Kind
	id    string
	tab   int
	back  int
	lines []line
	err   error
}

// show opens an entity. Its deletion shows as an error.
func (m *model) show(kind tko.Kind, id string, tab int) {
	if id == "" {
		return
	}
	if !slices.Contains(kinds, kind) {
		m.notice = fmt.Sprintf("a %s is not shown here: use %s", kind, command(kind, id))
		return
	}
	if !slices.Contains(tabsOf[kind], tab) {
		m.notice = fmt.Sprintf("a %s has no %s", kind, tabNames[tab])
		return
	}
	if m.detail != nil {
		m.trail = append(m.trail, m.detail)
		m.trail = m.trail[max(0, len(m.trail)-maxTrail):]
	}
	m.detail = &detail{kind: kind, id: id, tab: tab, shown: -1}
}

// back returns to the detail before, or to the list.
func (m *model) back() {
	m.detail = nil
	if len(m.trail) > 0 {
		m.detail = m.trail[len(m.trail)-1]
		m.detail.stale = true
		m.trail = m.trail[:len(m.trail)-1]
	}
}

func (m *model) fetchDetail(d *detail) tea.Cmd {
	if d.loading || d.shown == d.tab && !d.stale {
		return nil
	}
	d.loading, d.stale = true, false
	of := reading{server: m.server, zone: m.options.Location, kind: d.kind, id: d.id, tab: d.tab, back: d.back}
	return m.do(func(ctx context.Context) tea.Msg {
		lines, err := limited(ctx, m.options.Timeout, of.lines)
		return contentMsg{of.kind, of.id, of.tab, of.back, lines[:min(len(lines), maxLines)], err}
	})
}

func (m *model) content(msg contentMsg) {
	d := m.detail
	if d == nil || d.kind != msg.kind || d.id != msg.id {
		return
	}
	d.loading = false
	if d.tab != msg.tab || d.back != msg.back {
		return
	}
	d.err = msg.err
	if msg.err == nil {
		if d.shown != msg.tab {
			d.top, d.cursor = 0, 0
		}
		d.lines = msg.lines
	} else if d.shown != msg.tab {
		d.lines = nil
	}
	d.shown = msg.tab
	d.scroll(0, m.detailHeight())
}

// An entity is what the tabs of a detail show.
type entity struct {
	row   row
	stamp tko.Stamp
	pkg   krm.Package
	text  string // the package, or the settings of a plugin
}

var entities = filter.View[entity]{
	Deployment: func(d tko.Deployment) entity { return entity{row: deploymentRow(d), stamp: d.Stamp, pkg: d.Package} },
	Site:       func(x tko.Site) entity { return entity{row: siteRow(x), stamp: x.Stamp, pkg: x.Package} },
	Template:   func(x tko.Template) entity { return entity{row: templateRow(x), stamp: x.Stamp, pkg: x.Package} },
	Plugin:     func(p tko.Plugin) entity { return entity{row: pluginRow(p), stamp: p.Stamp, text: argumentsText(p)} },
	Rollout:    func(r tko.Rollout) entity { return entity{row: rolloutRow(r), stamp: r.Stamp, pkg: r.Package} },
}

func argumentsText(p tko.Plugin) string {
	var text strings.Builder
	text.WriteString("arguments:\n")
	for _, argument := range p.Arguments {
		fmt.Fprintf(&text, "- %q\n", argument)
	}
	return text.String()
}

func readEntity(ctx context.Context, s filter.Getter, kind tko.Kind, id string, revision int64) (entity, error) {
	e, err := entities.Get(ctx, s, kind, id, revision)
	if err != nil || len(e.pkg) == 0 {
		return e, err
	}
	encoded, err := krm.Encode(krm.YAML, e.pkg.ForDisplay())
	e.text = string(encoded)
	return e, err
}

// A reading is a tab of an entity that is read.
type reading struct {
	server Server
	zone   *time.Location
	kind   tko.Kind
	id     string
	tab    int
	back   int // revisions before the newest, of a diff
}

// lines reads the lines of the tab.
func (r reading) lines(ctx context.Context) ([]line, error) {
	s, zone, kind, id := r.server, r.zone, r.kind, r.id
	switch r.tab {
	case tabViews:
		return readViews(ctx, s)
	case tabHistory:
		return readHistory(ctx, s, zone, kind, id)
	case tabWhy:
		if kind == tko.KindRollout {
			return statusLines(ctx, s, zone, id)
		}
	case tabDiff:
		if kind == tko.KindRollout {
			return planLines(ctx, s, id)
		}
		return r.diff(ctx)
	case tabTree:
		return readTree(ctx, s, tko.DeploymentID(id))
	case tabRuns:
		return readRuns(ctx, s, zone, kind, id)
	}
	e, err := readEntity(ctx, s, kind, id, 0)
	if err != nil {
		return nil, err
	}
	switch r.tab {
	case tabPackage:
		return packageLines(e.text), nil
	case tabConditions:
		return conditionLines(e.stamp.Conditions, zone), nil
	}
	return whyLines(e, kind, zone), nil
}

func packageLines(text string) []line {
	if text == "" {
		return []line{{text: "There is no package.", style: faint}}
	}
	lines := textLines("", text, plain)
	for i, l := range lines {
		if strings.HasPrefix(l.text, "---") || strings.HasPrefix(strings.TrimSpace(l.text), "#") {
			lines[i].style = faint
		}
	}
	return lines
}

func stampText(t time.Time, zone *time.Location) string {
	if t.IsZero() {
		return "-"
	}
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

func conditionLines(conditions []tko.Condition, zone *time.Location) []line {
	if len(conditions) == 0 {
		return []line{{text: "There are no conditions yet.", style: faint}}
	}
	var lines []line
	for _, c := range conditions {
		look := plain
		if c.Status == tko.ConditionFalse {
			look = strong
		}
		lines = append(lines, line{text: printable.Text(fmt.Sprintf("%s: %s %s", c.Type, c.Status, c.Reason)), style: look})
		lines = append(lines, textLines("  ", c.Text(), plain)...)
		lines = append(lines, line{text: fmt.Sprintf("  since %s, at revision %d", stampText(c.LastTransition, zone), c.ObservedRevision), style: faint})
	}
	return lines
}

func whyLines(e entity, kind tko.Kind, zone *time.Location) []line {
	var lines []line
	if kind != tko.KindTemplate {
		s := e.row.summary
		title := string(s.State)
		if s.Reason != "" && s.State != tko.StateHealthy {
			title += ": " + s.Reason
		}
		lines = append(lines, line{text: printable.Text(title), style: styleOf[s.State]})
		if s.Message != "" && s.State != tko.StateHealthy {
			lines = append(lines, textLines("  ", s.Message, plain)...)
			lines = append(lines, line{text: "  since " + stampText(s.Since, zone), style: faint})
		}
		lines = append(lines, line{})
	}
	for _, text := range e.row.facts {
		l := line{text: printable.Text(text)}
		name, value, _ := strings.Cut(text, ": ")
		switch {
		case value == "-":
		case name == "Template":
			l.kind, l.id = tko.KindTemplate, value
		case name == "Site":
			l.kind, l.id = tko.KindSite, value
		case name == "Parent":
			l.kind, l.id = tko.KindDeployment, value
		case name == "Deployments" && kind == tko.KindSite:
			l.kind, l.filter = tko.KindDeployment, "site-id="+quoted(tko.LiteralPattern(e.row.id))
		case name == "Deployments" && kind == tko.KindTemplate:
			l.kind, l.filter = tko.KindDeployment, "template-id="+quoted(tko.LiteralPattern(e.row.id))
		}
		lines = append(lines, l)
	}
	lines = append(lines,
		line{text: printable.Text(fmt.Sprintf("Revision: %d by %s", e.stamp.Revision, cmp.Or(e.stamp.String(), "-")))},
		line{text: "Created: " + stampText(e.stamp.Created, zone)}, line{text: "Updated: " + stampText(e.stamp.Updated, zone)}, line{})
	return append(lines, conditionLines(e.stamp.Conditions, zone)...)
}

// readRuns returns the newest runs of plugins for an entity, or of a plugin, with the last lines
// that each has logged.
func readRuns(ctx context.Context, s Getter, zone *time.Location, kind tko.Kind, id string) ([]line, error) {
	found, err := s.PluginRuns(ctx, kind, id)
	if errors.Is(err, errors.ErrUnsupported) {
		return []line{{text: "This server is of an earlier version, and doesn't tell the runs of plugins.", style: faint}}, nil
	}
	if err != nil {
		return nil, err
	}
	lines := []line{
		{text: "The newest runs of plugins since this server has started. Preparers and", style: faint},
		{text: "schedulers in processes of their own have theirs in their logs.", style: faint},
	}
	if !found.Lines {
		lines = append(lines, line{text: "What plugins log is shown only with the right to the server's log.", style: faint})
	}
	lines = append(lines, line{})
	if len(found.Runs) == 0 {
		return append(lines, line{text: "No plugin has run for it."}), nil
	}
	for _, run := range found.Runs {
		title := fmt.Sprintf("%s  %s  %s", stampText(run.Began, zone), run.Result, strings.Replace(run.Plugin, "|", " ", 1))
		one := line{style: strong}
		if kind == tko.KindPlugin && run.ID != "" {
			title += fmt.Sprintf(" for %s %s", run.Kind, run.ID)
			one.kind, one.id = run.Kind, run.ID
		}
		if run.Result != "ok" && run.Result != "canceled" {
			one.style = failing
		}
		one.text = printable.Text(fmt.Sprintf("%s, %d ms", title, run.Took.Milliseconds()))
		lines = append(lines, one)
		lines = append(lines, textLines("  ", run.Error, failing)...)
		if run.More > 0 {
			lines = append(lines, line{text: fmt.Sprintf("  %s in the server's log", plural(run.More, "earlier line is", "earlier lines are")), style: faint})
		}
		for _, text := range run.Lines {
			lines = append(lines, textLines("  ", text, plain)...)
		}
		lines = append(lines, line{})
	}
	if found.More > 0 {
		lines = append(lines, line{text: plural(found.More, "older run is left out.", "older runs are left out."), style: faint})
	}
	return lines, nil
}

func quoted(value string) string {
	if strings.ContainsAny(value, " \t") {
		return `"` + value + `"`
	}
	return value
}

func readHistory(ctx context.Context, s Getter, zone *time.Location, kind tko.Kind, id string) ([]line, error) {
	e, err := readEntity(ctx, s, kind, id, 0)
	if err != nil {
		return nil, err
	}
	newest := e.stamp.Revision
	var lines []line
	for revision := newest; revision > max(0, newest-maxRevisions); revision-- {
		if revision < newest {
			if e, err = readEntity(ctx, s, kind, id, revision); errors.Is(err, tko.ErrNotFound) {
				lines = append(lines, line{text: fmt.Sprintf("%d  is no longer stored", revision), style: faint})
				continue
			} else if err != nil {
				return nil, err
			}
		}
		lines = append(lines, line{text: printable.Text(fmt.Sprintf("%d  %s  %s", revision, stampText(e.stamp.Updated, zone), e.stamp.Author))})
	}
	if newest > maxRevisions {
		lines = append(lines, line{text: fmt.Sprintf("and %d earlier ones", newest-maxRevisions), style: faint})
	}
	return lines, nil
}

// diff returns the difference between a revision, counted back from the newest, and
// the one before it.
func (r reading) diff(ctx context.Context) ([]line, error) {
	s, kind, id := r.server, r.kind, r.id
	newest, err := readEntity(ctx, s, kind, id, 0)
	if err != nil {
		return nil, err
	}
	to := max(1, newest.stamp.Revision-int64(r.back))
	e := newest
	if r.back > 0 {
		if e, err = readEntity(ctx, s, kind, id, to); err != nil {
			return nil, err
		}
	}
	lines := []line{{text: printable.Text(fmt.Sprintf("Revision %d of %d, %s by %s", to, newest.stamp.Revision, stampText(e.stamp.Updated, r.zone), e.stamp.Author)), style: strong}}
	if to == 1 {
		return append(lines, line{text: "It is the first one.", style: faint}), nil
	}
	before, err := readEntity(ctx, s, kind, id, to-1)
	if errors.Is(err, tko.ErrNotFound) {
		return append(lines, line{text: "The revision before it is no longer stored.", style: faint}), nil
	}
	if err != nil {
		return nil, err
	}
	changed := diffLines(before.text, e.text)
	if len(changed) == 0 {
		return append(lines, line{text: "The packages are equal.", style: faint}), nil
	}
	return append(lines, changed...), nil
}

// contextLines is the number of equal lines that are shown around a difference.
const contextLines = 3

// diffLines returns the lines that differ between two texts, with some around them.
func diffLines(before, after string) []line {
	d := diffmatchpatch.New()
	d.DiffTimeout = time.Second
	a, b, texts := d.DiffLinesToRunes(before, after)
	diffs := d.DiffCharsToLines(d.DiffMainRunes(a, b, false), texts)
	var lines []line
	for i, one := range diffs {
		switch one.Type {
		case diffmatchpatch.DiffDelete:
			lines = append(lines, textLines("- ", one.Text, removed)...)
		case diffmatchpatch.DiffInsert:
			lines = append(lines, textLines("+ ", one.Text, added)...)
		case diffmatchpatch.DiffEqual:
			if len(diffs) == 1 {
				return nil
			}
			parts := textLines("  ", one.Text, plain)
			from, to := contextLines, len(parts)-contextLines
			if i == 0 {
				from = 0
			}
			if i == len(diffs)-1 {
				to = len(parts)
			}
			if to-from < 2 { // their number would take as much place
				from, to = len(parts), len(parts)
			}
			for n, part := range parts {
				switch {
				case n < from || n >= to:
					lines = append(lines, part)
				case n == from:
					lines = append(lines, line{text: fmt.Sprintf("  (%d equal lines)", to-from), style: faint})
				}
			}
		}
	}
	return lines
}

// readTree returns the ancestors of a deployment, and its children in groups by
// template, the failing ones first.
func readTree(ctx context.Context, s Server, id tko.DeploymentID) ([]line, error) {
	d, err := s.Deployment(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	chain, seen := []tko.Deployment{d}, map[tko.DeploymentID]bool{d.ID: true}
	for parent := d.Parent; parent != "" && len(chain) < maxDepth && !seen[parent]; parent = chain[0].Parent {
		p, err := s.Deployment(ctx, parent, 0)
		if errors.Is(err, tko.ErrNotFound) {
			chain = slices.Insert(chain, 0, tko.Deployment{ID: parent})
			break
		}
		if err != nil {
			return nil, err
		}
		seen[parent] = true
		chain = slices.Insert(chain, 0, p)
	}
	var lines []line
	for depth, one := range chain {
		text := treeText(one)
		if one.Stamp.Revision == 0 {
			text = string(one.ID) + " (was not found)"
		}
		lines = append(lines, line{text: strings.Repeat("  ", depth) + printable.Text(text), style: styleOf[one.Summary().State], kind: tko.KindDeployment, id: string(one.ID)})
	}
	groups, order, total := map[tko.TemplateID]*treeGroup{}, []tko.TemplateID{}, 0
	most := maxScanned + 1
	for child, err := range s.Deployments(ctx, tko.DeploymentSelect{Parent: id}, tko.ListOptions{Window: tko.Window{Max: &most}}) {
		if err != nil {
			return nil, err
		}
		total++
		if total > maxScanned {
			break
		}
		g := groups[child.Template]
		if g == nil {
			g = &treeGroup{states: map[tko.State]int{}}
			groups[child.Template] = g
			order = append(order, child.Template)
		}
		g.add(child)
	}
	slices.Sort(order)
	indent := strings.Repeat("  ", len(chain))
	for _, template := range order {
		lines = append(lines, groups[template].lines(indent, id, template)...)
	}
	switch {
	case total > maxScanned:
		lines = append(lines, line{text: fmt.Sprintf("%sonly the first %d children were counted: enter opens all", indent, maxScanned), style: faint, kind: tko.KindDeployment, filter: "parent=" + string(id)})
	case total == 0:
		lines = append(lines, line{text: indent + "no children", style: faint})
	}
	return lines, nil
}

func treeText(d tko.Deployment) string {
	text := string(d.Summary().State) + "  " + cmp.Or(string(d.Template), string(d.ID))
	if d.Site != "" {
		text += " at " + string(d.Site)
	}
	return text
}

// A treeGroup is the children of a deployment that have the same template.
type treeGroup struct {
	count  int
	states map[tko.State]int
	first  []tko.Deployment // that are failing, or the first ones
}

func (g *treeGroup) add(d tko.Deployment) {
	g.count++
	state := d.Summary().State
	g.states[state]++
	d.Package = nil
	switch {
	case len(g.first) < listedFirst:
		g.first = append(g.first, d)
	case state == tko.StateFailing:
		if i := slices.IndexFunc(g.first, func(o tko.Deployment) bool { return o.Summary().State != tko.StateFailing }); i >= 0 {
			g.first[i] = d
		}
	}
}

func (g *treeGroup) lines(indent string, parent tko.DeploymentID, template tko.TemplateID) []line {
	var parts []string
	worst := tko.State("")
	for _, state := range tko.States() {
		if n := g.states[state]; n > 0 {
			if worst == "" {
				worst = state
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	children := "parent=" + string(parent)
	if template != "" {
		children += " template-id=" + quoted(tko.LiteralPattern(string(template)))
	}
	lines := []line{{
		text: printable.Text(fmt.Sprintf("%s%s: %d (%s)", indent, cmp.Or(string(template), "no template"), g.count, strings.Join(parts, ", "))), style: styleOf[worst], kind: tko.KindDeployment, filter: children,
	}}
	slices.SortStableFunc(g.first, func(a, b tko.Deployment) int {
		rank := func(d tko.Deployment) int { return slices.Index(tko.States(), d.Summary().State) }
		return rank(a) - rank(b)
	})
	for _, d := range g.first {
		lines = append(lines, line{text: indent + "  " + printable.Text(treeText(d)), style: styleOf[d.Summary().State], kind: tko.KindDeployment, id: string(d.ID)})
	}
	if more := g.count - len(g.first); more > 0 {
		lines = append(lines, line{text: fmt.Sprintf("%s  and %d more: enter opens all", indent, more), style: faint, kind: tko.KindDeployment, filter: children})
	}
	return lines
}

// scroll moves the cursor, and the view with it.
func (d *detail) scroll(by, height int) {
	d.cursor = max(0, min(d.cursor+by, len(d.lines)-1))
	d.top = max(0, min(d.top, d.cursor))
	if d.cursor >= d.top+height {
		d.top = d.cursor - height + 1
	}
}

// find moves to the next line with the searched text, in the direction step.
func (d *detail) find(step int, again bool, height int) bool {
	n := len(d.lines)
	from := 0
	if again {
		from = step
	}
	for k := range n {
		i := ((d.cursor+from+step*k)%n + n) % n
		if strings.Contains(strings.ToLower(d.lines[i].text), strings.ToLower(d.search)) {
			d.scroll(i-d.cursor, height)
			return true
		}
	}
	return false
}

func (m *model) detailKey(name string) tea.Cmd {
	d := m.detail
	if by, ok := moves(name, m.detailHeight()); ok {
		d.scroll(by, m.detailHeight())
		if name == "ctrl+d" {
			m.notice = halfPage
		}
		return nil
	}
	tabs := tabsOf[d.kind]
	at := slices.Index(tabs, d.tab)
	to, ok := tabKeys[name]
	if !ok {
		to = -1
	}
	switch name {
	case "esc", "backspace":
		m.back()
	case "tab", "right":
		to = tabs[(at+1)%len(tabs)]
	case "shift+tab", "left":
		to = tabs[(at+len(tabs)-1)%len(tabs)]
	case "/":
		m.line = newInput("/", d.search)
	case "n", "N":
		step := map[string]int{"n": 1, "N": -1}[name]
		if d.search == "" || !d.find(step, true, m.detailHeight()) {
			m.notice = "not found: " + d.search
		}
	case "[", "]":
		if d.tab == tabDiff {
			if name == "[" {
				d.back++
			} else {
				d.back = max(0, d.back-1)
			}
			d.stale = true
			break
		}
		m.notice = hint(name, "", "")
	case "c":
		return m.copy(d.id)
	case "C":
		return m.copy(command(d.kind, d.id))
	case "enter":
		m.follow()
	case "A", "D":
		if d.kind == kindView {
			m.notice = "views are deleted with tko view delete NAME"
			return nil
		}
		return m.planFor(actionKeys[name], d.kind, []string{d.id})
	case "R":
		m.startCommand(d.kind, d.id)
		return nil
	default:
		if to < 0 {
			m.notice = hint(name, string(d.kind), d.id)
		}
	}
	if to >= 0 {
		if !slices.Contains(tabs, to) {
			m.notice = fmt.Sprintf("a %s has no %s", d.kind, tabNames[to])
			return nil
		}
		d.tab = to
	}
	return nil
}

// command returns the command that shows an entity.
func command(kind tko.Kind, id string) string {
	if typ, name, ok := strings.Cut(id, "|"); ok {
		id = typ + " " + name
	}
	if kind == tko.KindRollout {
		return "tko rollout status " + id
	}
	if kind == kindView {
		return "tko view list"
	}
	return fmt.Sprintf("tko %s get %s", kind, id)
}

// follow opens what the line under the cursor names.
func (m *model) follow() {
	d := m.detail
	if d.cursor >= len(d.lines) || !d.lines[d.cursor].opens() {
		return
	}
	l := d.lines[d.cursor]
	if l.filter == "" && !l.whole {
		if l.kind != d.kind || l.id != d.id {
			m.show(l.kind, l.id, tabWhy)
		}
		return
	}
	if !m.query(l.kind, l.filter) {
		return
	}
	m.open(slices.Index(kinds, l.kind))
	if l.whole && l.kind != tko.KindPlugin {
		if err := m.list().setKeys(l.keys[:min(len(l.keys), maxKeys)]); err != nil {
			m.notice = err.Error()
		}
	}
}

func (m *model) detailClick(x, y int) tea.Cmd {
	if y == detailTabs {
		if tab, ok := m.detailTabAt(x); ok {
			m.detail.tab = tab
		}
		return nil
	}
	i := m.detail.top + y - detailBegin
	if y < detailBegin || y >= detailBegin+m.detailHeight() || i >= len(m.detail.lines) {
		return nil
	}
	if i == m.detail.cursor {
		m.follow()
		return nil
	}
	m.detail.scroll(i-m.detail.cursor, m.detailHeight())
	return nil
}
