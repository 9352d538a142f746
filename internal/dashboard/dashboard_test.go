package dashboard

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

var update = flag.Bool("update", false, "write the golden frames")

// golden compares a screen with a file, which -update writes.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the screen differs from %s, which go test -update writes (-want +got):\n%s", path, diff)
	}
}

func config(text string) krm.Package {
	return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": map[string]any{"image": text, "mode": "fast"}}}
}

func sample() *fake {
	f := newFake(30)
	f.special[name(2)] = broken(2, "network/addresses: pool 10.1.0.0/16 is exhausted")
	waits := f.deployment(3)
	waits.Approved = false
	f.special[name(3)] = waits
	child := f.deployment(4)
	child.Parent = tko.DeploymentID(name(2))
	f.special[name(4)] = child
	f.history = map[int64]krm.Package{1: config("v1"), 2: config("v2"), 3: config("v3")}
	f.logs = true
	f.sites = []tko.Site{{ID: "south/edge-1", Template: "edge/v1", Metadata: map[string]string{"region": "south"}, DeploymentCount: 1, Stamp: tko.Stamp{Revision: 1, Created: start, Updated: start}}}
	return f
}

func TestFramesOfAllViews(t *testing.T) {
	t.Parallel()
	views := []struct {
		name string
		keys []string
		line string // that is entered after the keys
	}{
		{"deployments", []string{"j", "k"}, ""},
		{"sites", []string{"2"}, ""},
		{"templates", []string{"3"}, ""},
		{"plugins", []string{"4"}, ""},
		{"rollouts", []string{"5"}, ""},
		{"waves", []string{"enter"}, ""},
		{"plan", []string{"d"}, ""},
		{"start", []string{"R"}, "start"},
		{"events", []string{"esc", "6"}, ""},
		{"why", []string{"1", "enter"}, ""},
		{"yaml", []string{"y"}, ""},
		{"diff", []string{"d"}, ""},
		{"history", []string{"H"}, ""},
		{"tree", []string{"t"}, ""},
		{"logs", []string{"l"}, ""},
		{"delete", []string{"D"}, ""},
		{"help", []string{"esc", "?"}, ""},
	}
	for _, size := range [][2]int{{80, 24}, {120, 40}, {160, 50}} {
		u := newUser(t, sample(), size[0], size[1])
		for _, v := range views {
			u.press(v.keys...)
			if v.line != "" {
				u.enter(v.line)
			}
			if v.name == "events" {
				u.send(feedMsg{live: true, position: 101, changes: []tko.Change{{Position: 101, Kind: tko.KindSite, ID: "south/edge-1", Op: tko.OpWritten, Time: start, Author: tko.Author{Who: "ada"}}}})
			}
			golden(t, filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.golden", v.name, size[0], size[1])), u.screen())
		}
	}
}

func TestEachLineIsAsWideAsTheWindow(t *testing.T) {
	t.Parallel()
	f := sample()
	f.special[name(5)] = broken(5, strings.Repeat("wide 漢字 ", 50))
	u := newUser(t, f, 80, 24)
	views := [][]string{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"5", "enter"}, {"d"}, {"6"}, {"1", "enter"}, {"y"}, {"t"}, {"D"}, {"esc", "?"}}
	for _, keys := range views {
		u.press(keys...)
		for _, size := range [][2]int{{1, 1}, {20, 5}, {39, 24}, {40, 10}, {80, 9}, {80, 24}, {119, 30}, {120, 30}, {300, 100}} {
			u.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			lines := u.m.screen()
			if len(lines) != size[1] {
				t.Errorf("after %q, a window of %v has %d lines", keys, size, len(lines))
			}
			for i, text := range lines {
				if n := ansi.StringWidth(text); n != size[0] {
					t.Errorf("after %q, line %d of a window of %v has the width %d: %q", keys, i, size, n, text)
				}
			}
		}
	}
}

func TestAListOfAMillionHoldsAWindow(t *testing.T) {
	t.Parallel()
	f := newFake(1_000_000)
	u := newUser(t, f, 80, 24)
	if f.reads > maxScanned+2*pageRows+10 {
		t.Errorf("the first view has read %d rows", f.reads)
	}
	for range 40 {
		u.press("G")
	}
	l := u.m.list()
	if len(l.rows) > windowRows+2*pageRows {
		t.Errorf("the list holds %d rows", len(l.rows))
	}
	if last := l.rows[l.cursor].id; last < name(40*pageRows) {
		t.Errorf("after 40 moves to the last row, the cursor is at %s", last)
	}
	u.press("g")
	if l.selected() != name(1) {
		t.Errorf("g has moved to %s, not to the first row", l.selected())
	}
}

