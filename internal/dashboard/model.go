package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// eventsTab is the tab after those of the kinds.
var eventsTab = len(kinds)

// Limits of what is held.
const (
	maxEvents  = 1000
	maxMarks   = 500
	countEvery = 15 * time.Second
)

// A model is the state of the dashboard. Only Update changes it.
type model struct {
	server  Server
	options Options
	do      func(work func(ctx context.Context) tea.Msg) tea.Cmd
	tick    func() tea.Cmd // sends a tickMsg later
	about   tko.About
	me      tko.Caller

	width, height int
	now           time.Time
	mouse         bool

	live      bool
	liveSince time.Time
	feedErr   error
	position  int64

	tab    int
	last   int // the tab before, which - opens
	lists  []*list
	events []tko.Change // the newest first
	event  int          // the line of the cursor
	detail *detail
	trail  []*detail // that were left for another detail
	dialog *dialog
	line   *input // the line that is edited: a filter, a search or a command
	// commanded is the ID of the rollout that the line commands, or "".
	commanded string
	help      bool
	notice    string
}

func newModel(s Server, o Options, about tko.About, me tko.Caller) *model {
	m := &model{server: s, options: o, about: about, me: me, now: o.Now(), liveSince: o.Now(), live: true, mouse: o.Mouse, position: about.Position, width: 80, height: 24}
	for _, kind := range kinds {
		m.lists = append(m.lists, newList(kind))
	}
	return m
}

// Messages.
type (
	tickMsg struct{}
	pageMsg struct {
		kind       tko.Kind
		generation int
		fetch      fetch
		page       page
		starts     []string // of pages between the fetch and this page
		err        error
	}
	tallyMsg struct {
		kind       tko.Kind
		generation int
		tally      tally
		err        error
	}
)

// everySecond returns the command that sends the next tick.
func everySecond() tea.Cmd {
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} })
}

// Init starts the clock and the first reads.
func (m *model) Init() tea.Cmd { return tea.Batch(m.tick(), m.fetch()) }

// list returns the list of the tab; nil for the events.
func (m *model) list() *list {
	if m.tab < len(m.lists) {
		return m.lists[m.tab]
	}
	return nil
}

// Update changes the state by a message, and returns what is to be read next.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		for _, l := range m.lists {
			l.move(0, m.listHeight())
		}
		if m.detail != nil {
			m.detail.scroll(0, m.detailHeight())
		}
	case tickMsg:
		m.now = m.options.Now()
		for _, l := range m.lists {
			l.resting = false
			if l.err != nil && m.live { // try again what may have been a failure of the connection
				l.err = nil
			}
		}
		cmd = m.tick()
	case feedMsg:
		m.feed(msg)
	case pageMsg:
		m.page(msg)
	case tallyMsg:
		if l := m.listOf(msg.kind); l.generation == msg.generation && msg.err == nil {
			l.tally, l.tallied = msg.tally, true
		}
	case contentMsg:
		m.content(msg)
	case planMsg:
		m.planned(msg)
	case doneMsg:
		m.done(msg)
	case tea.PasteMsg:
		m.paste(msg.Content)
	case tea.KeyPressMsg:
		m.notice = ""
		cmd = m.key(msg)
	case tea.MouseMsg:
		cmd = m.click(msg)
	}
	return m, tea.Batch(cmd, m.fetch())
}

func (m *model) listOf(kind tko.Kind) *list { return m.lists[slices.Index(kinds, kind)] }

// feed notes changes: of rows, of the entity that is shown, and in the events.
func (m *model) feed(msg feedMsg) {
	if m.live != msg.live {
		m.live, m.liveSince = msg.live, m.options.Now()
	}
	m.feedErr, m.position = msg.err, max(m.position, msg.position)
	if msg.lost {
		m.changeAll()
	}
	for _, c := range msg.changes {
		i := slices.Index(kinds, c.Kind)
		if i < 0 {
			continue
		}
		m.lists[i].change(c.ID)
		m.lists[i].recount = true
		if d := m.detail; d != nil && d.kind == c.Kind && d.id == c.ID {
			d.stale = true
		}
	}
	added := msg.changes
	if m.event > 0 {
		m.event = min(m.event+len(added), maxEvents-1)
	}
	slices.Reverse(added)
	m.events = append(added, m.events...)
	m.events = m.events[:min(len(m.events), maxEvents)]
}

