package gitops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const imsRoot = "/o2ims-infrastructureInventory/v1"

// An ims is a stand-in for an O2 IMS: its deployment managers, and its subscriptions. It
// tests callbacks before it accepts them, and notifies them of each change.
type ims struct {
	*httptest.Server
	t testing.TB

	mu            sync.Mutex
	managers      []map[string]any
	subscriptions map[string]map[string]any // by their IDs
	created       int
	refusal       int // status of the creation of subscriptions, if not 0
}

func newIMS(t testing.TB, managers ...string) *ims {
	t.Helper()
	m := &ims{t: t, subscriptions: map[string]map[string]any{}}
	for _, name := range managers {
		m.managers = append(m.managers, manager(name))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+imsRoot+"/deploymentManagers", func(w http.ResponseWriter, _ *http.Request) { m.respond(w, http.StatusOK, m.managers) })
	mux.HandleFunc("GET "+imsRoot+"/subscriptions", func(w http.ResponseWriter, _ *http.Request) {
		all := []any{map[string]any{"subscriptionId": "another", "consumerSubscriptionId": "of-another-consumer", "callback": "https://smo.example.com"}}
		for _, s := range m.subscriptions {
			all = append(all, s)
		}
		m.respond(w, http.StatusOK, all)
	})
	mux.HandleFunc("POST "+imsRoot+"/subscriptions", m.create)
	mux.HandleFunc(imsRoot+"/subscriptions/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch s := m.subscriptions[r.PathValue("id")]; {
		case s == nil:
			m.respond(w, http.StatusNotFound, map[string]any{"status": http.StatusNotFound, "detail": "no such subscription"})
		case r.Method == http.MethodDelete:
			delete(m.subscriptions, r.PathValue("id"))
			m.respond(w, http.StatusOK, nil)
		default:
			m.respond(w, http.StatusOK, s)
		}
	})
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer hush" {
			m.respond(w, http.StatusUnauthorized, map[string]any{"status": http.StatusUnauthorized})
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func manager(name string) map[string]any {
	return map[string]any{"deploymentManagerId": name, "name": name, "oCloudId": "cloud", "serviceUri": "https://" + name + ".example.com:6443"}
}

