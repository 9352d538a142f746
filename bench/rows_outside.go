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
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	catalogVersions = 50 // of each package
	netBoxPage      = 500
)

func rowsInventory(sites int) []string {
	what := fmt.Sprintf("inventory: %s sites of NetBox", thousands(sites))
	return []string{what + ", until registered", what + ", unchanged"}
}

func rowsCatalog(packages int) []string {
	what := fmt.Sprintf("catalog: %s packages with %d versions in git", thousands(packages), catalogVersions)
	return []string{what + ", until registered", what + ", unchanged"}
}

// An outside is a source that others keep, and what it has to become.
type outside struct {
	rows     []string
	kind     tko.Kind
	settings string // YAML of the source, without its name
	items    int
	requests *atomic.Int64 // that the source has had; nil if they aren't counted
	aim      time.Duration // of the first row; 0 if there is none
}

// errNoGitOps is the reason why the rows of sources are missing.
var errNoGitOps = &notMeasuredError{"the benchmark doesn't start the servers"}

// inventory reads the sites of a NetBox, and reads it again without a change.
func (r *run) inventory(ctx context.Context) error {
	if r.GitOps == nil {
		return errNoGitOps
	}
	var requests atomic.Int64
	pages, newest, err := netBoxPages(r.Inventory)
	if err != nil {
		return err
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests.Add(1)
		from, _ := strconv.Atoi(q.URL.Query().Get("id__gte")) // none on the first page; IDs count from 1
		switch page := max(0, from-1) / netBoxPage; {
		case q.URL.Query().Get("ordering") == "-last_updated":
			_, _ = w.Write(newest)
		case page < len(pages):
			_, _ = w.Write(pages[page])
		default:
			http.NotFound(w, q)
		}
	}))
	defer server.Close()
	return r.outside(ctx, outside{
		rows: rowsInventory(r.Inventory), kind: tko.KindSite, items: r.Inventory, aim: time.Minute, requests: &requests,
		settings: fmt.Sprintf(`inventory:
    from:
    - netbox: { url: %q, pageSize: %d }
      map:
        when: record.status.value == "active"
        id: '"netbox/" + record.slug'
        metadata: { region: record.region.slug, rack-units: record.custom_fields.units, tags: 'record.tags.map(t, t.slug).join(",")' }
`, server.URL, netBoxPage),
	})
}

// netBoxPages returns the pages of a list of sites, and the page with the newest one.
func netBoxPages(sites int) (pages [][]byte, newest []byte, err error) {
	page := func(from, to int) ([]byte, error) {
		records := []any{}
		for i := from; i < to; i++ {
			records = append(records, map[string]any{
				"id": i + 1, "slug": fmt.Sprintf("site-%06d", i), "name": fmt.Sprintf("Site %d", i), "status": map[string]any{"value": "active", "label": "Active"},
				"region": map[string]any{"id": i % 40, "slug": fmt.Sprintf("region-%d", i%40)}, "tags": []any{map[string]any{"slug": "edge"}},
				"custom_fields": map[string]any{"units": i % 48}, "last_updated": "2026-01-01T00:00:00Z", "comments": strings.Repeat("as NetBox sends them ", 20),
			})
		}
		next := any(nil)
		if to < sites {
			next = fmt.Sprintf("http://netbox/api/dcim/sites/?limit=%d&offset=%d", netBoxPage, netBoxPage)
		}
		return json.Marshal(map[string]any{"count": sites - from, "next": next, "previous": nil, "results": records})
	}
	for from := 0; from < sites; from += netBoxPage {
		data, err := page(from, min(from+netBoxPage, sites))
		if err != nil {
			return nil, nil, err
		}
		pages = append(pages, data)
	}
	newest, err = page(0, min(1, sites))
	return pages, newest, err
}

// catalog reads the packages of a git repository, and reads it again without a change.
func (r *run) catalog(ctx context.Context) (err error) {
	if r.GitOps == nil {
		return errNoGitOps
	}
	folder, err := os.MkdirTemp("", "tko-bench-catalog-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := packagesIn(ctx, folder, r.Catalog); err != nil {
		return err
	}
	const keep = 10
	return r.outside(ctx, outside{
		rows: rowsCatalog(r.Catalog), kind: tko.KindTemplate, items: keep * r.Catalog,
		settings: fmt.Sprintf("git: { url: %q }\n  path: nf\n  catalog: { id: \"catalog/{path}:{tag}\", keep: %d }\n", "file://"+folder, keep),
	})
}

