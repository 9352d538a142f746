package osm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/osm"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// records hold the states of targets. Only the holder of the claim may save one.
type records struct {
	mu     sync.Mutex
	states map[string]tko.TargetState // by "SITE NAME"
	saves  int
	claim  string
}

func (r *records) TargetState(_ context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.states[string(site)+" "+name]
	if !ok {
		return tko.TargetState{}, fmt.Errorf("state of target %q: %w", name, tko.ErrNotFound)
	}
	return s, nil
}

func (r *records) SaveTargetState(_ context.Context, s tko.TargetState, claim tko.WorkItem) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if claim.Claim != r.claim {
		return 0, tko.Errorf(tko.ErrConflict, "another worker holds the claim")
	}
	key := string(s.Site) + " " + s.Name
	s.Version = r.states[key].Version + 1
	r.states[key] = s
	r.saves++
	return s.Version, nil
}

type world struct {
	t       *testing.T
	server  *osmtest.Server
	records *records
	target  *osm.Target
	trigger krm.Resource
}

func newWorld(t *testing.T, o osmtest.Options) *world {
	t.Helper()
	o.TLS = true
	w := &world{t: t, server: osmtest.Start(t, o), records: &records{states: map[string]tko.TargetState{}, claim: "mine"}}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"password": []byte("admin\n"), "ca.pem": w.server.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.target = osm.New(w.records, osm.Options{Secrets: dir, Poll: time.Millisecond, Settle: 20 * time.Millisecond, Retry: time.Millisecond})
	w.trigger = krm.Resource{
		"apiVersion": "osm.plugin.nephio.org/v1alpha1", "kind": "OSM", "metadata": map[string]any{"name": "main"},
		"spec": map[string]any{
			"url": w.server.URL, "vimAccount": "vim", "caFile": "ca.pem", "credentials": map[string]any{"username": "admin", "passwordFile": "password"},
		},
	}
	return w
}

// reconcile reconciles the site once, with the claim.
func (w *world) reconcile(deployments []tko.Deployment, held ...tko.DeploymentID) (report.Report, error) {
	ctx := tko.WithClaim(w.t.Context(), tko.WorkItem{Queue: tko.QueueSchedule, Key: "lagos", Claim: "mine"})
	return w.target.Schedule(ctx, w.trigger, tko.Site{ID: "lagos", Package: krm.Package{w.trigger}}, deployments, held)
}

// settle reconciles until nothing is left to do. The report has all removed
// deployments.
func (w *world) settle(deployments []tko.Deployment, held ...tko.DeploymentID) report.Report {
	w.t.Helper()
	var removed []tko.DeploymentID
	var r report.Report
	eventually.NoError(w.t, "the site is settled", func() error {
		var err error
		if r, err = w.reconcile(deployments, held...); err != nil {
			w.t.Fatal(err)
		}
		removed = append(removed, r.Removed...)
		if r.Site.Scheduled.Status != "" || r.Requeue <= time.Minute {
			return fmt.Errorf("the report is %+v", r)
		}
		return nil
	})
	r.Removed = removed
	return r
}

func (w *world) names() (names []string) {
	for _, i := range w.server.Instances() {
		names = append(names, i.Name)
	}
	return names
}

const packages = `
apiVersion: osm.nephio.org/v1alpha1
kind: VnfPackage
metadata: {name: upf_knf}
spec:
  descriptor: {vnfd: {id: upf_knf, kdu: [{name: upf, helm-chart: ops/upf}]}}
  files: {README.md: hello}
  binaryFiles: {icons/upf.png: iVBORw0KGgo=}
---
apiVersion: osm.nephio.org/v1alpha1
kind: NsPackage
metadata: {name: upf_ns}
spec:
  descriptor: {nsd: {nsd: [{id: upf_ns, vnfd-id: [upf_knf], df: [{vnf-profile: [{id: upf, vnfd-id: upf_knf}]}]}]}}
---
`

