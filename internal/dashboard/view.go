package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// Lines of the screen.
const (
	listBegin   = 5 // the first row of a list: below header, tabs, counts, filter and names of columns
	listBelow   = 2 // status and keys
	detailTabs  = 3
	detailBegin = 4
	leastWidth  = 40
	leastHeight = 10
	wide        = 120 // columns from which a list has a pane next to it
)

func (m *model) listHeight() int   { return max(1, m.height-listBegin-listBelow) }
func (m *model) detailHeight() int { return max(1, m.height-detailBegin-listBelow) }

// A column of a list. Its width is a share of what is left by the fixed ones.
type tableColumn struct {
	name  string
	cell  int // of the row; or one of those below
	width int // fixed, or 0
	share int
	key   string // of metadata
}

// Cells that are made by the view.
const (
	cellState    = -1
	cellChanged  = -2
	cellMetadata = -3
)

// maxKeys limits the keys of metadata that a list shows in columns.
const maxKeys = 8

// columns returns the columns of the list: those of its kind, and the keys of metadata that the user wants, next to the IDs.
func (l *list) columns() []tableColumn {
	all := slices.Clone(columns[l.kind])
	named := slices.IndexFunc(all, func(c tableColumn) bool { return c.share == 4 }) // WHY, or all metadata
	for i, key := range l.keys {
		all = slices.Insert(all, named+i, tableColumn{name: strings.ToUpper(key), cell: cellMetadata, share: 2, key: key})
	}
	return all
}

// setKeys shows keys of metadata in columns.
func (l *list) setKeys(keys []string) error {
	switch {
	case l.kind == tko.KindPlugin:
		return tko.Errorf(tko.ErrInvalid, "plugins have no metadata: open another list first")
	case len(keys) > maxKeys:
		return tko.Errorf(tko.ErrInvalid, "%d keys are too many for columns: name at most %d", len(keys), maxKeys)
	}
	l.keys, l.sort, l.sorted = keys, 0, false
	l.arrange()
	return nil
}

var columns = map[tko.Kind][]tableColumn{
	tko.KindDeployment: {{"STATE", cellState, 9, 0, ""}, {"TEMPLATE", 0, 0, 3, ""}, {"SITE", 1, 0, 3, ""}, {"WHY", 2, 0, 4, ""}, {"CHANGED", cellChanged, 7, 0, ""}},
	tko.KindSite:       {{"STATE", cellState, 9, 0, ""}, {"SITE", 0, 0, 3, ""}, {"TEMPLATE", 1, 0, 3, ""}, {"DEPLOYMENTS", 2, 11, 0, ""}, {"WHY", 3, 0, 4, ""}, {"CHANGED", cellChanged, 7, 0, ""}},
	tko.KindTemplate:   {{"STATE", cellState, 0, 0, ""}, {"TEMPLATE", 0, 0, 3, ""}, {"DEPLOYMENTS", 1, 11, 0, ""}, {"METADATA", 2, 0, 4, ""}, {"CHANGED", cellChanged, 7, 0, ""}},
	tko.KindPlugin:     {{"STATE", cellState, 9, 0, ""}, {"TYPE", 0, 0, 2, ""}, {"NAME", 1, 0, 4, ""}, {"EXECUTOR", 2, 0, 2, ""}, {"WHY", 3, 0, 4, ""}, {"CHANGED", cellChanged, 7, 0, ""}},
	tko.KindRollout:    {{"STATE", cellState, 9, 0, ""}, {"ROLLOUT", 0, 0, 3, ""}, {"PROGRESS", 1, 9, 0, ""}, {"WHY", 2, 0, 4, ""}, {"CHANGED", cellChanged, 7, 0, ""}},
}

// fit cuts or pads a text to a width. It may have styles.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	n := ansi.StringWidth(text)
	if n > width {
		text = ansi.Truncate(text, width, "…")
		n = ansi.StringWidth(text)
	}
	return text + strings.Repeat(" ", width-n)
}

