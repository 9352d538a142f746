package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/osm"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/krm"
)

type acceptAll struct{}

func (acceptAll) Validate(context.Context, tko.Validation) error { return nil }

// A sequence is a random sequence of changes of a catalog. A scheduler works on its
// queue meanwhile, and changes happen also between any two of the scheduler's calls.
type sequence struct {
	*catalog.Service
	t           *testing.T
	random      *rand.Rand
	store       record.Store
	scheduler   *schedule.Scheduler
	held        []tko.WorkItem
	deployments []tko.DeploymentID
	quiet       bool // no changes during calls
	n           int

	applied map[string]map[tko.DeploymentID]string // packages by site, plugin and trigger
}

var (
	triggerKinds = []krm.GVK{{Group: "example.com", Version: "v1", Kind: "A"}, {Group: "example.com", Version: "v1", Kind: "B"}}
	someSites    = []tko.SiteID{"s0", "s1", "s2"}
)

func (q *sequence) check(err error) {
	q.t.Helper()
	if err != nil && !errors.Is(err, tko.ErrNotFound) && !errors.Is(err, tko.ErrInvalid) && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) {
		q.t.Fatal(err)
	}
}

// disturb makes a change during a call of the scheduler, sometimes.
func (q *sequence) disturb() {
	if q.quiet || q.random.IntN(3) > 0 {
		return
	}
	q.quiet = true
	q.change()
	q.quiet = false
}

func (q *sequence) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	s, err := q.Service.Site(ctx, id, revision)
	q.disturb() //nolint:contextcheck // changes have the context of the test
	return s, err
}

func (q *sequence) Plugins(ctx context.Context, s tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	q.disturb() //nolint:contextcheck // changes have the context of the test
	return q.Service.Plugins(ctx, s, o)
}

func (q *sequence) Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	q.disturb() //nolint:contextcheck // changes have the context of the test
	return q.Service.Deployments(ctx, s, o)
}

func (q *sequence) SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	q.disturb() //nolint:contextcheck // changes have the context of the test
	err := q.Service.SetConditions(ctx, kind, id, conditions)
	q.disturb() //nolint:contextcheck // changes have the context of the test
	return err
}

func (q *sequence) Schedule(_ context.Context, p tko.Plugin, target krm.Identity, site tko.Site, deployments map[tko.DeploymentID]krm.Package, _ ...func(string)) error {
	q.disturb() //nolint:contextcheck // changes have the context of the test
	now := map[tko.DeploymentID]string{}
	for id, pkg := range deployments {
		_, encoded, err := krm.DigestOf(pkg)
		if err != nil {
			return err
		}
		now[id] = string(encoded)
	}
	q.applied[fmt.Sprintf("%s %s %s", site.ID, p.Name, target)] = now
	return nil
}

func resource(gvk krm.GVK, name string) krm.Resource {
	return krm.Resource{"apiVersion": gvk.Group + "/" + gvk.Version, "kind": gvk.Kind, "metadata": map[string]any{"name": name}}
}

// somePackage returns a package that triggers nothing, or one of the plugins.
func (q *sequence) somePackage() krm.Package {
	q.n++
	var pkg krm.Package
	if q.random.IntN(3) == 0 {
		pkg = append(pkg, resource(krm.GVK{Group: "example.com", Version: "v1", Kind: "Thing"}, fmt.Sprintf("thing-%d", q.n)))
	}
	if q.random.IntN(3) == 0 {
		pkg = append(pkg, resource(triggerKinds[q.random.IntN(2)], "trigger"))
	}
	return pkg
}

func (q *sequence) someSite() tko.SiteID { return someSites[q.random.IntN(len(someSites))] }

// stateAt returns a Deployment resource, prepared and approved mostly.
func (q *sequence) stateAt() krm.Resource {
	r := resource(krm.DeploymentGVK, "deployment")
	r["spec"] = map[string]any{"siteId": string(q.someSite())}
	if q.random.IntN(4) > 0 {
		r["metadata"] = map[string]any{"name": "deployment", "annotations": map[string]any{krm.AnnotationPrepared: "true", krm.AnnotationApproved: "true"}}
	}
	return r
}

// change makes one random change.
func (q *sequence) change() {
	ctx := q.t.Context()
	switch q.random.IntN(14) {
	case 0, 1, 2, 3:
		s := tko.Site{ID: q.someSite(), Package: q.somePackage(), Metadata: map[string]string{"n": strconv.Itoa(q.random.IntN(3))}}
		if q.random.IntN(3) == 0 {
			s.Template = "t"
		}
		_, err := q.RegisterSite(ctx, s)
		q.check(err)
	case 4:
		_, err := q.DeleteSite(ctx, q.someSite())
		q.check(err)
	case 5, 6:
		q.n++
		id, err := q.CreateDeployment(ctx, tko.NewDeployment{Site: q.someSite(), Merge: krm.Package{
			q.stateAt(), resource(krm.GVK{Version: "v1", Kind: "ConfigMap"}, fmt.Sprintf("c%d", q.n)),
		}})
		if q.check(err); err == nil {
			q.deployments = append(q.deployments, id)
		}
	case 7, 8:
		if len(q.deployments) == 0 {
			return
		}
		id := q.deployments[q.random.IntN(len(q.deployments))]
		m, err := q.StartModification(ctx, id)
		if q.check(err); err != nil {
			return
		}
		pkg := krm.Package{q.stateAt()}
		for _, r := range m.Package {
			if r.GVK() != krm.DeploymentGVK {
				pkg = append(pkg, r)
			}
		}
		if _, _, err = q.EndModification(ctx, m.Token, pkg); err != nil {
			q.check(err)
			q.check(q.CancelModification(ctx, m.Token))
		}
	case 9:
		if len(q.deployments) == 0 {
			return
		}
		i := q.random.IntN(len(q.deployments))
		_, err := q.DeleteDeploymentAt(ctx, q.deployments[i], 0)
		q.check(err)
	case 10:
		i := q.random.IntN(2)
		_, err := q.RegisterPlugin(ctx, tko.Plugin{Type: tko.PluginSchedule, Name: fmt.Sprintf("p%d", i), Arguments: []string{strconv.Itoa(q.n)}, Triggers: triggerKinds[i : i+1]})
		q.check(err)
	case 11:
		_, err := q.DeletePlugin(ctx, tko.PluginSchedule, fmt.Sprintf("p%d", q.random.IntN(2)))
		q.check(err)
	case 12:
		_, err := q.RegisterTemplate(ctx, tko.Template{ID: "t", Package: q.somePackage(), Metadata: map[string]string{"n": strconv.Itoa(q.random.IntN(3))}})
		q.check(err)
	case 13:
		_, err := q.DeleteTemplate(ctx, "t")
		q.check(err)
	}
}

