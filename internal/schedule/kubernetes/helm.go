package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/expression"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// AnnotationRetry is on a HelmChart. A new value retries an upgrade that was rolled
// back.
const AnnotationRetry = "tko.nephio.org/retry"

// chartKind is the kind of Helm charts.
var chartKind = krm.GVK{Group: "workload.nephio.org", Version: "v1alpha1", Kind: "HelmChart"}

// helmName matches names of releases.
var helmName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

const maxRelease = 53 // bytes of a release's name

// A HelmChart is recorded like an object. The objects of its release are also
// recorded and observed like other objects, so that an unchanged chart costs no more
// than they do. Only Helm applies and removes them, except to correct drift.

// A chart is the content of a HelmChart.
type chart struct {
	reference helm.Reference
	values    map[string]any
	from      []valuesReference // of values that values override
	secrets   confidential      // values of Secrets among the values
	crds      helm.CRDs
	test      bool             // whether its tests run
	testLimit time.Duration    // of the tests; the limit of hooks if 0
	keep      bool             // whether the release stays when it is no longer wanted
	deployed  []map[string]any // the release's objects, if this reconciliation deployed it
}

// A chartState is the recorded state of a release.
type chartState struct {
	Revision int    `json:"revision,omitempty"` // Helm's revision that was deployed last; 0 if none
	Previous int    `json:"previous,omitempty"` // revision for a rollback; 0 if none
	Since    int64  `json:"since,omitempty"`    // Unix time of the deployment, in seconds
	Healthy  bool   `json:"good,omitempty"`     // it was healthy after the deployment
	Keep     bool   `json:"keep,omitempty"`
	Failed   string `json:"failed,omitempty"` // why the upgrade was rolled back, or is about to be
	Tested   int    `json:"tested,omitempty"` // revision whose tests have run; 0 if none
	Fault    string `json:"fault,omitempty"`  // why a test failed
}

func (k key) isChart() bool { return k.Group == chartKind.Group && k.Kind == chartKind.Kind }

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
	return key{Group: chartKind.Group, Kind: chartKind.Kind, Namespace: namespace, Name: name}
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

