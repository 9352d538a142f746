package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// settleTime bounds the wait for applied definitions to be served. If it takes
// longer, the next reconciliation continues.
const (
	settleTime  = 10 * time.Second
	settlePause = 50 * time.Millisecond
)

// A reconciliation is one reconciliation of a site with a cluster: run observes,
// decides and acts. It is used once.
type reconciliation struct {
	target      *Target
	conn        *cluster // for objects: impersonates a user, if the spec asks for it
	own         *cluster // for inventories
	releases    releases // at conn
	spec        spec
	site        tko.Site
	deployments []tko.Deployment
	held        []tko.DeploymentID
	health      healthRules
	management  bool // whether the cluster is the management cluster

	recorded   inventories
	budgetBase int // objects that the removal budget is a share of
	wanted     wanted
	live       map[key]*unstructured.Unstructured // observed state of the recorded objects
	unreadable map[key]string                     // by recorded object that cannot be read: the reason; it stays as it is
	blocked    map[tko.DeploymentID]string        // by deployment: what it waits for
	depends    map[tko.DeploymentID]dependencies  // of those that depend on others
	sources    map[key]source                     // what values of charts are read from, and is in no package
	removed    []tko.DeploymentID
	removing   []string // objects that are being removed, or that can't be removed yet, with the reason
	pruning    pruning
	replaces   replaces
	started    time.Time
	changing   bool // an object is in progress towards its desired state

	mu     sync.Mutex
	states map[key]*state // of the wanted objects

	appliedCount, removedCount atomic.Int64 // objects, in this reconciliation
}

// group returns a group for concurrent requests to the cluster, within their limit.
func (rc *reconciliation) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rc.target.options.Parallel)
	return g, ctx
}

// log logs the numbers of applied and removed objects, unless both are 0.
func (rc *reconciliation) log(ctx context.Context) {
	if applied, gone := rc.appliedCount.Load(), rc.removedCount.Load(); applied+gone > 0 {
		rc.target.options.Log.InfoContext(ctx, "changed a cluster", "site", string(rc.site.ID), "applied", applied, "removed", gone)
	}
}

// A state is the result of the reconciliation of an object.
type state struct {
	live      *unstructured.Unstructured // nil if it does not exist
	entry     entry                      // to be recorded
	problem   *problem
	drift     string // changes by others that were not corrected
	corrected string // changes by others that were corrected
	waits     string // what it waits for before it reaches its desired state

	deployed []map[string]any // the objects of its release, if this reconciliation deployed it and has not read them yet
}

// pending returns whether an object does not exist yet because it waits.
func (s *state) pending() bool { return s.live == nil && s.waits != "" }

// completed returns whether an object is a Job that has completed and that Kubernetes
// has removed for that, or is removing.
func (s *state) completed() bool {
	return s.entry.Completed && (s.live == nil || s.live.GetDeletionTimestamp() != nil)
}

// run executes the reconciliation. On an error it is incomplete.
func (rc *reconciliation) run(ctx context.Context) error {
	actions, err := rc.plan(ctx)
	if err != nil {
		return err
	}
	if err := fence.Check(ctx); err != nil {
		return err
	}
	if err := rc.recordIntent(ctx, actions); err != nil {
		return err
	}
	if err := rc.applyAll(ctx, actions); err != nil {
		return err
	}
	if err := rc.assessReleases(ctx); err != nil {
		return err
	}
	if err := rc.testReleases(ctx); err != nil {
		return err
	}
	if err := rc.restoreReplaced(ctx); err != nil {
		return err
	}
	if err := rc.prune(ctx, nil); err != nil {
		return err
	}
	return rc.record(ctx)
}

