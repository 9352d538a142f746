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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/expression"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/krm"
)

// AnnotationRetry is on a HelmChart: another value of it tries an upgrade again
// that was rolled back.
const AnnotationRetry = "tko.nephio.org/retry"

// chartKind is of Helm charts.
var chartKind = krm.GVK{Group: "workload.nephio.org", Version: "v1alpha1", Kind: "HelmChart"}

// helmName is what Helm calls releases.
var helmName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

const maxRelease = 53 // bytes of a release's name

// A HelmChart is recorded like an object; what its release holds is recorded
// beside it, and observed like objects, so that a chart that didn't change
// costs no more than they do. Only Helm applies and removes them, except for
// drift.

// A chart is what a HelmChart says.
type chart struct {
	reference helm.Reference
	values    map[string]any
	keep      bool             // when it is no longer wanted
	holds     []map[string]any // the release's objects, if this look deployed it
}

// A chartState is what is recorded of a release.
type chartState struct {
	Revision int    `json:"revision,omitempty"` // as it was deployed last; 0 if it never was
	Previous int    `json:"previous,omitempty"` // to which it can go back
	Since    int64  `json:"since,omitempty"`    // when it was deployed, in seconds
	Good     bool   `json:"good,omitempty"`     // it was healthy, once
	Keep     bool   `json:"keep,omitempty"`
	Failed   string `json:"failed,omitempty"` // why what is wanted was rolled back, or is about to be
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

// compareCharts has charts last.
func compareCharts(a, b key) int {
	rank := func(k key) int {
		if k.isChart() {
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

// buildChart makes the object of a HelmChart. The release has its name and
// namespace.
func buildChart(r krm.Resource, d tko.Deployment, namespace string) (*object, *problem) {
	failed := func(format string, args ...any) (*object, *problem) {
		p := problemOf(r.Identity().String(), true, format, args...)
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
		return failed("has a name that Helm doesn't take for a release: use at most %d of a-z, 0-9, - and dots in it", maxRelease)
	case !dnsLabel.MatchString(o.Namespace):
		return failed("has the namespace %q, which is not the name of one", o.Namespace)
	case !ok:
		return failed("has the annotation %s %q: it must be a whole number from -%d to %d", AnnotationOrder, r.Annotation(AnnotationOrder), maxOrder, maxOrder)
	}
	o.step = step
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
	o.content = map[string]any{
		"metadata": map[string]any{"name": o.Name, "namespace": o.Namespace, "labels": map[string]any{LabelDeployment: string(d.ID)}, "annotations": annotations},
		"spec": map[string]any{
			"chart": o.chart.reference.Chart, "repository": o.chart.reference.Repository, "version": o.chart.reference.Version, "values": o.chart.values,
		},
	}
	if o.digest, err = digestOf(o.content); err != nil {
		return failed("can't be written as JSON: %s", err)
	}
	return o, nil
}

// standIn stands for a release where objects are looked for: to know that costs
// nothing.
func standIn(k key, e entry, id tko.DeploymentID) *unstructured.Unstructured {
	metadata := map[string]any{"name": k.Name, "namespace": k.Namespace, "labels": map[string]any{LabelDeployment: string(id)}}
	if e.Chart.Keep {
		metadata["annotations"] = map[string]any{AnnotationPrune: krm.Never}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": chartKind.Group + "/" + chartKind.Version, "kind": chartKind.Kind, "metadata": metadata}}
}

// desireCharts adds to what is wanted what the releases hold, as far as it is
// recorded, and takes out charts that can't be read.
func (l *look) desireCharts() {
	for k, o := range l.wanted.objects {
		if o.chart == nil {
			continue
		}
		digest, err := l.target.charts.Digest(o.chart.reference)
		if err == nil {
			if digest != "" {
				o.digest = shortHash([]byte(o.digest + " " + digest))
			}
			continue
		}
		delete(l.wanted.objects, k)
		for id, keys := range l.wanted.of {
			if i := slices.Index(keys, k); i >= 0 {
				l.wanted.of[id] = slices.Delete(keys, i, i+1)
				l.wanted.problems[id] = append(l.wanted.problems[id], problemOf(k.String(), errors.Is(err, tko.ErrInvalid), "can't be deployed: %s", bounded(err.Error())))
			}
		}
	}
	for _, i := range l.recorded.mine {
		for k, e := range i.entries {
			if c := l.wanted.objects[e.Release]; c != nil && c.chart != nil {
				l.hold(c, k, e.Version)
			}
		}
	}
	l.sortWanted()
}

// hold adds to what is wanted an object that a release holds. One that a
// package has, too, is the package's.
func (l *look) hold(c *object, k key, version string) {
	if l.wanted.objects[k] != nil {
		return
	}
	l.wanted.objects[k] = &object{key: k, version: version, deployment: c.deployment, step: c.step, release: c.key}
	l.wanted.of[c.deployment] = append(l.wanted.of[c.deployment], k)
}

func (l *look) sortWanted() {
	for _, keys := range l.wanted.of {
		slices.SortStableFunc(keys, func(a, b key) int { return compareObjects(l.wanted.objects[a], l.wanted.objects[b]) })
	}
}

// decideCharts says what to do about releases, and how what they hold should be
// if somebody changed it.
func (l *look) decideCharts(ctx context.Context, actions map[key]action) error {
	doubtful := map[key]bool{}
	for k, o := range l.wanted.objects {
		if what := actions[k]; o.release != (key{}) && actions[o.release] != bring && (what == suspect || what == restore) {
			doubtful[o.release] = true
		}
	}
	for release := range doubtful {
		if err := l.recall(ctx, release, actions); err != nil {
			return err
		}
	}
	for k, o := range l.wanted.objects {
		switch {
		case o.chart != nil:
			l.decideChart(o, actions)
		case o.release != (key{}) && (actions[o.release] == bring || o.content == nil && actions[k] != await):
			actions[k] = leave
		}
	}
	return nil
}

func (l *look) decideChart(o *object, actions map[key]action) {
	e, _ := l.entryOf(o)
	s := l.states[o.key]
	s.entry.Chart, s.entry.Chart.Keep = e.Chart, o.chart.keep
	if e.Chart.Revision == 0 {
		s.live = nil
	}
	if actions[o.key] == bring {
		s.entry.Digest, s.entry.Chart.Failed = "", ""
		return
	}
	actions[o.key] = leave
	if e.Chart.Failed != "" {
		s.problem = rolledBack(o, e.Chart)
	}
}

func rolledBack(o *object, c chartState) *problem {
	p := problemOf(o.String(), true, "was not upgraded, and is as it was before: %s. Change its chart, version or parameters; another value of the annotation %s tries the same again", c.Failed, AnnotationRetry)
	return &p
}

// recall reads what a release holds. One that isn't there any more is installed
// again.
func (l *look) recall(ctx context.Context, release key, actions map[key]action) error {
	state, err := l.helm().Release(ctx, release.Namespace, release.Name)
	if errors.Is(err, tko.ErrNotFound) {
		if l.spec.Drift == driftCorrect {
			actions[release] = bring
			l.states[release].corrected = "was uninstalled"
			return nil
		}
		state, err = &helm.State{}, nil
		for k, o := range l.wanted.objects {
			if o.release == release && actions[k] == restore {
				l.states[k].drift = "is missing"
			}
		}
	}
	if err != nil {
		return err
	}
	for _, content := range state.Objects {
		k, _, known, err := l.keyOf(ctx, content, release.Namespace)
		if err != nil {
			return err
		}
		if o := l.wanted.objects[k]; known && o != nil && o.release == release {
			o.content = content
		}
	}
	return nil
}

// keyOf names an object that a release holds.
func (l *look) keyOf(ctx context.Context, content map[string]any, namespace string) (k key, version string, known bool, err error) {
	r := krm.Resource(content)
	gvk := r.GVK()
	found, known, err := l.conn.kindOf(ctx, gvk)
	if err != nil || !known {
		return key{}, "", false, err
	}
	k = key{Group: gvk.Group, Kind: gvk.Kind, Name: r.Text("metadata", "name")}
	if found.namespaced {
		k.Namespace = cmp.Or(r.Text("metadata", "namespace"), namespace)
	}
	return k, gvk.Version, true, nil
}

func (l *look) helm() *helm.Client {
	return &helm.Client{
		Host: l.conn.host, Transport: l.conn.client.Transport, Label: LabelDeployment, Timeout: l.target.options.ChartTimeout, Request: l.target.options.Timeout, Renderer: l.target.renderer,
		Keep: func(annotations map[string]string) bool { return annotations[AnnotationPrune] == krm.Never },
	}
}

// deploy makes the release of a chart be what it should.
func (l *look) deploy(ctx context.Context, o *object, s *state) error {
	c, err := l.target.charts.Get(ctx, o.chart.reference)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil { // the cluster isn't away, whatever it is
		p := problemOf(o.String(), errors.Is(err, tko.ErrInvalid), "can't be deployed: %s", bounded(err.Error()))
		s.problem = &p
		return nil
	}
	if err := l.makeRoom(ctx, o.Namespace); err != nil {
		return err
	}
	client := l.helm()
	if len(l.spec.Ignore) > 0 {
		client.Adjust = func(namespace string, object map[string]any) (map[string]any, error) {
			return l.keepIgnored(ctx, namespace, object)
		}
	}
	state, err := client.Deploy(ctx, helm.Release{
		Name: o.Name, Namespace: o.Namespace, Owner: string(o.deployment), Digest: labelOf(o.digest),
		Chart: c, Values: o.chart.values, Adopt: o.annotation(AnnotationAdopt) == "true",
	}, func(owner string) bool { return owner == string(o.deployment) || l.hasRecorded(owner, o.key) })
	if err == nil {
		l.took(o, s, state)
		return nil
	}
	failed, ok := errors.AsType[*helm.FailedError](err)
	if !ok {
		return err
	}
	if failed.State == nil {
		p := problemOf(o.String(), failed.Invalid, "can't be deployed: %s", bounded(failed.Reason))
		s.problem = &p
		return nil
	}
	l.took(o, s, failed.State)
	s.entry.Chart.Good, s.entry.Chart.Failed = true, bounded(failed.Reason)
	s.problem = rolledBack(o, s.entry.Chart)
	return nil
}

// keepIgnored has an object of a release with the fields that aren't ours as
// they are in the cluster; nil if there are none, or the object isn't there.
func (l *look) keepIgnored(ctx context.Context, namespace string, object map[string]any) (map[string]any, error) {
	k, version, known, err := l.keyOf(ctx, object, namespace)
	if err != nil || !known {
		return nil, err
	}
	ignored := l.spec.ignored(k)
	if len(ignored) == 0 {
		return nil, nil
	}
	live, err := l.conn.get(ctx, k, version)
	if err != nil || live == nil {
		return nil, err
	}
	return withIgnored(object, live, ignored), nil
}

// labelOf is a digest as the value of a label, which knows fewer letters.
func labelOf(digest string) string { return inventoryName("", tko.DeploymentID(digest)) }

func (l *look) hasRecorded(owner string, k key) bool {
	i := l.recorded.mine[tko.DeploymentID(owner)]
	if i == nil {
		return false
	}
	_, ok := i.entries[k]
	return ok
}

// makeRoom makes a release's namespace, if it may and the namespace isn't there.
func (l *look) makeRoom(ctx context.Context, namespace string) error {
	there, err := l.conn.get(ctx, key{Kind: "Namespace", Name: namespace}, "v1")
	if err == nil && there == nil {
		err = l.conn.makeNamespace(ctx, namespace)
	}
	if isAway(err) {
		return err
	}
	return nil // else the release's own error tells
}

// took notes a release as it is deployed now.
func (l *look) took(o *object, s *state, deployed *helm.State) {
	l.applied.Add(int64(len(deployed.Objects)))
	o.chart.holds = append([]map[string]any{}, deployed.Objects...)
	s.live = standIn(o.key, s.entry, o.deployment)
	s.entry.Digest = o.digest
	s.entry.Chart.Revision, s.entry.Chart.Previous = deployed.Revision, deployed.Previous
	s.entry.Chart.Since, s.entry.Chart.Good = time.Now().Unix(), false
}

// gather reads what releases hold that this look deployed.
func (l *look) gather(ctx context.Context, charts []*object) error {
	places := map[place][]key{}
	fresh := map[key]*object{}
	for _, c := range charts {
		if c.chart.holds == nil {
			continue
		}
		l.drop(c.key)
		for _, content := range c.chart.holds {
			k, version, known, err := l.keyOf(ctx, content, c.Namespace)
			if err != nil {
				return err
			}
			if !known { // yet: the next look asks again
				l.states[c.key].entry.Digest = ""
				continue
			}
			l.hold(c, k, version)
			if o := l.wanted.objects[k]; o.release == c.key && fresh[k] == nil {
				fresh[k] = o
				at := place{k.Group, version, k.Kind, k.Namespace}
				places[at] = append(places[at], k)
			}
		}
		c.chart.holds = nil
	}
	l.sortWanted()
	if err := l.read(ctx, places); err != nil {
		return err
	}
	for k, o := range fresh {
		s := &state{live: l.live[k], entry: entry{Version: o.version, Step: o.step, Release: o.release}}
		if s.live != nil {
			s.entry.Fields = fieldsOf(s.live)
		}
		l.states[k] = s
	}
	return nil
}

// drop takes out of what is wanted what a release held.
func (l *look) drop(release key) {
	for k, o := range l.wanted.objects {
		if o.release != release {
			continue
		}
		delete(l.wanted.objects, k)
		delete(l.states, k)
		for id, keys := range l.wanted.of {
			if i := slices.Index(keys, k); i >= 0 {
				l.wanted.of[id] = slices.Delete(keys, i, i+1)
			}
		}
	}
}

// judgeCharts looks whether releases that were deployed became healthy. An
// upgrade that fails, or takes too long, is rolled back.
func (l *look) judgeCharts(ctx context.Context) error {
	var bad []*object
	for _, o := range l.wanted.objects {
		if o.chart == nil {
			continue
		}
		s := l.states[o.key]
		c := &s.entry.Chart
		switch {
		case c.Good, c.Revision == 0, s.entry.Digest != o.digest:
			continue
		case c.Failed != "": // it was to be rolled back
			bad = append(bad, o)
			continue
		}
		worst, why := l.healthOfRelease(o.key)
		late := time.Since(time.Unix(c.Since, 0)) > l.target.options.ChartTimeout
		switch {
		case worst == healthy:
			c.Good = true
		case c.Previous == 0: // there is nothing better
		case worst == failing, late:
			c.Failed = bounded(why)
			bad = append(bad, o)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	if err := l.note(ctx, bad); err != nil {
		return err
	}
	for _, o := range bad {
		if err := l.rollBack(ctx, o); err != nil {
			return err
		}
	}
	return l.gather(ctx, bad)
}

// note writes down what is about to be rolled back: else a look after a crash
// would take what was rolled back for what is wanted.
func (l *look) note(ctx context.Context, charts []*object) error {
	ids := map[tko.DeploymentID]bool{}
	for _, o := range charts {
		ids[o.deployment] = true
	}
	return l.eachInventory(ctx, slices.Collect(maps.Keys(ids)), func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		for _, k := range l.wanted.of[i.deployment] {
			next[k] = l.states[k].entry
		}
		return next
	})
}

func (l *look) rollBack(ctx context.Context, o *object) error {
	s := l.states[o.key]
	c := &s.entry.Chart
	deployed, err := l.helm().Rollback(ctx, o.Namespace, o.Name, c.Revision, c.Previous, "the upgrade didn't become healthy")
	if failed, ok := errors.AsType[*helm.FailedError](err); ok {
		p := problemOf(o.String(), false, "was not upgraded, and can't be rolled back to revision %d: %s (%s)", c.Previous, bounded(failed.Reason), c.Failed)
		s.problem = &p
		return nil
	}
	if err != nil {
		return err
	}
	l.took(o, s, deployed)
	c.Good = true
	s.problem = rolledBack(o, *c)
	return nil
}

// healthOfRelease is the worst of all that a release holds, and what is wrong
// with it. A running Job holds no release back, as with helm --wait: it may take
// longer than an upgrade may.
func (l *look) healthOfRelease(release key) (health, string) {
	worst, what := healthy, ""
	for _, k := range slices.SortedFunc(maps.Keys(l.wanted.objects), compareKeys) {
		if l.wanted.objects[k].release != release {
			continue
		}
		h, why := inProgress, "is missing"
		if live := l.states[k].live; live != nil {
			h, why = statusOf(live)
		}
		if h > worst {
			worst, what = h, fmt.Sprintf("%s: %s", k, why)
		}
	}
	return worst, what
}

// followReleases leaves what releases hold to Helm: it is to be removed only with
// the release, and counts so.
func (p *pruning) followReleases() {
	going := map[key]bool{}
	for _, r := range p.remove {
		going[r.key] = r.isChart()
	}
	p.remove = slices.DeleteFunc(p.remove, func(r removal) bool {
		stays := r.Release != (key{}) && !going[r.Release]
		if stays {
			p.drop = append(p.drop, r)
		}
		return stays
	})
}

// uninstall removes a release.
func (l *look) uninstall(ctx context.Context, r removal) error {
	err := l.helm().Uninstall(ctx, r.Namespace, r.Name, func(owner string) bool { return slices.Contains(r.from, tko.DeploymentID(owner)) })
	if err == nil {
		l.gone.Add(1)
	}
	return err
}

// left says whether an object went with its release. Charts may keep some.
func (l *look) left(ctx context.Context, r removal) (why string, err error) {
	now, err := l.conn.get(ctx, r.key, r.Version)
	if err != nil || now == nil || now.GetDeletionTimestamp() == nil {
		return "", err
	}
	return "is being removed", nil
}

// count is how many objects a deployment has, and how many charts, in words.
func (l *look) count(id tko.DeploymentID) (objects int, charts string) {
	n := 0
	for _, k := range l.wanted.of[id] {
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
	return len(l.wanted.of[id]) - n, charts
}
