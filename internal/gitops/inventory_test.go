package gitops_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// An outside is an inventory that a test changes: an HTTP server with a list of
// records, or an arbitrary body.
type outside struct {
	*httptest.Server
	body atomic.Value // func(http.ResponseWriter, *http.Request)
}

func newOutside(t testing.TB) *outside {
	t.Helper()
	o := &outside{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.body.Load().(func(http.ResponseWriter, *http.Request))(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *outside) serve(f func(http.ResponseWriter, *http.Request)) { o.body.Store(f) }

// sites has the server list sites by their names.
func (o *outside) sites(t testing.TB, names ...string) {
	t.Helper()
	records := []any{}
	for _, name := range names {
		records = append(records, map[string]any{"name": name, "region": "west"})
	}
	data, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	o.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) })
}

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return names
}

func (o *outside) settings() gitops.Settings {
	return gitops.Settings{Name: "sites", Inventory: &inventory.Settings{From: []inventory.OriginSettings{{
		URL: o.URL + "/sites.json",
		Map: inventory.Mapping{ID: "record.name", Metadata: map[string]string{"region": "record.region"}},
	}}}}
}

// settle enqueues the source and waits until it was reconciled.
func (w *world) settle(name string) tko.Source {
	w.Helper()
	if err := w.controller.Enqueue(w.Context(), name); err != nil {
		w.Fatal(err)
	}
	return w.until(name, "reconciled", func(s tko.Source) bool {
		return !s.Enqueued && ready(s).Status != "" && ready(s).Status != tko.ConditionUnknown
	})
}

// An external inventory that loses its sites in any way changes nothing, and a
// condition reports it. When it is as before, it is ready again without any change.
func TestFailingInventoryChangesNoSites(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, numbered("a", 60)...)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, o.settings())}})
	w.until("sites", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 60 })
	before := w.entities()
	if len(before) != 60 {
		t.Fatalf("there are %d entities: want 60", len(before))
	}
	text := func(body string) func() {
		return func() { o.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }) }
	}
	for name, fault := range map[string]struct {
		cause  func()
		reason string
		parts  []string
	}{
		"empty list":     {text("[]"), tko.SourceReasonFetchFailed, []string{"has no sites", "allowEmpty"}},
		"empty response": {text(""), tko.SourceReasonFetchFailed, []string{"is empty"}},
		"truncated JSON": {text(`[{"name": "a-000", "region": "we`), tko.SourceReasonFetchFailed, []string{"not complete JSON"}},
		"login page":     {text("<html>log in</html>"), tko.SourceReasonFetchFailed, []string{"not complete JSON"}},
		"short body": {func() {
			o.serve(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write([]byte(`[{"name": "a-000", "region": "west"}]`))
			})
		}, tko.SourceReasonFetchFailed, []string{"incomplete"}},
		"not found":             {func() { o.serve(http.NotFound) }, tko.SourceReasonFetchFailed, []string{"404"}},
		"denied":                {func() { o.serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }) }, tko.SourceReasonDenied, []string{"403", "credentials"}},
		"a field is missing":    {text(`[{"name": "a-000"}]`), tko.SourceReasonFetchFailed, []string{"record 1", "map.metadata.region"}},
		"an ID twice":           {text(`[{"name": "a", "region": "x"}, {"name": "a", "region": "x"}]`), tko.SourceReasonFetchFailed, []string{"records 1 and 2", `"a"`}},
		"half":                  {func() { o.sites(t, numbered("a", 30)...) }, tko.SourceReasonApproval, []string{"30 of 60", "tko gitops approve sites "}},
		"more than the percent": {func() { o.sites(t, numbered("a", 56)...) }, tko.SourceReasonApproval, []string{"4 of 60"}},
		"renamed":               {func() { o.sites(t, numbered("b", 60)...) }, tko.SourceReasonApproval, []string{"60 of 60", "60 other changes wait"}},
		"some renamed":          {func() { o.sites(t, append(numbered("a", 50), numbered("b", 10)...)...) }, tko.SourceReasonApproval, []string{"10 other changes wait"}},
		"a lost filter":         {func() { o.sites(t, append(numbered("a", 60), numbered("b", 61)...)...) }, tko.SourceReasonApproval, []string{"61 sites would be added to 60", "tko gitops approve sites "}},
	} {
		fault.cause()
		w.refused("sites", fault.reason, fault.parts...)
		if diff := cmp.Diff(before, w.entities()); diff != "" {
			t.Errorf("%s: sites have changed: %s", name, diff)
		}
	}
	o.sites(t, numbered("a", 60)...)
	if c := ready(w.settle("sites")); c.Status != tko.ConditionTrue {
		w.until("sites", "ready again", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	}
	if diff := cmp.Diff(before, w.entities()); diff != "" {
		t.Errorf("a second run has changed sites: %s", diff)
	}
}

