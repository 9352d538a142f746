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
	"github.com/tko-orchestrator/tko/krm"
)

// settleTime is how long a look waits for definitions that it applied to be
// served. What takes longer comes with the next look.
const (
	settleTime  = 10 * time.Second
	settlePause = 50 * time.Millisecond
)

// A look is one look at a site.
type look struct {
	target      *Target
	conn        *cluster
	spec        spec
	site        tko.Site
	deployments []tko.Deployment
	held        []tko.DeploymentID
	management  bool // it is the management cluster that is looked at

	recorded inventories
	had      int // objects that the budget is of
	wanted   wanted
	live     map[key]*unstructured.Unstructured // of what is recorded, as it was observed
	unseen   map[key]string                     // why what is recorded can't be observed: it stays as it is
	blocked  map[tko.DeploymentID]string        // what a deployment waits for
	removed  []tko.DeploymentID
	leaving  []string // objects on their way out, or that can't go yet
	pruning  pruning
	began    time.Time
	moving   bool // something isn't as it should be yet, and will be

	mu     sync.Mutex
	states map[key]*state // of what is wanted

	applied, gone atomic.Int64 // objects, in this look
}

// log says what changed in the world, if anything did.
func (l *look) log(ctx context.Context) {
	if applied, gone := l.applied.Load(), l.gone.Load(); applied+gone > 0 {
		l.target.options.Log.InfoContext(ctx, "changed a cluster", "site", string(l.site.ID), "applied", applied, "removed", gone)
	}
}

// A state is what came of an object.
type state struct {
	live      *unstructured.Unstructured // nil if it isn't there
	entry     entry                      // what is to be recorded
	problem   *problem
	drift     string // what somebody changed, and was left so
	corrected string // what somebody changed, and was undone
	waits     string // why it isn't what it should be yet
}

// pending says whether an object isn't there because it waits for something.
func (s *state) pending() bool { return s.live == nil && s.waits != "" }

// over says whether an object is a Job that has completed, and that is gone for
// that, or on its way out.
func (s *state) over() bool {
	return s.entry.Over && (s.live == nil || s.live.GetDeletionTimestamp() != nil)
}

// do looks: an error says that it came to no end.
func (l *look) do(ctx context.Context) error {
	l.began = time.Now()
	l.live, l.blocked, l.states, l.unseen = map[key]*unstructured.Unstructured{}, map[tko.DeploymentID]string{}, map[key]*state{}, map[key]string{}
	slices.SortFunc(l.deployments, func(a, b tko.Deployment) int { return compareIDs(a.ID, b.ID) })
	var err error
	if l.recorded, err = l.conn.readInventories(ctx, l.spec.Inventory, l.site.ID); err != nil {
		return err
	}
	if err := l.desire(ctx); err != nil {
		return err
	}
	if err := l.observe(ctx); err != nil {
		return err
	}
	actions := l.decide()
	if err := l.decideCharts(ctx, actions); err != nil {
		return err
	}
	if err := l.intend(ctx, actions); err != nil {
		return err
	}
	if err := l.applyAll(ctx, actions); err != nil {
		return err
	}
	if err := l.judgeCharts(ctx); err != nil {
		return err
	}
	if err := l.prune(ctx); err != nil {
		return err
	}
	return l.record(ctx)
}