// paint returns a text in a style.
func (m *model) paint(s style, text string) string {
	codes := map[style]string{strong: "1", faint: "2"}
	if m.options.Color {
		codes = map[style]string{strong: "1", faint: "2", added: "32", removed: "31", failing: "31", waiting: "33", working: "34", healthy: "32"}
	}
	if s == failing && !m.options.Color {
		s = strong
	}
	code := codes[s]
	if code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func reverse(text string) string { return "\x1b[7m" + text + "\x1b[0m" }

// glyph returns the sign of a state. A word is always next to it.
func (m *model) glyph(s tko.State) string {
	signs := map[tko.State]string{tko.StateFailing: "▲", tko.StateWaiting: "◐", tko.StateWorking: "◔", tko.StateHealthy: "●", tko.StateUnknown: "○"}
	if m.options.ASCII {
		signs = map[tko.State]string{tko.StateFailing: "X", tko.StateWaiting: "!", tko.StateWorking: "~", tko.StateHealthy: "+", tko.StateUnknown: "?"}
	}
	return signs[s]
}

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen, v.WindowTitle = true, "TKO "+printable.Text(m.about.InstanceName)
	if m.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}

// screen returns the lines of the screen, each as wide as the window.
func (m *model) screen() []string {
	var lines []string
	switch {
	case m.width < leastWidth || m.height < leastHeight:
		lines = []string{fmt.Sprintf("make the window at least %dx%d", leastWidth, leastHeight)}
	case m.help:
		lines = m.helpLines()
	case m.detail != nil:
		lines = m.detailLines()
	case m.list() != nil:
		lines = m.listLines()
	default:
		lines = m.eventLines()
	}
	if m.dialog != nil && m.width >= leastWidth {
		m.overlay(lines)
	}
	for len(lines) < m.height {
		lines = append(lines, "")
	}
	lines = lines[:m.height]
	for i := range lines {
		lines[i] = fit(lines[i], m.width)
	}
	if m.options.ASCII {
		for i := range lines {
			lines[i] = strings.NewReplacer("…", "~", "│", "|", "─", "-").Replace(lines[i])
		}
	}
	return lines
}

func (m *model) header() []string {
	state := m.paint(healthy, "live")
	if !m.live {
		state = m.paint(failing, "not live since "+m.liveSince.In(m.options.Location).Format("15:04:05"))
	}
	left := fmt.Sprintf(" %s %s  %s, position %d", m.paint(strong, "TKO"), printable.Text(m.about.InstanceName), state, m.position)
	right := printable.Text(cmp.Or(m.me.Display, m.me.Subject)) + " "
	space := m.width - ansi.StringWidth(left) - ansi.StringWidth(right)
	if space > 0 {
		left += strings.Repeat(" ", space) + right
	}
	return []string{left, tabsLine(m.tabNames(), m.tab)}
}

// tabsLine returns the names of tabs. The current one is marked without colors, too.
func tabsLine(names []string, current int) string {
	if current >= 0 {
		names[current] = reverse("[" + strings.TrimSpace(names[current]) + "]")
	}
	return strings.Join(names, "")
}

func (m *model) tabNames() []string {
	names := make([]string, 0, eventsTab+1)
	for i, kind := range kinds {
		names = append(names, fmt.Sprintf(" %d %s ", i+1, strings.ToUpper(string(kind[:1]))+string(kind[1:])+"s"))
	}
	return append(names, fmt.Sprintf(" %d Events ", eventsTab+1))
}

// nameAt returns the name at a column of a line that has all names one after another.
func nameAt(names []string, x int) (int, bool) {
	for i, name := range names {
		x -= ansi.StringWidth(name)
		if x < 0 {
			return i, true
		}
	}
	return 0, false
}

func (m *model) tabAt(x int) (int, bool) { return nameAt(m.tabNames(), x) }

func (m *model) detailNames() []string {
	var names []string
	for _, tab := range tabsOf[m.detail.kind] {
		names = append(names, " "+tabName(m.detail.kind, tab)+" ")
	}
	return names
}

func (m *model) detailTabAt(x int) (int, bool) {
	i, ok := nameAt(m.detailNames(), x)
	return tabsOf[m.detail.kind][i], ok
}

