package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko/internal/pause"
)

// A hub stands in for a cluster in which Flux applies the folders of a git repository to the
// clusters of sites: an API server with a Kustomization for each site, which is ready at a
// revision as soon as the site's folder has it. A commit concerns the sites whose folders it
// changes; the real Flux applies each new revision at all sites.
type hub struct {
	*httptest.Server

	repository string   // a bare repository
	kinds      []string // IDs of the objects that each Kustomization lists, as in Flux' inventory

	mutex   sync.Mutex
	head    string
	version int // of the newest change
	names   []string
	objects map[string]*kustomization
	more    chan struct{} // closed at the next change
	fault   error
}

// A kustomization is the state of one.
type kustomization struct {
	version  int
	revision string    // "" before the first
	seen     time.Time // when the revision was seen in the repository
}

const (
	hubNamespace = "flux-system"
	hubKinds     = "/apis/kustomize.toolkit.fluxcd.io/v1"
	hubPath      = hubKinds + "/namespaces/" + hubNamespace + "/kustomizations"
	hubEvery     = 10 * time.Millisecond // between two looks at the repository
	hubBranch    = "refs/heads/main"
)

// newHub makes an empty repository and starts a hub for it.
func newHub(ctx context.Context, repository string, names, kinds []string) (*hub, error) {
	if out, err := exec.CommandContext(ctx, "git", "init", "--quiet", "--bare", "--initial-branch=main", repository).CombinedOutput(); err != nil { //nolint:gosec // our own arguments
		return nil, fmt.Errorf("git init: %w: %s", err, out)
	}
	h := &hub{repository: repository, kinds: kinds, version: 1, names: slices.Sorted(slices.Values(names)), objects: map[string]*kustomization{}, more: make(chan struct{})}
	for _, name := range names {
		h.objects[name] = &kustomization{version: 1}
	}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	return h, nil
}