// plan observes the cluster, and decides on an action for each wanted object. It changes
// nothing in the cluster.
func (rc *reconciliation) plan(ctx context.Context) (actions map[key]action, err error) {
	rc.started = time.Now()
	rc.live, rc.blocked, rc.unreadable = map[key]*unstructured.Unstructured{}, map[tko.DeploymentID]string{}, map[key]string{}
	slices.SortFunc(rc.deployments, func(a, b tko.Deployment) int { return cmp.Compare(a.ID, b.ID) })
	if rc.recorded, err = rc.own.readInventories(ctx, rc.spec.Inventory, rc.site.ID); err != nil {
		return nil, err
	}
	if err := rc.desire(ctx); err != nil {
		return nil, err
	}
	if err := rc.observe(ctx); err != nil {
		return nil, err
	}
	seen := snapshot{wanted: rc.wanted, recorded: rc.recorded, live: rc.live, unreadable: rc.unreadable, drift: rc.spec.Drift}
	d := decide(seen)
	if len(d.unread) > 0 {
		if seen.missing, err = rc.observeReleases(ctx, d.unread); err != nil {
			return nil, err
		}
		d = decide(seen)
	}
	rc.states = d.states
	rc.findReplaced(d.actions)
	return d.actions, nil
}

// desire computes the desired state of the cluster.
func (rc *reconciliation) desire(ctx context.Context) error {
	var failed error
	rc.wanted = collectWanted(rc.deployments, rc.spec.Namespace, rc.management, func(gvk krm.GVK) scope {
		k, known, err := rc.conn.kindOf(ctx, gvk)
		switch {
		case err != nil:
			failed = err
			return unknown
		case !known:
			return unknown
		case k.namespaced:
			return namespaced
		default:
			return clusterWide
		}
	})
	if failed != nil {
		return failed
	}
	// Objects of another site in the same cluster are not this site's. Namespaces can
	// be shared.
	for id, keys := range rc.wanted.of {
		rc.wanted.of[id] = slices.DeleteFunc(keys, func(k key) bool {
			other, ok := rc.recorded.owner(k)
			if !ok || k.isNamespace() {
				return false
			}
			p := newProblem(k.String(), true, "belongs to deployment %q of site %q in the same cluster: an object belongs to one deployment only", other.deployment, other.site)
			if other.deployment == id { // it moved from there: that site releases it soon
				p = newProblem(k.String(), false, "still belongs to site %q in the same cluster, from which this deployment moved", other.site)
			}
			rc.wanted.problems[id] = append(rc.wanted.problems[id], p)
			delete(rc.wanted.objects, k)
			return true
		})
	}
	if err := rc.desireCharts(ctx); err != nil {
		return err
	}
	rc.resolveDependencies()
	rc.checkReplaceOrders()
	return nil
}

// observe reads the recorded objects, with one list for several objects of a kind in
// a namespace.
func (rc *reconciliation) observe(ctx context.Context) error {
	places := map[collection][]key{}
	versions := map[key]string{}
	for _, i := range rc.recorded.mine {
		for k, e := range i.entries {
			if k.isChart() {
				rc.recordLive(k, releaseObject(k, e, i.deployment))
				continue
			}
			if _, ok := versions[k]; !ok {
				versions[k] = e.Version
				if o := rc.wanted.objects[k]; o != nil {
					versions[k] = o.version
				}
				at := collection{k.Group, versions[k], k.Kind, k.Namespace}
				places[at] = append(places[at], k)
			}
		}
	}
	return rc.readCollections(ctx, places)
}

// A collection identifies the objects of a kind in a namespace.
type collection struct{ group, version, kind, namespace string }

func (rc *reconciliation) readCollections(ctx context.Context, places map[collection][]key) error {
	g, ctx := rc.group(ctx)
	for at, keys := range places {
		g.Go(func() error {
			missing := keys
			if len(keys) > 1 {
				found, err := rc.list(ctx, krm.GVK{Group: at.group, Version: at.version, Kind: at.kind}, at.namespace, keys)
				if err != nil {
					return rc.recordUnreadable(ctx, err, keys...)
				}
				missing = slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return found[k] })
			}
			for _, k := range missing { // or another client removed its label
				r, err := rc.conn.get(ctx, k, at.version)
				if err != nil {
					if err := rc.recordUnreadable(ctx, err, k); err != nil {
						return err
					}
					continue
				}
				rc.recordLive(k, r)
			}
			return nil
		})
	}
	return g.Wait()
}

