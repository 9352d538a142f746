package dashboard

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A fake is a server with n deployments, of which some were changed or removed, and
// some sites.
type fake struct {
	mutex   sync.Mutex
	n       int
	special map[string]tko.Deployment
	gone    map[string]bool
	sites   []tko.Site
	history map[int64]krm.Package // of every deployment
	fail    error
	logs    bool // the caller may see what plugins log

	reads     int // rows
	requests  int // lists
	confirmed []int
	approved  []string
	removed   []string
	commands  []tko.RolloutCommand
	authors   []tko.Author // of commands and removals
	watch     func(ctx context.Context, after int64, yield func(tko.Change, error) bool)
}

func newFake(n int) *fake {
	return &fake{n: n, special: map[string]tko.Deployment{}, gone: map[string]bool{}}
}

func name(i int) string { return fmt.Sprintf("d%07d", i) }

func (f *fake) deployment(i int) tko.Deployment {
	if d, ok := f.special[name(i)]; ok {
		return d
	}
	return tko.Deployment{
		ID: tko.DeploymentID(name(i)), Template: "workload/smf:v1", Site: tko.SiteID(fmt.Sprintf("north/edge-%d", i)), Prepared: true, Approved: true,
		Stamp: tko.Stamp{Revision: 1, Created: start, Updated: start, Conditions: []tko.Condition{
			{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy", ObservedRevision: 1}, {Type: tko.ConditionScheduled, Status: tko.ConditionTrue, ObservedRevision: 1},
		}},
	}
}

// broken is a deployment that is failing.
func broken(i int, message string) tko.Deployment {
	return tko.Deployment{
		ID: tko.DeploymentID(name(i)), Template: "workload/upf:v2", Site: "south/edge-1", Metadata: map[string]string{"tier": "gold"},
		Stamp: tko.Stamp{
			Revision: 3, Created: start, Updated: start.Add(time.Hour), Author: tko.Author{Who: "ada", Why: "try again"},
			Conditions: []tko.Condition{{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: message, LastTransition: start}},
		},
	}
}

// listed returns the number of lists.
func (f *fake) listed() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.requests
}

func (f *fake) Deployments(_ context.Context, sel tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		f.requests++
		if f.fail != nil {
			yield(tko.Deployment{}, f.fail)
			return
		}
		sent := 0
		first := 1 + sort.Search(f.n, func(i int) bool { return name(i+1) > o.Window.After })
		for i := first; i <= f.n; i++ {
			d := f.deployment(i)
			if f.gone[name(i)] || sel.Parent != "" && d.Parent != sel.Parent || len(sel.Sites) > 0 && !strings.HasPrefix(string(d.Site), strings.TrimSuffix(sel.Sites[0], "**")) {
				continue
			}
			f.reads++
			sent++
			if o.Window.Max != nil && sent > *o.Window.Max || !yield(d, nil) {
				return
			}
		}
	}
}

