package docs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A told message, as receivers of webhooks get it.
type toldMessage struct {
	ID, Subscription, Title string
	Test                    bool
	Items                   []struct{ ID, What string }
}

// A hook receives webhooks. Each third one breaks the connection after it was received, as a
// receiver that is killed does.
type hook struct {
	*httptest.Server
	t   *testing.T
	key string

	mu       sync.Mutex
	requests int
	messages []toldMessage
}

func newHook(t *testing.T, key string) *hook {
	t.Helper()
	h := &hook{t: t, key: key}
	h.Server = httptest.NewServer(http.HandlerFunc(h.receive))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) receive(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var m toldMessage
	if err != nil || json.Unmarshal(body, &m) != nil {
		panic(http.ErrAbortHandler) // the server was killed while it sent
	}
	mac := hmac.New(sha256.New, []byte(h.key))
	mac.Write([]byte(r.Header.Get("Webhook-Id") + "." + r.Header.Get("Webhook-Timestamp") + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("Webhook-Signature") != want || r.Header.Get("Webhook-Id") != m.ID {
		h.t.Errorf("the signature of %s is %q, want %q", m.ID, r.Header.Get("Webhook-Signature"), want)
	}
	h.mu.Lock()
	h.requests++
	broken := h.requests%3 == 0 && !m.Test
	h.messages = append(h.messages, m)
	h.mu.Unlock()
	if broken {
		panic(http.ErrAbortHandler)
	}
}

// of returns the messages of a subscription.
func (h *hook) of(subscription string) (all []toldMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		if m.Subscription == subscription {
			all = append(all, m)
		}
	}
	return all
}

// The example of subscriptions works, and no event is lost while the server is killed at
// random moments and the receiver breaks connections: what is reported again has the same ID.
func TestMessagesOfTheExampleArrive(t *testing.T) {
	const key = "whsec_Y29ycmVjdCBob3JzZQ=="
	t.Setenv("HOOK_KEY", key)
	page, err := os.ReadFile("../../docs/tell-people.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindStringSubmatch(string(page))
	if example == nil {
		t.Fatal("the page has no example")
	}
	h := newHook(t, "correct horse")
	folder := t.TempDir()
	flags := []string{"--store=sqlite:" + filepath.Join(folder, "tko.db"), "--remote-addresses=127.0.0.0/8", "--remote-schemes=http", "--secret-environment=HOOK_KEY"}
	server := process.StartServer(t, flags...)
	run := func(args ...string) string {
		t.Helper()
		out, errs, code := server.CLI(args...)
		if code != 0 {
			t.Fatalf("tko %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out + errs
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	noc := write("noc.yaml", strings.Replace(example[1], "https://hooks.example.com", h.URL, 1))
	run("subscription", "register", "-f", noc, "--dry-run")
	run("subscription", "register", "-f", noc)
	if out := run("subscription", "register", "-f", noc); !strings.Contains(out, "unchanged") {
		t.Errorf("registering it again: %s", out)
	}
	run("subscription", "test", "noc")
	if all := h.of("noc"); len(all) != 1 || !all[0].Test || all[0].Title != "NOC: noc: test message" {
		t.Errorf("the test message is %+v", all)
	}
	all := write("all.yaml", fmt.Sprintf(`{apiVersion: tko.nephio.org/v1alpha1, kind: Subscription, metadata: {name: all}, spec: {
  about: [{of: changes, kinds: [site]}], group: {wait: 50ms, every: 1s}, to: {webhook: {url: "%s/all", secret: "env:HOOK_KEY"}}}}`, h.URL))
	run("apply", "-f", all)
	if out := run("apply", "-f", all); !strings.Contains(out, "unchanged") {
		t.Errorf("applying it again: %s", out)
	}
	var sites []string
	for round := range 3 {
		for i := range 4 {
			sites = append(sites, fmt.Sprintf("s%d/%d", round, i))
			run("site", "register", sites[len(sites)-1])
		}
		time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond) // the random moment
		server.Kill()
		server = process.StartServer(t, flags...)
	}
	in := map[string]string{} // IDs of messages, by site
	eventually.Within(t, 3*time.Minute, "all sites are reported", func() error {
		clear(in)
		for _, m := range h.of("all") {
			for _, item := range m.Items {
				if other := in[item.ID]; other != "" && other != m.ID {
					t.Fatalf("site %s is reported by %s and %s", item.ID, other, m.ID)
				}
				in[item.ID] = m.ID
			}
		}
		if i := slices.IndexFunc(sites, func(site string) bool { return in[site] == "" }); i >= 0 {
			return fmt.Errorf("site %s is not reported", sites[i])
		}
		return nil
	})
	eventually.True(t, "the subscriptions are well", func() bool { return strings.Contains(run("subscription", "list"), "True") })
	run("subscription", "get", "noc")
	run("subscription", "delete", "noc")
}