// A removal within both limits of the budget is made. Beyond, it waits for an approval,
// which releases all changes of the inventory.
func TestInventoryRemovesSitesWithinBudgetOrWhenApproved(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, numbered("a", 60)...)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, o.settings())}})
	owns := func(n int, last string) func(tko.Source) bool {
		return func(s tko.Source) bool {
			return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == n && s.Status.Items[n-1].Name == last
		}
	}
	w.until("sites", "applied", owns(60, "a-059"))
	o.sites(t, numbered("a", 58)...)
	w.settle("sites")
	w.until("sites", "within the budget", owns(58, "a-057"))
	o.sites(t, append(numbered("a", 20), "b")...)
	held := w.refused("sites", tko.SourceReasonApproval)
	if err := w.controller.Approve(t.Context(), "sites", "0123456789abcdef"); err == nil {
		t.Error("another digest approves the removal")
	}
	if err := w.controller.Approve(t.Context(), "sites", held.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.until("sites", "approved", owns(21, "b"))
	if n := len(w.entities()); n != 21 {
		t.Errorf("there are %d sites: want 21", n)
	}
	// The approval was for that removal only.
	o.sites(t, "b")
	w.refused("sites", tko.SourceReasonApproval, "20 of 21")
	if n := len(w.entities()); n != 21 {
		t.Errorf("there are %d sites after a removal without approval: want 21", n)
	}
}

// A site at which deployments are isn't removed without an approval, even if the budget
// allows removals.
func TestInventoryKeepsSitesWithDeployments(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, numbered("a", 60)...)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, o.settings())}})
	w.until("sites", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 60 })
	if _, err := w.CreateDeployment(t.Context(), tko.NewDeployment{Site: "a-059"}); err != nil {
		t.Fatal(err)
	}
	o.sites(t, numbered("a", 59)...)
	w.refused("sites", tko.SourceReasonApproval, `deployments are at site "a-059"`, "tko gitops approve sites ")
	if _, err := w.Site(t.Context(), "a-059", 0); err != nil {
		t.Errorf("the site was removed: %v", err)
	}
}

// Several origins describe a site: the first has precedence for each key, and a
// condition names contradictions.
func TestInventoryMergesOriginsByPrecedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	overrides := write("overrides.csv", "\ufeffsite,region\nlagos,south\n")
	main := write("main.yaml", "data:\n  sites:\n  - {name: lagos, region: west, tier: 2}\n  - {name: accra, region: west, tier: 1}\n")
	racks := write("racks.json", `[{"site": "lagos", "racks": 7}, {"site": "nowhere", "racks": 1}]`)
	settings := gitops.Settings{Name: "sites", Inventory: &inventory.Settings{From: []inventory.OriginSettings{
		{Name: "overrides", File: overrides, Enrich: true, Map: inventory.Mapping{ID: "record.site", Metadata: map[string]string{"region": "record.region"}}},
		{Name: "main", File: main, Items: "data.sites", Map: inventory.Mapping{ID: "record.name", Metadata: map[string]string{"region": "record.region", "tier": "record.tier", "none": "record.?none"}}},
		{Name: "racks", File: racks, Enrich: true, Map: inventory.Mapping{ID: "record.site", Metadata: map[string]string{"racks": "record.racks"}, Package: `[{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "racks"}, "data": {"n": string(record.racks)}}]`}},
	}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	s := w.until("sites", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	lagos, err := w.Site(t.Context(), "lagos", 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"region": "south", "tier": "2", "racks": "7"}, lagos.Metadata); diff != "" {
		t.Error(diff)
	}
	if len(lagos.Package) != 1 || lagos.Package[0].Name() != "racks" {
		t.Errorf("the package is %v: want one ConfigMap", lagos.Package)
	}
	if _, err := w.Site(t.Context(), "nowhere", 0); err == nil {
		t.Error("an origin that only enriches made a site")
	}
	found := ""
	for _, c := range s.Status.Conditions {
		if c.Type == tko.ConditionConsistent && c.Status == tko.ConditionFalse {
			found = c.Message
		}
	}
	if want := `site "lagos": metadata.region is "south" in overrides, and "west" in main`; !strings.Contains(found, want) {
		t.Errorf("the condition is %q: want %q", found, want)
	}
}

// A plan shows what would be made, held removals included, and changes nothing.
func TestInventoryPlanChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, "a", "b", "c")
	c := data(t)
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, o.settings())}})
	w.until("sites", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 3 })
	before := w.entities()
	o.sites(t, "a", "b", "d")
	preview, err := gitops.PreviewInventory(t.Context(), c, spec(t, o.settings()))
	if err != nil {
		t.Fatal(err)
	}
	if len(preview.Plan.Actions) != 0 || len(preview.Plan.Held) != 2 {
		t.Errorf("the plan has %v and holds %v: want one creation and one removal held", preview.Plan.Actions, preview.Plan.Held)
	}
	if diff := cmp.Diff(before, w.entities()); diff != "" {
		t.Error(diff)
	}
}