// packagesIn makes a bare git repository of packages, with a tag for each version.
func packagesIn(ctx context.Context, folder string, packages int) error {
	git := func(input *bytes.Buffer, args ...string) (string, error) {
		command := exec.CommandContext(ctx, "git", append([]string{"--git-dir", folder}, args...)...) //nolint:gosec // our own arguments
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if input != nil {
			command.Stdin = input
		}
		out, err := command.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	if _, err := git(nil, "init", "-q", "--bare"); err != nil {
		return err
	}
	var stream bytes.Buffer
	stream.WriteString("commit refs/heads/main\ncommitter bench <bench@example.com> 0 +0000\ndata 0\n")
	for i := range packages {
		for name, text := range map[string]string{
			"Kptfile":     "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: p}\n",
			"config.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {number: '%d'}\n", i),
		} {
			fmt.Fprintf(&stream, "M 100644 inline nf/p%04d/%s\ndata %d\n%s\n", i, name, len(text), text)
		}
	}
	if _, err := git(&stream, "fast-import", "--quiet"); err != nil {
		return err
	}
	commit, err := git(nil, "rev-parse", "refs/heads/main")
	if err != nil {
		return err
	}
	var refs []string
	for i := range packages {
		for v := range catalogVersions {
			refs = append(refs, fmt.Sprintf("refs/tags/nf/p%04d/v1.%d.0\n", i, v))
		}
	}
	slices.Sort(refs)
	packed := "# pack-refs with: peeled fully-peeled sorted \n" + commit + " " + strings.Join(refs, commit+" ")
	return os.WriteFile(filepath.Join(folder, "packed-refs"), []byte(packed), 0o600) // git itself would write a file for each first
}

// outside measures a source from the start of a server until all is registered, and then
// while nothing changes.
func (r *run) outside(ctx context.Context, o outside) error {
	name := "bench-" + string(o.kind)
	end := r.begin(ctx)
	pid, stop, err := r.GitOps(ctx, []byte("sources:\n- name: "+name+"\n  interval: 1h\n  "+o.settings))
	if err != nil {
		return err
	}
	defer stop()
	s, err := r.reconciled(ctx, name, tko.Source{}, 100*time.Millisecond)
	if err != nil {
		return err
	}
	m := end(o.items)
	n := 0
	for _, item := range s.Status.Items {
		if item.Kind == string(o.kind) && !item.Pending {
			n++
		}
	}
	if n != o.items {
		return fmt.Errorf("%d of %d are registered: %+v", n, o.items, s.Status.Conditions)
	}
	requests := func() (n int64) {
		if o.requests != nil {
			n = o.requests.Load()
		}
		return n
	}
	// used returns what the role has used since an earlier moment for each of n
	// reconciliations.
	used := func(since time.Duration, earlier int64, n int, each string) string {
		text := fmt.Sprintf("the role gitops: %s of processor time%s", short((processorTime(pid)-since)/time.Duration(n)), each)
		if o.requests != nil {
			text += fmt.Sprintf("; %d requests to the source", (requests()-earlier)/int64(n))
		}
		return text
	}
	r.add(duration(o.rows[0], m.took, o.aim, used(0, 0, 1, ", in all")+"; the data controller: "+m.String()))

	again := func(ctx context.Context) error {
		if err := r.client.EnqueueSources(ctx, []string{name}, false, ""); err != nil {
			return err
		}
		s, err = r.reconciled(ctx, name, s, 5*time.Millisecond)
		return err
	}
	if err := again(ctx); err != nil { // compares all with TKO, as after each change there
		return err
	}
	since, earlier := processorTime(pid), requests()
	all, err := sample(ctx, min(r.Samples, 20), again)
	if err != nil {
		return err
	}
	r.add(latency(o.rows[1], all, 2*time.Second).with(used(since, earlier, len(all), " each")))
	return nil
}

// reconciled waits until a source is ready and not enqueued. last is its known state. Each
// request costs the server time.
func (r *run) reconciled(ctx context.Context, name string, last tko.Source, every time.Duration) (tko.Source, error) {
	for {
		s, err := r.client.SourceUnless(ctx, name, last.Version)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return s, err
		}
		if err == nil {
			if s.Version == last.Version {
				s.Status = last.Status
			}
			last = s
			switch ready := tko.FindCondition(s.Status.Conditions, tko.ConditionReady); {
			case ready == nil || s.Enqueued:
			case ready.Status == tko.ConditionTrue:
				return s, nil
			case ready.Status == tko.ConditionFalse:
				return s, fmt.Errorf("source %q: %s", name, ready.Message)
			}
		}
		if err := pause.For(ctx, every); err != nil {
			return last, err
		}
	}
}
