package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/krm"
)

// A HelmChart is recorded like an object. The objects of its release are also
// recorded and observed like other objects, so that an unchanged chart costs no more
// than they do. Only Helm applies and removes them, except to correct drift.

// releases are the releases of HelmCharts in a cluster. An error is one of the connection
// to the cluster, or what the cluster refuses; the state of the release is the same then.
// Calls for different releases may be concurrent.
type releases interface {
	// Deploy installs or upgrades a release.
	Deploy(ctx context.Context, c *chart.Chart, s chart.State, to chart.Release) (chart.Result, error)
	// Rollback rolls back the failed upgrade of a release.
	Rollback(ctx context.Context, c *chart.Chart, s chart.State, namespace, name string) (chart.Result, error)
	// Test runs the tests of a release, and returns the state with their result.
	Test(ctx context.Context, c *chart.Chart, s chart.State, namespace, name string) (chart.State, error)
	// Objects returns the objects of a deployed release, which belong to the caller;
	// tko.ErrNotFound if it does not exist.
	Objects(ctx context.Context, namespace, name string) ([]map[string]any, error)
	// Uninstall removes a release and its objects, if it exists and is owned.
	Uninstall(ctx context.Context, namespace, name string, owned func(string) bool) error
}

func (k key) isChart() bool { return k.Group == chart.GVK.Group && k.Kind == chart.GVK.Kind }

// chartKey returns the key of a HelmChart.
func chartKey(namespace, name string) key {
	return key{Group: chart.GVK.Group, Kind: chart.GVK.Kind, Namespace: namespace, Name: name}
}

func releaseName(k key) string {
	if k == (key{}) {
		return ""
	}
	return k.Namespace + "/" + k.Name
}

func releaseKey(text string) key {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return key{}
	}
	return chartKey(namespace, name)
}