func (rc *reconciliation) list(ctx context.Context, gvk krm.GVK, namespace string, keys []key) (map[key]bool, error) {
	found := map[key]bool{}
	k, known, err := rc.conn.kindOf(ctx, gvk)
	if err != nil || !known {
		return found, err
	}
	if !k.namespaced {
		namespace = ""
	}
	all, err := rc.conn.list(ctx, k.resource, namespace, LabelDeployment)
	if apierrors.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the objects of %s in namespace %q: %w", gvk, namespace, err)
	}
	ours := make(map[key]bool, len(keys))
	for _, k := range keys {
		ours[k] = true
	}
	for _, r := range all {
		at := key{gvk.Group, gvk.Kind, r.GetNamespace(), r.GetName()}
		if ours[at] {
			found[at] = true
			rc.recordLive(at, r)
		}
	}
	return found, nil
}

// recordUnreadable records that objects can't be read. It returns err only if the
// cluster is unreachable or the context has ended: other objects are still
// reconciled.
func (rc *reconciliation) recordUnreadable(ctx context.Context, err error, keys ...key) error {
	if ctx.Err() != nil || isUnreachable(err) {
		return err
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	for _, k := range keys {
		rc.unreadable[k] = "can't be read: " + bounded(err.Error())
	}
	return nil
}

func (rc *reconciliation) recordLive(k key, r *unstructured.Unstructured) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.live[k] = r
}

// hasRecorded returns whether the inventory of a deployment at this site has an object.
func (rc *reconciliation) hasRecorded(owner string, k key) bool {
	return rc.recorded.mine[tko.DeploymentID(owner)].names(k)
}

func (rc *reconciliation) inventory(id tko.DeploymentID) *inventory {
	if i := rc.recorded.mine[id]; i != nil {
		return i
	}
	i := &inventory{site: rc.site.ID, deployment: id, entries: map[key]entry{}}
	rc.recorded.mine[id] = i
	return i
}

// recordIntent adds the objects that are about to be applied to the inventories, in
// addition to the existing ones.
func (rc *reconciliation) recordIntent(ctx context.Context, actions map[key]action) error {
	ids := slices.Collect(maps.Keys(rc.wanted.of))
	for id := range rc.replaces.since {
		if !rc.isWanted(id) {
			ids = append(ids, id)
		}
	}
	return rc.eachInventory(ctx, ids, func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		rc.markReplaced(i.deployment, next)
		for _, k := range rc.wanted.of[i.deployment] {
			was, there := next[k]
			if !there || actions[k] == actionApply {
				e := rc.states[k].entry
				e.New, e.Replaced = !there || was.New, 0
				next[k] = e
			}
		}
		return next
	})
}

// eachInventory updates the inventories of the deployments to the given entries.
func (rc *reconciliation) eachInventory(ctx context.Context, ids []tko.DeploymentID, entries func(*inventory) map[key]entry) error {
	g, ctx := rc.group(ctx)
	for _, id := range ids {
		i := rc.inventory(id)
		next := entries(i)
		g.Go(func() error { return rc.own.writeInventory(ctx, rc.spec.Inventory, i, next) })
	}
	return g.Wait()
}

// applyAll applies objects step by step. The previous steps of a deployment must be
// healthy before its next one.
func (rc *reconciliation) applyAll(ctx context.Context, actions map[key]action) error {
	steps := map[int][]*object{}
	for _, o := range rc.wanted.objects {
		steps[o.step] = append(steps[o.step], o)
	}
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		if step > first { // definitions and namespaces may be shared with what is waited for
			rc.blockDependents()
			if err := rc.deleteFirst(ctx); err != nil {
				return err
			}
		}
		rc.blockDeployments(step)
		plain, charts := rc.unblocked(steps[step])
		for _, batch := range append(byRank(plain, func(o *object) key { return o.key }), charts) {
			if err := rc.applyBatch(ctx, batch, actions); err != nil {
				return err
			}
		}
		if err := rc.readReleases(ctx, charts); err != nil {
			return err
		}
		if step == first {
			if err := rc.awaitDefinitions(ctx, steps[step], actions); err != nil {
				return err
			}
		}
	}
	return nil
}