// claim claims items that are due. next is the time when the next one is due: zero
// if the queue is empty.
func (q *sequence) claim() (claimed bool, next time.Time) {
	items, next, err := q.store.ClaimWork(q.t.Context(), tko.ClaimWork{Queue: tko.QueueSchedule, Max: 2, Lease: time.Hour})
	q.check(err)
	q.held = append(q.held, items...)
	return len(items) > 0, next
}

// work reconciles the site of a claimed item.
func (q *sequence) work() {
	if len(q.held) == 0 {
		return
	}
	i := q.random.IntN(len(q.held))
	item := q.held[i]
	q.held = append(q.held[:i:i], q.held[i+1:]...)
	result := q.scheduler.Reconcile(tko.WithClaim(q.t.Context(), item), tko.SiteID(item.Key))
	f := tko.FinishedWork{Item: item, Outcome: result.Outcome, Retry: result.Retry}
	if result.Err != nil {
		f.Outcome, f.Error, f.Retry = tko.WorkFailed, result.Err.Error(), time.Microsecond
	}
	q.disturb()
	q.check(q.FinishWork(q.t.Context(), []tko.FinishedWork{f}))
}

// drain works until the queue is empty.
func (q *sequence) drain() {
	q.quiet = true
	defer func() { q.quiet = false }()
	for {
		claimed, next := q.claim()
		if len(q.held) > 0 {
			q.work()
			continue
		}
		if !claimed && next.IsZero() {
			return
		}
		time.Sleep(time.Until(next)) // a woken queue is due within a second
	}
}

func newSequence(t *testing.T, seed uint64) *sequence {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	q := &sequence{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), store: store,
		Service: catalog.New(store, acceptAll{}, catalog.Options{ConfirmAbove: 1000}), applied: map[string]map[tko.DeploymentID]string{},
	}
	q.scheduler = schedule.New(q, q, schedule.Options{})
	t.Cleanup(q.scheduler.Close)
	return q
}

func TestNoSiteThatNeedsSchedulingIsForgotten(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			q := newSequence(t, seed)
			for range 4 {
				for range 60 {
					switch q.random.IntN(4) {
					case 0, 1:
						q.change()
					case 2:
						q.claim()
					default:
						q.work()
					}
				}
				q.drain()
				q.isSettled()
			}
		})
	}
}

// isSettled checks that reconciling each site changes nothing: none needed it.
func (q *sequence) isSettled() {
	q.t.Helper()
	ctx := q.t.Context()
	head, err := q.store.Head(ctx)
	q.check(err)
	was := q.applied
	q.applied = map[string]map[tko.DeploymentID]string{}
	maps.Copy(q.applied, was)
	q.quiet = true
	for _, id := range someSites {
		if result := q.scheduler.Reconcile(ctx, id); result.Err != nil {
			q.t.Errorf("site %s: %v", id, result.Err)
		}
	}
	q.quiet = false
	if diff := cmp.Diff(was, q.applied); diff != "" {
		q.t.Errorf("a site needed scheduling, and was not in the queue: applied (-had +want)\n%s", diff)
	}
	now, err := q.store.Head(ctx)
	q.check(err)
	if now == head {
		return
	}
	changes, err := q.store.Changes(ctx, head, 10)
	q.check(err)
	q.t.Errorf("a site needed scheduling, and was not in the queue: reconciling it wrote %+v", changes)
}

func TestTargetsTriggerScheduling(t *testing.T) {
	t.Parallel()
	for _, gvk := range []krm.GVK{git.GVK, kubernetes.GVK, osm.GVK} {
		q := newSequence(t, 1)
		q.quiet = true
		for n := range 2 { // the second registration is derived from cached rules
			id := tko.SiteID(fmt.Sprintf("s%d", n))
			if _, err := q.RegisterSite(t.Context(), tko.Site{ID: id, Package: krm.Package{resource(gvk, "target")}}); err != nil {
				t.Fatal(err)
			}
			if claimed, _ := q.claim(); !claimed {
				t.Errorf("site %s with a %s: no work", id, gvk)
			}
		}
		if _, err := q.RegisterSite(t.Context(), tko.Site{ID: "s2"}); err != nil {
			t.Fatal(err)
		}
		if claimed, _ := q.claim(); claimed {
			t.Error("site s2 has no target, and work")
		}
	}
}