func TestScrollingThroughAListAndBackShowsEachRowOnce(t *testing.T) {
	t.Parallel()
	u := newUser(t, newFake(2345), 80, 24)
	l := u.m.list()
	var seen []string
	for len(seen) == 0 || seen[len(seen)-1] != l.selected() {
		seen = append(seen, l.selected())
		u.press("j")
	}
	if len(seen) != 2345 || !slices.IsSorted(seen) {
		t.Errorf("%d rows were seen on the way down, want 2345 in order", len(seen))
	}
	for range 2344 {
		u.press("k")
	}
	if l.selected() != name(1) || l.cursor != 0 {
		t.Errorf("after as many moves up, the cursor is at %s", l.selected())
	}
	if !slices.IsSorted(ids(l.rows)) {
		t.Error("the rows are out of order")
	}
}

func TestAChangeShowsWhereItIsVisibleAndCostsNothingElsewhere(t *testing.T) {
	t.Parallel()
	f := newFake(100_000)
	u := newUser(t, f, 80, 24)
	f.special[name(3)] = broken(3, "no address is left")
	u.send(feedMsg{live: true, position: 101, changes: []tko.Change{{Position: 101, Kind: tko.KindDeployment, ID: name(3), Op: tko.OpStatus}}})
	u.sees("PluginFailed: no address is left"[:16], "position 101")
	before := f.requests
	for i := range 1000 {
		u.send(feedMsg{live: true, position: 102, changes: []tko.Change{{Position: 102, Kind: tko.KindDeployment, ID: name(50_000 + i), Op: tko.OpStatus}}})
	}
	if n := f.requests - before; n > 1 { // one counts the states again
		t.Errorf("changes of rows that aren't visible have caused %d requests", n)
	}
}

func TestTheCursorStaysOnItsRow(t *testing.T) {
	t.Parallel()
	f := newFake(100)
	f.gone[name(2)] = true
	u := newUser(t, f, 80, 24)
	u.press("j", "j", "j")
	delete(f.gone, name(2))
	u.send(feedMsg{live: true, changes: []tko.Change{{Kind: tko.KindDeployment, ID: name(2), Op: tko.OpWritten}}})
	if l := u.m.list(); l.selected() != name(5) || len(l.rows) != 100 {
		t.Errorf("a new row above has moved the cursor from %s to %s of %d rows", name(5), l.selected(), len(l.rows))
	}
}

func TestAWrongFilterKeepsTheList(t *testing.T) {
	t.Parallel()
	u := newUser(t, newFake(30), 100, 24)
	u.press("/")
	u.enter("sit-id=x")
	u.sees(`the parameter "sit-id" is unknown`, "north/edge-1")
	u.press("esc", "/")
	u.enter("site-id=north/edge-2**")
	u.sees("north/edge-2 ", "north/edge-29", "$ tko deployment list --site-id 'north/edge-2**'")
	u.lacks("north/edge-3 ")
}

func TestAFilterIsAddedToTheOneThatIsThere(t *testing.T) {
	t.Parallel()
	u := newUser(t, newFake(30), 100, 24)
	u.press("p", "/")
	u.enter("site-id=north/edge-2**")
	if line := u.m.list().query.line; line != "site-id=north/edge-2** state=failing" {
		t.Errorf("the filter is %q", line)
	}
	u.press("/", "enter")
	if line := u.m.list().query.line; line != "site-id=north/edge-2** state=failing" {
		t.Errorf("without a change, the filter is %q", line)
	}
}

func TestFilterWordsAreCompleted(t *testing.T) {
	t.Parallel()
	u := newUser(t, newFake(3), 100, 24)
	u.press("/", "p", "r", "tab", "f", "a", "l", "s", "e", "enter")
	if line := u.m.list().query.line; line != "prepared=false" {
		t.Errorf("the filter is %q", line)
	}
}