// kubeconfig returns a kubeconfig for the hub.
func (h *hub) kubeconfig() []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: hub, contexts: [{name: hub, context: {cluster: hub, user: hub}}],
clusters: [{name: hub, cluster: {server: %q}}], users: [{name: hub, user: {}}]}`, h.URL)
}

// nameOf returns the name of the Kustomization of a folder: that of its site by default.
func nameOf(folder string) string { return strings.ReplaceAll(strings.ToLower(folder), "/", "-") }

// follow applies commits until the context ends.
func (h *hub) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := h.apply(ctx); err != nil && ctx.Err() == nil {
			h.mutex.Lock()
			h.fault = err
			h.mutex.Unlock()
			return
		}
		_ = pause.For(ctx, hubEvery)
	}
}

// failed returns why the hub no longer applies commits; nil if it does.
func (h *hub) failed() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.fault
}

// apply applies the newest commit, if it is another than before.
func (h *hub) apply(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(h.repository, filepath.FromSlash(hubBranch)))
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing is committed yet
	}
	if err != nil {
		return err
	}
	head := strings.TrimSpace(string(text))
	if head == h.head {
		return nil
	}
	seen, args := time.Now(), []string{"--git-dir", h.repository, "ls-tree", "-r", "--name-only", head}
	if h.head != "" {
		args = []string{"--git-dir", h.repository, "diff-tree", "-r", "--name-only", h.head, head}
	}
	out, err := exec.CommandContext(ctx, "git", args...).Output() //nolint:gosec // our own arguments
	if err != nil {
		return fmt.Errorf("git %s: %w", args[2], err)
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.head = head
	for name := range h.changedBy(string(out)) {
		h.version++
		k := h.objects[name]
		k.version, k.revision, k.seen = h.version, "main@sha1:"+head, seen
	}
	close(h.more)
	h.more = make(chan struct{})
	return nil
}

// changedBy returns the names of the Kustomizations in whose folders paths are, one in a line.
// The caller holds h.mutex.
func (h *hub) changedBy(paths string) map[string]bool {
	changed := map[string]bool{}
	for path := range strings.Lines(paths) {
		for i, c := range path {
			if name := nameOf(path[:i]); c == '/' && h.objects[name] != nil {
				changed[name] = true
				break
			}
		}
	}
	return changed
}

// seen returns when the newest revision of a Kustomization was seen in the repository.
func (h *hub) seen(name string) time.Time {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.objects[name].seen
}

// object returns a Kustomization. The caller holds h.mutex.
func (h *hub) object(name string) map[string]any {
	k := h.objects[name]
	status := map[string]any{"observedGeneration": 1, "conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Progressing", "message": "no revision yet"}}}
	if k.revision != "" {
		entries := make([]any, len(h.kinds))
		for i, id := range h.kinds {
			entries[i] = map[string]any{"id": id, "v": "v1"}
		}
		status = map[string]any{
			"observedGeneration": 1, "lastAppliedRevision": k.revision, "lastAttemptedRevision": k.revision, "inventory": map[string]any{"entries": entries},
			"history":    []any{map[string]any{"lastReconciled": k.seen.UTC().Format(time.RFC3339)}},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied revision: " + k.revision}},
		}
	}
	return map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "status": status,
		"metadata": map[string]any{"name": name, "namespace": hubNamespace, "generation": 1, "resourceVersion": strconv.Itoa(k.version), "uid": name},
		"spec": map[string]any{
			"interval": "10m", "wait": true, "path": "./" + name, "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "sites"},
			"kubeConfig": map[string]any{"secretRef": map[string]any{"name": name}},
		},
	}
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == hubKinds:
		h.write(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "kustomize.toolkit.fluxcd.io/v1", "resources": []any{
			map[string]any{"name": "kustomizations", "namespaced": true, "kind": "Kustomization", "verbs": []string{"get", "list", "watch"}},
		}})
	case r.URL.Path == hubPath && r.URL.Query().Get("watch") != "":
		h.watch(w, r)
	case r.URL.Path == hubPath:
		h.list(w, r)
	case strings.HasPrefix(r.URL.Path, hubPath+"/"):
		name := strings.TrimPrefix(r.URL.Path, hubPath+"/")
		h.mutex.Lock()
		defer h.mutex.Unlock()
		if h.objects[name] == nil {
			http.NotFound(w, r)
			return
		}
		h.write(w, h.object(name))
	default:
		http.NotFound(w, r)
	}
}

// list writes a page. All pages of a list have the version of the first one, so that a watch
// from there has what changed since.
func (h *hub) list(w http.ResponseWriter, r *http.Request) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	h.mutex.Lock()
	defer h.mutex.Unlock()
	version, from := h.version, 0
	if text := r.URL.Query().Get("continue"); text != "" {
		if _, err := fmt.Sscanf(text, "%d.%d", &version, &from); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	to := len(h.names)
	if limit > 0 {
		to = min(to, from+limit)
	}
	items, metadata := make([]any, 0, to-from), map[string]any{"resourceVersion": strconv.Itoa(version)}
	for _, name := range h.names[from:to] {
		items = append(items, h.object(name))
	}
	if to < len(h.names) {
		metadata["continue"] = fmt.Sprintf("%d.%d", version, to)
	}
	h.write(w, map[string]any{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "KustomizationList", "metadata": metadata, "items": items})
}

// watch writes what has changed since a version, until the client leaves.
func (h *hub) watch(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		http.Error(w, "resourceVersion: "+err.Error(), http.StatusBadRequest)
		return
	}
	end := time.NewTimer(time.Duration(max(1, seconds)) * time.Second)
	defer end.Stop()
	for {
		events, version, more := h.changes(since)
		since = version
		if _, err := w.Write(events); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-more:
		}
	}
}

// changes returns the events since a version, the version until which they are, and a channel
// that is closed at the next one.
func (h *hub) changes(since int) (events []byte, version int, more <-chan struct{}) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	var out bytes.Buffer
	for _, name := range h.names {
		if h.objects[name].version > since {
			h.write(&out, map[string]any{"type": "MODIFIED", "object": h.object(name)})
		}
	}
	return out.Bytes(), h.version, h.more
}

// write writes JSON in a line. An error is one of the connection, which the client sees, too.
func (h *hub) write(w interface{ Write(b []byte) (int, error) }, value any) {
	_ = json.NewEncoder(w).Encode(value)
}
