package inventory

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// A file that is replaced, extended or written while it is read has changed.
func TestFileThatChangesWhileItIsReadIsNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sites.csv")
	write := func(path, content string) os.FileInfo {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := write(path, "name\na\n")
	for name, c := range map[string]struct {
		change func() os.FileInfo
		want   bool
	}{
		"as before": {func() os.FileInfo { return before }, false},
		"extended":  {func() os.FileInfo { return write(path, "name\na\nb\n") }, true},
		"written with the same size": {func() os.FileInfo {
			write(path, "name\nb\n")
			if err := os.Chtimes(path, time.Time{}, before.ModTime().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}, true},
		"replaced": {func() os.FileInfo {
			other := filepath.Join(t.TempDir(), "sites.csv")
			write(other, "name\na\n")
			if err := os.Chtimes(other, time.Time{}, before.ModTime()); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(other)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}, true},
	} {
		if got := changed(before, c.change(), len("name\na\n")); got != c.want {
			t.Errorf("%s: changed is %v, want %v", name, got, c.want)
		}
	}
}

// Objects of a cluster whose status managers wrote again are known: their records aren't
// mapped again.
func TestKubernetesObjectsWithOtherResourceVersionsAreKnown(t *testing.T) {
	t.Parallel()
	var version atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := version.Add(1)
		_, _ = fmt.Fprintf(w, `{"metadata": {"resourceVersion": "%d"}, "items": [{"metadata": {"name": "c1", "resourceVersion": "%d", "managedFields": [{"time": "%d"}]}}]}`, n, n, n)
	}))
	t.Cleanup(server.Close)
	s := OriginSettings{Kubernetes: &KubernetesSettings{URL: server.URL, Resource: "managedclusters.v1.cluster.open-cluster-management.io"}, Map: Mapping{ID: "record.metadata.name"}}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	k, err := newKubernetes(s, remote.Access{User: leash.Operator()})
	if err != nil {
		t.Fatal(err)
	}
	first, tag, err := k.read(t.Context(), "")
	if err != nil || len(first) != 1 {
		t.Fatalf("read %v: %v", first, err)
	}
	if again, same, err := k.read(t.Context(), tag); err != nil || again != nil || same != tag {
		t.Errorf("an unchanged object is read as %v: %v", again, err)
	}
}