func (f *fake) Sites(context.Context, tko.SiteSelect, tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) {
		for _, s := range f.sites {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (f *fake) Templates(context.Context, tko.TemplateSelect, tko.ListOptions) iter.Seq2[tko.Template, error] {
	return func(yield func(tko.Template, error) bool) {
		yield(tko.Template{ID: "workload/smf:v1", Metadata: map[string]string{"vendor": "acme"}, DeploymentCount: 7, Stamp: tko.Stamp{Updated: start}}, nil)
	}
}

func (f *fake) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(yield func(tko.Plugin, error) bool) {
		yield(tko.Plugin{Type: "prepare", Name: "network/addresses", Executor: "command", Arguments: []string{"addresses"}, Stamp: tko.Stamp{Updated: start}}, nil)
	}
}

func (f *fake) Deployment(_ context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	i := 0
	_, _ = fmt.Sscanf(string(id), "d%d", &i)
	if i < 1 || i > f.n || f.gone[string(id)] {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	d := f.deployment(i)
	if revision > 0 {
		if revision > d.Stamp.Revision {
			return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
		}
		d.Stamp.Revision = revision
	}
	d.Package = f.history[d.Stamp.Revision]
	return d, nil
}

func (f *fake) Site(_ context.Context, id tko.SiteID, _ int64) (tko.Site, error) {
	for _, s := range f.sites {
		if s.ID == id {
			return s, nil
		}
	}
	return tko.Site{}, tko.NotFound(tko.KindSite, id)
}

func (f *fake) Template(_ context.Context, id tko.TemplateID, _ int64) (tko.Template, error) {
	return tko.Template{ID: id, Stamp: tko.Stamp{Revision: 1, Updated: start}}, nil
}

func (f *fake) Plugin(_ context.Context, typ, name string) (tko.Plugin, error) {
	return tko.Plugin{Type: typ, Name: name, Executor: "command", Arguments: []string{"addresses"}}, nil
}

func (f *fake) Views(context.Context) ([]tko.View, error) {
	return []tko.View{
		{Name: "north", Path: "/deployments", Query: "site-id=north%2F**&cols=tier&asOf=2h", Description: "the north", By: tko.Author{Who: "ada"}, Updated: start},
		{Name: "roofless", Path: "/sites", Query: "within=metadata.roof%3D", Parent: "main"},
		{Name: "old", Path: "/sites", Query: "colour=red", Problem: "the parameter \"colour\" is unknown"},
		{Name: "tiers", Path: "/matrix"},
	}, f.fail
}

func (f *fake) PluginRuns(_ context.Context, kind tko.Kind, id string) (tko.PluginRuns, error) {
	if f.fail != nil {
		return tko.PluginRuns{}, f.fail
	}
	runs := []tko.PluginRun{
		{Plugin: "prepare|network/addresses", Kind: tko.KindDeployment, ID: name(2), Began: start, Took: 41 * time.Millisecond, Result: "failed", Error: "exit status 1", Lines: []string{"reading pools", "pool north is exhausted\x1b[31m"}, More: 3},
		{Plugin: "prepare|network/addresses", Kind: tko.KindDeployment, ID: name(1), Began: start.Add(-time.Minute), Took: 38 * time.Millisecond, Result: "ok"},
	}
	found := tko.PluginRuns{Lines: f.logs, More: 1}
	for _, run := range runs {
		if !f.logs {
			run.Lines, run.More = nil, 0
		}
		if kind == tko.KindPlugin && run.Plugin == id || run.Kind == kind && run.ID == id {
			found.Runs = append(found.Runs, run)
		}
	}
	return found, nil
}

func (f *fake) About(context.Context) (tko.About, error) {
	return tko.About{InstanceName: "demo", Position: 100}, f.fail
}

func (f *fake) WhoAmI(context.Context) (tko.Caller, error) {
	return tko.Caller{Subject: "token:ada"}, nil
}

func (f *fake) ApproveDeployment(_ context.Context, id tko.DeploymentID) (int, error) {
	f.approved = append(f.approved, string(id))
	return 1, nil
}

func (f *fake) ApproveDeployments(ctx context.Context, _ tko.DeploymentSelect, dryRun bool) (int, error) {
	return f.many(ctx, dryRun).Count, nil
}

func (f *fake) PurgeDeployments(ctx context.Context, _ tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	return f.many(ctx, dryRun), nil
}

func (f *fake) many(ctx context.Context, dryRun bool) tko.Deleted {
	if n, ok := tko.ConfirmationOf(ctx); ok && !dryRun {
		f.confirmed = append(f.confirmed, n)
	}
	return tko.Deleted{Count: 120}
}

func (f *fake) PurgeSites(context.Context, tko.SiteSelect, bool) (tko.Deleted, error) {
	panic("not expected")
}

func (f *fake) PurgeTemplates(context.Context, tko.TemplateSelect, bool) (tko.Deleted, error) {
	panic("not expected")
}

func (f *fake) RemoveEntity(ctx context.Context, _ tko.Kind, id string, dryRun bool) (tko.Deleted, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.gone[id] {
		return tko.Deleted{}, tko.NotFound(tko.KindDeployment, id)
	}
	if !dryRun {
		f.removed, f.authors = append(f.removed, id), append(f.authors, tko.AuthorOf(ctx))
		f.gone[id] = true
	}
	return tko.Deleted{Count: 1}, nil
}

func (f *fake) Rollouts(context.Context, tko.RolloutSelect, tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	return func(yield func(tko.Rollout, error) bool) {
		yield(tko.Rollout{ID: "smf-v2", State: "Planned", Metadata: map[string]string{"team": "core"}, Stamp: tko.Stamp{Revision: 1, Created: start, Updated: start}}, nil)
	}
}

func (f *fake) Rollout(_ context.Context, id tko.RolloutID, _ int64) (tko.Rollout, error) {
	return tko.Rollout{ID: id, State: "Planned", Package: config("edit"), Stamp: tko.Stamp{Revision: 1, Created: start, Updated: start}}, nil
}

func (f *fake) RolloutStatus(_ context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	return tko.RolloutStatus{
		ID: id, State: "Planned", Plan: "9f3c5d7e1a2b3c4d", Kinds: map[string]int{"Change": 12, "Delete": 1}, Commands: []string{"plan", "start", "approve", "cancel", "delete"},
		Waves: []tko.RolloutWave{
			{Name: "canary", Rows: 3, Progress: map[string]int{"Healthy": 2, "Applied": 1}},
			{Name: "rest", Rows: 10, Approval: "Required", Progress: map[string]int{"Waiting": 9, "Failed": 1}},
		},
		Blocks:   []string{"9 deployments wait for the approval of wave rest"},
		Examples: []tko.RolloutRow{{Deployment: tko.DeploymentID(name(2)), Site: "south/edge-1", Progress: "Failed", Reason: "not healthy in time"}},
	}, f.fail
}

func (f *fake) RolloutPlan(_ context.Context, id tko.RolloutID) (tko.RolloutPlan, error) {
	return tko.RolloutPlan{ID: id, Digest: "9f3c5d7e1a2b3c4d", Kinds: map[string]int{"Change": 12, "Delete": 1}, Groups: []tko.RolloutGroup{
		{
			Kind: "Change", Count: 12, Examples: []tko.DeploymentID{tko.DeploymentID(name(1))}, More: 1,
			Changes:   []tko.RolloutChange{{Resource: `v1 ConfigMap "settings"`, Path: "data.image", Before: "v1", After: "v2"}},
			Templates: []string{"nf/upf:v1 → nf/upf:v2"},
		},
		{Kind: "Delete", Count: 1, Examples: []tko.DeploymentID{tko.DeploymentID(name(4))}},
	}}, nil
}

func (f *fake) RolloutDo(ctx context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error) {
	f.commands, f.authors = append(f.commands, c), append(f.authors, tko.AuthorOf(ctx))
	return f.RolloutStatus(ctx, c.ID)
}

func (f *fake) DeleteRollout(ctx context.Context, id tko.RolloutID) error {
	f.removed, f.authors = append(f.removed, string(id)), append(f.authors, tko.AuthorOf(ctx))
	return nil
}

func (f *fake) Watch(ctx context.Context, after int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) { f.watch(ctx, after, yield) }
}

func (f *fake) WatchNewest(ctx context.Context, position int64, n uint32, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return f.Watch(ctx, max(0, position-int64(n)), kinds...)
}

// A user drives a dashboard, and waits for all that it reads.
type user struct {
	t *testing.T
	m *model
}

func newUser(t *testing.T, f *fake, width, height int) *user {
	t.Helper()
	o := Options{Location: time.UTC, Every: time.Second, ASCII: true, Now: func() time.Time { return start.Add(2 * time.Hour) }}
	about, _ := f.About(t.Context())
	me, _ := f.WhoAmI(t.Context())
	m := newModel(f, o, about, me)
	m.do = func(work func(ctx context.Context) tea.Msg) tea.Cmd {
		return func() tea.Msg { return work(t.Context()) }
	}
	m.tick = func() tea.Cmd { return nil }
	u := &user{t, m}
	u.send(tea.WindowSizeMsg{Width: width, Height: height})
	return u
}

func (u *user) send(msg tea.Msg) {
	u.t.Helper()
	_, cmd := u.m.Update(msg)
	u.run(cmd)
}

func (u *user) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil, tea.QuitMsg:
	case tea.BatchMsg:
		for _, one := range msg {
			u.run(one)
		}
	default:
		u.send(msg)
	}
}