// unblocked returns the objects of deployments that don't wait: plain objects, sorted
// by rank, and charts.
func (rc *reconciliation) unblocked(objects []*object) (plain, charts []*object) {
	for _, o := range objects {
		switch {
		case rc.blocked[o.deployment] != "" || rc.replaces.clearing[o.deployment] != "" && o.step > first:
		case o.chart != nil:
			charts = append(charts, o)
		default:
			plain = append(plain, o)
		}
	}
	slices.SortFunc(plain, func(a, b *object) int { return compareRanks(a.key, b.key) })
	return plain, charts
}

// blockDeployments marks the deployments that can't continue with a step, with the
// reason.
func (rc *reconciliation) blockDeployments(step int) {
	for id, keys := range rc.wanted.of {
		if len(keys) == 0 || rc.blocked[id] != "" || rc.wanted.objects[keys[len(keys)-1]].step < step {
			continue
		}
		for _, k := range keys {
			if rc.wanted.objects[k].step >= step {
				break
			}
			if why := rc.unready(k); why != "" {
				rc.blocked[id] = fmt.Sprintf("the next step waits for %s: %s", k, why)
				break
			}
		}
	}
}

// unready returns why the next step, or another deployment, has to wait for a wanted
// object; empty if it doesn't.
func (rc *reconciliation) unready(k key) string {
	if why := rc.states[k].unready(rc.health); why != "" {
		return why
	}
	why, _ := rc.untested(k)
	return why
}

// unready returns why the next step has to wait for the object; empty if it doesn't.
func (s *state) unready(rules healthRules) string {
	switch {
	case s.problem != nil:
		return s.problem.message
	case s.pending():
		return "it " + s.waits
	case s.completed():
		return ""
	case s.live == nil:
		return "it is missing"
	}
	h, why := rules.healthOf(s.live)
	if h == healthy {
		return ""
	}
	return why
}

// applyBatch applies objects that don't depend on each other, concurrently.
func (rc *reconciliation) applyBatch(ctx context.Context, batch []*object, actions map[key]action) error {
	g, ctx := rc.group(ctx)
	for _, o := range batch {
		if a := actions[o.key]; a == actionNone || a == actionWait {
			continue
		}
		s := rc.states[o.key]
		if s.live == nil && (actions[o.key] == actionApply || rc.spec.Drift == trigger.DriftCorrect) {
			s.waits = rc.awaitedBackend(o)
			if s.waits != "" {
				continue
			}
		}
		g.Go(func() error {
			err := rc.execute(ctx, o, s, actions[o.key])
			if err == nil {
				return nil
			}
			if ctx.Err() != nil || isUnreachable(err) || fence.Is(err) {
				return err // the other objects would fail in the same way
			}
			s.problem = rc.rejection(o, err)
			return nil
		})
	}
	return g.Wait()
}

