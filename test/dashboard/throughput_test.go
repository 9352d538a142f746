package dashboard

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// In one process and without rights, too, the throughput tells what the preparer and the
// meta-scheduler have done.
func TestThroughputOfOneProcessHasWhatWasScheduled(t *testing.T) {
	t.Parallel()
	server := process.StartServer(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	data, err := client.Dial(client.Options{Address: server.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = data.Close() }()
	if _, err := data.RegisterSite(t.Context(), tko.Site{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	pkg := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m"}}}
	if _, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Site: "s", Approved: true, Merge: pkg}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the chart to have what was prepared and scheduled", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Web+"/api/v1/throughput", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		var body struct {
			Minutes []struct{ Prepared, Scheduled int }
		}
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		prepared, scheduled := 0, 0
		for _, m := range body.Minutes {
			prepared, scheduled = prepared+m.Prepared, scheduled+m.Scheduled
		}
		return prepared > 0 && scheduled > 0
	})
}