func TestProblemsAreFoundAmongManyHealthyRows(t *testing.T) {
	t.Parallel()
	f := newFake(50_000)
	f.special[name(45_000)] = broken(45_000, "broken")
	u := newUser(t, f, 100, 24)
	u.press("p")
	u.sees("south/edge-1", "state=failing", "row 1 of 1")
	f.n = 1_000_000
	delete(f.special, name(45_000))
	reads := f.reads
	u.press("p", "p")
	u.sees("none among the first 100000: j searches on")
	if n := f.reads - reads; n > 150_000 {
		t.Errorf("a search has read %d rows by itself", n)
	}
}

func TestADeletionNeedsAnotherKeyThanItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake(30)
	u := newUser(t, f, 80, 24)
	u.press("D")
	u.sees("This will delete 1 deployment.", "Type yes and press enter")
	u.press("D", "enter", "y", "enter")
	u.send(tea.PasteMsg{Content: "yes"})
	u.press("enter", "esc")
	if len(f.removed) > 0 {
		t.Fatalf("%v was deleted without the word", f.removed)
	}
	u.press("space", "space", "D")
	u.sees("Delete 2 deployments that are marked", "Type 2 and press enter")
	u.enter("yes")
	if len(f.removed) > 0 {
		t.Fatalf("%v was deleted without the count", f.removed)
	}
	u.press("esc", "D")
	u.enter("2")
	if diff := cmp.Diff([]string{name(1), name(2)}, f.removed); diff != "" {
		t.Error(diff)
	}
	u.sees("deleted 2 deployments")
}

func TestAnActionIsRefusedIfItsCountHasChanged(t *testing.T) {
	t.Parallel()
	f := newFake(30)
	u := newUser(t, f, 80, 24)
	u.press("space", "space", "D")
	f.gone[name(1)] = true
	u.enter("2")
	u.sees("but 2 were confirmed")
	if len(f.removed) > 0 {
		t.Errorf("%v was deleted", f.removed)
	}
}

func TestAllThatMatchAreDeletedWithTheirCountOnly(t *testing.T) {
	t.Parallel()
	f := newFake(30)
	u := newUser(t, f, 100, 24)
	u.press("*")
	u.sees("set a filter first")
	u.press("/")
	u.enter("site-id=north/**")
	u.press("*", "D")
	u.sees("all deployments that match site-id=north/**", "This will delete 120 deployments.", "Type 120")
	u.enter("120")
	if diff := cmp.Diff([]int{120}, f.confirmed); diff != "" {
		t.Errorf("the server did not get the confirmed count: %s", diff)
	}
}

func TestOnlyWhatWaitsIsApproved(t *testing.T) {
	t.Parallel()
	f := sample()
	u := newUser(t, f, 80, 24)
	u.press("A")
	u.sees("Nothing to approve")
	u.press("esc", "space", "space", "space", "A")
	u.sees("This will approve 1 deployment.")
	u.enter("yes")
	if diff := cmp.Diff([]string{name(3)}, f.approved); diff != "" {
		t.Error(diff)
	}
}

func TestTextOfTheServerDoesNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	f := newFake(3)
	f.special[name(1)] = broken(1, "\x1b[2J\x1b]52;c;aGFja2Vk\a\u202egnp.exe")
	f.special[name(1)] = func() tko.Deployment {
		d := f.special[name(1)]
		d.Template, d.Metadata = "evil\x1b[31m", map[string]string{"a\x1b[5m": "\x9b5m"}
		return d
	}()
	f.history = map[int64]krm.Package{3: config("\x1b[2Jx\u202ey"), 2: config("\x1b[3J")}
	u := newUser(t, f, 160, 50)
	for _, keys := range [][]string{{"1"}, {"enter"}, {"y"}, {"d"}, {"H"}, {"t"}, {"D"}} {
		u.press(keys...)
		for _, text := range u.m.screen() {
			for _, bad := range []string{"\x1b[2J", "\x1b[3J", "\x1b]52", "\x1b[5m", "\x1b[31m", "\u202e", "\x9b", "\a"} {
				if strings.Contains(text, bad) {
					t.Errorf("after %q, the screen has %q: %q", keys, bad, text)
				}
			}
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	f := newFake(1)
	f.history = map[int64]krm.Package{1: {
		{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"password": "hunter2"}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"m": "apiVersion: v1\nkind: Secret\nstringData: {p: hunter2}\n", "password": "hunter2"}},
	}}
	u := newUser(t, f, 80, 24)
	u.press("y")
	u.lacks("hunter2")
	u.sees("kind: Secret")
}

