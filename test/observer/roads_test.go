package observer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
)

// An httpError is a response of the HTTP API other than OK.
type httpError struct {
	code int
	text string
}

func (e *httpError) Error() string { return fmt.Sprintf("HTTP status %d: %s", e.code, e.text) }

// isRefusal reports whether the server did nothing.
func (e *httpError) isRefusal() bool {
	return e.code >= 400 && e.code < 500 && !strings.Contains(e.text, "before this error")
}

// web returns a client of the HTTP API, with the certificate of a subject.
func (w *world) web(name string) *http.Client {
	w.t.Helper()
	pair, err := tls.LoadX509KeyPair(w.file(name+".crt"), w.file(name+".key"))
	if err != nil {
		w.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.authority.PEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// An action is a request to change entities, as the dashboard sends it.
type action struct {
	Verb    string   `json:"verb"`
	Kind    string   `json:"kind"`
	IDs     []string `json:"ids"`
	Reason  string   `json:"reason,omitempty"`
	DryRun  bool     `json:"dryRun,omitempty"`
	Confirm int      `json:"confirm,omitempty"`
}

// post sends an action, and returns the number of entities that it changes.
func (a *author) post(ctx context.Context, body action) (count int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.w.webAddress+"/api/v1/actions", bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := a.web.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, &httpError{response.StatusCode, string(text)}
	}
	var result struct{ Count int }
	return result.Count, json.Unmarshal(text, &result)
}

// act deletes or approves deployments over HTTP, mostly with the count of a dry run.
func (a *author) act(ctx context.Context) {
	ids := a.deployments(ctx, func(d tko.Deployment) bool { return d.Parent == "" })
	if len(ids) == 0 {
		return
	}
	body := action{Verb: one(a.random, "delete", "delete", "approve"), Kind: "deployment", DryRun: true}
	for range 1 + a.random.IntN(3) {
		body.IDs = append(body.IDs, string(one(a.random, ids...)))
	}
	slices.Sort(body.IDs)
	body.IDs = slices.Compact(body.IDs)
	dry, cancel := context.WithTimeout(ctx, 20*time.Second)
	count, err := a.post(dry, body)
	cancel()
	if err != nil || count == 0 {
		return
	}
	r := &request{verb: "http " + body.Verb, consent: one(a.random, count, count, count, count+200)}
	a.do(ctx, r, func(ctx context.Context) error {
		body.DryRun, body.Reason, body.Confirm = false, r.op, r.consent
		_, err := a.post(ctx, body)
		return err
	})
}

// restore returns a site or templates to what they were some seconds ago.
func (a *author) restore(ctx context.Context) {
	what := one(a.random, []string{"site", string(a.site())}, []string{"template", "--id=" + a.tenant + "/w:*"}, []string{"template", "--id=" + a.other + "/**"})
	a.do(ctx, &request{verb: "restore"}, func(ctx context.Context) error {
		return a.command(ctx, "", append([]string{"restore", "--as-of=" + one(a.random, "2s", "5s")}, what...)...)
	})
}

// imports imports a template and a deployment of it.
func (a *author) imports(ctx context.Context) {
	r := &request{verb: "import"}
	site := a.site()
	a.do(ctx, r, func(ctx context.Context) error {
		folder, err := os.MkdirTemp(a.w.folder, "import")
		if err != nil {
			return err
		}
		template := a.tenant + "/imported:" + strings.Trim(r.op, ".")
		text := manifestOf("Template", fmt.Sprintf("{templateId: %q, package: {resources: [%s]}}", template, strings.TrimSpace(workload(strings.Trim(r.op, "."), a.tenant, "v1")))) +
			manifestOf("Deployment, metadata: {name: "+strings.Trim(r.op, ".")+"}", fmt.Sprintf("{templateId: %q, siteId: %q}", template, site))
		if err := os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(text), 0o600); err != nil {
			return err
		}
		return a.command(ctx, "", "import", folder, "--confirm=2")
	})
}

func manifestOf(kind, spec string) string {
	return fmt.Sprintf("---\n{apiVersion: tko.nephio.org/v1alpha1, kind: %s, spec: %s}\n", kind, spec)
}

// A committer changes the repository of a tenant's source. It is clumsy, too: it declares what the tenant may not have, and renames the
// folder of the manifests.
type committer struct {
	w        *world
	l        *ledger
	client   *client.Client
	random   *rand.Rand
	tenant   string
	declared map[string]declaration // by the names of deployments
	n        int
}

// A declaration is what a source says of a deployment.
type declaration struct{ template, site, op string }

// sourceFolder is the folder of the manifests.
const sourceFolder = "fleet"

func (w *world) sourceOf(tenant string) string { return w.file(sourceName(tenant)) }

// createSource creates the repository of a tenant's source.
func (w *world) createSource(tenant string) {
	dir := w.sourceOf(tenant)
	gittest.Run(w.t, w.folder, "init", "--quiet", "--initial-branch=main", dir)
	writeManifests(w.t, dir, map[string]declaration{})
	commitAll(w.t, dir, "begin")
}

func commitAll(t *testing.T, dir, message string) {
	t.Helper()
	gittest.Run(t, dir, "add", "--all")
	gittest.Run(t, dir, "commit", "--quiet", "--allow-empty", "--message="+message)
}