func compareIDs(a, b tko.DeploymentID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// desire says what the cluster should hold.
func (l *look) desire(ctx context.Context) error {
	var failed error
	l.wanted = want(l.deployments, l.spec.Namespace, l.management, func(gvk krm.GVK) scope {
		k, known, err := l.conn.kindOf(ctx, gvk)
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
	// What another site has there is not ours. Namespaces are shared.
	for id, keys := range l.wanted.of {
		l.wanted.of[id] = slices.DeleteFunc(keys, func(k key) bool {
			other, ok := l.recorded.owner(k)
			if !ok || k.isNamespace() {
				return false
			}
			p := problemOf(k.String(), true, "is deployment %q's of site %q in the same cluster: an object can be one deployment's only", other.deployment, other.site)
			if other.deployment == id { // it came from there: that site lets go of it soon
				p = problemOf(k.String(), false, "is still at site %q in the same cluster, where this deployment comes from", other.site)
			}
			l.wanted.problems[id] = append(l.wanted.problems[id], p)
			delete(l.wanted.objects, k)
			return true
		})
	}
	l.desireCharts()
	return nil
}

// observe reads what is recorded: one by one, or all of a kind in a namespace
// if there are several.
func (l *look) observe(ctx context.Context) error {
	places := map[place][]key{}
	versions := map[key]string{}
	for _, i := range l.recorded.mine {
		for k, e := range i.entries {
			if k.isChart() {
				l.see(k, standIn(k, e, i.deployment))
				continue
			}
			if _, ok := versions[k]; !ok {
				versions[k] = e.Version
				if o := l.wanted.objects[k]; o != nil {
					versions[k] = o.version
				}
				at := place{k.Group, versions[k], k.Kind, k.Namespace}
				places[at] = append(places[at], k)
			}
		}
	}
	return l.read(ctx, places)
}

// A place is where objects of a kind are.
type place struct{ group, version, kind, namespace string }

func (l *look) read(ctx context.Context, places map[place][]key) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(l.target.options.Parallel)
	for at, keys := range places {
		g.Go(func() error {
			missing := keys
			if len(keys) > 1 {
				found, err := l.list(ctx, krm.GVK{Group: at.group, Version: at.version, Kind: at.kind}, at.namespace, keys)
				if err != nil {
					return l.miss(ctx, err, keys...)
				}
				missing = slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return found[k] })
			}
			for _, k := range missing { // or somebody took its label off
				r, err := l.conn.get(ctx, k, at.version)
				if err != nil {
					if err := l.miss(ctx, err, k); err != nil {
						return err
					}
					continue
				}
				l.see(k, r)
			}
			return nil
		})
	}
	return g.Wait()
}

func (l *look) list(ctx context.Context, gvk krm.GVK, namespace string, keys []key) (map[key]bool, error) {
	found := map[key]bool{}
	k, known, err := l.conn.kindOf(ctx, gvk)
	if err != nil || !known {
		return found, err
	}
	if !k.namespaced {
		namespace = ""
	}
	all, err := l.conn.list(ctx, k.resource, namespace, LabelDeployment)
	if apierrors.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the objects of %s in namespace %q: %w", gvk, namespace, err)
	}
	ours := make(map[key]bool, len(keys))
	for _, k := range keys {
		ours[k] = true
	}
	for _, r := range all {
		at := key{gvk.Group, gvk.Kind, r.GetNamespace(), r.GetName()}
		if ours[at] {
			found[at] = true
			l.see(at, r)
		}
	}
	return found, nil
}

// miss is told that objects can't be read, which doesn't keep us from the others
// unless the cluster is away.
func (l *look) miss(ctx context.Context, err error, keys ...key) error {
	if ctx.Err() != nil || isAway(err) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		l.unseen[k] = "can't be looked at: " + bounded(err.Error())
	}
	return nil
}

func (l *look) see(k key, r *unstructured.Unstructured) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[k] = r
}

// decide says what to do about each object that is wanted.
func (l *look) decide() map[key]action {
	actions := make(map[key]action, len(l.wanted.objects))
	for k, o := range l.wanted.objects {
		e, recorded := l.entryOf(o)
		actions[k] = actionOn(o, e, recorded, l.live[k], l.spec.Drift)
		l.states[k] = &state{live: l.live[k], entry: e}
		if why := l.unseen[k]; why != "" {
			p := problemOf(k.String(), false, "%s", why)
			actions[k], l.states[k].problem = leave, &p
			continue
		}
		if !recorded || actions[k] == bring || actions[k] == await && e.Digest != o.digest {
			// not known until it is applied; that it was once stays known
			l.states[k].entry = entry{Version: o.version, Step: o.step, Fields: e.Fields, Found: e.Found}
		}
		if actions[k] == await && (e.Digest != o.digest || l.spec.Drift == driftCorrect) {
			l.states[k].waits = recreating
		}
	}
	return actions
}

// entryOf is what is recorded of an object: by its deployment, or by another
// that had it before. What they don't agree on isn't known: it was on its way
// from one to the other.
func (l *look) entryOf(o *object) (e entry, recorded bool) {
	for _, i := range l.recorded.mine {
		other, ok := i.entries[o.key]
		switch {
		case !ok:
			continue
		case !recorded:
			e, recorded = other, true
			continue
		case other.Digest != e.Digest:
			e.Digest = ""
		}
		e.Fields, e.Found = cmp.Or(e.Fields, other.Fields), e.Found || other.Found
	}
	return e, recorded
}