func instance(member string, replicas int) string {
	return fmt.Sprintf("apiVersion: osm.nephio.org/v1alpha1\nkind: NsInstance\nmetadata: {name: edge}\nspec:\n  nsd: upf_ns\n  vnfs: [{member: %s, kdus: [{name: upf, params: {replicas: %d}}]}]\n", member, replicas)
}

func deployment(t *testing.T, id tko.DeploymentID, text string) tko.Deployment {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return tko.Deployment{ID: id, Site: "lagos", Prepared: true, Approved: true, Package: p}
}

func TestDeploymentsBecomeInstancesAndAreRemovedWithThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{Delay: 5 * time.Millisecond})
	a, b := deployment(t, "a", packages+instance("upf", 1)), deployment(t, "b", packages+instance("upf", 2))
	r, err := w.reconcile([]tko.Deployment{a, b})
	if got := r.Deployments["a"]; err != nil || got.Scheduled.Reason != osm.ReasonWaiting || got.Healthy.Reason != osm.ReasonInProgress || r.Requeue > time.Second {
		t.Errorf("at first: %v %+v, again in %s", err, got, r.Requeue)
	}
	r = w.settle([]tko.Deployment{a, b})
	if got := r.Deployments["a"]; got.Scheduled.Reason != osm.ReasonApplied || got.Healthy.Reason != osm.ReasonHealthy || r.Site.Healthy.Status != tko.ConditionTrue {
		t.Errorf("then: %+v %+v", got, r.Site)
	}
	if diff := cmp.Diff([]string{"edge.a", "edge.b"}, w.names()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p, _ := w.server.Package("vnf", "upf_knf"); string(p.Files["upf_knf/icons/upf.png"]) != "\x89PNG\r\n\x1a\n" {
		t.Errorf("the package has %q", p.Files)
	}

	w.server.Reset()
	saves := w.records.saves
	w.settle([]tko.Deployment{a, b})
	if got := w.server.Counts(); got.Total != 1 || w.records.saves != saves {
		t.Errorf("nothing changed: %d requests, %d saves", got.Total, w.records.saves-saves)
	}

	a = deployment(t, "a", packages+instance("upf", 3))
	r = w.settle([]tko.Deployment{a})
	if got, _ := w.server.Instance("edge.a"); got.Releases["upf/upf"].Values["replicas"] != 3 {
		t.Errorf("changed: %+v", got.Releases)
	}
	if diff := cmp.Diff([]tko.DeploymentID{"b"}, r.Removed); diff != "" || len(w.names()) != 1 {
		t.Errorf("removed: -want +got:\n%s%v", diff, w.names())
	}

	r = w.settle(nil, "a") // it is being prepared again
	if diff := cmp.Diff([]string{"edge.a"}, w.names()); diff != "" || len(r.Kept) != 1 {
		t.Errorf("held: -want +got:\n%s%v", diff, r.Kept)
	}
	w.settle(nil)
	if _, there := w.server.Package("vnf", "upf_knf"); there || len(w.names()) > 0 {
		t.Errorf("left: %v %t", w.names(), there)
	}
}