// compareCharts orders charts after other objects.
func compareCharts(a, b key) int {
	rank := func(k key) int {
		if k.isChart() {
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

// isRetained returns whether the annotations of an object retain it when it is no longer
// wanted.
func isRetained(annotations map[string]string) bool {
	return annotations[AnnotationPrune] == krm.Never
}

// buildChart makes the desired object of a HelmChart. The release has the HelmChart's
// name and namespace.
func buildChart(r krm.Resource, d tko.Deployment, namespace string) (*object, *problem) {
	failed := func(format string, args ...any) (*object, *problem) {
		return nil, newProblem(r.Identity().String(), true, format, args...)
	}
	o := &object{key: chartKey(cmp.Or(r.Text("metadata", "namespace"), namespace), r.Text("metadata", "name")), version: chart.GVK.Version, deployment: d.ID}
	if err := chart.CheckName(o.Namespace, o.Name); err != nil {
		return failed("%s", err)
	}
	var err error
	if o.step, err = orderOf(r); err != nil {
		return failed("%s", err)
	}
	if o.chart, err = chart.Read(r, d.Package); err != nil {
		return failed("can't be deployed: %s", err)
	}
	annotations := map[string]any{}
	for _, name := range []string{AnnotationAdopt, chart.AnnotationRetry} {
		if v := r.Annotation(name); v != "" {
			annotations[name] = v
		}
	}
	o.keep = r.Annotation(AnnotationPrune) == krm.Never
	o.content = map[string]any{
		"metadata": map[string]any{"name": o.Name, "namespace": o.Namespace, "labels": map[string]any{LabelDeployment: string(d.ID)}, "annotations": annotations},
		"spec":     o.chart.Spec(),
	}
	if o.digest, err = digestOf(o.content); err != nil {
		return failed("can't be written as JSON: %s", err)
	}
	return o, nil
}

// releaseObject returns an object that represents a release among observed objects.
// It needs no request to the cluster.
func releaseObject(k key, e entry, id tko.DeploymentID) *unstructured.Unstructured {
	metadata := map[string]any{"name": k.Name, "namespace": k.Namespace, "labels": map[string]any{LabelDeployment: string(id)}}
	if e.Chart.Keep {
		metadata["annotations"] = map[string]any{AnnotationPrune: krm.Never}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": chart.GVK.Group + "/" + chart.GVK.Version, "kind": chart.GVK.Kind, "metadata": metadata}}
}

// charts returns the wanted HelmCharts.
func (w wanted) charts() iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for _, o := range w.objects {
			if o.chart != nil && !yield(o) {
				return
			}
		}
	}
}

// drop removes an object from the wanted objects, and returns the deployments that had
// it.
func (w wanted) drop(k key) (from []tko.DeploymentID) {
	delete(w.objects, k)
	for id, keys := range w.of {
		if i := slices.Index(keys, k); i >= 0 {
			w.of[id] = slices.Delete(keys, i, i+1)
			from = append(from, id)
		}
	}
	return from
}

// sort orders the objects of each deployment for application.
func (w wanted) sort() {
	for _, keys := range w.of {
		slices.SortStableFunc(keys, func(a, b key) int { return compareObjects(w.objects[a], w.objects[b]) })
	}
}

// wantReleased adds an object of the release of a chart, unless a package has it too.
func (w wanted) wantReleased(c *object, k key, version string) {
	if w.objects[k] != nil {
		return
	}
	w.objects[k] = &object{key: k, version: version, deployment: c.deployment, step: c.step, release: c.key}
	w.of[c.deployment] = append(w.of[c.deployment], k)
}

// A source is a ConfigMap or Secret in the cluster that values of charts are read from.
type source struct {
	live *unstructured.Unstructured // nil if it does not exist
	err  error
}

func sourceKey(o *object, s chart.Source) key {
	return key{Kind: s.Kind, Namespace: o.Namespace, Name: s.Name}
}

// readSources reads what the values of charts are read from and the packages don't have.
func (rc *reconciliation) readSources(ctx context.Context) error {
	rc.sources = map[key]source{}
	for o := range rc.wanted.charts() {
		for _, s := range o.chart.Sources() {
			if k := sourceKey(o, s); rc.wanted.objects[k] == nil {
				rc.sources[k] = source{}
			}
		}
	}
	g, limited := rc.group(ctx)
	for _, k := range slices.SortedFunc(maps.Keys(rc.sources), compareKeys) {
		g.Go(func() error {
			live, err := rc.conn.get(limited, k, "v1")
			if err != nil && (limited.Err() != nil || isUnreachable(err)) {
				return err
			}
			rc.mu.Lock()
			defer rc.mu.Unlock()
			rc.sources[k] = source{live, err}
			return nil
		})
	}
	return g.Wait()
}

// resolveChart completes a chart with its values from the packages of the site, or else
// from the cluster, and its object's digest.
func (rc *reconciliation) resolveChart(o *object) error {
	digest, err := rc.target.charts.Resolve(o.chart, o.Namespace, func(s chart.Source) (map[string]any, error) {
		k := sourceKey(o, s)
		if o := rc.wanted.objects[k]; o != nil {
			return o.content, nil
		}
		found := rc.sources[k]
		if found.err != nil || found.live == nil {
			return nil, found.err
		}
		return found.live.Object, nil
	})
	if err != nil {
		return err
	}
	if len(o.chart.Sources()) > 0 {
		o.content["spec"] = o.chart.Spec()
		if o.digest, err = digestOf(o.content); err != nil {
			return tko.Errorf(tko.ErrInvalid, "its values can't be written as JSON")
		}
	}
	if digest != "" {
		o.digest = shortHash([]byte(o.digest + " " + digest))
	}
	return nil
}

// desireCharts adds the recorded objects of the releases to the wanted objects, and
// removes charts that can't be read.
func (rc *reconciliation) desireCharts(ctx context.Context) error {
	if err := rc.readSources(ctx); err != nil {
		return err
	}
	for o := range rc.wanted.charts() {
		err := rc.resolveChart(o)
		if err == nil {
			continue
		}
		for _, id := range rc.wanted.drop(o.key) {
			rc.wanted.problems[id] = append(rc.wanted.problems[id], newProblem(o.String(), errors.Is(err, tko.ErrInvalid), "can't be deployed: %s", err))
		}
	}
	for _, i := range rc.recorded.mine {
		for k, e := range i.entries {
			if c := rc.wanted.objects[e.Release]; c != nil && c.chart != nil {
				rc.wanted.wantReleased(c, k, e.Version)
			}
		}
	}
	rc.wanted.sort()
	return nil
}

// observeReleases reads the desired state of the objects of releases. It returns the
// releases that don't exist.
func (rc *reconciliation) observeReleases(ctx context.Context, all []key) (missing map[key]bool, err error) {
	missing = map[key]bool{}
	for _, release := range all {
		objects, err := rc.releases.Objects(ctx, release.Namespace, release.Name)
		if errors.Is(err, tko.ErrNotFound) {
			missing[release] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, content := range objects {
			k, _, known, err := rc.keyOf(ctx, content, release.Namespace)
			if err != nil {
				return nil, err
			}
			if o := rc.wanted.objects[k]; known && o != nil && o.release == release {
				o.content = content
			}
		}
	}
	return missing, nil
}

// keyOf returns the key and version of an object of a release; known is false if the
// cluster doesn't have its kind.
func (rc *reconciliation) keyOf(ctx context.Context, content map[string]any, namespace string) (k key, version string, known bool, err error) {
	r := krm.Resource(content)
	gvk := r.GVK()
	found, known, err := rc.conn.kindOf(ctx, gvk)
	if err != nil || !known {
		return key{}, "", false, err
	}
	k = key{Group: gvk.Group, Kind: gvk.Kind, Name: r.Text("metadata", "name")}
	if found.namespaced {
		k.Namespace = cmp.Or(r.Text("metadata", "namespace"), namespace)
	}
	return k, gvk.Version, true, nil
}

// deploy installs or upgrades the release of a chart.
func (rc *reconciliation) deploy(ctx context.Context, o *object, s *state) error {
	to := chart.Release{
		Namespace: o.Namespace, Name: o.Name, Owner: string(o.deployment), Digest: labelOf(o.digest), Adopt: o.annotation(AnnotationAdopt) == "true",
		Owned:   func(owner string) bool { return owner == string(o.deployment) || rc.hasRecorded(owner, o.key) },
		Prepare: func(ctx context.Context) error { return rc.ensureNamespace(ctx, o.Namespace) },
	}
	if len(rc.spec.Ignore) > 0 {
		to.Adjust = func(namespace string, object map[string]any) (map[string]any, error) {
			return rc.keepIgnored(ctx, namespace, object)
		}
	}
	if err := fence.Check(ctx); err != nil {
		return err
	}
	result, err := rc.releases.Deploy(ctx, o.chart, s.entry.Chart, to)
	if err != nil {
		return err // shown by rejection
	}
	rc.recordRelease(o, s, result)
	return nil
}

// keepIgnored returns an object of a release with its ignored fields set to their
// values in the cluster; nil if it has none, or does not exist.
func (rc *reconciliation) keepIgnored(ctx context.Context, namespace string, object map[string]any) (map[string]any, error) {
	k, version, known, err := rc.keyOf(ctx, object, namespace)
	if err != nil || !known {
		return nil, err
	}
	ignored := rc.ignored(k)
	if len(ignored) == 0 {
		return nil, nil
	}
	live, err := rc.conn.get(ctx, k, version)
	if err != nil || live == nil {
		return nil, err
	}
	return withIgnored(object, live, ignored), nil
}

// labelOf returns a digest in the characters that are valid in a label's value.
func labelOf(digest string) string { return inventoryName("", tko.DeploymentID(digest)) }

// ensureNamespace creates a release's namespace if it does not exist and TKO is
// allowed to.
func (rc *reconciliation) ensureNamespace(ctx context.Context, namespace string) error {
	there, err := rc.conn.get(ctx, key{Kind: "Namespace", Name: namespace}, "v1")
	if err == nil && there == nil {
		err = rc.conn.makeNamespace(ctx, namespace)
	}
	if isUnreachable(err) {
		return err
	}
	return nil // otherwise the deployment of the release fails with the reason
}

// recordRelease records the result of an operation on a release.
func (rc *reconciliation) recordRelease(o *object, s *state, result chart.Result) {
	s.entry.Chart = result.State
	if result.Problem != "" {
		s.problem = newProblem(o.String(), result.Invalid, "%s", result.Problem)
	}
	if result.Objects == nil {
		return
	}
	rc.appliedCount.Add(int64(len(result.Objects)))
	s.deployed = result.Objects
	s.live = releaseObject(o.key, s.entry, o.deployment)
	s.entry.Digest = o.digest
}

// readReleases reads the objects of the releases that this reconciliation deployed.
func (rc *reconciliation) readReleases(ctx context.Context, charts []*object) error {
	places := map[collection][]key{}
	fresh := map[key]*object{}
	for _, c := range charts {
		s := rc.states[c.key]
		if s.deployed == nil {
			continue
		}
		rc.dropReleased(c.key)
		for _, content := range s.deployed {
			k, version, known, err := rc.keyOf(ctx, content, c.Namespace)
			if err != nil {
				return err
			}
			if !known { // not yet: the next reconciliation asks again
				s.entry.Digest = ""
				continue
			}
			rc.wanted.wantReleased(c, k, version)
			if o := rc.wanted.objects[k]; o.release == c.key && fresh[k] == nil {
				fresh[k] = o
				at := collection{k.Group, version, k.Kind, k.Namespace}
				places[at] = append(places[at], k)
			}
		}
		s.deployed = nil
	}
	rc.wanted.sort()
	if err := rc.readCollections(ctx, places); err != nil {
		return err
	}
	for k, o := range fresh {
		s := &state{live: rc.live[k], entry: entry{Version: o.version, Step: o.step, Release: o.release}}
		if s.live != nil {
			s.entry.Fields = fieldsOf(s.live)
		}
		rc.states[k] = s
	}
	return nil
}

// dropReleased removes the objects of a release from the wanted objects.
func (rc *reconciliation) dropReleased(release key) {
	for k, o := range rc.wanted.objects {
		if o.release == release {
			rc.wanted.drop(k)
			delete(rc.states, k)
		}
	}
}

// assessReleases checks whether deployed releases became healthy. It rolls back an
// upgrade that fails or takes too long.
func (rc *reconciliation) assessReleases(ctx context.Context) error {
	var bad []*object
	for o := range rc.wanted.charts() {
		s := rc.states[o.key]
		if s.entry.Chart.IsAssessed() || s.entry.Digest != o.digest {
			continue
		}
		worst, why := rc.healthOfRelease(o.key)
		var rollBack bool
		s.entry.Chart, rollBack = o.chart.Assess(s.entry.Chart, worst == healthy, worst == failing, why, rc.target.options.ChartTimeout)
		if rollBack {
			bad = append(bad, o)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	if err := rc.recordFailedUpgrades(ctx, bad); err != nil {
		return err
	}
	for _, o := range bad {
		s := rc.states[o.key]
		if err := fence.Check(ctx); err != nil {
			return err
		}
		result, err := rc.releases.Rollback(ctx, o.chart, s.entry.Chart, o.Namespace, o.Name)
		if err != nil {
			return err
		}
		rc.recordRelease(o, s, result)
	}
	return rc.readReleases(ctx, bad)
}

// recordFailedUpgrades records the upgrades that are about to be rolled back.
// Otherwise the first reconciliation after a crash would regard the previous revision
// as the wanted one.
func (rc *reconciliation) recordFailedUpgrades(ctx context.Context, charts []*object) error {
	ids := map[tko.DeploymentID]bool{}
	for _, o := range charts {
		ids[o.deployment] = true
	}
	return rc.eachInventory(ctx, slices.Collect(maps.Keys(ids)), func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		for _, k := range rc.wanted.of[i.deployment] {
			next[k] = rc.states[k].entry
		}
		return next
	})
}

// testReleases runs the tests of charts whose releases became healthy. A failed test is a
// matter of the deployment's health: nothing is rolled back, and it runs again with the
// next upgrade.
func (rc *reconciliation) testReleases(ctx context.Context) error {
	g, limited := rc.group(ctx)
	for o := range rc.wanted.charts() {
		s := rc.states[o.key]
		if s.problem != nil || !o.chart.NeedsTest(s.entry.Chart) || s.entry.Digest != o.digest {
			continue
		}
		rc.changing = true // steps and deployments may wait for the result
		g.Go(func() (err error) {
			if err := fence.Check(limited); err != nil {
				return err
			}
			s.entry.Chart, err = rc.releases.Test(limited, o.chart, s.entry.Chart, o.Namespace, o.Name)
			if err != nil && (limited.Err() != nil || isUnreachable(err)) {
				return err
			}
			if err != nil {
				s.problem = rc.rejection(o, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// untested returns why the tests of a chart have not succeeded; empty if they have, or
// don't run. failed is false if they are about to run.
func (rc *reconciliation) untested(k key) (why string, failed bool) {
	o := rc.wanted.objects[k]
	if o == nil {
		return "", false
	}
	return o.chart.Untested(rc.states[k].entry.Chart)
}

// healthOfRelease returns the worst health of a release's objects, and the reason.
// Running Jobs are healthy here, as for helm --wait: they may take longer than an
// upgrade may.
func (rc *reconciliation) healthOfRelease(release key) (health, string) {
	worst, what := healthy, ""
	for _, k := range slices.SortedFunc(maps.Keys(rc.wanted.objects), compareKeys) {
		if rc.wanted.objects[k].release != release {
			continue
		}
		h, why := inProgress, "is missing"
		if live := rc.states[k].live; live != nil {
			h, why = rc.health.statusOf(live)
		}
		if h > worst {
			worst, what = h, fmt.Sprintf("%s: %s", k, why)
		}
	}
	return worst, what
}

// secretsOf returns the values of Secrets that an object may have: those of its chart.
func (rc *reconciliation) secretsOf(o *object) chart.Secrets {
	if c := rc.wanted.objects[o.release]; o.chart == nil && c != nil {
		o = c
	}
	return o.chart.Secrets()
}

// differences returns the differences between an object as it is and as it should be.
// Those of a chart with values of Secrets are confidential.
func (rc *reconciliation) differences(o *object, found []krm.Difference) []krm.Difference {
	if len(rc.secretsOf(o)) > 0 {
		for i := range found {
			found[i].Secret = true
		}
	}
	return found
}

// followReleases leaves objects of releases to Helm: they are removed, and counted as
// removed, only together with the release.
func (p *pruning) followReleases() {
	toRemove := map[key]bool{}
	for _, r := range p.remove {
		toRemove[r.key] = r.isChart()
	}
	p.remove = slices.DeleteFunc(p.remove, func(r removal) bool {
		retained := r.Release != (key{}) && !toRemove[r.Release]
		if retained {
			p.forget = append(p.forget, r)
		}
		return retained
	})
}

// uninstall removes a release.
func (rc *reconciliation) uninstall(ctx context.Context, r removal) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	err := rc.releases.Uninstall(ctx, r.Namespace, r.Name, func(owner string) bool { return slices.Contains(r.from, tko.DeploymentID(owner)) })
	if err == nil {
		rc.removedCount.Add(1)
	}
	return err
}

// leftoverOf returns why an object of a removed release still exists; empty if it is
// gone or stays. Charts may retain objects.
func (rc *reconciliation) leftoverOf(ctx context.Context, r removal) (why string, err error) {
	now, err := rc.conn.get(ctx, r.key, r.Version)
	if err != nil || now == nil || now.GetDeletionTimestamp() == nil {
		return "", err
	}
	return "is being removed", nil
}

// countObjects returns the number of a deployment's objects, and a description of the
// number of its charts.
func (rc *reconciliation) countObjects(id tko.DeploymentID) (objects int, charts string) {
	n := 0
	for _, k := range rc.wanted.of[id] {
		if k.isChart() {
			n++
		}
	}
	switch n {
	case 0:
	case 1:
		charts = " and 1 Helm chart"
	default:
		charts = fmt.Sprintf(" and %d Helm charts", n)
	}
	return len(rc.wanted.of[id]) - n, charts
}
