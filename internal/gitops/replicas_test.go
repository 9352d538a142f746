package gitops_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A paused client stops at its first write until resume is closed, as the client of a
// process that stands still and continues later.
type paused struct {
	*client.Client
	mu      sync.Mutex
	stopped bool          // leases are not renewed
	reached chan struct{} // closed at the first write
	resume  chan struct{}
	results chan error
}

func (p *paused) PutEntity(ctx context.Context, put tko.Put) (tko.PutResult, error) {
	if put.DryRun {
		return p.Client.PutEntity(ctx, put)
	}
	p.mu.Lock()
	if !p.stopped {
		p.stopped = true
		close(p.reached)
	}
	p.mu.Unlock()
	<-p.resume
	result, err := p.Client.PutEntity(context.WithoutCancel(ctx), put) // the request was already sent
	p.results <- err
	return result, err
}

func (p *paused) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped {
		<-p.resume
	}
	return p.Client.RenewWork(ctx, items, lease)
}

func TestPausedHolderChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.push(map[string]string{"a.yaml": template("t", "old")})
	c := data(t)
	slow := &paused{Client: c, reached: make(chan struct{}), resume: make(chan struct{}), results: make(chan error, 10)}
	s := spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}})
	old := gitops.New(slow, gitops.Options{Worker: "old", Sources: []gitops.Spec{s}, Lease: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- old.Run(ctx) }()
	<-slow.reached

	second := r.push(map[string]string{"a.yaml": template("t", "new")})
	w := start(t, c, gitops.Options{Worker: "new", Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}})}})
	w.until("fleet", "taken over", func(s tko.Source) bool { return s.Status.Applied == second && s.Status.Holder == "new" })
	stop()
	close(slow.resume)
	if err := <-slow.results; !errors.Is(err, tko.ErrConflict) {
		t.Errorf("the write of the old holder returned %v, want ErrConflict", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	got, err := c.Template(t.Context(), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if value, _ := got.Package[0].Get("data", "key"); value != "new" || got.Stamp.Revision != 1 {
		t.Errorf("the template has %v at revision %d, want new at 1", value, got.Stamp.Revision)
	}
	if s, err := c.Source(t.Context(), "fleet"); err != nil || s.Status.Applied != second {
		t.Errorf("the source is at %s, %v; want %s", s.Status.Applied, err, second)
	}
}

func TestReplicasShareSources(t *testing.T) {
	t.Parallel()
	const sources = 6
	c := data(t)
	repos := make([]*repo, sources)
	var specs []gitops.Spec
	for i := range repos {
		repos[i] = newRepo(t)
		specs = append(specs, spec(t, gitops.Settings{Name: fmt.Sprint("source", i), Git: gitops.GitSettings{URL: repos[i].url}}))
	}
	a := start(t, c, gitops.Options{Worker: "a", Sources: specs})
	b := start(t, c, gitops.Options{Worker: "b", Sources: specs})
	for round := range 3 {
		revisions := make([]string, sources)
		for i, r := range repos {
			revisions[i] = r.push(map[string]string{"a.yaml": all(
				template(fmt.Sprint("t", i), strconv.Itoa(round)), site(fmt.Sprint("s", i), ""), deployment("d", fmt.Sprint("t", i), fmt.Sprint("s", i)))})
		}
		for i, revision := range revisions {
			w := []*world{a, b}[(i+round)%2] // either replica may reconcile it
			w.sync(fmt.Sprint("source", i), revision)
		}
	}
	if got := len(a.entities()); got != 3*sources {
		t.Errorf("the entities are %v, want %d", a.entities(), 3*sources)
	}
}

// If a controller stops after it creates an entity and before it saves the inventory,
// the next controller finds the entity.
func TestInterruptedCreationsAreContinued(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	c := data(t)
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), site("s", "t"), deployment("d", "t", "s"), deployment("e", "t", "s"))})
	for _, fatal := range []string{"template", "site", "deployment"} {
		dying := &dying{Client: c, at: fatal}
		ctx, stop := context.WithCancel(t.Context())
		dying.die = stop
		controller := gitops.New(dying, gitops.Options{Worker: fatal, Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}, Lease: 100 * time.Millisecond})
		if err := controller.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	s := w.sync("fleet", first)
	if got := w.entities(); len(got) != 4 {
		t.Errorf("the entities are %v, want 4", got)
	}
	for _, item := range s.Status.Items {
		if item.Pending || item.Digest == "" {
			t.Errorf("the inventory has %+v, want a digest and not pending", item)
		}
	}
	second := r.push(map[string]string{"a.yaml": "x: 1\n"})
	w.sync("fleet", second)
	if got := w.entities(); len(got) != 0 {
		t.Errorf("left are %v, want none", got)
	}
}

