package gitops_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
)

// inTurn has the server list other sites at each reading; the last ones stay.
func (o *outside) inTurn(t testing.TB, lists ...[]string) {
	t.Helper()
	var bodies [][]byte
	for _, names := range lists {
		records := []any{}
		for _, name := range names {
			records = append(records, map[string]any{"name": name, "region": "west"})
		}
		data, err := json.Marshal(records)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, data)
	}
	var n atomic.Int64
	o.serve(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bodies[min(int(n.Add(1)), len(bodies))-1])
	})
}

// A site that is missing from one reading, and there in the next, is not removed.
func TestSiteThatOneReadingMissesIsNotRemoved(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	all := numbered("a", 60)
	o.sites(t, all...)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, o.settings())}})
	w.until("sites", "applied", wasApplied)
	first, err := w.Site(w.Context(), "a-007", 0)
	if err != nil {
		t.Fatal(err)
	}
	without := append(append([]string{}, all[:7]...), all[8:]...)
	o.inTurn(t, without, all)
	w.settle("sites")
	w.settle("sites")
	now, err := w.Site(w.Context(), "a-007", 0)
	if err != nil || now.Stamp.UID != first.Stamp.UID || now.Stamp.Revision != first.Stamp.Revision {
		t.Fatalf("the site that one reading misses was removed, and is %+v (%v) now", now.Stamp, err)
	}

	// Readings that never agree remove nothing, and the status says so.
	other := append(append([]string{}, all[:9]...), all[10:]...)
	o.inTurn(t, without, other, without, other, without, other, without, other)
	w.refused("sites", tko.SourceReasonFetchFailed, "don't agree", "nothing is removed")
	if _, err := w.Site(w.Context(), "a-007", 0); err != nil {
		t.Fatal(err)
	}

	// Missing in two readings, it is removed.
	o.sites(t, without...)
	w.settle("sites")
	w.until("sites", "applied", func(s tko.Source) bool { return wasApplied(s) && len(s.Status.Items) == 59 })
}

// Values that users set come back with a site that comes back within the grace time.
func TestSiteThatComesBackHasTheValuesOfUsers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace string
		want  map[string]string
	}{
		"within the grace time": {"", map[string]string{"region": "north from user:test", "contact": "ada from user:test"}},
		"no grace time":         {"0s", map[string]string{"region": "west from url"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutside(t)
			others := numbered("b", 40)
			o.sites(t, append([]string{"a"}, others...)...)
			settings := o.settings()
			settings.Inventory.Editable, settings.Inventory.Grace = []string{"metadata.*"}, c.grace
			w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
			w.until("sites", "applied", wasApplied)
			w.edit("", map[string]string{"contact": "ada", "region": "north"})
			w.settle("sites")
			o.sites(t, others...)
			w.settle("sites")
			w.until("sites", "without the site", func(s tko.Source) bool { return wasApplied(s) && len(s.Status.Items) == 40 })
			o.sites(t, append([]string{"a"}, others...)...)
			w.settle("sites")
			w.until("sites", "with the site", func(s tko.Source) bool { return wasApplied(s) && len(s.Status.Items) == 41 })
			w.has("the values", c.want)
			for range 2 { // they stay when it is applied again
				w.settle("sites")
			}
			w.has("the values, later", c.want)
		})
	}
	o := newOutside(t)
	settings := o.settings()
	settings.Inventory.Grace = "soon"
	if _, err := settings.Spec(t.TempDir()); err == nil || !strings.Contains(err.Error(), "inventory.grace") {
		t.Errorf("the error of a malformed grace time is %v", err)
	}
}