// An invalid deployment keeps its instances.
func TestInvalidDeploymentIsReportedAndDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.settle([]tko.Deployment{deployment(t, "a", packages+instance("upf", 1)), deployment(t, "b", packages+instance("upf", 1))})
	for name, text := range map[string]string{
		"a wrong member":                   packages + instance("amf", 2),
		"a file that isn't in the package": strings.ReplaceAll(packages, "README.md", "../README.md") + instance("upf", 2),
		"a field that isn't known":         packages + strings.Replace(instance("upf", 2), "params:", "values:", 1),
		"something that isn't base64":      strings.ReplaceAll(packages, "iVBORw0KGgo=", "'%%%'") + instance("upf", 2),
	} {
		a, b := deployment(t, "a", packages+instance("upf", 1)), deployment(t, "b", text)
		r, err := w.reconcile([]tko.Deployment{a, b})
		if err != nil {
			t.Fatal(err)
		}
		if r.Deployments["a"].Scheduled.Status != tko.ConditionTrue || r.Deployments["b"].Scheduled.Reason != osm.ReasonInvalid || r.Site.Scheduled.Reason != osm.ReasonInvalid {
			t.Errorf("%s: %+v %+v", name, r.Deployments, r.Site.Scheduled)
		}
		if diff := cmp.Diff([]string{"edge.a", "edge.b"}, w.names()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// A conflict is reported on both deployments, and their instances stay.
func TestTwoDeploymentsWithTheSameNameAreAConflictInOSM(t *testing.T) {
	t.Parallel()
	named := func(replicas int) string {
		return strings.Replace(instance("upf", replicas), "spec:", "spec:\n  name: edge", 1)
	}
	for name, text := range map[string]string{
		"another package of the same id": strings.ReplaceAll(packages, "hello", "good bye") + instance("upf", 2),
		"an instance of the same name":   packages + named(2),
	} {
		w := newWorld(t, osmtest.Options{})
		a, c := deployment(t, "a", packages+named(1)), deployment(t, "c", packages+instance("upf", 1))
		if name == "another package of the same id" {
			c = deployment(t, "c", "")
		}
		w.settle([]tko.Deployment{a, c})
		before := w.names()
		r, err := w.reconcile([]tko.Deployment{a, deployment(t, "b", text), c})
		if err != nil {
			t.Fatal(err)
		}
		for id, other := range map[tko.DeploymentID]string{"a": `deployment "b"`, "b": `deployment "a"`} {
			if got := r.Deployments[id].Scheduled; got.Reason != osm.ReasonInvalid || !strings.Contains(got.Message, other) {
				t.Errorf("%s: deployment %q says %+v", name, id, got)
			}
		}
		if got := r.Deployments["c"].Scheduled; got.Status != tko.ConditionTrue {
			t.Errorf("%s: a deployment without a conflict says %+v", name, got)
		}
		if diff := cmp.Diff(before, w.names()); diff != "" {
			t.Errorf("%s: -before +after:\n%s", name, diff)
		}
		if i, _ := w.server.Instance("edge"); i.Releases["upf/upf"].Values["replicas"] != 1 {
			t.Errorf("%s: the instance was changed: %+v", name, i.Releases)
		}
	}
}

func TestRemovalsBeyondTheBudgetWaitForApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	spec := w.trigger["spec"].(map[string]any)
	spec["prune"] = map[string]any{"instances": int64(0), "percent": int64(0)}
	w.settle([]tko.Deployment{deployment(t, "a", packages+instance("upf", 1))})
	r, err := w.reconcile(nil)
	if err != nil || r.Site.Scheduled.Reason != osm.ReasonApproval || len(w.names()) != 1 {
		t.Fatalf("%v %+v %v", err, r.Site.Scheduled, w.names())
	}
	_, key, _ := strings.Cut(r.Site.Scheduled.Message, `approve: "`)
	key, _, _ = strings.Cut(key, `"`)
	spec["prune"] = map[string]any{"instances": int64(0), "percent": int64(0), "approve": key}
	w.settle(nil)
	if len(w.names()) > 0 {
		t.Errorf("left: %v", w.names())
	}
}

func TestNothingIsMadeWithoutTheClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.records.claim = "other"
	_, err := w.reconcile([]tko.Deployment{deployment(t, "a", packages+instance("upf", 1))})
	if err == nil || len(w.names()) > 0 {
		t.Errorf("%v %v", err, w.names())
	}
	if _, err := w.target.Schedule(t.Context(), w.trigger, tko.Site{ID: "lagos"}, nil, nil); err == nil {
		t.Error("without a claim there is no error")
	}
}

func TestInvalidAndUnreachableOSMsAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(spec map[string]any)
		kind   error // nil if it may go away by itself
		text   string
	}{
		"no url":             {func(s map[string]any) { delete(s, "url") }, tko.ErrInvalid, "spec.url"},
		"no credentials":     {func(s map[string]any) { delete(s, "credentials") }, tko.ErrInvalid, "username and passwordFile"},
		"a file elsewhere":   {func(s map[string]any) { s["caFile"] = "../ca.pem" }, tko.ErrInvalid, "caFile"},
		"no such file":       {func(s map[string]any) { s["caFile"] = "other.pem" }, nil, "can't be read"},
		"an unknown field":   {func(s map[string]any) { s["vim"] = "x" }, tko.ErrInvalid, `unknown field "vim"`},
		"a type":             {func(s map[string]any) { s["insecure"] = "yes" }, tko.ErrInvalid, "spec"},
		"insecure with a CA": {func(s map[string]any) { s["insecure"] = true }, tko.ErrInvalid, "insecure"},
		"no server":          {func(s map[string]any) { s["url"] = "https://127.0.0.1:1" }, tko.ErrUnavailable, "doesn't answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osmtest.Options{})
			c.change(w.trigger["spec"].(map[string]any))
			_, err := w.reconcile([]tko.Deployment{deployment(t, "a", packages+instance("upf", 1))})
			if err == nil || !strings.Contains(err.Error(), c.text) || c.kind != nil && !errors.Is(err, c.kind) || c.kind == nil && errors.Is(err, tko.ErrInvalid) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestWarningStaysInTheCondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	all := []tko.Deployment{deployment(t, "a", packages+instance("upf", 1))}
	w.settle(all)
	for range 2 {
		if got := w.settle(all).Deployments["a"].Scheduled.Message; !strings.Contains(got, "1 instances are as they should be; the chart of upf/upf has no version") {
			t.Errorf("it says %q", got)
		}
	}
}

func TestInstancesOfDeploymentsThatARestoredStoreLacksStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	a, later := deployment(t, "a", packages+instance("upf", 1)), deployment(t, "later", packages+instance("upf", 2))
	w.settle([]tko.Deployment{a, later})
	w.settle([]tko.Deployment{a}, tko.OtherDeployments)
	if diff := cmp.Diff([]string{"edge.a", "edge.later"}, w.names()); diff != "" {
		t.Errorf("before the release: -want +got:\n%s", diff)
	}
	w.settle([]tko.Deployment{a})
	if diff := cmp.Diff([]string{"edge.a"}, w.names()); diff != "" {
		t.Errorf("after it: -want +got:\n%s", diff)
	}
}

// While the site is stopped, no request changes OSM; afterwards the same reconciliation goes on.
func TestStoppedSiteChangesNothingInOSM(t *testing.T) {
	w := newWorld(t, osmtest.Options{})
	d := deployment(t, "d", packages+instance("upf", 1))
	writes := func() (n int) {
		for request, count := range w.server.Counts().Requests {
			if !strings.HasPrefix(request, "GET ") && !strings.Contains(request, "/tokens") {
				n += count
			}
		}
		return n
	}
	ctx := tko.WithClaim(t.Context(), tko.WorkItem{Queue: tko.QueueSchedule, Key: "lagos", Claim: "mine"})
	allowed := 0
	for ; ; allowed++ { // each request is the one before which the site is stopped
		begun := 0
		stopped := fence.With(ctx, func(context.Context) error {
			begun++
			if begun > allowed {
				return fence.NewError(tko.Errorf(tko.ErrStopped, "storm"))
			}
			return nil
		})
		before := writes()
		_, err := w.target.Schedule(stopped, w.trigger, tko.Site{ID: "lagos", Package: krm.Package{w.trigger}}, []tko.Deployment{d}, nil)
		if n := writes() - before; n > allowed {
			t.Fatalf("%d requests changed OSM after %d were allowed", n, allowed)
		}
		if err == nil {
			break
		}
		if !fence.Is(err) || !errors.Is(err, tko.ErrStopped) || allowed > 20 {
			t.Fatal(err)
		}
	}
	if allowed == 0 {
		t.Error("nothing asked")
	}
	w.settle([]tko.Deployment{d})
}