// A dying client writes one entity of kind at, and fails from then on.
type dying struct {
	*client.Client
	mu   sync.Mutex
	at   string
	dead bool
	die  func()
}

func (d *dying) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return tko.PutResult{}, context.Canceled
	}
	result, err := d.Client.PutEntity(ctx, p)
	if err == nil && !p.DryRun && string(p.Kind) == d.at {
		d.dead = true
		d.die()
		return tko.PutResult{}, context.Canceled
	}
	return result, err
}

func (d *dying) SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return 0, context.Canceled
	}
	return d.Client.SaveSource(ctx, s, claim)
}

func TestHooksRefuseUnsignedRequests(t *testing.T) {
	t.Parallel()
	const body = `{"ref":"refs/heads/main"}`
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(body))
	good := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	long := hmac.New(sha512.New, []byte("secret"))
	long.Write([]byte(body))
	tests := map[string]struct {
		why, path, header, value, method string
		want                             int
	}{
		"Bitbucket":      {"as Bitbucket signs", "/hook/fleet", "X-Hub-Signature", good, "", 202},
		"GitHub":         {"as GitHub signs", "/hook/fleet", "X-Hub-Signature-256", good, "", 202},
		"generic":        {"as any other client signs", "/hook/fleet", "X-Signature", good, "", 202},
		"GitLab":         {"as GitLab authenticates", "/hook/fleet", "X-Gitlab-Token", "secret", "", 202},
		"NetBox":         {"as NetBox signs", "/hook/fleet", "X-Hook-Signature", hex.EncodeToString(long.Sum(nil)), "", 202},
		"wrong NetBox":   {"an attacker tries a signature", "/hook/fleet", "X-Hook-Signature", strings.Repeat("00", 64), "", 401},
		"short NetBox":   {"an attacker tries half a signature", "/hook/fleet", "X-Hook-Signature", hex.EncodeToString(long.Sum(nil))[:64], "", 401},
		"name with path": {"names may have slashes", "/hook/flux-system/fleet", "X-Signature", good, "", 202},
		"no signature":   {"an unsigned request is from an unknown client", "/hook/fleet", "X-Other", good, "", 401},
		"wrong":          {"an attacker tries a signature", "/hook/fleet", "X-Hub-Signature-256", "sha256=" + strings.Repeat("00", 32), "", 401},
		"wrong token":    {"an attacker tries a token", "/hook/fleet", "X-Gitlab-Token", "secreT", "", 401},
		"sha1":           {"SHA-1 isn't safe anymore", "/hook/fleet", "X-Hub-Signature-256", "sha1=aa", "", 401},
		"unknown":        {"the response doesn't reveal which sources exist", "/hook/other", "X-Signature", good, "", 401},
		"GET":            {"a link that a browser opens must not enqueue", "/hook/fleet", "X-Signature", good, http.MethodGet, 405},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var called []string
			h := gitops.Hooks(func() (secret.Text, error) { return "secret", nil }, func() []string { return []string{"fleet", "flux-system/fleet"} },
				func(_ context.Context, names ...string) error {
					called = append(called, names...)
					return nil
				}, slog.New(slog.DiscardHandler))
			method := test.method
			if method == "" {
				method = http.MethodPost
			}
			q := httptest.NewRequest(method, test.path, bytes.NewBufferString(body))
			q.Header.Set(test.header, test.value)
			response := httptest.NewRecorder()
			h.ServeHTTP(response, q)
			if response.Code != test.want {
				t.Errorf("%s: got %d, want %d", test.why, response.Code, test.want)
			}
			want := []string{strings.TrimPrefix(test.path, "/hook/")}
			if test.want == 202 && !slices.Equal(called, want) || test.want != 202 && len(called) > 0 {
				t.Errorf("%s: enqueued %v, want %v only with status 202", test.why, called, want)
			}
		})
	}
}

// A mortal client fails once its context dead ends, as the client of a killed process:
// a request that is under way is completed, and its result is lost.
type mortal struct {
	*client.Client
	dead context.Context //nolint:containedctx // ends when the process is killed
}

func (m *mortal) SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (int64, error) {
	if m.dead.Err() != nil {
		return 0, context.Canceled
	}
	version, err := m.Client.SaveSource(context.WithoutCancel(ctx), s, claim)
	if m.dead.Err() != nil {
		return 0, context.Canceled
	}
	return version, err
}