func (m *model) page(msg pageMsg) {
	l := m.listOf(msg.kind)
	if l.generation != msg.generation {
		return
	}
	l.loading = false
	l.err = msg.err
	if msg.err != nil {
		l.jumping = false
	} else {
		l.put(msg.fetch, msg.page, msg.starts, m.listHeight())
	}
}

// fetch returns the command that reads what the current view lacks; nil if nothing.
func (m *model) fetch() tea.Cmd {
	var cmds []tea.Cmd
	if d := m.detail; d != nil {
		cmds = append(cmds, m.fetchDetail(d))
	}
	l := m.list()
	if l == nil {
		return tea.Batch(cmds...)
	}
	kind, generation, q, limit := l.kind, l.generation, l.query, m.options.Timeout
	if f, ok := l.want(m.listHeight()); ok {
		l.loading = true
		cmds = append(cmds, m.do(func(ctx context.Context) tea.Msg {
			var starts []string
			p, err := limited(ctx, limit, func(ctx context.Context) (p page, err error) {
				if f.where != atFront && f.where != atLast || q.state != "" || q.reason != "" || kind == tko.KindPlugin {
					return readPage(ctx, m.server, q, f.after, f.until)
				}
				p, starts, err = readBack(ctx, m.server, q, f.after, f.until)
				return p, err
			})
			return pageMsg{kind, generation, f, p, starts, err}
		}))
	}
	if !l.counted || l.recount && m.now.Sub(l.countedAt) >= countEvery {
		l.counted, l.recount, l.countedAt = true, false, m.now
		cmds = append(cmds, m.do(func(ctx context.Context) tea.Msg {
			t, err := limited(ctx, limit, func(ctx context.Context) (tally, error) { return countStates(ctx, m.server, q) })
			return tallyMsg{kind, generation, t, err}
		}))
	}
	return tea.Batch(cmds...)
}

// key handles a key. The dialog, the edited line and the help come first.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		m.notice = "ctrl-z had suspended the dashboard; p shows only what is failing"
		return tea.Suspend
	case name == "ctrl+l" || name == "ctrl+r":
		m.reread()
		return tea.ClearScreen
	case m.dialog != nil:
		return m.dialogKey(k)
	case m.line != nil:
		return m.lineKey(k)
	case m.help:
		m.help = false
		return nil
	}
	switch name {
	case "q":
		if m.detail == nil {
			return tea.Quit
		}
		m.back()
		return nil
	case "?", "ctrl+a":
		m.help = true
		return nil
	case "-":
		m.open(m.last)
		return nil
	case "m":
		m.mouse = !m.mouse
		m.notice = "the mouse selects text"
		if m.mouse {
			m.notice = "the mouse works in the dashboard"
		}
		return nil
	case ":":
		m.line = newInput(":", "")
		return nil
	case "1", "2", "3", "4", "5", "6":
		m.open(int(name[0] - '1'))
		return nil
	}
	if name == "v" { // the package, as YAML
		name = "y"
	}
	if m.detail != nil {
		return m.detailKey(name)
	}
	switch name {
	case "tab":
		m.open((m.tab + 1) % (eventsTab + 1))
	case "shift+tab":
		m.open((m.tab + eventsTab) % (eventsTab + 1))
	default:
		if m.list() == nil {
			return m.eventKey(name)
		}
		return m.listKey(name)
	}
	return nil
}

func (m *model) open(tab int) {
	if tab != m.tab {
		m.last = m.tab
	}
	m.tab, m.detail, m.trail = tab, nil, nil
}

// reread reads everything that is visible again.
func (m *model) reread() {
	for _, l := range m.lists {
		l.err, l.countedAt = nil, time.Time{}
	}
	m.changeAll()
}

// changeAll notes that anything may have changed.
func (m *model) changeAll() {
	for _, l := range m.lists {
		for i := range l.pages {
			l.pages[i].stale = true
		}
		l.recount = true
	}
	if m.detail != nil {
		m.detail.stale = true
	}
}

// moves returns how far a key moves in a view; ok is false for other keys.
func moves(name string, height int) (by int, ok bool) {
	const far = 1 << 30
	switch name {
	case "j", "down":
		return 1, true
	case "k", "up":
		return -1, true
	case "ctrl+d":
		return max(1, height/2), true
	case "ctrl+u":
		return -max(1, height/2), true
	case "pgdown", "ctrl+f":
		return height, true
	case "pgup", "ctrl+b":
		return -height, true
	case "g", "home":
		return -far, true
	case "G", "end":
		return far, true
	}
	return 0, false
}

