package kubeapi_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"iter"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// secret writes a version of the files of a Secret as the kubelet does: it
// replaces all of them at once, by renaming a symbolic link.
func secret(t *testing.T, folder, version string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv6loopback}, []string{version})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, version, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(version, filepath.Join(folder, "new")), os.Rename(filepath.Join(folder, "new"), filepath.Join(folder, "..data"))); err != nil {
		t.Fatal(err)
	}
}

// A client that trusts the self-signed certificate of a server verifies it for every name of this
// machine.
func TestSelfSignedCertificateIsForThisMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	host := strings.TrimPrefix(w.url, "https://")
	conn, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	served := conn.ConnectionState().PeerCertificates[0]
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := served.PublicKey.(*ecdsa.PublicKey); !ok {
		t.Errorf("its key is a %T, want one of ECDSA: keys of RSA take long to make", served.PublicKey)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(served)
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		conn, err := tls.Dial("tcp", host, &tls.Config{RootCAs: trusted, ServerName: name})
		if err != nil {
			t.Errorf("as %s: %v", name, err)
			continue
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A changed certificate is served without a restart.
func TestChangedCertificateIsServedWithoutRestart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	secret(t, folder, "first")
	for _, file := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(folder, file)); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, func(o *kubeapi.Options) {
		o.CertFile, o.KeyFile = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	})
	serves := func(name string) func() bool {
		return func() bool {
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].VerifyHostname(name) == nil
		}
	}
	eventually.True(t, "the first certificate is served", serves("first"))
	secret(t, folder, "second")
	eventually.True(t, "the second certificate is served", serves("second"))
}

func TestUnusableOptionsAreRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	policy := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(policy, []byte("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: Everything}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why     string
		options kubeapi.Options
		message string
	}{
		"no certificate":   {why: "a server without a certificate can't serve", options: kubeapi.Options{Trusting: true, CertFile: "nowhere", KeyFile: "nowhere"}, message: "certificate"},
		"no cluster":       {why: "users must be authenticated", options: kubeapi.Options{}, message: "--kubernetes-kubeconfig"},
		"no kubeconfig":    {why: "a named file must exist", options: kubeapi.Options{Kubeconfig: "nowhere"}, message: "nowhere"},
		"no policy":        {why: "a missing audit log must not go unnoticed", options: kubeapi.Options{Trusting: true, Audit: kubeapi.Audit{PolicyFile: "nowhere", LogPath: "-"}}, message: "audit"},
		"wrong policy":     {why: "a missing audit log must not go unnoticed", options: kubeapi.Options{Trusting: true, Audit: kubeapi.Audit{PolicyFile: policy, LogPath: "-"}}, message: "Everything"},
		"negative backups": {why: "a typo", options: kubeapi.Options{Trusting: true, Audit: kubeapi.Audit{LogPath: "-", MaxBackups: -1}}, message: "audit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sockets, err := config.Listen(t.Context(), "localhost:0", "dual")
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				for _, s := range sockets {
					s.Close()
				}
			}()
			test.options.Listeners = sockets
			if _, err := kubeapi.New(t.Context(), nil, test.options); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got the error %v, want one with %q: %s", err, test.message, test.why)
			}
		})
	}
	if _, err := kubeapi.New(t.Context(), nil, kubeapi.Options{Trusting: true}); err == nil {
		t.Error("New succeeded without listeners")
	}
}