func (m *mortal) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	if m.dead.Err() == nil {
		return m.Client.FinishWork(ctx, items)
	}
	return nil // the claim stays until its lease runs out
}

// runFor runs a controller that is killed after d.
func runFor(t *testing.T, c *client.Client, o gitops.Options, d time.Duration) {
	t.Helper()
	ctx, die := context.WithTimeout(t.Context(), d)
	defer die()
	if err := gitops.New(&mortal{c, ctx}, o).Run(ctx); err != nil {
		t.Error(err)
	}
}

// A counting client counts reads of sites.
type counting struct {
	*client.Client
	mu         sync.Mutex
	reads      int
	reconciled chan struct{} // gets an element after a reconciliation, if there is room
}

func (c *counting) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	return c.Client.Site(ctx, id, revision)
}

func (c *counting) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	err := c.Client.FinishWork(ctx, items)
	select {
	case c.reconciled <- struct{}{}:
	default:
	}
	return err
}

// Reconciling an unchanged revision reads no entity from the data controller.
func TestUnchangedRevisionReadsNoEntities(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	first := r.push(map[string]string{"a.yaml": all(site("a", ""), site("b", ""))})
	c := &counting{Client: data(t), reconciled: make(chan struct{}, 1)}
	controller := gitops.New(c, gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually.True(t, "the revision is applied", func() bool {
		s, err := c.Source(ctx, "fleet")
		return err == nil && s.Status.Applied == first
	})
	readsAfterReconciliation := func() int {
		<-c.reconciled
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.reads
	}
	eventually.True(t, "the source isn't enqueued", func() bool {
		s, err := c.Source(ctx, "fleet")
		return err == nil && !s.Enqueued
	})
	<-c.reconciled
	// The first reconciliation that is enqueued after a revision is applied compares the
	// revision with TKO.
	if err := controller.Enqueue(ctx, "fleet"); err != nil {
		t.Fatal(err)
	}
	before := readsAfterReconciliation()
	for range 3 {
		if err := controller.Enqueue(ctx, "fleet"); err != nil {
			t.Fatal(err)
		}
		if after := readsAfterReconciliation(); after != before {
			t.Fatalf("reconciling an unchanged revision read %d entities", after-before)
		}
	}
}

// A fixed fetcher has one revision.
type fixed struct {
	t        testing.TB
	revision string
	asks     chan struct{} // gets an element at each call of Revision, if there is room
}

func (f *fixed) Revision(context.Context) (string, error) {
	select {
	case f.asks <- struct{}{}:
	default:
	}
	return f.revision, nil
}

func (f *fixed) Fetch(_ context.Context, revision string) (*tree.Tree, error) {
	w, err := tree.Create(f.t.TempDir(), tree.Limits{})
	if err != nil {
		return nil, err
	}
	return w.Tree(), w.Add("a.yaml", strings.NewReader(template("t", revision)))
}

// A gated client claims nothing before its gate opens.
type gated struct {
	*client.Client
	gate chan struct{}
}

func (g *gated) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	select {
	case <-g.gate:
		return g.Client.ClaimWork(ctx, claim)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A generation that only one replica knows is applied, even if a replica that
// knows an older one reconciles first.
func TestGenerationThatOneReplicaKnowsIsApplied(t *testing.T) {
	t.Parallel()
	c := data(t)
	specOf := func(f *fixed, generation string) gitops.Spec {
		return gitops.Spec{Name: "fleet", Kind: "fixed", From: f, Interval: time.Hour, Resync: time.Hour, Prune: true, Generation: generation}
	}
	old, good := &fixed{t: t, revision: "1", asks: make(chan struct{}, 1)}, &fixed{t: t, revision: "2"}
	w := start(t, c, gitops.Options{Worker: "old", Sources: []gitops.Spec{specOf(old, "1")}})
	w.until("fleet", "applied", func(s tko.Source) bool { return s.Status.Applied == "1" && !s.Enqueued })
	<-old.asks

	gate := make(chan struct{})
	controller := gitops.New(&gated{Client: c, gate: gate}, gitops.Options{Worker: "good", Sources: []gitops.Spec{specOf(good, "2")}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-old.asks // the replica with the older generation reconciles first
	close(gate)
	w.until("fleet", "applied", func(s tko.Source) bool { return s.Status.Applied == "2" })
	if got, err := c.Template(t.Context(), "t", 0); err != nil || got.Package[0].Text("data", "key") != "2" {
		t.Errorf("the template is %v, %v; want that of revision 2", got.Package, err)
	}
}
