package gitops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/rollout/controller"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// place is a deployment without a site, which is healthy as soon as it is prepared.
func place(name, template, value string) string {
	return fmt.Sprintf(`
apiVersion: tko.nephio.org/v1alpha1
kind: Deployment
metadata: {name: %q, labels: {value: %q}}
spec:
  templateId: %q
  package:
    resources:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {value: %q}}
`, name, value, template, value)
}

// planned are the settings of a source with rollouts.
func planned(url string) gitops.Settings {
	return gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: url}, Interval: "1s", Rollout: map[string]any{
		"waves": []any{map[string]any{"name": "canary", "count": float64(1)}, map[string]any{"name": "rest"}},
	}}
}

// advance runs a rollout controller until the test ends.
func advance(t testing.TB, c *client.Client) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx, c, controller.Options{Worker: "rollouts"}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// rolloutOf returns the ID of the rollout of a revision.
func rolloutOf(revision string) tko.RolloutID {
	_, commit, _ := strings.Cut(revision, ":")
	return tko.RolloutID("gitops/fleet/" + commit[:12])
}

// state waits until a rollout is in a state.
func (w *world) state(id tko.RolloutID, state string) tko.RolloutStatus {
	w.Helper()
	var s tko.RolloutStatus
	eventually.NoError(w.TB, fmt.Sprintf("rollout %q is %s", id, state), func() (err error) {
		if s, err = w.RolloutStatus(w.Context(), id); err == nil && s.State != state {
			err = fmt.Errorf("it is %s: %s %v %+v", s.State, s.Reason, s.Blocks, s.Examples)
		}
		return err
	})
	return s
}

// begin waits until a rollout is planned, and starts it.
func (w *world) begin(id tko.RolloutID) {
	w.Helper()
	s := w.state(id, "Planned")
	if _, err := w.RolloutDo(w.Context(), tko.RolloutCommand{ID: id, Verb: "start", Plan: s.Plan}); err != nil {
		w.Fatal(err)
	}
}

// waiting waits until the source isn't ready because of a rollout, with a message.
func (w *world) waiting(part string) tko.Source {
	w.Helper()
	return w.until("fleet", "waiting: "+part, func(s tko.Source) bool {
		c := ready(s)
		return c.Status == tko.ConditionFalse && (c.Reason == tko.SourceReasonRollout || c.Reason == tko.SourceReasonStopped) && strings.Contains(c.Message, part)
	})
}

// values returns "ID value template" for each deployment, sorted.
func (w *world) values() []string {
	w.Helper()
	var found []string
	for d, err := range w.Deployments(w.Context(), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			w.Fatal(err)
		}
		value := ""
		for _, r := range d.Package {
			if r.Name() == "own" {
				v, _ := r.Get("data", "value")
				value, _ = v.(string)
			}
		}
		found = append(found, fmt.Sprintf("%s %s/%s %s", d.ID, value, d.Metadata["value"], d.Template))
	}
	slices.Sort(found)
	return found
}

func without(found []string) []string {
	var values []string
	for _, f := range found {
		_, value, _ := strings.Cut(f, " ")
		values = append(values, value)
	}
	slices.Sort(values)
	return values
}

// A commit that creates, changes and deletes deployments becomes a rollout. It is applied
// when a user starts the rollout, and a revert of the commit undoes it byte for byte.
func TestCommitBecomesARolloutAndItsRevertUndoesIt(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	first := r.push(map[string]string{"a.yaml": all(template("t:1", "1"), place("a", "t:1", "1"), place("b", "t:1", "1"), place("c", "t:1", "1"))})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, planned(r.url))}})
	w.waiting("is planned: 3 Create")
	if found := w.values(); len(found) != 0 {
		t.Fatalf("before the rollout is started, the deployments are %v", found)
	}
	if _, err := c.Template(t.Context(), "t:1", 0); err != nil {
		t.Errorf("the template isn't applied before the rollout: %v", err)
	}
	w.begin(rolloutOf(first))
	w.state(rolloutOf(first), "Done")
	w.sync("fleet", first)
	before := w.values()
	if got := without(before); !slices.Equal(got, []string{"1/1 t:1", "1/1 t:1", "1/1 t:1"}) {
		t.Fatalf("the deployments are %v", got)
	}

	second := r.push(map[string]string{"a.yaml": all(template("t:2", "2"), place("a", "t:2", "2"), place("b", "t:2", "1"), place("d", "t:2", "4"))})
	s := w.waiting("1 Create, 1 Delete")
	pending := 0
	for _, item := range s.Status.Items {
		if item.Rollout == rolloutOf(second) {
			pending++
		}
	}
	if pending != 3 || s.Status.Attempted != second || s.Status.Applied != first {
		t.Errorf("%d items are pending in the rollout, at %q after %q: want 3; %+v", pending, s.Status.Attempted, s.Status.Applied, s.Status.Items)
	}
	if !slices.Equal(w.values(), before) {
		t.Error("deployments changed before the rollout was started")
	}
	if _, err := c.Template(t.Context(), "t:1", 0); err != nil {
		t.Errorf("the template is removed before the rollout: %v", err)
	}
	w.begin(rolloutOf(second))
	w.state(rolloutOf(second), "Done")
	w.sync("fleet", second)
	if got := without(w.values()); !slices.Equal(got, []string{"1/1 t:2", "2/2 t:2", "4/4 t:2"}) {
		t.Fatalf("after the rollout, the deployments are %v", got)
	}
	if _, err := c.Template(t.Context(), "t:1", 0); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("the removed template is left after the rollout: %v", err)
	}

	git(t, r.dir, "revert", "--no-edit", "HEAD")
	third := r.push(nil)
	w.state(rolloutOf(second), "Undone")
	w.sync("fleet", third)
	if got := w.values(); !slices.Equal(got, before) {
		t.Errorf("after the revert, the deployments are\n%v, want\n%v", got, before)
	}
	if _, err := c.Rollout(t.Context(), rolloutOf(third), 0); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("the revert made a rollout of its own: %v", err)
	}
}