// Sites that stay, but lose what the inventory gave them, are lost, too: a column that
// was renamed, or an origin that only adds to sites and is empty, changes nothing.
func TestInventoryThatLosesValuesWaitsForApproval(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	extra := filepath.Join(t.TempDir(), "extra.csv")
	var names strings.Builder
	names.WriteString("site;contact\n")
	for _, name := range numbered("a", 60) {
		names.WriteString(name + ";ops\n;\n")
	}
	write := func(content string) {
		if err := os.WriteFile(extra, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	records := func(key string, value func(n int) string) {
		var all []string
		for n, name := range numbered("a", 60) {
			all = append(all, fmt.Sprintf(`{"name": %q, %q: %q}`, name, key, value(n)))
		}
		o.serve(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("[" + strings.Join(all, ",") + "]"))
		})
	}
	settings := o.settings()
	settings.Inventory.From[0].Map.Metadata["region"] = "record.?region"
	settings.Inventory.From = append(settings.Inventory.From, inventory.OriginSettings{
		Name: "extra", File: extra, Enrich: true, Map: inventory.Mapping{ID: "record.site", Metadata: map[string]string{"contact": "record.contact"}},
	})
	west := func(int) string { return "west" }
	write(names.String())
	records("region", west)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	s := w.until("sites", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 60 })
	if diff := cmp.Diff(tko.SourceOrigins{"metadata.region": "url", "metadata.contact": "extra"}, s.Status.OriginsOf(s.Status.Items[7])); diff != "" {
		t.Error(diff)
	}
	before := w.entities()
	for name, fault := range map[string]struct {
		cause func()
		want  string
	}{
		"a renamed column":        {func() { records("Region", west) }, "60 of 60 sites would lose their template or metadata"},
		"an empty origin":         {func() { records("region", west); write("site;contact\n") }, "60 of 60 sites would lose"},
		"other values at most":    {func() { write(names.String()); records("region", func(int) string { return "#REF!" }) }, "60 of 60 sites would get another template or other metadata"},
		"values of some are lost": {func() { records("region", func(n int) string { return strings.Repeat("west", min(1, n/10)) }) }, "10 of 60 sites would lose"},
	} {
		fault.cause()
		w.refused("sites", tko.SourceReasonApproval, fault.want)
		if diff := cmp.Diff(before, w.entities()); diff != "" {
			t.Errorf("%s: sites have changed: %s", name, diff)
		}
		write(names.String())
		records("region", west)
		w.settle("sites")
		w.until("sites", "ready again", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	}
	// Few changes, and approved ones, are made.
	records("region", func(n int) string { return strings.Repeat("west", min(1, n/2)) })
	w.settle("sites")
	w.until("sites", "few changes applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	records("region", func(int) string { return "east" })
	held := w.refused("sites", tko.SourceReasonApproval)
	if err := w.controller.Approve(t.Context(), "sites", held.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.until("sites", "approved", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	site, err := w.Site(t.Context(), "a-001", 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"region": "east", "contact": "ops"}, site.Metadata); diff != "" {
		t.Error(diff)
	}
	// The approval was for these values only.
	before = w.entities()
	records("region", func(int) string { return "#REF!" })
	w.refused("sites", tko.SourceReasonApproval, "60 of 60 sites would get another template or other metadata")
	if diff := cmp.Diff(before, w.entities()); diff != "" {
		t.Errorf("other values than approved are applied: %s", diff)
	}
}

// An inventory that loses a few sites again and again loses no more than its budget
// within an hour.
func TestInventoryThatLosesSitesSlowlyIsStopped(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, numbered("a", 60)...)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, o.settings())}})
	owns := func(n int) func(tko.Source) bool {
		return func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == n }
	}
	w.until("sites", "applied", owns(60))
	o.sites(t, numbered("a", 59)...)
	w.settle("sites")
	w.until("sites", "one is removed", owns(59))
	o.sites(t, numbered("a", 58)...)
	w.settle("sites")
	w.until("sites", "two are removed", owns(58))
	o.sites(t, numbered("a", 57)...)
	w.refused("sites", tko.SourceReasonApproval, "1 of 58 entities would be removed", "2 were removed lately")
	if n := len(w.entities()); n != 58 {
		t.Errorf("there are %d sites: want 58", n)
	}
}