// buildChart makes the desired object of a HelmChart. The release has the HelmChart's
// name and namespace.
func buildChart(r krm.Resource, d tko.Deployment, namespace string) (*object, *problem) {
	failed := func(format string, args ...any) (*object, *problem) {
		p := newProblem(r.Identity().String(), true, format, args...)
		return nil, &p
	}
	o := &object{
		key:     key{chartKind.Group, chartKind.Kind, cmp.Or(r.Text("metadata", "namespace"), namespace), r.Text("metadata", "name")},
		version: chartKind.Version, deployment: d.ID,
		chart: &chart{
			reference: helm.Reference{Chart: r.Text("spec", "chart"), Repository: r.Text("spec", "repository"), Version: r.Text("spec", "version")},
			keep:      r.Annotation(AnnotationPrune) == krm.Never,
		},
	}
	step, ok := orderOf(r)
	switch {
	case len(o.Name) > maxRelease || !helmName.MatchString(o.Name):
		return failed("has a name that is not valid for a Helm release: use at most %d of a-z, 0-9, - and dots", maxRelease)
	case !trigger.DNSLabel.MatchString(o.Namespace):
		return failed("has the namespace %q, which is not a valid name", o.Namespace)
	case !ok:
		return failed("has the annotation %s %q: it must be a whole number from -%d to %d", AnnotationOrder, r.Annotation(AnnotationOrder), maxOrder, maxOrder)
	}
	o.step = step
	if err := readChart(r, o.chart); err != nil {
		return failed("can't be deployed: %s", err)
	}
	parameters, err := expression.Parameters(r, d.Package)
	if err == nil {
		o.chart.values, err = helm.Values(parameters)
	}
	if err != nil {
		return failed("can't be deployed: %s", bounded(strings.TrimPrefix(err.Error(), r.Identity().String()+": ")))
	}
	annotations := map[string]any{}
	for _, name := range []string{AnnotationAdopt, AnnotationRetry} {
		if v := r.Annotation(name); v != "" {
			annotations[name] = v
		}
	}
	spec := map[string]any{
		"chart": o.chart.reference.Chart, "repository": o.chart.reference.Repository, "version": o.chart.reference.Version, "values": o.chart.values,
	}
	// Releases are upgraded when the digest of the content changes, so charts without
	// these fields must have the same content as before there were such fields.
	if len(o.chart.from) > 0 {
		spec["valuesFrom"] = o.chart.from
	}
	if o.chart.crds != helm.CreateCRDs {
		spec["crds"] = string(o.chart.crds)
	}
	o.content = map[string]any{
		"metadata": map[string]any{"name": o.Name, "namespace": o.Namespace, "labels": map[string]any{LabelDeployment: string(d.ID)}, "annotations": annotations},
		"spec":     spec,
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
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": chartKind.Group + "/" + chartKind.Version, "kind": chartKind.Kind, "metadata": metadata}}
}

// desireCharts adds the recorded objects of the releases to the wanted objects, and
// removes charts that can't be read.
func (rc *reconciliation) desireCharts(ctx context.Context) error {
	if err := rc.readReferred(ctx); err != nil {
		return err
	}
	for k, o := range rc.wanted.objects {
		if o.chart == nil {
			continue
		}
		why, invalid := rc.resolveValues(o)
		if why == "" {
			digest, err := rc.target.charts.Digest(o.chart.reference)
			if err == nil {
				if digest != "" {
					o.digest = shortHash([]byte(o.digest + " " + digest))
				}
				continue
			}
			why, invalid = bounded(err.Error()), errors.Is(err, tko.ErrInvalid)
		}
		delete(rc.wanted.objects, k)
		for id, keys := range rc.wanted.of {
			if i := slices.Index(keys, k); i >= 0 {
				rc.wanted.of[id] = slices.Delete(keys, i, i+1)
				rc.wanted.problems[id] = append(rc.wanted.problems[id], newProblem(k.String(), invalid, "can't be deployed: %s", why))
			}
		}
	}
	for _, i := range rc.recorded.mine {
		for k, e := range i.entries {
			if c := rc.wanted.objects[e.Release]; c != nil && c.chart != nil {
				rc.wantReleased(c, k, e.Version)
			}
		}
	}
	rc.sortWanted()
	return nil
}

// wantReleased adds an object of a release to the wanted objects, unless a package
// has it too.
func (rc *reconciliation) wantReleased(c *object, k key, version string) {
	if rc.wanted.objects[k] != nil {
		return
	}
	rc.wanted.objects[k] = &object{key: k, version: version, deployment: c.deployment, step: c.step, release: c.key}
	rc.wanted.of[c.deployment] = append(rc.wanted.of[c.deployment], k)
}

func (rc *reconciliation) sortWanted() {
	for _, keys := range rc.wanted.of {
		slices.SortStableFunc(keys, func(a, b key) int { return compareObjects(rc.wanted.objects[a], rc.wanted.objects[b]) })
	}
}

// decideCharts decides on the actions for releases. For objects of a release that may
// have drifted, it reads their desired state from the release.
func (rc *reconciliation) decideCharts(ctx context.Context, actions map[key]action) error {
	doubtful := map[key]bool{}
	for k, o := range rc.wanted.objects {
		if what := actions[k]; o.release != (key{}) && actions[o.release] != actionApply && (what == actionCompare || what == actionRestore) {
			doubtful[o.release] = true
		}
	}
	for release := range doubtful {
		if err := rc.readRelease(ctx, release, actions); err != nil {
			return err
		}
	}
	for k, o := range rc.wanted.objects {
		switch {
		case o.chart != nil:
			rc.decideChart(o, actions)
		case o.release != (key{}) && (actions[o.release] == actionApply || o.content == nil && actions[k] != actionWait):
			actions[k] = actionNone
		}
	}
	return nil
}

func (rc *reconciliation) decideChart(o *object, actions map[key]action) {
	e, _ := rc.entryOf(o)
	s := rc.states[o.key]
	s.entry.Chart, s.entry.Chart.Keep = e.Chart, o.chart.keep
	if e.Chart.Revision == 0 {
		s.live = nil
	}
	if actions[o.key] == actionApply {
		s.entry.Digest, s.entry.Chart.Failed = "", ""
		return
	}
	actions[o.key] = actionNone
	if e.Chart.Failed != "" {
		s.problem = rolledBack(o, e.Chart)
	}
}

func rolledBack(o *object, c chartState) *problem {
	p := newProblem(o.String(), true, "was rolled back after a failed upgrade: %s. Change its chart, version or parameters; another value of the annotation %s retries the same upgrade", c.Failed, AnnotationRetry)
	return &p
}

// readRelease reads the desired state of a release's objects. A release that no
// longer exists is installed again, if drift is to be corrected.
func (rc *reconciliation) readRelease(ctx context.Context, release key, actions map[key]action) error {
	state, err := rc.helm().Release(ctx, release.Namespace, release.Name)
	if errors.Is(err, tko.ErrNotFound) {
		if rc.spec.Drift == trigger.DriftCorrect {
			actions[release] = actionApply
			rc.states[release].corrected = "was uninstalled"
			return nil
		}
		state, err = &helm.State{}, nil
		for k, o := range rc.wanted.objects {
			if o.release == release && actions[k] == actionRestore {
				rc.states[k].drift = "is missing"
			}
		}
	}
	if err != nil {
		return err
	}
	for _, content := range state.Objects {
		k, _, known, err := rc.keyOf(ctx, content, release.Namespace)
		if err != nil {
			return err
		}
		if o := rc.wanted.objects[k]; known && o != nil && o.release == release {
			o.content = content
		}
	}
	return nil
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

func (rc *reconciliation) helm() *helm.Client {
	return &helm.Client{
		Host: rc.conn.host, Transport: rc.conn.client.Transport, Label: LabelDeployment, Timeout: rc.target.options.ChartTimeout, Request: rc.target.options.Timeout, Renderer: rc.target.renderer,
		Keep: func(annotations map[string]string) bool { return annotations[AnnotationPrune] == krm.Never },
	}
}

// deploy installs or upgrades the release of a chart.
func (rc *reconciliation) deploy(ctx context.Context, o *object, s *state) error {
	c, err := rc.target.charts.Get(ctx, o.chart.reference)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil { // an error of the chart's origin, not of the cluster
		p := newProblem(o.String(), errors.Is(err, tko.ErrInvalid), "can't be deployed: %s", bounded(err.Error()))
		s.problem = &p
		return nil
	}
	if err := rc.ensureNamespace(ctx, o.Namespace); err != nil {
		return err
	}
	client := rc.helm()
	if len(rc.spec.Ignore) > 0 {
		client.Adjust = func(namespace string, object map[string]any) (map[string]any, error) {
			return rc.keepIgnored(ctx, namespace, object)
		}
	}
	state, err := client.Deploy(ctx, helm.Release{
		Name: o.Name, Namespace: o.Namespace, Owner: string(o.deployment), Digest: labelOf(o.digest),
		Chart: c, Values: o.chart.values, Adopt: o.annotation(AnnotationAdopt) == "true", CRDs: o.chart.crds,
	}, func(owner string) bool { return owner == string(o.deployment) || rc.hasRecorded(owner, o.key) })
	if err == nil {
		rc.recordRelease(o, s, state)
		return nil
	}
	failed, ok := errors.AsType[*helm.FailedError](err)
	if !ok {
		return err // shown by rejection
	}
	if failed.State == nil {
		p := newProblem(o.String(), failed.Invalid, "can't be deployed: %s", o.chart.secrets.show(failed.Reason))
		s.problem = &p
		return nil
	}
	rc.recordRelease(o, s, failed.State)
	s.entry.Chart.Healthy, s.entry.Chart.Failed, s.entry.Chart.Tested = true, o.chart.secrets.show(failed.Reason), failed.State.Revision
	s.problem = rolledBack(o, s.entry.Chart)
	return nil
}

// keepIgnored returns an object of a release with its ignored fields set to their
// values in the cluster; nil if it has none, or does not exist.
func (rc *reconciliation) keepIgnored(ctx context.Context, namespace string, object map[string]any) (map[string]any, error) {
	k, version, known, err := rc.keyOf(ctx, object, namespace)
	if err != nil || !known {
		return nil, err
	}
	ignored := rc.spec.Ignored(k.Group, k.Kind, k.Namespace, k.Name)
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

func (rc *reconciliation) hasRecorded(owner string, k key) bool {
	i := rc.recorded.mine[tko.DeploymentID(owner)]
	if i == nil {
		return false
	}
	_, ok := i.entries[k]
	return ok
}

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

// recordRelease records a release after its deployment.
func (rc *reconciliation) recordRelease(o *object, s *state, deployed *helm.State) {
	rc.appliedCount.Add(int64(len(deployed.Objects)))
	o.chart.deployed = append([]map[string]any{}, deployed.Objects...)
	s.live = releaseObject(o.key, s.entry, o.deployment)
	s.entry.Digest = o.digest
	s.entry.Chart.Revision, s.entry.Chart.Previous = deployed.Revision, deployed.Previous
	s.entry.Chart.Since, s.entry.Chart.Healthy = time.Now().Unix(), false
	s.entry.Chart.Tested, s.entry.Chart.Fault = 0, ""
}

// readReleases reads the objects of the releases that this reconciliation deployed.
func (rc *reconciliation) readReleases(ctx context.Context, charts []*object) error {
	places := map[collection][]key{}
	fresh := map[key]*object{}
	for _, c := range charts {
		if c.chart.deployed == nil {
			continue
		}
		rc.dropReleased(c.key)
		for _, content := range c.chart.deployed {
			k, version, known, err := rc.keyOf(ctx, content, c.Namespace)
			if err != nil {
				return err
			}
			if !known { // not yet: the next reconciliation asks again
				rc.states[c.key].entry.Digest = ""
				continue
			}
			rc.wantReleased(c, k, version)
			if o := rc.wanted.objects[k]; o.release == c.key && fresh[k] == nil {
				fresh[k] = o
				at := collection{k.Group, version, k.Kind, k.Namespace}
				places[at] = append(places[at], k)
			}
		}
		c.chart.deployed = nil
	}
	rc.sortWanted()
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
		if o.release != release {
			continue
		}
		delete(rc.wanted.objects, k)
		delete(rc.states, k)
		for id, keys := range rc.wanted.of {
			if i := slices.Index(keys, k); i >= 0 {
				rc.wanted.of[id] = slices.Delete(keys, i, i+1)
			}
		}
	}
}

// assessReleases checks whether deployed releases became healthy. It rolls back an
// upgrade that fails or takes too long.
func (rc *reconciliation) assessReleases(ctx context.Context) error {
	var bad []*object
	for _, o := range rc.wanted.objects {
		if o.chart == nil {
			continue
		}
		s := rc.states[o.key]
		c := &s.entry.Chart
		switch {
		case c.Healthy, c.Revision == 0, s.entry.Digest != o.digest:
			continue
		case c.Failed != "": // its rollback was interrupted
			bad = append(bad, o)
			continue
		}
		worst, why := rc.healthOfRelease(o.key)
		late := time.Since(time.Unix(c.Since, 0)) > rc.target.options.ChartTimeout
		switch {
		case worst == healthy:
			c.Healthy = true
		case c.Previous == 0: // there is no revision to roll back to
		case worst == failing, late:
			c.Failed = o.chart.secrets.show(why)
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
		if err := rc.rollBack(ctx, o); err != nil {
			return err
		}
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

func (rc *reconciliation) rollBack(ctx context.Context, o *object) error {
	s := rc.states[o.key]
	c := &s.entry.Chart
	deployed, err := rc.helm().Rollback(ctx, o.Namespace, o.Name, c.Revision, c.Previous, "the upgrade did not become healthy")
	if failed, ok := errors.AsType[*helm.FailedError](err); ok {
		p := newProblem(o.String(), false, "was not upgraded, and could not be rolled back to revision %d: %s (%s)", c.Previous, o.chart.secrets.show(failed.Reason), c.Failed)
		s.problem = &p
		return nil
	}
	if err != nil {
		return err
	}
	rc.recordRelease(o, s, deployed)
	c.Healthy, c.Tested = true, c.Revision // tests are for upgrades that stay
	s.problem = rolledBack(o, *c)
	return nil
}

// testReleases runs the tests of charts whose releases became healthy. A failed test is a
// matter of the deployment's health: nothing is rolled back, and it runs again with the
// next upgrade.
func (rc *reconciliation) testReleases(ctx context.Context) error {
	g, limited := errgroup.WithContext(ctx)
	g.SetLimit(rc.target.options.Parallel)
	for _, o := range rc.wanted.objects {
		if o.chart == nil || !o.chart.test {
			continue
		}
		s := rc.states[o.key]
		c := &s.entry.Chart
		if s.problem != nil || c.Revision == 0 || c.Tested == c.Revision || !c.Healthy || s.entry.Digest != o.digest {
			continue
		}
		limit := rc.target.options.ChartTimeout
		if o.chart.testLimit > 0 {
			limit = min(limit, o.chart.testLimit)
		}
		rc.changing = true // steps and deployments may wait for the result
		g.Go(func() error {
			fault, tested, err := rc.helm().Test(limited, o.Namespace, o.Name, c.Revision, limit)
			switch {
			case err != nil && (limited.Err() != nil || isUnreachable(err)):
				return err
			case err != nil:
				s.problem = rc.rejection(o, err)
			case tested:
				c.Tested, c.Fault = c.Revision, o.chart.secrets.show(fault)
			}
			return nil
		})
	}
	return g.Wait()
}

// untested returns why the tests of a chart have not succeeded; empty if they have, or
// don't run. failed is false if they are about to run.
func (rc *reconciliation) untested(k key) (why string, failed bool) {
	o, s := rc.wanted.objects[k], rc.states[k]
	switch {
	case o == nil || o.chart == nil || !o.chart.test:
		return "", false
	case s.entry.Chart.Tested != s.entry.Chart.Revision:
		return "waits for its tests, which run when its objects are healthy", false
	case s.entry.Chart.Fault != "":
		return "failed its test: " + s.entry.Chart.Fault, true
	default:
		return "", false
	}
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
	err := rc.helm().Uninstall(ctx, r.Namespace, r.Name, func(owner string) bool { return slices.Contains(r.from, tko.DeploymentID(owner)) })
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