func (m *model) eventKey(name string) tea.Cmd {
	if by, ok := moves(name, m.listHeight()); ok {
		m.event = max(0, min(m.event+by, len(m.events)-1))
		return nil
	}
	if name == "enter" && m.event < len(m.events) {
		c := m.events[m.event]
		m.show(c.Kind, c.ID, tabWhy)
		return nil
	}
	m.notice = hint(name, "KIND", "ID")
	return nil
}

func (m *model) listKey(name string) tea.Cmd {
	l := m.list()
	if by, ok := moves(name, m.listHeight()); ok {
		l.searched = 0
		if name == "g" || name == "home" {
			if len(l.before) > 0 { // the start isn't in the window
				l.loaded = false
			}
		}
		if (name == "G" || name == "end") && l.canJump() {
			l.jumping = true
			return nil
		}
		l.move(by, m.listHeight())
		if name == "ctrl+d" {
			m.notice = halfPage
		}
		return nil
	}
	id := l.selected()
	switch name {
	case "/":
		line := l.query.line
		if line != "" {
			line += " " // for the next filter
		}
		m.line = newInput("/", line)
	case `ctrl+\`:
		l.all, l.marks = false, map[string]bool{}
	case "esc":
		switch {
		case l.all || len(l.marks) > 0:
			l.all, l.marks = false, map[string]bool{}
		case l.query.line != "":
			m.query(l.kind, "")
		}
	case "p":
		if l.kind == tko.KindTemplate {
			m.notice = "templates have no state"
			return nil
		}
		state := string(tko.StateFailing)
		if l.query.state != "" {
			state = ""
		}
		m.query(l.kind, l.query.with("state", state))
	case "s":
		if !l.complete() {
			m.notice = fmt.Sprintf("not sorted: not all rows were read (G reads on), or there are over %d", windowRows)
			return nil
		}
		l.sort, l.sorted = (l.order()+1)%(len(l.columns())+1), true
		l.arrange()
	case "space", "x":
		if id != "" && (l.marks[id] || len(l.marks) < maxMarks) {
			l.all = false
			if l.marks[id] {
				delete(l.marks, id)
			} else {
				l.marks[id] = true
			}
			l.move(1, m.listHeight())
		}
	case "*":
		switch {
		case l.query.state != "" || l.query.reason != "":
			m.notice = "only filters of the command can select all that match: remove state and reason"
		case l.query.filter.IsEmpty() || l.kind == tko.KindPlugin || l.kind == tko.KindRollout:
			m.notice = "set a filter first: without one this would select everything"
		default:
			l.all, l.marks = !l.all, map[string]bool{}
		}
	case "enter":
		m.show(l.kind, id, tabWhy)
	case "w", "y", "d", "H", "t", "l":
		m.show(l.kind, id, tabKeys[name])
	case "c":
		return m.copy(id)
	case "C":
		return m.copy(l.query.filter.Command())
	case "A", "D":
		return m.plan(actionKeys[name], l)
	case "R":
		m.startCommand(l.kind, id)
	default:
		m.notice = hint(name, string(l.kind), id)
	}
	return nil
}

// startCommand begins a line for the command of a rollout.
func (m *model) startCommand(kind tko.Kind, id string) {
	switch {
	case kind != tko.KindRollout:
		m.notice = "only rollouts have commands: 5 shows them"
	case id != "":
		m.line = newInput("command of rollout "+id+":", "")
		m.commanded = id
	}
}

func (m *model) copy(text string) tea.Cmd {
	if text == "" {
		return nil
	}
	m.notice = "copied, if the terminal allows it: " + text
	return tea.SetClipboard(text)
}

// query shows another filter line of a list. A wrong one leaves the list as it is.
func (m *model) query(kind tko.Kind, line string) bool {
	q, err := parseQuery(kind, line)
	if err != nil {
		m.notice = err.Error()
		return false
	}
	m.listOf(kind).reset(q)
	return true
}

// lineKey edits the line.
func (m *model) lineKey(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc":
		m.line, m.commanded = nil, ""
	case "tab":
		if m.commanded != "" {
			m.line.complete(rolloutVerbs)
		} else if l := m.list(); l != nil && m.line.prompt == "/" && m.detail == nil {
			m.line.complete(append(filter.Words(l.kind), "state", "reason"))
		}
	case "enter":
		return m.enter()
	default:
		m.line.key(k)
	}
	return nil
}

// enter carries out the edited line.
func (m *model) enter() tea.Cmd {
	prompt, text := m.line.prompt, strings.TrimSpace(m.line.text())
	switch {
	case m.commanded != "":
		id := m.commanded
		m.line, m.commanded = nil, ""
		if text == "" {
			return nil
		}
		if !slices.Contains(rolloutVerbs, text) {
			m.notice = fmt.Sprintf("%q is no command of a rollout: use %s", text, strings.Join(rolloutVerbs, ", "))
			return nil
		}
		return m.planFor(text, tko.KindRollout, []string{id})
	case prompt == ":":
		m.line = nil
		return m.command(text)
	case m.detail != nil:
		m.line = nil
		m.detail.search = text
		if text != "" && !m.detail.find(1, false, m.detailHeight()) {
			m.notice = "not found: " + text
		}
	case m.query(m.list().kind, text):
		m.line = nil
	}
	return nil
}

// command carries out a command such as ":deployments site-id=north/**".
func (m *model) command(text string) tea.Cmd {
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimPrefix(strings.TrimSpace(rest), "/")
	if name == "" {
		return nil
	}
	if full, ok := shortNames[name]; ok {
		name = full
	}
	for i, kind := range kinds {
		if full := string(kind) + "s"; strings.HasPrefix(full, name) {
			m.open(i)
			if rest != "" {
				m.query(kind, rest)
			}
			return nil
		}
	}
	switch name {
	case "-":
		m.open(m.last)
	case "v", "view", "views":
		m.detail, m.trail = &detail{kind: kindView, id: "of all", tab: tabViews, shown: -1}, nil
	case "e", "events":
		m.open(eventsTab)
	case "q", "quit":
		return tea.Quit
	case "help":
		m.help = true
	case "c", "columns":
		if l := m.list(); l == nil {
			m.notice = "events have no metadata: open another list first"
		} else if err := l.setKeys(strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == ',' })); err != nil {
			m.notice = err.Error()
		}
	default:
		m.notice = commandHints[name]
		if m.notice != "" {
			return nil
		}
		m.notice = fmt.Sprintf("%q is no command: use deployments, sites, templates, plugins, rollouts (and a filter), columns (and keys of metadata), views, events, help or quit", name)
	}
	return nil
}

func (m *model) paste(text string) {
	text = printable.Text(text)
	switch {
	case m.dialog != nil:
		// What confirms an action is typed.
	case m.line != nil:
		m.line.insert(text)
	}
}

// click handles the mouse: tabs and rows are clicked, and views scrolled.
func (m *model) click(msg tea.MouseMsg) tea.Cmd {
	at := msg.Mouse()
	if m.dialog != nil || m.help {
		return nil
	}
	if _, ok := msg.(tea.MouseWheelMsg); ok {
		by := 3
		if at.Button == tea.MouseWheelUp {
			by = -3
		} else if at.Button != tea.MouseWheelDown {
			return nil
		}
		m.wheel(by)
		return nil
	}
	if _, ok := msg.(tea.MouseClickMsg); !ok || at.Button != tea.MouseLeft {
		return nil
	}
	if at.Y == 1 {
		if tab, ok := m.tabAt(at.X); ok {
			m.open(tab)
		}
		return nil
	}
	if m.detail != nil {
		return m.detailClick(at.X, at.Y)
	}
	line := at.Y - listBegin
	if line < 0 || line >= m.listHeight() {
		return nil
	}
	l := m.list()
	if l == nil {
		if i := m.eventTop() + line; i < len(m.events) {
			m.event = i
		}
		return nil
	}
	i := l.top + line
	switch {
	case i >= len(l.rows):
	case i == l.cursor:
		m.show(l.kind, l.selected(), tabWhy)
	default:
		l.move(i-l.cursor, m.listHeight())
	}
	return nil
}

func (m *model) wheel(by int) {
	switch l := m.list(); {
	case m.detail != nil:
		m.detail.scroll(by, m.detailHeight())
	case l != nil:
		l.searched = 0
		l.move(by, m.listHeight())
	default:
		m.event = max(0, min(m.event+by, len(m.events)-1))
	}
}

// errorText returns an error for users.
func errorText(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the server did not respond in time: it is tried again; give it more time with --grpc-timeout"
	case errors.Is(err, tko.ErrDenied):
		return "not allowed: " + err.Error()
	}
	return err.Error()
}