func TestNewerCommitTakesThePlaceOfARolloutThatIsNotStarted(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "1"))})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, planned(r.url))}})
	w.waiting("1 Create")
	second := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "1"), place("b", "t", "2"))})
	w.waiting("2 Create")
	w.state(rolloutOf(first), "Cancelled")
	if _, err := c.RolloutDo(t.Context(), tko.RolloutCommand{ID: rolloutOf(second), Verb: "cancel"}); err != nil {
		t.Fatal(err)
	}
	w.waiting("Cancelled")
	third := r.push(map[string]string{"a.yaml": template("t", "1")})
	w.sync("fleet", third)
	if got := w.values(); len(got) != 0 {
		t.Errorf("the deployments are %v, want none", got)
	}
}

// A commit waits while the rollout of an earlier one is in progress, unless it reverts
// that one.
func TestNewerCommitWaitsForARunningRollout(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	settings := planned(r.url)
	settings.Rollout["waves"] = []any{map[string]any{"name": "canary", "count": float64(1)}, map[string]any{"name": "rest", "approval": "Required"}}
	base := r.push(map[string]string{"a.yaml": template("t", "1")})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.sync("fleet", base)
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "1"), place("b", "t", "1"))})
	w.waiting("2 Create")
	w.begin(rolloutOf(first))
	eventually.True(t, "the first wave is applied", func() bool { return len(w.values()) == 1 })
	second := r.push(map[string]string{"a.yaml": all(template("t", "2"), place("a", "t", "3"), place("b", "t", "1"))})
	s := w.waiting("revision " + second + " waits for the one of revision " + first)
	if got, err := c.Template(t.Context(), "t", 0); err != nil || got.Stamp.Revision != 1 {
		t.Errorf("the template is at revision %d, %v: the commit was not held back", got.Stamp.Revision, err)
	}
	if s.Status.Applied == first {
		t.Error("the first commit counts as applied before its rollout is done")
	}
	git(t, r.dir, "revert", "--no-edit", "HEAD", "HEAD~1")
	third := r.push(nil)
	w.state(rolloutOf(first), "Undone")
	w.sync("fleet", third)
	if got := w.values(); len(got) != 0 {
		t.Errorf("after the revert, the deployments are %v, want none", got)
	}
}

// If a controller stops right after it made a rollout, or right before, the next one goes
// on with the same rollout.
func TestInterruptedControllersMakeOneRollout(t *testing.T) {
	t.Parallel()
	for _, fatal := range []string{"before", "after"} {
		t.Run(fatal, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			c := data(t)
			advance(t, c)
			first := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "1"), place("b", "t", "1"))})
			ctx, stop := context.WithCancel(t.Context())
			one := &rolloutDying{dying: &dying{Client: c, at: string(tko.KindRollout), die: stop}, before: fatal == "before"}
			dead := gitops.New(one, gitops.Options{Worker: "dead", Sources: []gitops.Spec{spec(t, planned(r.url))}, Lease: 100 * time.Millisecond})
			if err := dead.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Rollout(t.Context(), rolloutOf(first), 0); (err == nil) == one.before {
				t.Fatalf("after the end of the first controller, the rollout is there: %v", err == nil)
			}
			w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, planned(r.url))}})
			w.waiting("2 Create")
			w.begin(rolloutOf(first))
			w.state(rolloutOf(first), "Done")
			w.sync("fleet", first)
			rollouts := 0
			for _, err := range c.Rollouts(t.Context(), tko.RolloutSelect{}, tko.ListOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				rollouts++
			}
			if got := w.values(); rollouts != 1 || len(got) != 2 {
				t.Errorf("there are %d rollouts and the deployments %v: want 1 and 2", rollouts, got)
			}
		})
	}
}

// A rollout may be started and done while a reconciliation proposes it, after each of the
// reconciliation's calls: no second one is made of what it did.
func TestRolloutThatIsStartedDuringAPlanStaysTheOnlyOne(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 5; at++ {
		t.Run(fmt.Sprintf("after call %d", at), func(t *testing.T) {
			t.Parallel()
			testStartedDuringAPlan(t, at)
		})
	}
}