// press presses keys: names such as enter, or characters.
func (u *user) press(names ...string) {
	u.t.Helper()
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "space": tea.KeySpace, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace}
	for _, one := range names {
		k := tea.KeyPressMsg{Text: one}
		if code, ok := codes[one]; ok {
			k = tea.KeyPressMsg{Code: code}
		} else {
			k.Code = []rune(one)[0]
		}
		u.send(k)
	}
}

// enter types a text, and enter.
func (u *user) enter(text string) {
	u.t.Helper()
	u.press(strings.Split(text, "")...)
	u.press("enter")
}

func (u *user) screen() string {
	lines := u.m.screen()
	for i := range lines {
		lines[i] = strings.TrimRight(ansi.Strip(lines[i]), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func (u *user) sees(texts ...string) {
	u.t.Helper()
	screen := u.screen()
	for _, text := range texts {
		if !strings.Contains(screen, text) {
			u.t.Errorf("the screen lacks %q:\n%s", text, screen)
		}
	}
}

func (u *user) lacks(texts ...string) {
	u.t.Helper()
	screen := u.screen()
	for _, text := range texts {
		if strings.Contains(screen, text) {
			u.t.Errorf("the screen has %q:\n%s", text, screen)
		}
	}
}

func ids(rows []row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.id)
	}
	return slices.Clip(all)
}