// rejection returns the problem of an object that the cluster rejected.
func (rc *reconciliation) rejection(o *object, err error) *problem {
	secrets := rc.secretsOf(o)
	if immutable, ok := errors.AsType[*immutableError](err); ok {
		return newProblem(o.String(), true, "%s", secrets.Hide(immutable.Error()))
	}
	if apierrors.IsConflict(err) {
		return newProblem(o.String(), true, "exists already, and other field managers own fields of it: annotate it with %s: \"true\" to take them over (%s)", AnnotationAdopt, secrets.Show(err.Error()))
	}
	return newProblem(o.String(), apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%s", secrets.Show(err.Error()))
}

// ignored returns the pointers to fields of an object that TKO does not manage.
func (rc *reconciliation) ignored(k key) []pointer {
	return rc.spec.Ignored(k.Group, k.Kind, k.Namespace, k.Name)
}

// execute executes the action that was decided for an object.
func (rc *reconciliation) execute(ctx context.Context, o *object, s *state, what action) (err error) {
	if o.chart != nil {
		return rc.deploy(ctx, o, s)
	}
	content := withIgnored(o.content, s.live, rc.ignored(o.key))
	if what != actionCompare || rc.spec.Drift == trigger.DriftCorrect {
		defer func() {
			if apierrors.IsInvalid(err) {
				err = rc.recreate(ctx, o, s, content, err)
			}
		}()
	}
	switch what {
	case actionApply:
		if s.entry.Fields == "" { // it was never applied
			return rc.applyFirst(ctx, o, s)
		}
		if s.live != nil {
			if err := rc.conn.transferFields(ctx, o, s.live, sharedByKubectl); err != nil {
				return err
			}
		}
		return rc.apply(ctx, o, s, content, true)
	case actionRestore:
		if rc.spec.Drift == trigger.DriftReport {
			s.drift = "is missing"
			return nil
		}
		s.corrected = "was missing"
		return rc.apply(ctx, o, s, content, true)
	case actionCompare:
		if rc.sharingInventory(o, s.live) != nil {
			return rc.share(ctx, o, s, s.live, content)
		}
		would, err := rc.conn.apply(ctx, o, content, true, true)
		if err != nil {
			return err
		}
		found := rc.differences(o, differences(s.live, would))
		if len(found) > 0 {
			text := describeDifferences(found)
			if rc.spec.Drift == trigger.DriftReport {
				s.drift = text
				return nil
			}
			s.corrected = text
		}
		return rc.apply(ctx, o, s, content, true) // also without differences, to own the fields again
	case actionNone, actionWait:
	}
	return nil
}

func (rc *reconciliation) apply(ctx context.Context, o *object, s *state, content map[string]any, force bool) error {
	r, err := rc.conn.apply(ctx, o, content, force, false)
	if err != nil {
		return err
	}
	rc.appliedCount.Add(1)
	s.live = r
	s.entry = entry{Version: o.version, Step: o.step, Digest: o.digest, Fields: fieldsOf(r), Release: o.release}
	return nil
}

// awaitDefinitions waits until the definitions that were just applied are served, for
// at most settleTime.
func (rc *reconciliation) awaitDefinitions(ctx context.Context, objects []*object, actions map[key]action) error {
	waiting := map[key]*object{}
	for _, o := range objects {
		if s := rc.states[o.key]; o.isDefinition() && actions[o.key] != actionNone && s.problem == nil && s.live != nil {
			waiting[o.key] = o
		}
	}
	for deadline := time.Now().Add(settleTime); len(waiting) > 0 && time.Now().Before(deadline); {
		for k, o := range waiting {
			r, err := rc.conn.get(ctx, k, o.version)
			if err != nil {
				return err
			}
			rc.states[k].live = r
			if r == nil {
				delete(waiting, k)
				continue
			}
			if h, _ := rc.health.healthOf(r); h == healthy && rc.isServed(ctx, r) {
				delete(waiting, k)
			}
		}
		if len(waiting) > 0 {
			if err := pause.For(ctx, settlePause); err != nil {
				return err
			}
		}
	}
	return nil
}

// isServed returns whether the cluster serves the kinds of a definition.
func (rc *reconciliation) isServed(ctx context.Context, definition *unstructured.Unstructured) bool {
	r := krm.Resource(definition.Object)
	group, name := r.Text("spec", "group"), r.Text("spec", "names", "kind")
	return !slices.ContainsFunc(servedVersions(definition), func(version string) bool {
		_, known, err := rc.conn.kindOf(ctx, krm.GVK{Group: group, Version: version, Kind: name})
		return err != nil || !known
	})
}

// holds returns whether a deployment is held: nothing of it is changed.
func (rc *reconciliation) holds(id tko.DeploymentID) bool {
	return slices.Contains(rc.held, id) || slices.Contains(rc.held, tko.OtherDeployments) && !rc.isWanted(id)
}

// frozen returns whether the objects that a deployment has, but doesn't want, stay
// for now: it is held, or some wanted objects don't exist yet.
func (rc *reconciliation) frozen(id tko.DeploymentID) bool {
	if rc.holds(id) || rc.blocked[id] != "" || len(rc.wanted.problems[id]) > 0 {
		return true
	}
	return slices.ContainsFunc(rc.wanted.of[id], func(k key) bool { return rc.states[k].problem != nil || rc.states[k].pending() })
}