func TestDetailsFollowLinksAndReturn(t *testing.T) {
	t.Parallel()
	u := newUser(t, sample(), 100, 30)
	u.press("enter", "/")
	u.enter("Site:")
	u.press("enter")
	u.sees("site south/edge-1")
	u.press("/")
	u.enter("deployments:")
	u.press("enter")
	u.sees("/ site-id=south/edge-1")
	u.press("4", "1", "esc", "j", "j", "j", "t")
	u.sees("failing  workload/upf:v2 at south/edge-1 >", "  healthy  workload/smf:v1 at north/edge-4 >", "no children")
}

func TestADifferenceShowsWhatARevisionHasChanged(t *testing.T) {
	t.Parallel()
	u := newUser(t, sample(), 100, 30)
	u.press("d") // of the first row, which fails
	u.sees("Revision 3 of 3", "-   image: v2", "+   image: v3")
	u.press("[")
	u.sees("Revision 2 of 3", "-   image: v1", "+   image: v2")
	u.press("[")
	u.sees("It is the first one.")
	u.press("]", "]")
	u.sees("Revision 3 of 3")
}

func TestEventsOfRolloutsOpenThemAndThoseOfUnknownKindsNameTheirCommand(t *testing.T) {
	t.Parallel()
	u := newUser(t, sample(), 100, 24)
	u.press("6")
	u.send(feedMsg{live: true, changes: []tko.Change{{Kind: "future", ID: "x", Op: tko.OpWritten, Time: start}, {Kind: tko.KindRollout, ID: "smf-v2", Op: tko.OpWritten, Time: start}}})
	u.press("enter")
	u.sees("rollout smf-v2", "[waves]")
	u.press("esc", "j", "enter")
	u.sees("a future is not shown here: use tko future get x")
}

func TestTheMouseSelectsRowsAndTabs(t *testing.T) {
	t.Parallel()
	u := newUser(t, newFake(100), 80, 24)
	u.send(tea.MouseClickMsg{X: 10, Y: listBegin + 4, Button: tea.MouseLeft})
	if id := u.m.list().selected(); id != name(5) {
		t.Errorf("a click has selected %s", id)
	}
	u.send(tea.MouseWheelMsg{X: 10, Y: 10, Button: tea.MouseWheelDown})
	if id := u.m.list().selected(); id != name(8) {
		t.Errorf("the wheel has moved to %s", id)
	}
	u.send(tea.MouseClickMsg{X: 20, Y: 1, Button: tea.MouseLeft})
	u.sees("SITE", "there is no site yet")
}

func TestRowsAreSortedOnlyIfAllAreThere(t *testing.T) {
	t.Parallel()
	u := newUser(t, sample(), 80, 24)
	u.sees("STATE^")
	if id := u.m.list().rows[0].id; id != name(2) {
		t.Errorf("the first row is %s, want the one that fails", id)
	}
	u.press("s")
	u.sees("TEMPLATE^")
	u.press("s", "s", "s", "s")
	u.lacks("^")
	if id := u.m.list().rows[0].id; id != name(1) {
		t.Errorf("sorted by ID, the first row is %s", id)
	}
	u = newUser(t, newFake(5000), 80, 24)
	u.lacks("^")
	u.press("s")
	u.sees("not all rows were read (G reads on), or there are over 1000")
}

func TestMetadataIsShownInColumnsOnRequest(t *testing.T) {
	t.Parallel()
	f := sample()
	for i, region := range []string{"south", "north", "east"} {
		site := tko.Site{ID: tko.SiteID(fmt.Sprint("edge/", i)), Metadata: map[string]string{"region": region, "tier": "\x1b[5m"}, Stamp: tko.Stamp{Revision: 1, Created: start, Updated: start}}
		if i == 0 {
			f.sites = nil
		}
		f.sites = append(f.sites, site)
	}
	u := newUser(t, f, 100, 20)
	u.press("2")
	u.lacks("REGION")
	columns := func(text string) {
		u.press(":")
		u.enter(text)
	}
	columns("columns region, tier")
	u.sees("REGION", "TIER", "north")
	u.lacks("\x1b[5m")
	for !strings.Contains(u.screen(), "REGION^") {
		u.press("s")
	}
	if got := ids(u.m.list().rows); !slices.Equal(got, []string{"edge/2", "edge/1", "edge/0"}) {
		t.Errorf("sorted by region: %q", got)
	}
	columns("columns")
	u.lacks("REGION")
	columns("columns 1 2 3 4 5 6 7 8 9")
	u.sees("9 keys are too many")
	u.press("4")
	columns("columns region")
	u.sees("plugins have no metadata")
}

func TestAFailureIsShownAndTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFake(10)
	u := newUser(t, f, 100, 24)
	f.fail = tko.Errorf(tko.ErrDenied, "token:ada may not read deployments")
	u.send(feedMsg{live: true, lost: true})
	u.sees("not allowed: token:ada may not read deployments", "north/edge-1")
	f.fail = nil
	u.send(tickMsg{})
	u.lacks("not allowed")
	u.send(feedMsg{live: false, err: tko.Errorf(tko.ErrBusy, "the server stops")})
	u.sees("not live since 14:00:00", "the server stops")
}

func TestWithoutColorNothingIsColored(t *testing.T) {
	t.Parallel()
	u := newUser(t, sample(), 160, 50)
	allowed := []string{"", "0", "1", "2", "7"}
	for _, color := range []bool{false, true} {
		u.m.options.Color = color
		colored := false
		for _, text := range u.m.screen() {
			for _, part := range strings.Split(text, "\x1b[")[1:] {
				code, _, _ := strings.Cut(part, "m")
				colored = colored || !slices.Contains(allowed, code)
			}
		}
		if colored != color {
			t.Errorf("with color=%v, the screen has colors: %v", color, colored)
		}
	}
}

func TestAFeedGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		var after []int64
		f.watch = func(ctx context.Context, from int64, yield func(tko.Change, error) bool) {
			after = append(after, from)
			switch len(after) {
			case 1:
				yield(tko.Change{}, tko.Errorf(tko.ErrGone, "position %d is no longer retained", from))
			case 2:
				_ = yield(tko.Change{Position: 105, Kind: tko.KindSite, ID: "x"}, nil) && yield(tko.Change{}, tko.Errorf(tko.ErrBusy, "the server stops"))
			default:
				<-ctx.Done()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []feedMsg
		feed := &feed{}
		go feed.follow(ctx, f, 300)
		go feed.forward(ctx, 100*time.Millisecond, func(msg tea.Msg) { got = append(got, msg.(feedMsg)) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]int64{100, 100, 105}, after); diff != "" {
			t.Errorf("watched after: %s", diff)
		}
		if len(got) < 3 || !got[0].lost || !got[len(got)-1].live {
			t.Errorf("the dashboard got %+v", got)
		}
		cancel()
		synctest.Wait()
	})
}

func TestAFeedIsBounded(t *testing.T) {
	t.Parallel()
	f := &feed{}
	for i := range 5 * maxFeed {
		f.add(tko.Change{Position: int64(i)})
	}
	if len(f.changes) != maxFeed || !f.lost {
		t.Errorf("the feed holds %d changes, lost: %v", len(f.changes), f.lost)
	}
}

func TestRunEndsWithItsContextAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := sample()
	watched := make(chan struct{})
	ended := make(chan struct{})
	f.watch = func(ctx context.Context, _ int64, _ func(tko.Change, error) bool) {
		close(watched)
		<-ctx.Done()
		close(ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, stop := io.Pipe()
	defer func() { _ = stop.Close() }()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, f, Options{In: in, Out: io.Discard, Every: 10 * time.Millisecond, Location: time.UTC, Now: time.Now})
	}()
	<-watched
	cancel()
	if err := <-done; err == nil {
		t.Error("an interrupted dashboard ends without an error")
	}
	select {
	case <-ended:
	default:
		t.Error("Run has returned before its watch has ended")
	}
}

func TestRunFailsAtOnceWithoutAServer(t *testing.T) {
	t.Parallel()
	f := newFake(0)
	f.fail = tko.Errorf(tko.ErrBusy, "can't be reached")
	if err := Run(t.Context(), f, Options{Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("Run without a server: %v", err)
	}
}