func testStartedDuringAPlan(t *testing.T, at int) {
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	revision := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "1"), place("b", "t", "1"))})
	ctx, stop := context.WithCancel(t.Context())
	one := &rolloutDying{dying: &dying{Client: c, at: string(tko.KindRollout), die: stop}}
	if err := gitops.New(one, gitops.Options{Worker: "dead", Sources: []gitops.Spec{spec(t, planned(r.url))}, Lease: 100 * time.Millisecond}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, Client: c}
	id := rolloutOf(revision)
	w.state(id, "Planned")
	late := &lateClient{Client: c, at: int64(at), looked: make(chan struct{}), done: make(chan struct{})}
	w.controller = gitops.New(late, gitops.Options{Sources: []gitops.Spec{spec(t, planned(r.url))}})
	ctx, stop = context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.controller.Run(ctx) }()
	<-late.looked
	w.begin(id)
	w.state(id, "Done")
	close(late.done)
	w.until("fleet", "at "+revision, func(s tko.Source) bool { return s.Status.Applied == revision && ready(s).Status == tko.ConditionTrue })
	for other, err := range c.Rollouts(t.Context(), tko.RolloutSelect{}, tko.ListOptions{}) {
		if err != nil || other.ID != id {
			t.Errorf("there is the rollout %q, too (%v)", other.ID, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A lateClient returns the result of one of its calls about rollouts when done is closed.
type lateClient struct {
	*client.Client
	at, calls    int64
	mu           sync.Mutex
	looked, done chan struct{}
}

func (l *lateClient) late(ctx context.Context) {
	l.mu.Lock()
	l.calls++
	now := l.calls == l.at
	l.mu.Unlock()
	if !now {
		return
	}
	close(l.looked)
	select {
	case <-l.done:
	case <-ctx.Done():
	}
}

func (l *lateClient) RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	defer l.late(ctx)
	return l.Client.RolloutStatus(ctx, id)
}

func (l *lateClient) Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error) {
	defer l.late(ctx)
	return l.Client.Rollout(ctx, id, revision)
}

func (l *lateClient) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	if p.Kind == tko.KindRollout && !p.DryRun {
		defer l.late(ctx)
	}
	return l.Client.PutEntity(ctx, p)
}

// A rolloutDying client dies before or after it writes a rollout.
type rolloutDying struct {
	*dying
	before bool
}

func (d *rolloutDying) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	if d.before && string(p.Kind) == d.at && !p.DryRun {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dead = true
		d.die()
		return tko.PutResult{}, context.Canceled
	}
	return d.dying.PutEntity(ctx, p)
}

// Removals beyond the budget aren't in the rollout until they are approved.
func TestBudgetHoldsForRollouts(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	settings := planned(r.url)
	settings.Budget = &gitops.BudgetSettings{Percent: 10, Entities: 1}
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "1"), place("b", "t", "1"), place("c", "t", "1"))})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.waiting("3 Create")
	w.begin(rolloutOf(first))
	w.state(rolloutOf(first), "Done")
	w.sync("fleet", first)
	second := r.push(map[string]string{"a.yaml": all(template("t", "1"), place("a", "t", "2"))})
	s := w.waiting("is planned: 1 Change.")
	if s.Status.PendingRemoval == "" {
		t.Error("the removal doesn't ask for an approval")
	}
	if err := w.controller.Approve(t.Context(), "fleet", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.waiting("1 Change, 2 Delete")
	w.begin(rolloutOf(second))
	w.state(rolloutOf(second), "Done")
	w.sync("fleet", second)
	if got := without(w.values()); !slices.Equal(got, []string{"2/2 t"}) {
		t.Errorf("the deployments are %v", got)
	}
}

func TestInvalidRolloutSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]any{
		"edits":   {"edits": []any{}},
		"unknown": {"wave": []any{}},
		"wave":    {"waves": []any{map[string]any{"name": "a", "count": float64(0)}}},
	} {
		if _, err := (gitops.Settings{Name: "x", Git: gitops.GitSettings{URL: "file:///x"}, Rollout: settings}).Spec(""); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: the error is %v, want ErrInvalid", name, err)
		}
	}
}

// A source shows at once that its rollout has ended, and not at the end of its interval, in
// which it doesn't read the repository.
func TestFinishedRolloutIsShownBeforeTheInterval(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	first := r.push(map[string]string{"a.yaml": all(template("t:1", "1"), place("a", "t:1", "1"))})
	settings := planned(r.url)
	settings.Interval = "1h"
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.waiting("is planned: 1 Create")
	requests := r.requests.Load()
	w.begin(rolloutOf(first))
	w.state(rolloutOf(first), "Done")
	began := time.Now()
	s := w.until("fleet", "ready", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	if took := time.Since(began); s.Status.Applied != first || took > 2*time.Minute {
		t.Errorf("the source is at %q after %s", s.Status.Applied, took)
	}
	if n := r.requests.Load() - requests; n > 30 {
		t.Errorf("the repository got %d requests meanwhile", n)
	}
}