func (l *look) inventory(id tko.DeploymentID) *inventory {
	if i := l.recorded.mine[id]; i != nil {
		return i
	}
	i := &inventory{site: l.site.ID, deployment: id, entries: map[key]entry{}}
	l.recorded.mine[id] = i
	return i
}

// intend writes down what is about to be there, beside what is.
func (l *look) intend(ctx context.Context, actions map[key]action) error {
	return l.eachInventory(ctx, slices.Collect(maps.Keys(l.wanted.of)), func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		for _, k := range l.wanted.of[i.deployment] {
			was, there := next[k]
			if !there || actions[k] == bring {
				e := l.states[k].entry
				e.New = !there || was.New
				next[k] = e
			}
		}
		return next
	})
}

// eachInventory writes inventories that are to have other entries.
func (l *look) eachInventory(ctx context.Context, ids []tko.DeploymentID, entries func(*inventory) map[key]entry) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(l.target.options.Parallel)
	for _, id := range ids {
		i := l.inventory(id)
		next := entries(i)
		g.Go(func() error { return l.conn.writeInventory(ctx, l.spec.Inventory, i, next) })
	}
	return g.Wait()
}

// applyAll applies in steps. What comes before in a deployment must be healthy
// for what comes next.
func (l *look) applyAll(ctx context.Context, actions map[key]action) error {
	steps := map[int][]*object{}
	for _, o := range l.wanted.objects {
		steps[o.step] = append(steps[o.step], o)
	}
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		l.block(step)
		plain, charts := l.parted(steps[step])
		for _, batch := range append(byRank(plain, func(o *object) key { return o.key }), charts) {
			if err := l.applyBatch(ctx, batch, actions); err != nil {
				return err
			}
		}
		if err := l.gather(ctx, charts); err != nil {
			return err
		}
		if step == first {
			if err := l.settle(ctx, steps[step], actions); err != nil {
				return err
			}
		}
	}
	return nil
}

// parted are the objects of deployments that don't wait: plain ones, by their
// ranks, and charts.
func (l *look) parted(objects []*object) (plain, charts []*object) {
	for _, o := range objects {
		switch {
		case l.blocked[o.deployment] != "":
		case o.chart != nil:
			charts = append(charts, o)
		default:
			plain = append(plain, o)
		}
	}
	slices.SortFunc(plain, func(a, b *object) int { return compareRanks(a.key, b.key) })
	return plain, charts
}

// block finds the deployments that can't go on to a step.
func (l *look) block(step int) {
	for id, keys := range l.wanted.of {
		if len(keys) == 0 || l.blocked[id] != "" || l.wanted.objects[keys[len(keys)-1]].step < step {
			continue
		}
		for _, k := range keys {
			if l.wanted.objects[k].step >= step {
				break
			}
			if why := l.states[k].unready(); why != "" {
				l.blocked[id] = fmt.Sprintf("what comes next waits for %s: %s", k, why)
				break
			}
		}
	}
}

// unready says why what comes next has to wait; empty if it hasn't.
func (s *state) unready() string {
	switch {
	case s.problem != nil:
		return s.problem.message
	case s.pending():
		return "it " + s.waits
	case s.over():
		return ""
	case s.live == nil:
		return "it is missing"
	}
	h, why := healthOf(s.live)
	if h == healthy {
		return ""
	}
	return why
}

// applyBatch applies objects that don't depend on each other.
func (l *look) applyBatch(ctx context.Context, batch []*object, actions map[key]action) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(l.target.options.Parallel)
	for _, o := range batch {
		if a := actions[o.key]; a == leave || a == await {
			continue
		}
		s := l.states[o.key]
		if s.live == nil && (actions[o.key] == bring || l.spec.Drift == driftCorrect) {
			if s.waits = l.unserved(o); s.waits != "" {
				continue
			}
		}
		g.Go(func() error {
			err := l.act(ctx, o, s, actions[o.key])
			if err == nil {
				return nil
			}
			if ctx.Err() != nil || isAway(err) {
				return err // it would be the same for all others
			}
			s.problem = refusal(o, err)
			return nil
		})
	}
	return g.Wait()
}