func (*ims) respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	if code >= http.StatusBadRequest {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(code)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (m *ims) create(w http.ResponseWriter, r *http.Request) {
	var s map[string]any
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil || s["subscriptionId"] != nil || s["callback"] == nil {
		m.respond(w, http.StatusBadRequest, map[string]any{"status": http.StatusBadRequest, "detail": "invalid subscription"})
		return
	}
	if m.refusal != 0 {
		m.respond(w, m.refusal, map[string]any{"status": m.refusal, "detail": "refused"})
		return
	}
	test, err := http.Get(fmt.Sprint(s["callback"]))
	if err == nil {
		_ = test.Body.Close()
	}
	if err != nil || test.StatusCode != http.StatusNoContent {
		m.respond(w, http.StatusBadRequest, map[string]any{"status": http.StatusBadRequest, "detail": "the callback doesn't respond"})
		return
	}
	m.created++
	id := fmt.Sprintf("subscription-%d", m.created)
	s["subscriptionId"] = id
	m.subscriptions[id] = s
	w.Header().Set("Location", imsRoot+"/subscriptions/"+id)
	m.respond(w, http.StatusCreated, s)
}

// add adds a deployment manager and notifies the subscribers.
func (m *ims) add(name string) {
	m.t.Helper()
	m.mu.Lock()
	m.managers = append(m.managers, manager(name))
	var callbacks []string
	for _, s := range m.subscriptions {
		callbacks = append(callbacks, fmt.Sprint(s["callback"]))
	}
	m.mu.Unlock()
	for _, callback := range callbacks {
		if code := notify(m.t, callback, imsRoot+"/deploymentManagers/"+name); code != http.StatusAccepted {
			m.t.Errorf("a notification is responded to with %d: want 202", code)
		}
	}
}

// notify sends a notification about an object, and returns the response's status.
func notify(t testing.TB, callback, object string) int {
	t.Helper()
	body, err := json.Marshal(map[string]any{"consumerSubscriptionId": "x", "notificationEventType": 0, "objectRef": object, "notificationId": "n"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.Post(callback, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Body.Close()
	return got.StatusCode
}

// subscribers returns the number of subscriptions, how many were created, and a callback.
func (m *ims) subscribers() (now, created int, callback string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.subscriptions {
		callback = fmt.Sprint(s["callback"])
	}
	return len(m.subscriptions), m.created, callback
}

func (m *ims) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// subscribing returns the spec of a source whose notifications a server receives, with
// webhooks of this secret.
func (m *ims) subscribing(t testing.TB, c *client.Client, key string) gitops.Spec {
	t.Helper()
	readKey := func() (secret.Text, error) { return secret.Text(key), nil }
	if key == "" {
		readKey = func() (secret.Text, error) { return "", errors.New("the server has no webhooks") }
	}
	hooks := httptest.NewServer(gitops.Hooks(readKey, func() []string { return []string{"ims"} }, func(ctx context.Context, names ...string) error {
		return c.EnqueueSources(ctx, names, false, "")
	}, slog.New(slog.DiscardHandler)))
	t.Cleanup(hooks.Close)
	return m.spec(t, hooks.URL, readKey)
}

func (m *ims) spec(t testing.TB, callback string, readKey func() (secret.Text, error)) gitops.Spec {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := gitops.Settings{Name: "ims", Interval: "1h", Inventory: &inventory.Settings{From: []inventory.OriginSettings{{
		O2IMS:       &inventory.O2IMSSettings{URL: m.URL, CallbackURL: callback},
		Credentials: remote.Credentials{TokenFile: token},
		Map:         inventory.Mapping{ID: "record.deploymentManagerId", Metadata: map[string]string{"api": "record.serviceUri"}},
	}}}}.SpecWith(t.TempDir(), remote.Access{HookKey: readKey})
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// subscribed returns a check that a source has so many sites and the condition Subscribed.
func subscribed(sites int, status string, parts ...string) func(tko.Source) bool {
	return func(s tko.Source) bool {
		for _, c := range s.Status.Conditions {
			if c.Type != tko.ConditionSubscribed || c.Status != status {
				continue
			}
			for _, part := range parts {
				if !strings.Contains(c.Message, part) {
					return false
				}
			}
			return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == sites && !s.Enqueued
		}
		return false
	}
}

// A notification of the IMS leads to a reading at once. A subscription that the IMS loses is
// made again, and it ends with the controller.
func TestNotificationsOfAnIMSAreFollowed(t *testing.T) {
	t.Parallel()
	m, c := newIMS(t, "dm-1"), data(t)
	t.Run("running", func(t *testing.T) {
		w := start(t, c, gitops.Options{Sources: []gitops.Spec{m.subscribing(t, c, "key")}})
		w.until("ims", "subscribed", subscribed(1, tko.ConditionTrue))
		m.add("dm-2")
		w.until("ims", "the new site", subscribed(2, tko.ConditionTrue))
		_, _, callback := m.subscribers()
		for want, send := range map[int]func() int{
			http.StatusNoContent:    func() int { return notify(t, callback, imsRoot+"/resourcePools/p/resources/r") },
			http.StatusUnauthorized: func() int { return notify(t, strings.Replace(callback, "/o2ims/", "/o2ims/0", 1), imsRoot) },
		} {
			if code := send(); code != want {
				t.Errorf("a notification is responded to with %d: want %d", code, want)
			}
		}
		m.set(func() { clear(m.subscriptions) })
		if err := w.controller.Enqueue(w.Context(), "ims"); err != nil {
			t.Fatal(err)
		}
		w.until("ims", "subscribed again", func(s tko.Source) bool {
			now, created, _ := m.subscribers()
			return now == 1 && created == 2 && subscribed(2, tko.ConditionTrue)(s)
		})
		m.add("dm-3")
		w.until("ims", "the third site", subscribed(3, tko.ConditionTrue))
	})
	if now, created, _ := m.subscribers(); now != 0 || created != 2 {
		t.Errorf("after the end of the controller there are %d of %d subscriptions: want 0 of 2", now, created)
	}
}

// A subscription that is refused changes no sites, and its condition has the remedy.
func TestRefusedSubscriptionIsExplained(t *testing.T) {
	t.Parallel()
	m, c := newIMS(t, "dm-1"), data(t)
	m.set(func() { m.refusal = http.StatusForbidden })
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{m.subscribing(t, c, "key")}})
	w.until("ims", "refused", subscribed(1, tko.ConditionFalse, `inventory "o2ims": subscribe: the IMS responded 403 Forbidden`, "right to create", "after the interval"))
	for refusal, remedy := range map[int]string{http.StatusBadRequest: "can reach callbackURL", http.StatusMethodNotAllowed: "Leave callbackURL out"} {
		m.set(func() { m.refusal = refusal })
		w.settle("ims")
		w.until("ims", remedy, subscribed(1, tko.ConditionFalse, remedy))
	}
	m.set(func() { m.refusal = 0 })
	w.settle("ims")
	w.until("ims", "subscribed", subscribed(1, tko.ConditionTrue))

	none := data(t)
	start(t, none, gitops.Options{Sources: []gitops.Spec{m.subscribing(t, none, "")}}).
		until("ims", "a server without webhooks", subscribed(1, tko.ConditionFalse, "the server has no webhooks"))
}

// A controller that was killed has left its subscription: the next one uses it. With
// another secret it replaces it.
func TestSubscriptionIsFoundAgainAndReplacedWithItsSecret(t *testing.T) {
	t.Parallel()
	m := newIMS(t, "dm-1")
	file := filepath.Join(t.TempDir(), "secret")
	readKey := func() (secret.Text, error) {
		text, err := os.ReadFile(file)
		return secret.Text(text), err
	}
	write := func(key string) {
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("key")
	hooks := httptest.NewServer(gitops.Hooks(readKey, func() []string { return []string{"ims"} }, nil, slog.New(slog.DiscardHandler)))
	t.Cleanup(hooks.Close)
	revision := func() string {
		t.Helper()
		spec := m.spec(t, hooks.URL, readKey)
		for range 2 {
			if _, err := spec.Inventory.Revision(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := spec.Inventory.(gitops.Subscriber).Subscription(); err != nil {
			t.Fatal(err)
		}
		now, created, callback := m.subscribers()
		if strings.Contains(callback, "key") {
			t.Errorf("the callback %q discloses the secret", callback)
		}
		return fmt.Sprintf("%d of %d", now, created)
	}
	if got := revision(); got != "1 of 1" {
		t.Errorf("a new source has %s subscriptions: want 1 of 1", got)
	}
	if got := revision(); got != "1 of 1" {
		t.Errorf("the next process has %s subscriptions: want 1 of 1", got)
	}
	write("another key")
	if got := revision(); got != "1 of 2" {
		t.Errorf("with another secret there are %s subscriptions: want 1 of 2", got)
	}
}
