package kubeapi_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func TestObjectsAreReadAsOfAMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := func(id, region, value string) {
		t.Helper()
		pkg := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"key": value}}}
		if _, err := w.RegisterSite(t.Context(), tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"region": region}, Package: pkg}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		site(fmt.Sprint("s", i), "north", "then")
	}
	moment, err := w.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	site("s0", "south", "now")
	site("late", "north", "now")
	if _, err := w.DeleteSite(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprint("asOf=", moment)
	if got := w.must("GET", "sites/s1?"+at, nil); got.text("metadata.labels.region") != "north" {
		t.Errorf("the site that was deleted since: %v", got)
	}
	if got := w.must("GET", "sites/s0?"+at, nil); fmt.Sprint(got.at("spec.package.resources")) != fmt.Sprint(w.must("GET", "sites/s2", nil).at("spec.package.resources")) {
		t.Errorf("the site that was changed since: %v", got["spec"])
	}
	w.fails(http.StatusNotFound, "not found", "GET", "sites/late?"+at, nil)
	first := w.must("GET", "sites?limit=3&labelSelector=region%3Dnorth&"+at, nil)
	rest := w.must("GET", "sites?limit=3&labelSelector=region%3Dnorth&continue="+first.text("metadata.continue")+"&"+at, nil)
	if diff := cmp.Diff([]string{"s0", "s1", "s2", "s3"}, append(first.names(), rest.names()...)); diff != "" {
		t.Errorf("the list as of the moment (-want +got):\n%s", diff)
	}
	if got := first.text("metadata.resourceVersion"); got != strconv.FormatInt(moment, 10) {
		t.Errorf("the resourceVersion is %s, want %d", got, moment)
	}
	if got := w.must("GET", "sites?labelSelector=region%3Dnorth", nil).names(); len(got) != 3 {
		t.Errorf("the list now: %v", got)
	}
	for path, code := range map[string]int{"sites?watch=1&" + at: http.StatusBadRequest, "sites/s0?asOf=tomorrow": http.StatusBadRequest, "sites?asOf=999999": http.StatusBadRequest} {
		w.fails(code, "", "GET", path, nil)
	}
	w.fails(http.StatusBadRequest, "only gets and lists", "DELETE", "sites/s0?"+at, nil)
}