func writeManifests(t *testing.T, dir string, declared map[string]declaration) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# the deployments of a tenant\n")
	for name, d := range declared {
		tenant := strings.TrimPrefix(filepath.Base(dir), "source-")
		fmt.Fprintf(&text, "---\napiVersion: tko.nephio.org/v1alpha1\nkind: Deployment\nmetadata: {name: %s}\nspec:\n  templateId: %q\n  siteId: %q\n"+
			"  package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {by: %s, op: %s}}]}\n", name, d.template, d.site, name, tenant, d.op)
	}
	if err := os.MkdirAll(filepath.Join(dir, sourceFolder), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, sourceFolder, "all.yaml"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newCommitter(w *world, l *ledger, tenant string, random *rand.Rand) *committer {
	return &committer{w: w, l: l, client: w.dial("root"), random: random, tenant: tenant, declared: map[string]declaration{}}
}

func (c *committer) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.n++
		verb := []string{"git add", "git edit", "git steal", "git remove", "git add", "git gone", "git edit all"}[(c.n-1)%7]
		if verb == "git gone" {
			c.gone(ctx)
		} else {
			c.change(ctx, verb)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// change changes manifests, and waits until the server has taken the revision up.
func (c *committer) change(ctx context.Context, verb string) {
	op := fmt.Sprintf("git-%s-%d.", c.tenant, c.n)
	names := make([]string, 0, len(c.declared))
	for name := range c.declared {
		names = append(names, name)
	}
	slices.Sort(names)
	switch verb {
	case "git add":
		for i := range 2 {
			c.declared[fmt.Sprintf("g-%s-%d-%d", c.tenant, c.n, i)] = declaration{c.tenant + "/w:v1", string(c.w.siteID(c.tenant, c.random.IntN(c.w.sitesOf()))), op}
		}
	case "git edit", "git edit all":
		if verb == "git edit" && len(names) > 0 {
			names = []string{one(c.random, names...)}
		}
		for _, name := range names {
			d := c.declared[name]
			d.op = op
			c.declared[name] = d
		}
	case "git steal":
		other := tenants[1-slices.Index(tenants, c.tenant)]
		c.declared["stolen"] = one(c.random, declaration{other + "/secret:v1", string(c.w.siteID(c.tenant, 0)), op}, declaration{c.tenant + "/w:v1", string(c.w.siteID(other, 0)), op})
		defer delete(c.declared, "stolen")
	case "git remove":
		if len(names) > 1 {
			delete(c.declared, names[0])
		}
	}
	writeManifests(c.w.t, c.w.sourceOf(c.tenant), c.declared)
	c.push(ctx, verb, op)
}

// push commits the folder, waits until the server has read the revision, and returns it.
func (c *committer) push(ctx context.Context, verb, op string) (revision string) {
	dir := c.w.sourceOf(c.tenant)
	commitAll(c.w.t, dir, op)                               //nolint:contextcheck // it is local and short, and a commit is complete
	revision = gittest.Run(c.w.t, dir, "rev-parse", "HEAD") //nolint:contextcheck // it is local and short, and a commit is complete
	r, read := &request{verb: verb, op: op, author: "gitops:" + c.tenant}, false
	defer func() {
		c.l.lock.Lock()
		defer c.l.lock.Unlock()
		r.done = read
		c.l.requests[op] = r
	}()
	for begin := time.Now(); time.Since(begin) < 15*time.Second; time.Sleep(200 * time.Millisecond) {
		s, err := c.client.Source(context.WithoutCancel(ctx), sourceName(c.tenant))
		if err == nil && (strings.Contains(s.Status.Attempted, revision) || strings.Contains(s.Status.Applied, revision)) {
			read = true
			return revision
		}
	}
	return revision
}

// sourceName is the name of a tenant's source.
func sourceName(tenant string) string { return "source-" + tenant }

// gone renames the folder of the manifests, watches that nothing is removed, and renames it back.
func (c *committer) gone(ctx context.Context) {
	dir, op := c.w.sourceOf(c.tenant), fmt.Sprintf("git-%s-%d.", c.tenant, c.n)
	before, err := c.client.About(context.WithoutCancel(ctx))
	if err != nil {
		return
	}
	gittest.Run(c.w.t, dir, "mv", sourceFolder, "elsewhere") //nolint:contextcheck // it is local and short, and a commit is complete
	revision := c.push(ctx, "git gone", op)
	time.Sleep(haltTime)
	after, err := c.client.About(context.WithoutCancel(ctx))
	gittest.Run(c.w.t, dir, "mv", "elsewhere", sourceFolder) //nolint:contextcheck // it is local and short, and a commit is complete
	c.push(ctx, "git back", op+"back.")
	if err != nil {
		return
	}
	c.l.lock.Lock()
	defer c.l.lock.Unlock()
	c.l.halts = append(c.l.halts, halt{what: "time without the folder of source " + c.tenant, pattern: func(string) bool { return true }, from: before.Position, to: after.Position, removalsBy: "gitops:" + sourceName(c.tenant), because: revision}) // an earlier revision may still be applied
}