// refusal is what to say of an object that the cluster doesn't take.
func refusal(o *object, err error) *problem {
	if immutable, ok := errors.AsType[*immutableError](err); ok {
		p := problemOf(o.String(), true, "%s", immutable)
		return &p
	}
	p := problemOf(o.String(), apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%s", bounded(err.Error()))
	if apierrors.IsConflict(err) {
		p = problemOf(o.String(), true, "is there already, and others manage fields of it: annotate it with %s: \"true\" to take them over (%s)", AnnotationAdopt, bounded(err.Error()))
	}
	return &p
}

// act does what was decided about an object.
func (l *look) act(ctx context.Context, o *object, s *state, what action) (err error) {
	if o.chart != nil {
		return l.deploy(ctx, o, s)
	}
	content := withIgnored(o.content, s.live, l.spec.ignored(o.key))
	known := s.entry.Fields != "" // it was applied before
	if what == bring && !known {
		defer func() {
			if apierrors.IsInvalid(err) {
				err = l.recreate(ctx, o, s, content, err)
			}
		}()
		return l.begin(ctx, o, s)
	}
	if what != suspect || l.spec.Drift == driftCorrect {
		defer func() {
			if apierrors.IsInvalid(err) {
				err = l.recreate(ctx, o, s, content, err)
			}
		}()
	}
	switch what {
	case bring:
		if s.live != nil {
			if err := l.conn.takeFields(ctx, o, s.live, sharedByKubectl); err != nil {
				return err
			}
		}
		return l.apply(ctx, o, s, content, true)
	case restore:
		if l.spec.Drift == driftReport {
			s.drift = "is missing"
			return nil
		}
		s.corrected = "was missing"
		return l.apply(ctx, o, s, content, true)
	case suspect:
		if l.sharer(o, s.live) != nil {
			return l.share(ctx, o, s, s.live, content)
		}
		would, err := l.conn.apply(ctx, o, content, true, true)
		if err != nil {
			return err
		}
		found := differences(s.live, would)
		if len(found) > 0 {
			text := describeDifferences(found)
			if l.spec.Drift == driftReport {
				s.drift = text
				return nil
			}
			s.corrected = text
		}
		return l.apply(ctx, o, s, content, true) // also if nothing differs: the fields are ours again
	case leave, await:
	}
	return nil
}

func (l *look) apply(ctx context.Context, o *object, s *state, content map[string]any, force bool) error {
	r, err := l.conn.apply(ctx, o, content, force, false)
	if err != nil {
		return err
	}
	l.applied.Add(1)
	s.live = r
	s.entry = entry{Version: o.version, Step: o.step, Digest: o.digest, Fields: fieldsOf(r), Release: o.release}
	return nil
}

// settle waits until definitions that were just applied are served.
func (l *look) settle(ctx context.Context, objects []*object, actions map[key]action) error {
	waiting := map[key]*object{}
	for _, o := range objects {
		if s := l.states[o.key]; o.isDefinition() && actions[o.key] != leave && s.problem == nil && s.live != nil {
			waiting[o.key] = o
		}
	}
	for deadline := time.Now().Add(settleTime); len(waiting) > 0 && time.Now().Before(deadline); {
		for k, o := range waiting {
			r, err := l.conn.get(ctx, k, o.version)
			if err != nil {
				return err
			}
			l.states[k].live = r
			if r == nil {
				delete(waiting, k)
				continue
			}
			if h, _ := healthOf(r); h == healthy && l.served(ctx, r) {
				delete(waiting, k)
			}
		}
		if len(waiting) > 0 {
			if err := sleep(ctx, settlePause); err != nil {
				return err
			}
		}
	}
	return nil
}

// served says whether the cluster knows the kinds of a definition.
func (l *look) served(ctx context.Context, definition *unstructured.Unstructured) bool {
	r := krm.Resource(definition.Object)
	group, name := r.Text("spec", "group"), r.Text("spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		text, _ := version["name"].(string)
		if _, known, err := l.conn.kindOf(ctx, krm.GVK{Group: group, Version: text, Kind: name}); err != nil || !known {
			return false
		}
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// frozen says whether what a deployment has in the cluster, and doesn't want,
// stays for now: it is held, or not all that it wants is there.
func (l *look) frozen(id tko.DeploymentID) bool {
	if slices.Contains(l.held, id) || l.blocked[id] != "" || len(l.wanted.problems[id]) > 0 {
		return true
	}
	return slices.ContainsFunc(l.wanted.of[id], func(k key) bool { return l.states[k].problem != nil || l.states[k].pending() })
}