func (m *model) listLines() []string {
	l := m.list()
	lines := append(m.header(), m.tallyLine(l), m.filterLine(l))
	width := m.width
	paned := m.width >= wide
	if paned {
		width = m.width * 3 / 5
	}
	shown := columnWidths(l.columns(), width-2)
	var names strings.Builder
	names.WriteString("  ")
	for i, c := range l.columns() {
		if shown[i] == 0 {
			continue
		}
		name := c.name
		if l.order() == i+1 {
			name += "^"
		}
		names.WriteString(fit(name, shown[i]) + " ")
	}
	body := []string{m.paint(strong, fit(names.String(), width))}
	for i := l.top; i < min(len(l.rows), l.top+m.listHeight()); i++ {
		body = append(body, m.rowLine(l, i, shown, width))
	}
	if len(l.rows) == 0 {
		body = append(body, m.emptyLines(l)...)
	}
	if paned {
		body = m.withPane(body, l, width)
	}
	return m.framed(append(lines, body...), m.statusLine(l), listKeys(l.kind))
}

// framed returns the lines of a view with the lines below it: the notice, or else the
// status, and the keys.
func (m *model) framed(lines []string, status, keys string) []string {
	for len(lines) < m.height-listBelow {
		lines = append(lines, "")
	}
	if m.notice != "" {
		status = " " + printable.Text(m.notice)
	}
	return append(lines[:m.height-listBelow], status, m.keysLine(keys))
}

func listKeys(kind tko.Kind) string {
	if kind == tko.KindRollout {
		return "enter waves  d plan  y yaml  R command  A approve wave  D delete  / filter  ? help"
	}
	return "enter why  y yaml  d diff  t tree  l logs  space mark  A approve  D delete  / filter  p problems  ? help"
}

// columnWidths returns the widths of columns, whose shares are of what is left.
func columnWidths(all []tableColumn, width int) []int {
	shares := 0
	for _, c := range all {
		if c.width > 0 || c.share > 0 {
			width -= c.width + 1
		}
		shares += c.share
	}
	widths := make([]int, len(all))
	for i, c := range all {
		widths[i] = c.width
		if c.share > 0 {
			widths[i] = max(4, width*c.share/shares)
		}
	}
	return widths
}

func (m *model) rowLine(l *list, i int, widths []int, width int) string {
	r := l.rows[i]
	var cells strings.Builder
	cursor, mark := " ", " "
	if i == l.cursor {
		cursor = ">"
	}
	if l.marks[r.id] || l.all {
		mark = "*"
	}
	cells.WriteString(cursor + mark)
	for n, c := range l.columns() {
		if widths[n] == 0 {
			continue
		}
		var cell string
		look := plain
		switch c.cell {
		case cellState:
			cell = m.glyph(r.summary.State) + " " + string(r.summary.State)
			look = styleOf[r.summary.State]
		case cellChanged:
			cell = since(m.now, r.changed)
		case cellMetadata:
			cell = printable.Text(r.metadata[c.key])
		default:
			cell = printable.Text(r.cells[c.cell])
		}
		cell = fit(cell, widths[n])
		if i != l.cursor {
			cell = m.paint(look, cell)
		}
		cells.WriteString(cell + " ")
	}
	text := fit(cells.String(), width)
	if i == l.cursor {
		return reverse(ansi.Strip(text))
	}
	return text
}

// since returns the rounded time since then.
func since(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	switch d := max(now.Sub(then), 0); {
	case d < 10*time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds())/10*10) // few redraws
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

func (m *model) tallyLine(l *list) string {
	if !l.tallied {
		return m.paint(faint, " counting…")
	}
	var total strings.Builder
	if l.tally.more {
		total.WriteString(" the first")
	}
	total.WriteString(" " + amount(l.tally.total, l.kind))
	if l.kind == tko.KindTemplate {
		return total.String()
	}
	for _, state := range tko.States() {
		if n := l.tally.states[state]; n > 0 {
			total.WriteString("  " + m.paint(styleOf[state], fmt.Sprintf("%s %d %s", m.glyph(state), n, state)))
		}
	}
	return total.String()
}

func (m *model) filterLine(l *list) string {
	if m.line != nil {
		return m.inputLine(m.line)
	}
	if l.query.line == "" {
		return m.paint(faint, " no filter: / sets one")
	}
	return " / " + printable.Text(l.query.line)
}

// inputLine shows an edited line with its cursor.
func (m *model) inputLine(i *input) string {
	before, at, after := string(i.runes[:i.at]), " ", ""
	if i.at < len(i.runes) {
		at, after = string(i.runes[i.at]), string(i.runes[i.at+1:])
	}
	text := " " + i.prompt + " " + before
	if over := ansi.StringWidth(text) - m.width + 10; over > 0 {
		text = ansi.TruncateLeft(text, over, "…")
	}
	return text + reverse(at) + after
}