// An origin without sites stops the whole inventory, even if those of others are many.
func TestInventoryWithOneEmptyOriginChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, numbered("a", 60)...)
	few := filepath.Join(t.TempDir(), "few.csv")
	if err := os.WriteFile(few, []byte("name\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := o.settings()
	settings.Inventory.From = append(settings.Inventory.From, inventory.OriginSettings{Name: "few", File: few, Map: inventory.Mapping{ID: "record.name"}})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.until("sites", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 61 })
	if err := os.WriteFile(few, []byte("name\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.refused("sites", tko.SourceReasonFetchFailed, `inventory "few" has no sites`, "allowEmpty")
	if n := len(w.entities()); n != 61 {
		t.Errorf("there are %d sites: want 61", n)
	}
}

// Sites made of the clusters of a management cluster refer to the credentials that it
// stores, so that the Kubernetes target reaches them.
func TestInventoryOfClustersRefersToTheirCredentials(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/cluster.x-k8s.io/v1beta1/clusters":
			_, _ = w.Write([]byte(`{"metadata": {}, "items": [
				{"metadata": {"name": "edge-1", "namespace": "fleet"}, "status": {"phase": "Provisioned"}}, {"metadata": {"name": "edge-2", "namespace": "fleet"}, "status": {"phase": "Pending"}}]}`))
		case "/apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles":
			_, _ = w.Write([]byte(`{"metadata": {}, "items": [{"metadata": {"name": "core-1", "namespace": "inventory"}, "status": {"properties": [{"name": "region", "value": "west"}]}}]}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	cluster := func(kubeconfig string) string {
		return `[{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": {"name": "cluster"}, "spec": {"kubeconfig": ` + kubeconfig + `}}]`
	}
	settings := gitops.Settings{Name: "clusters", Inventory: &inventory.Settings{From: []inventory.OriginSettings{
		{
			Name: "capi", Kubernetes: &inventory.KubernetesSettings{URL: server.URL, Resource: "clusters.v1beta1.cluster.x-k8s.io"},
			Map: inventory.Mapping{
				When: `record.?status.phase.orValue("") == "Provisioned"`, ID: `"capi/" + record.metadata.name`,
				Package: cluster(`{"clusterAPI": {"name": record.metadata.name, "namespace": record.metadata.namespace}}`),
			},
		},
		{
			Name: "profiles", Kubernetes: &inventory.KubernetesSettings{URL: server.URL, Resource: "clusterprofiles.v1alpha1.multicluster.x-k8s.io"},
			Map: inventory.Mapping{
				ID: `"profile/" + record.metadata.name`, Metadata: map[string]string{"region": `record.status.properties.filter(p, p.name == "region").map(p, p.value).join("")`},
				Package: cluster(`{"secret": {"name": record.metadata.name, "namespace": record.metadata.namespace, "key": "Config"}}`),
			},
		},
	}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.until("clusters", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 2 })
	for id, want := range map[tko.SiteID]trigger.KubeconfigRef{
		"capi/edge-1":    {Secret: "edge-1-kubeconfig", SecretNamespace: "fleet", SecretKey: "value"},
		"profile/core-1": {Secret: "core-1", SecretNamespace: "inventory", SecretKey: "Config"},
	} {
		site, err := w.Site(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		found, err := trigger.Read(site.Package[0])
		if diff := cmp.Diff(want, found.Kubeconfig); err != nil || diff != "" {
			t.Errorf("the Kubernetes target reads site %q with the error %v: %s", id, err, diff)
		}
	}
}
