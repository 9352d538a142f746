package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// The hub of the rows is what a client of Kubernetes expects: a list in pages, and a watch from
// its version, which has what a commit has changed, and nothing else.
func TestHubShowsWhatCommitsChange(t *testing.T) {
	t.Parallel()
	repository := filepath.Join(t.TempDir(), "sites.git")
	h, err := newHub(t.Context(), repository, []string{"fleet-a", "fleet-b", "fleet-c"}, []string{"default_x__ConfigMap"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	get := func(query string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+hubPath+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	list := func(query string) (list map[string]any) {
		t.Helper()
		response := get(query)
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
			t.Fatalf("%v: %s", err, response.Status)
		}
		return list
	}
	metadata := func(list map[string]any) (version, more string) {
		m := list["metadata"].(map[string]any)
		version, _ = m["resourceVersion"].(string)
		more, _ = m["continue"].(string)
		return version, more
	}
	first := list("?limit=2")
	version, more := metadata(first)
	second := list("?limit=2&continue=" + more)
	if a, b := first["items"].([]any), second["items"].([]any); len(a) != 2 || len(b) != 1 {
		t.Fatalf("pages of %d and %d objects", len(a), len(b))
	}
	if again, end := metadata(second); again != version || end != "" {
		t.Errorf("the second page has the version %q and continues with %q, want %q and the end", again, end, version)
	}
	commit := func(folder, text string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", "--git-dir", repository, "fast-import", "--quiet", "--force")
		from := "from refs/heads/main^0\n"
		if h.head == "" {
			from = ""
		}
		command.Stdin = strings.NewReader("commit refs/heads/main\ncommitter t <t@example.com> 0 +0000\ndata 0\n" + from + "M 100644 inline " + folder + "/d/10/x.yaml\ndata <<E\n" + text + "\nE\n\n")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := h.apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	commit("fleet/a", "1")
	commit("fleet/b", "2")
	if h.seen("fleet-a").IsZero() || h.seen("fleet-b").IsZero() || !h.seen("fleet-c").IsZero() {
		t.Error("a commit concerns the sites whose folders it changes")
	}
	w := get("?watch=true&timeoutSeconds=60&resourceVersion=" + version)
	defer func() { _ = w.Body.Close() }()
	events := json.NewDecoder(w.Body)
	for _, want := range []string{"fleet-a", "fleet-b"} {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name string }
				Status   struct{ LastAppliedRevision string }
			}
		}
		if err := events.Decode(&event); err != nil || event.Type != "MODIFIED" || event.Object.Metadata.Name != want || !strings.HasPrefix(event.Object.Status.LastAppliedRevision, "main@sha1:") {
			t.Errorf("%v, %+v, want %s", err, event, want)
		}
	}
}

// A hub that can't read its repository says so.
func TestHubReportsWhyItStopped(t *testing.T) {
	t.Parallel()
	h, err := newHub(t.Context(), filepath.Join(t.TempDir(), "sites.git"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.repository = string([]byte{0})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h.follow(ctx)
	eventually.True(t, "the hub has failed", func() bool { return h.failed() != nil })
}