func (m *model) emptyLines(l *list) []string {
	switch {
	case l.err != nil:
		return []string{m.paint(failing, " "+printable.Text(errorText(l.err)))}
	case !l.loaded || l.loading:
		return []string{m.paint(faint, " reading…")}
	case l.searched >= maxSearch:
		return []string{fmt.Sprintf(" none among the first %d: j searches on", l.searched*maxScanned)}
	case l.query.line != "":
		return []string{fmt.Sprintf(" no %s matches %s: esc removes the filter", l.kind, printable.Text(l.query.line))}
	}
	return []string{fmt.Sprintf(" there is no %s yet, or you may see none", l.kind)}
}

// withPane puts the pane of the selected row next to a list.
func (m *model) withPane(body []string, l *list, width int) []string {
	right := m.width - width - 2
	var pane []string
	if i := l.cursor; i < len(l.rows) {
		r := l.rows[i]
		pane = append(pane, m.paint(strong, printable.Text(r.id)))
		if r.summary.State != "" {
			pane = append(pane, m.paint(styleOf[r.summary.State], m.glyph(r.summary.State)+" "+printable.Text(strings.TrimSuffix(string(r.summary.State)+": "+r.summary.Reason, ": "))))
		}
		for _, f := range r.facts {
			pane = append(pane, wrap(printable.Text(f), right)...)
		}
		pane = append(pane, "")
		for _, one := range conditionLines(r.conditions, m.options.Location) {
			for _, part := range wrap(one.text, right) {
				pane = append(pane, m.paint(one.style, part))
			}
		}
	}
	for len(body) < m.listHeight()+1 {
		body = append(body, "")
	}
	for i := range body {
		text := ""
		if i < len(pane) {
			text = pane[i]
		}
		body[i] = fit(body[i], width) + "│ " + text
	}
	return body
}

// wrap breaks a text into lines of a width.
func wrap(text string, width int) []string {
	return strings.Split(ansi.Wrap(text, max(1, width), ""), "\n")
}

func (m *model) statusLine(l *list) string {
	text := " "
	if len(l.rows) > 0 {
		text += fmt.Sprintf("row %d", l.cursor+1)
		switch {
		case len(l.before) > 0:
			text += fmt.Sprintf(" of the %d in view; more before and after", len(l.rows))
		case l.complete():
			text += fmt.Sprintf(" of %d", len(l.rows))
		default:
			text += fmt.Sprintf(" of more than %d", len(l.rows))
		}
	}
	switch {
	case l.all:
		text += "  all that match are selected"
	case len(l.marks) > 0:
		text += fmt.Sprintf("  %d marked", len(l.marks))
	}
	switch {
	case l.err != nil:
		text += "  " + m.paint(failing, printable.Text(errorText(l.err)))
	case m.feedErr != nil:
		text += "  " + m.paint(failing, printable.Text(errorText(m.feedErr)))
	case l.loading && !l.loaded:
		text += "  reading…"
	default:
		text += "  $ " + printable.Text(l.query.filter.Command())
	}
	return text
}

func (m *model) keysLine(keys string) string {
	if m.line != nil && (m.line.prompt == ":" || m.detail != nil || m.list() == nil) {
		return m.inputLine(m.line)
	}
	return m.paint(faint, " "+keys)
}

func (m *model) detailLines() []string {
	d := m.detail
	lines := append(m.header(), m.paint(strong, fmt.Sprintf(" %s %s", d.kind, printable.Text(d.id))), tabsLine(m.detailNames(), slices.Index(tabsOf[d.kind], d.tab)))
	switch {
	case d.err != nil:
		lines = append(lines, m.paint(failing, " "+printable.Text(errorText(d.err))))
	case d.shown != d.tab:
		lines = append(lines, m.paint(faint, " reading…"))
	}
	if d.shown == d.tab {
		for i := d.top; i < min(len(d.lines), d.top+m.detailHeight()); i++ {
			lines = append(lines, m.detailLine(d, i))
		}
	}
	status := fmt.Sprintf(" line %d of %d  $ %s", min(d.cursor+1, len(d.lines)), len(d.lines), printable.Text(command(d.kind, d.id)))
	keys := "tab next  enter opens  / search  n N next match  A approve  D delete  esc back  ? help"
	switch {
	case d.kind == tko.KindRollout:
		keys = "tab next  enter opens  / search  R command  A approve wave  D delete  esc back  ? help"
	case d.tab == tabDiff:
		keys = "[ earlier  ] later revision  tab next  / search  esc back  ? help"
	}
	return m.framed(lines, status, keys)
}