// The audit log has the user and the request, and no more than its policy
// requires.
func TestAuditLogFollowsItsPolicy(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	policy, log := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	if err := os.WriteFile(policy, []byte(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata, resources: [{group: tko.nephio.org}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *kubeapi.Options) {
		o.Audit = kubeapi.Audit{PolicyFile: policy, LogPath: log, MaxAge: 1, MaxBackups: 1, MaxSize: 1}
	})
	w.must("POST", "templates", template("t", nil, configMap("a", obj{"secret": "value"})))
	w.must("GET", "templates", nil)
	w.fails(404, "not found", "DELETE", "templates/other", nil)
	var lines []byte
	eventually.True(t, "two requests are recorded", func() bool {
		lines, _ = os.ReadFile(log)
		return bytes.Count(lines, []byte("\n")) >= 2
	})
	got := []string{}
	for line := range bytes.Lines(lines) {
		var e obj
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		code, _ := e.at("responseStatus.code").(float64)
		got = append(got, strings.Join([]string{e.text("verb"), e.text("objectRef.resource"), e.text("objectRef.name")}, " "))
		if !strings.HasPrefix(e.text("user.username"), "anonymous@") || code != 201 && code != 404 {
			t.Errorf("recorded %s", line)
		}
	}
	if want := "create templates t|delete templates other"; strings.Join(got, "|") != want && strings.Join(got, "|") != "create templates |delete templates other" {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if bytes.Contains(lines, []byte("secret")) {
		t.Errorf("got %s, want metadata only, as the policy requires", lines)
	}
}

// Watches and lists from before the retained history fail with 410, and no
// others.
func TestOnlyExpiredVersionsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	write := func(id, value string) {
		t.Helper()
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Metadata: map[string]string{"v": value}}); err != nil {
			t.Fatal(err)
		}
	}
	collect := func(keep time.Duration) {
		t.Helper()
		if _, err := w.store.Collect(t.Context(), record.Retention{Changes: keep, Revisions: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		write(id, "1")
	}
	first := w.must("GET", "templates?limit=1", nil)
	old, token := first.text("metadata.resourceVersion"), first.text("metadata.continue")
	for _, value := range []string{"2", "3", "4"} {
		write("b", value)
	}
	collect(time.Hour)
	if e := w.watch("templates?watch=1&resourceVersion=" + old)(); e.Object.text("metadata.labels.v") != "2" {
		t.Errorf("got %v, want the event, as all history is retained", e)
	}
	if page := w.must("GET", "templates?limit=1&continue="+token, nil); page.items()[0].text("metadata.labels.v") != "1" {
		t.Errorf("got %v, want the page, as all history is retained", page)
	}
	collect(time.Nanosecond)
	response := w.fails(410, "", "GET", "templates?watch=1&resourceVersion="+old, nil)
	if response.text("reason") != "Expired" {
		t.Errorf("got %v, want Expired, so that informers list again", response)
	}
	w.fails(410, "", "GET", "templates?resourceVersionMatch=Exact&resourceVersion="+old, nil)
	response = w.fails(410, "", "GET", "templates?limit=1&continue="+token, nil)
	rest := w.must("GET", "templates?limit=5&continue="+response.text("metadata.continue"), nil)
	if got := strings.Join(rest.names(), " "); got != "b c" || rest.items()[0].text("metadata.labels.v") != "4" {
		t.Errorf("got %v, want the rest of the current list", rest)
	}
	now := w.must("GET", "templates", nil).text("metadata.resourceVersion")
	next := w.watch("templates?watch=1&resourceVersion=" + now)
	write("c", "5")
	if e := next(); e.Type != "MODIFIED" || e.Object.text("metadata.name") != "c" {
		t.Errorf("got %v, want the next retained event", e)
	}
}

// counted counts the records that lists read.
type counted struct {
	kubeapi.Catalog
	read  atomic.Int64
	limit atomic.Int64 // of the newest list
}

func (c *counted) Records(ctx context.Context, query record.Query, position int64) iter.Seq2[record.Record, error] {
	c.limit.Store(int64(query.Limit))
	return func(yield func(record.Record, error) bool) {
		for r, err := range c.Catalog.Records(ctx, query, position) {
			if c.read.Add(1); !yield(r, err) {
				return
			}
		}
	}
}

// A page reads its own records and one more, so time and memory don't depend on
// the number of all records.
func TestPagesReadOnlyOneRecordMore(t *testing.T) {
	t.Parallel()
	var c counted
	w := newWorldOf(t, func(s kubeapi.Catalog) kubeapi.Catalog { c.Catalog = s; return &c })
	long := strings.Repeat("/", 60) // has no name in Kubernetes
	for _, id := range []string{"a", "b", "c" + long, "d" + long, "e" + long, "f", "g", "h"} {
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id)}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for next, pages := "", 0; ; pages++ {
		page := w.must("GET", "templates?limit=2&continue="+next, nil)
		names = append(names, page.names()...)
		next = page.text("metadata.continue")
		if next == "" {
			if pages != 2 {
				t.Errorf("%d pages before the last one", pages)
			}
			break
		}
		if got := len(page.names()); got != 2 {
			t.Errorf("a page has %d", got)
		}
		if pages == 0 && c.read.Load() > 2*3 {
			t.Errorf("the first page has read %d records", c.read.Load())
		}
	}
	if got := strings.Join(names, " "); got != "a b f g h" {
		t.Errorf("listed %s", got)
	}
	c.read.Store(0)
	w.must("GET", "templates?limit=1", nil)
	if got := c.read.Load(); got > 2 || c.limit.Load() != 2 {
		t.Errorf("a page of one has read %d records, of at most %d", got, c.limit.Load())
	}
}

// The pages of a list have the snapshot of its beginning, however many objects
// are created meanwhile.
func TestPagesExcludeObjectsCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	write := func(id string) {
		t.Helper()
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "x", "y", "z"} {
		write(id)
	}
	first := w.must("GET", "templates?limit=1", nil)
	for i := range 40 {
		write("m" + strings.Repeat("n", i))
	}
	if _, err := w.DeleteTemplate(t.Context(), "y"); err != nil {
		t.Fatal(err)
	}
	page := w.must("GET", "templates?limit=2&continue="+first.text("metadata.continue"), nil)
	if got := strings.Join(page.names(), " "); got != "x y" {
		t.Errorf("the second page is %s", got)
	}
	page = w.must("GET", "templates?limit=2&continue="+page.text("metadata.continue"), nil)
	if got := strings.Join(page.names(), " "); got != "z" || page.text("metadata.continue") != "" {
		t.Errorf("the last page is %s, and then %q", got, page.text("metadata.continue"))
	}
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("GET", "templates", nil)
	if code, text := w.get("/metrics"); code != 200 || !strings.Contains(text, `apiserver_request_total{`) || !strings.Contains(text, `resource="templates"`) {
		t.Errorf("GET /metrics: %d, %d bytes", code, len(text))
	}
}