func (m *model) detailLine(d *detail, i int) string {
	one := d.lines[i]
	text := one.text
	if one.opens() {
		text += " >"
	}
	if i == d.cursor {
		return reverse(fit(">"+text, m.width))
	}
	return " " + m.paint(one.style, text)
}

func (m *model) eventTop() int { return max(0, m.event-m.listHeight()+1) }

func (m *model) eventLines() []string {
	lines := append(m.header(), " the newest changes first", "", m.paint(strong, fmt.Sprintf("  %-19s %-10s %-8s %-30s %s", "TIME", "KIND", "CHANGE", "ID", "BY")))
	top := m.eventTop()
	for i := top; i < min(len(m.events), top+m.listHeight()); i++ {
		c := m.events[i]
		text := fit(fmt.Sprintf("  %s %-10s %-8s %-30s %s", c.Time.In(m.options.Location).Format("2006-01-02 15:04:05"), c.Kind, c.Op, printable.Text(c.ID), printable.Text(c.Author.String())), m.width)
		if i == m.event {
			text = reverse(">" + text[1:])
		}
		lines = append(lines, text)
	}
	return m.framed(lines, " changes held: "+strconv.Itoa(len(m.events)), "enter opens  j k move  : command  ? help  q quit")
}

// overlay draws the dialog over the screen.
func (m *model) overlay(lines []string) {
	width := min(m.width-4, 76)
	var box []string
	for _, one := range m.dialog.lines() {
		for _, part := range wrap(one.text, width-4) {
			box = append(box, m.paint(one.style, part))
		}
	}
	box = slices.Insert(box, 0, "")
	box = append(box, "")
	top := max(0, min(3, m.height-len(box)))
	for i, text := range box {
		if top+i < len(lines) {
			lines[top+i] = "  " + fit("│ "+text, width-1) + "│"
		}
	}
	edge := "  " + strings.Repeat("─", width)
	if last := top + len(box) - 1; last < len(lines) {
		lines[top], lines[last] = edge, edge
	}
}

func (m *model) helpLines() []string {
	help := [][2]string{
		{"1-6, tab, -", "deployments, sites, templates, plugins, rollouts, events; the list before"},
		{"j k, arrows, pgup pgdn, ctrl-u ctrl-d, g G", "move; G goes to the last row; with a state, to the last one that was read"},
		{"enter, y or v, d, H, t, l", "why, package, difference, history, tree, runs of plugins with their logs"},
		{"/", "filter a list in the words of the tko command, such as site-id=north/** prepared=false; search in a detail"},
		{"n N", "next and previous match"},
		{"p", "only what is failing"},
		{"s", "sort by the next column, if all rows were read"},
		{"space or x, *", "mark a row; select all that match the filter"},
		{"A, D", "approve, delete: both count and ask first"},
		{"R", "command of a rollout: plan, start, approve, pause, resume, cancel, undo, skip, waive"},
		{"c, C", "copy the ID, the command"},
		{":", "command: deployments, sites, templates, plugins, rollouts (and a filter), views, events, quit; columns KEY KEY shows metadata in columns, columns alone no more"},
		{"m", "let the terminal select text with the mouse, or the dashboard use it"},
		{"ctrl-l or ctrl-r, ctrl-z", "read and draw again; suspend"},
		{"esc, q", "back, quit"},
	}
	lines := append(m.header(), m.paint(strong, " Keys"))
	for _, one := range help {
		first := true
		for _, part := range wrap(one[1], max(10, m.width-32)) {
			key := ""
			if first {
				key = one[0]
			}
			if first && len(key) > 28 {
				lines = append(lines, " "+key)
				key = ""
			}
			lines = append(lines, fmt.Sprintf(" %-29s %s", key, part))
			first = false
		}
	}
	lines = append(lines, m.paint(faint, " any key closes this"))
	if len(lines) > m.height {
		lines = append(lines[:m.height-1], m.paint(faint, " any key closes this; a larger window shows all"))
	}
	return lines
}
