package notify_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/notify"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// hookKey is the key of signatures in these tests, and hookVariable the variable with it.
const (
	hookKey      = "correct horse"
	hookVariable = "NOTIFY_TEST_KEY"
)

func TestMain(m *testing.M) {
	if err := os.Setenv(hookVariable, hookKey); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

type validator struct{}

func (validator) Validate(context.Context, tko.Validation) error { return nil }

// A world is a catalog with a notifier.
type world struct {
	*catalog.Service
	t        *testing.T
	ctx      context.Context
	store    record.Store
	notifier *notify.Notifier
}

// newNotifier returns a notifier that looks often.
func newNotifier() *notify.Notifier {
	n := notify.New(notify.Access{Secrets: secret.Sources{Environment: []string{hookVariable}}}, "test", slog.New(slog.DiscardHandler))
	n.Look = 10 * time.Millisecond
	return n
}

func newWorld(t *testing.T, options catalog.Options) *world {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w := &world{t: t, ctx: t.Context(), store: store, notifier: newNotifier()}
	options.Notify = w.notifier
	w.Service = catalog.New(store, validator{}, options)
	return w
}

// run runs a notifier until the test or the process ends, or stop is called, which waits.
func (w *world) run(n *notify.Notifier, b notify.Backend) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, b) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) subscribe(name string, spec map[string]any) {
	w.t.Helper()
	if err := w.subscribeAs(w.ctx, name, spec); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) subscribeAs(ctx context.Context, name string, spec map[string]any) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = w.RegisterSubscriptions(ctx, []tko.Subscription{{Name: name, Spec: text}}, false)
	return err
}

// quick groups events hardly at all.
var quick = map[string]any{"wait": "20ms", "every": "1s"}

func webhook(r *receiver) map[string]any {
	return map[string]any{"webhook": map[string]any{"url": r.URL, "secret": "env:" + hookVariable}}
}

func (w *world) site(id, why string) {
	w.t.Helper()
	ctx := tko.WithAuthor(w.ctx, tko.Author{Who: "ada", Why: why})
	if _, err := w.RegisterSite(ctx, tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"region": strings.SplitN(id, "/", 2)[0]}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status(name string) tko.Subscription {
	w.t.Helper()
	all, err := w.Subscriptions(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	w.t.Fatalf("there is no subscription %q", name)
	return tko.Subscription{}
}

// condition returns a condition of a subscription as text.
func (w *world) condition(name, typ string) string {
	w.t.Helper()
	c := tko.FindCondition(w.status(name).Status.Conditions, typ)
	if c == nil {
		return ""
	}
	return c.Status + " " + c.Reason + " " + c.Message
}

// A receiver is a destination. What it should respond may change.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	requests []request
	respond  func(n int, m notify.Message) int // status; 0 breaks the connection
}

type request struct {
	header  http.Header
	body    []byte
	message notify.Message
	status  int
}

func newReceiver(t *testing.T, respond func(n int, m notify.Message) int) *receiver {
	t.Helper()
	r := &receiver{respond: respond}
	r.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body)
		var one request
		_ = json.Unmarshal(body, &one.message)
		r.mu.Lock()
		n := len(r.requests) + 1
		one.header, one.body, one.status = in.Header, body, http.StatusOK
		if r.respond != nil {
			one.status = r.respond(n, one.message)
		}
		r.requests = append(r.requests, one)
		r.mu.Unlock()
		if one.status == 0 {
			panic(http.ErrAbortHandler)
		}
		out.WriteHeader(one.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// told returns the IDs of the entities that messages told, by the IDs of the messages. Messages
// with the same ID must tell the same.
func (r *receiver) told(t *testing.T) map[string][]string {
	t.Helper()
	told := map[string][]string{}
	for _, one := range r.all() {
		var ids []string
		for _, item := range one.message.Items {
			ids = append(ids, item.ID)
		}
		if before, again := told[one.message.ID]; again && !slices.Equal(before, ids) {
			t.Errorf("the message %s told %v, and then %v", one.message.ID, before, ids)
		}
		told[one.message.ID] = ids
	}
	return told
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen in time", what)
		}
	}
}

func (r *receiver) waitForTold(t *testing.T, ids ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("telling %v", ids), func() bool {
		var all []string
		for _, told := range r.told(t) {
			all = append(all, told...)
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(all, id) })
	})
}

func TestWebhookIsSignedAndTellsWhatHappened(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.site("emea/before", "")
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes", "kinds": []any{"site"}, "metadata": map[string]any{"region": "emea"}}}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	w.site("emea/lagos", "new masts")
	w.site("apac/osaka", "")
	r.waitForTold(t, "emea/lagos")
	one := r.all()[0]
	if len(one.message.Items) != 1 || one.message.Items[0].What != "created" || one.message.Items[0].Who != "ada" || one.message.Items[0].Why != "new masts" {
		t.Errorf("the message is %s", one.body)
	}
	if one.message.Title != "ops: 1 site created" || one.message.Instance != "test" || one.message.Number != 1 {
		t.Errorf("the message is %s", one.body)
	}
	mac := hmac.New(sha256.New, []byte(hookKey))
	mac.Write([]byte(one.header.Get("Webhook-Id") + "." + one.header.Get("Webhook-Timestamp") + "." + string(one.body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); one.header.Get("Webhook-Signature") != want || one.header.Get("Webhook-Id") != one.message.ID {
		t.Errorf("the signature is %q of %q, want %q", one.header.Get("Webhook-Signature"), one.header.Get("Webhook-Id"), want)
	}
	waitFor(t, "the status", func() bool { return w.condition("ops", tko.ConditionAccepted) == "True Sent " })
	if s := w.status("ops").Status; s.Sent != 1 || s.LastMessage != one.message.ID || s.Lag != 0 {
		t.Errorf("the status is %+v", s)
	}
}

func TestCloudEventIsStructured(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": map[string]any{"cloudEvents": map[string]any{"url": r.URL, "secret": "env:" + hookVariable}}})
	w.run(w.notifier, w.Told())
	w.site("a", "")
	waitFor(t, "the event", func() bool { return len(r.all()) > 0 })
	one := r.all()[0]
	var event struct {
		SpecVersion, ID, Source, Type, Subject, DataContentType string
		Time                                                    time.Time
		Data                                                    notify.Message
	}
	if err := json.Unmarshal(one.body, &event); err != nil {
		t.Fatal(err)
	}
	if event.SpecVersion != "1.0" || event.ID != event.Data.ID || event.ID == "" || event.Source != "/tko/test" || event.Type != "org.nephio.tko.message.v1" || event.Subject != "ops" || event.Time.IsZero() || event.Data.Total != 1 {
		t.Errorf("the event is %s", one.body)
	}
	if got := one.header.Get("Content-Type"); got != "application/cloudevents+json; charset=UTF-8" || one.header.Get("Webhook-Signature") == "" {
		t.Errorf("the headers are %v", one.header)
	}
}

func TestManyChangesAreOneMessageWithCounts(t *testing.T) {
	t.Parallel()
	const sites = 300
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.subscribe("all", map[string]any{"about": []any{map[string]any{"of": "changes"}, map[string]any{"of": "changes", "kinds": []any{"Site"}}}, "group": map[string]any{"wait": "2s", "most": "1m"}, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	for range 2 {
		for i := range sites {
			w.site(fmt.Sprintf("s%04d", i), fmt.Sprint(time.Now()))
			if i == 0 {
				waitFor(t, "reading the first", func() bool { return true })
			}
		}
	}
	waitFor(t, "the message", func() bool { return len(r.all()) > 0 })
	time.Sleep(100 * time.Millisecond)
	all := r.all()
	if len(all) != 1 {
		t.Fatalf("there are %d messages, want one", len(all))
	}
	m := all[0].message
	if m.Total != sites || len(m.Counts) != 1 || m.Counts[0] != (notify.Count{Of: "changes", Kind: "site", What: "created", Events: sites, Entities: sites}) || len(m.Items)+m.More != sites || len(all[0].body) > 20_000 {
		t.Errorf("the message has %d events, %d bytes, and the counts %+v", m.Total, len(all[0].body), m.Counts)
	}
}

// A crashing backend kills its notifier at one of its saves: before it, or after it.
type crashing struct {
	notify.Backend

	at     int
	after  bool
	mu     sync.Mutex
	saves  int
	holder string
	dead   bool
}

var errDead = errors.New("the process was killed")

func (c *crashing) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *crashing) Save(ctx context.Context, holder, name string, doc []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return errDead
	}
	c.saves++
	if c.saves != c.at {
		return c.Backend.Save(ctx, holder, name, doc)
	}
	if c.after {
		if err := c.Backend.Save(ctx, holder, name, doc); err != nil {
			return err
		}
	}
	c.dead = true
	return tko.ErrConflict // so that the worker ends
}

func (c *crashing) HoldNotifier(ctx context.Context, holder string, lease time.Duration) (bool, error) {
	if c.isDead() {
		return false, errDead
	}
	c.mu.Lock()
	c.holder = holder
	c.mu.Unlock()
	return c.Backend.HoldNotifier(ctx, holder, lease)
}

func (c *crashing) All(ctx context.Context) ([]tko.Subscription, map[string][]byte, error) {
	if c.isDead() {
		return nil, nil, errDead
	}
	return c.Backend.All(ctx)
}

// Whenever the process is killed, no event is lost, and an event that is reported again is reported
// by a message with the same ID.
func TestNothingIsLostWhenAServerIsKilled(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 5; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("save %d, after it %t", at, after), func(t *testing.T) {
				t.Parallel()
				w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
				w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": webhook(r)})
				first := &crashing{Backend: w.Told(), at: at, after: after}
				stop := w.run(newNotifier(), first)
				var ids []string
				for i := 0; i < 40 && !first.isDead(); i++ {
					ids = append(ids, fmt.Sprintf("s%02d", i))
					w.site(ids[i], "")
					time.Sleep(100 * time.Millisecond)
				}
				waitFor(t, "the crash", first.isDead)
				stop()
				ids = append(ids, "last")
				w.site("last", "")
				if _, err := w.store.HoldNotifier(w.ctx, first.holder, -time.Second); err != nil { // its lease ends
					t.Fatal(err)
				}
				w.run(newNotifier(), w.Told())
				r.waitForTold(t, ids...)
				in := map[string]string{}
				for id, told := range r.told(t) {
					for _, site := range told {
						if other, twice := in[site]; twice {
							t.Errorf("%s is reported by %s and %s", site, id, other)
						}
						in[site] = id
					}
				}
			})
		}
	}
}

func TestADestinationThatFailsDelaysAndShowsIt(t *testing.T) {
	t.Parallel()
	healthy := make(chan struct{})
	r := newReceiver(t, func(n int, _ notify.Message) int {
		select {
		case <-healthy:
			return http.StatusNoContent
		default:
		}
		return []int{0, http.StatusServiceUnavailable}[n%2] // it dies while it reads, or refuses
	})
	w := newWorld(t, catalog.Options{})
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	w.site("a", "")
	waitFor(t, "two attempts", func() bool { return w.status("ops").Status.Attempts >= 2 })
	w.site("b", "")
	if got := w.condition("ops", tko.ConditionAccepted); !strings.HasPrefix(got, "False DestinationFailed ") || !strings.Contains(got, "since ") || !strings.Contains(got, "not reported yet") {
		t.Errorf("the condition is %q", got)
	}
	if s := w.status("ops").Status; s.NextTry.IsZero() || s.Sent != 0 {
		t.Errorf("the status is %+v", s)
	}
	close(healthy)
	r.waitForTold(t, "a", "b")
	var ids []string
	for _, one := range r.all() {
		ids = append(ids, one.message.ID)
	}
	if len(slices.Compact(ids)) != 2 || len(r.all()) < 4 {
		t.Errorf("the messages are %v, want attempts of one, and one more", ids)
	}
	waitFor(t, "recovery", func() bool { return strings.HasPrefix(w.condition("ops", tko.ConditionAccepted), "True") })
}

func TestRemovedHistoryIsSaidWithNumbers(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": webhook(r)})
	begin := w.status("ops").Status.Position
	for i := range 5 {
		w.site(fmt.Sprint("s", i), "")
	}
	time.Sleep(10 * time.Millisecond)
	if _, err := w.store.Collect(w.ctx, record.Retention{Changes: time.Millisecond, Revisions: 1}); err != nil {
		t.Fatal(err)
	}
	head, err := w.Position(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.run(w.notifier, w.Told())
	waitFor(t, "the message", func() bool { return len(r.all()) > 0 })
	m := r.all()[0].message
	if m.Gap == nil || m.Gap.After != begin || m.Gap.UpTo != head || !strings.Contains(m.Text, fmt.Sprintf("after position %d up to %d (%d positions)", begin, head, head-begin)) {
		t.Errorf("the message is %s", r.all()[0].body)
	}
	waitFor(t, "the condition", func() bool {
		return strings.HasPrefix(w.condition("ops", tko.ConditionComplete), "False HistoryRemoved the changes after position")
	})
}

// newGuarded returns a world with enforced rights, in which w.ctx is an administrator.
func newGuarded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, catalog.Options{Access: rights.Enforce, Audit: true})
	if _, err := rights.InitAccess(w.ctx, w.store, "cert:admin", "test", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.ctx = w.as("cert:admin")
	return w
}

func (w *world) as(subject string) context.Context {
	return identity.With(w.t.Context(), identity.Identity{Subject: subject, Authenticator: "certificate", From: "192.0.2.7:4711"})
}

// bind gives ada a role.
func (w *world) bind(role access.Role, scope access.Scope) access.Binding {
	w.t.Helper()
	b, err := w.Bind(w.ctx, access.Binding{Subject: "cert:ada", Role: role, Scope: scope})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func TestMessagesTellWhatTheOwnerMayReadNow(t *testing.T) {
	t.Parallel()
	w, r := newGuarded(t), newReceiver(t, nil)
	emea := access.Scope{SiteID: "emea/**"}
	ada := w.as("cert:ada")
	spec := map[string]any{"about": []any{map[string]any{"of": "changes"}, map[string]any{"of": "conditions"}}, "group": quick, "to": webhook(r)}
	viewer := w.bind(access.Viewer, emea)
	if err := w.subscribeAs(ada, "ops", spec); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("without the right: %v", err)
	}
	w.bind(access.SubscribeRole, access.Scope{})
	if err := w.subscribeAs(ada, "ops", map[string]any{"about": []any{map[string]any{"of": "audit"}}, "to": webhook(r)}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("audit records without the right audit: %v", err)
	}
	if err := w.subscribeAs(ada, "ops", spec); !errors.Is(err, tko.ErrDenied) || !strings.Contains(err.Error(), "credential") {
		t.Errorf("a credential that the operator did not declare: %v", err)
	}
	w.bind(access.CredentialRole, access.Scope{})
	if err := w.subscribeAs(ada, "ops", spec); err != nil {
		t.Fatal(err)
	}
	w.run(w.notifier, w.Told())
	w.site("apac/osaka", "")
	w.site("emea/lagos", "")
	r.waitForTold(t, "emea/lagos")
	if err := w.Unbind(tko.WithConfirmation(w.ctx, 0), viewer.ID); err != nil {
		t.Fatal(err)
	}
	for _, b := range w.bindingsOf("cert:ada") {
		if err := w.Unbind(w.ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1200 * time.Millisecond) // the age of cached rules
	w.site("emea/paris", "")
	waitFor(t, "the owner is held", func() bool { return strings.HasPrefix(w.condition("ops", tko.ConditionAccepted), "False OwnerHeld") })
	w.bind(access.Viewer, emea)
	r.waitForTold(t, "emea/paris")
	for id, told := range r.told(t) {
		if slices.Contains(told, "apac/osaka") {
			t.Errorf("the message %s tells what its owner may not read", id)
		}
	}
}

func (w *world) bindingsOf(subject string) (ids []string) {
	w.t.Helper()
	rules, err := w.Bindings(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range rules.Bindings {
		if b.Subject == subject {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

func TestAuditRecordsAreReported(t *testing.T) {
	t.Parallel()
	w, r := newGuarded(t), newReceiver(t, nil)
	w.subscribe("refusals", map[string]any{"about": []any{map[string]any{"of": "audit", "decisions": []any{"refuse"}}}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	w.site("a", "") // is allowed, and not told
	if _, err := w.RegisterSite(w.as("cert:eve"), tko.Site{ID: "b"}); !errors.Is(err, tko.ErrDenied) {
		t.Fatal(err)
	}
	waitFor(t, "the message", func() bool { return len(r.all()) > 0 })
	if m := r.all()[0].message; m.Total != 1 || m.Items[0].Who != "cert:eve" || m.Items[0].What != "refuse" {
		t.Errorf("the message is %s", r.all()[0].body)
	}
}

func TestATemplateThatFailsIsSaidAndTheMessageIsSent(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	spec := func(title string) map[string]any {
		return map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "template": map[string]any{"title": title}, "to": webhook(r)}
	}
	for _, wrong := range []string{"message.", "1 + 1"} {
		if err := w.subscribeAs(w.ctx, "ops", spec(wrong)); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "template.title") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	w.subscribe("good", spec(`"NOC: " + string(message.total) + " by " + message.items[0].who`))
	w.subscribe("bad", spec("message.nothing.there"))
	w.run(w.notifier, w.Told())
	w.site("a", "")
	waitFor(t, "both messages", func() bool { return len(r.all()) == 2 })
	for _, one := range r.all() {
		switch m := one.message; m.Subscription {
		case "good":
			if m.Title != "NOC: 1 by ada" || m.Problem != "" {
				t.Errorf("the message is %s", one.body)
			}
		default:
			if m.Title != "bad: 1 site created" || !strings.Contains(m.Problem, "template.title") || !strings.Contains(m.Text, "no such key") {
				t.Errorf("the message is %s", one.body)
			}
		}
	}
	waitFor(t, "the condition", func() bool {
		return strings.HasPrefix(w.condition("bad", tko.ConditionRendered), "False TemplateFailed")
	})
}

// A receiver changes a site for each message. It names the message, so that ends there; one
// that doesn't can't have more messages than one in each interval.
func TestALoopIsEndedOrSlow(t *testing.T) {
	t.Parallel()
	for name, names := range map[string]bool{"it names the message": true, "it doesn't": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			changes := 0
			r := newReceiver(t, func(n int, m notify.Message) int {
				why := fmt.Sprint("because of a message, ", n)
				if names {
					why += " " + m.ID
				}
				changes++
				w.site(fmt.Sprint("loop", n), why)
				return http.StatusOK
			})
			w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": webhook(r)})
			began := time.Now()
			w.run(w.notifier, w.Told())
			w.site("first", "")
			waitFor(t, "the first message", func() bool { return len(r.all()) > 0 })
			time.Sleep(3 * time.Second)
			most := 1
			if !names {
				most = int(time.Since(began)/time.Second) + 1
			}
			if n := len(r.all()); n < 1 || n > most || !names && n < 2 {
				t.Errorf("there are %d messages in %s, want at most %d", n, time.Since(began), most)
			}
			if names {
				w.site("second", "")
				r.waitForTold(t, "second")
				if all := r.all(); all[len(all)-1].message.Echoes != 1 {
					t.Errorf("the next message is %s, want one that counts what isn't told", all[len(all)-1].body)
				}
			}
		})
	}
}

func TestAFreezeMaySilence(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.site("emea/lagos", "")
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "silentDuringFreeze": true, "group": quick, "to": webhook(r)})
	if _, err := w.Freeze(w.ctx, tko.Freeze{SiteMetadata: map[string]string{"region": "emea"}, Until: time.Now().Add(time.Hour), Reason: "election"}); err != nil {
		t.Fatal(err)
	}
	w.run(w.notifier, w.Told())
	w.site("emea/paris", "")
	w.site("apac/osaka", "")
	r.waitForTold(t, "apac/osaka")
	if m := r.all()[0].message; m.Total != 1 || m.Silenced != 1 {
		t.Errorf("the message is %s", r.all()[0].body)
	}
}

func TestConditionsAndDeletionsAreReported(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.site("emea/lagos", "")
	w.subscribe("sick", map[string]any{"about": []any{
		map[string]any{"of": "conditions", "kinds": []any{"site"}, "conditions": []any{"Healthy=False"}},
		map[string]any{"of": "changes", "ops": []any{"deleted"}, "sites": []any{"emea/*"}},
	}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	set := func(status, reason string) {
		if err := w.SetConditions(w.ctx, tko.KindSite, "emea/lagos", []tko.Condition{{Type: "Healthy", Status: status, Reason: reason}}); err != nil {
			t.Fatal(err)
		}
	}
	set("True", "Fine")
	set("False", "PodsFailed")
	waitFor(t, "the condition", func() bool { return len(r.all()) == 1 })
	set("False", "PodsFailed") // the same
	set("False", "NodeLost")
	waitFor(t, "another reason", func() bool { return len(r.all()) == 2 })
	if _, err := w.DeleteSite(w.ctx, "emea/lagos"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the deletion", func() bool { return len(r.all()) == 3 })
	var whats []string
	for _, one := range r.all() {
		for _, item := range one.message.Items {
			whats = append(whats, item.What)
		}
	}
	if got := strings.Join(whats, ", "); got != "Healthy=False:PodsFailed, Healthy=False:NodeLost, deleted" {
		t.Errorf("told: %s", got)
	}
}

func TestATestMessageIsSentOrItsRefusalShown(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	w := newWorld(t, catalog.Options{})
	r := newReceiver(t, func(int, notify.Message) int { return status })
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "to": webhook(r)})
	id, err := w.TestSubscription(w.ctx, "ops")
	if err != nil || len(r.all()) != 1 || !r.all()[0].message.Test || r.all()[0].message.ID != id {
		t.Errorf("test message %q: %v", id, err)
	}
	status = http.StatusForbidden
	if _, err := w.TestSubscription(w.ctx, "ops"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "403") {
		t.Errorf("a test message that is refused: %v", err)
	}
	if _, err := w.TestSubscription(w.ctx, "other"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("of an unknown subscription: %v", err)
	}
}

func TestInvalidSubscriptionsAreRefused(t *testing.T) {
	t.Parallel()
	changes := []any{map[string]any{"of": "changes"}}
	hook := func(url string) map[string]any {
		return map[string]any{"webhook": map[string]any{"url": url, "secret": "env:KEY"}}
	}
	for name, c := range map[string]struct {
		spec map[string]any
		text string
	}{
		"nothing":             {map[string]any{"to": hook("https://x.example.com")}, "about is empty"},
		"unknown field":       {map[string]any{"about": changes, "abuot": 1, "to": hook("https://x.example.com")}, `unknown field "abuot"`},
		"unknown stream":      {map[string]any{"about": []any{map[string]any{"of": "change"}}, "to": hook("https://x.example.com")}, "use changes, conditions"},
		"foreign field":       {map[string]any{"about": []any{map[string]any{"of": "changes", "states": []any{"Paused"}}}, "to": hook("https://x.example.com")}, "states is for filters of rollouts"},
		"unknown kind":        {map[string]any{"about": []any{map[string]any{"of": "changes", "kinds": []any{"sight"}}}, "to": hook("https://x.example.com")}, "there is no kind"},
		"no destination":      {map[string]any{"about": changes, "to": map[string]any{}}, "use one of webhook"},
		"another scheme":      {map[string]any{"about": changes, "to": hook("ftp://x.example.com")}, "http or https"},
		"credentials in URL":  {map[string]any{"about": changes, "to": hook("https://a:b@x.example.com")}, "contains credentials"},
		"a secret itself":     {map[string]any{"about": changes, "to": map[string]any{"webhook": map[string]any{"url": "https://x.example.com", "secret": "hunter2"}}}, "no reference"},
		"no secret":           {map[string]any{"about": changes, "to": map[string]any{"webhook": map[string]any{"url": "https://x.example.com"}}}, "secret is missing"},
		"token without TLS":   {map[string]any{"about": changes, "to": map[string]any{"alertmanager": map[string]any{"url": "http://x.example.com", "token": "env:T"}}}, "no TLS"},
		"too often":           {map[string]any{"about": changes, "group": map[string]any{"every": "1ms"}, "to": hook("https://x.example.com")}, "every is 1ms"},
		"header in a mail":    {map[string]any{"about": changes, "to": map[string]any{"mail": map[string]any{"server": "m:587", "from": "a@b\r\nBcc: x@y", "to": []any{"a@b"}}}}, "no mail address"},
		"label of TKO":        {map[string]any{"about": changes, "to": map[string]any{"alertmanager": map[string]any{"url": "https://x.example.com", "labels": map[string]any{"message": "x"}}}}, "set by TKO"},
		"a metric as pattern": {map[string]any{"about": []any{map[string]any{"of": "conditions", "conditions": []any{"=False"}}}, "to": hook("https://x.example.com")}, "has no type"},
	} {
		text, err := json.Marshal(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := notify.Check(tko.Subscription{Name: "s", Spec: text}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
}

// An unsavedBackend fails to save what a message will tell, at first.
type unsavedBackend struct {
	notify.Backend

	left  atomic.Int64
	fixed atomic.Bool // a message was saved before it was sent
}

func (u *unsavedBackend) Save(ctx context.Context, holder, name string, doc []byte) error {
	var state struct{ Pending json.RawMessage }
	if err := json.Unmarshal(doc, &state); err != nil {
		return err
	}
	if len(state.Pending) > 0 && string(state.Pending) != "null" {
		if u.left.Add(-1) >= 0 {
			return errors.New("the disk is full")
		}
		u.fixed.Store(true)
	}
	return u.Backend.Save(ctx, holder, name, doc)
}

// What a message tells is saved before it is sent: otherwise, after a kill, another message would have its ID.
func TestNoMessageIsSentBeforeWhatItTellsIsSaved(t *testing.T) {
	t.Parallel()
	var backend *unsavedBackend
	r := newReceiver(t, func(int, notify.Message) int {
		if !backend.fixed.Load() {
			t.Error("a message was sent before what it tells was saved")
		}
		return http.StatusNoContent
	})
	w := newWorld(t, catalog.Options{})
	backend = &unsavedBackend{Backend: w.Told()}
	backend.left.Store(2)
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": webhook(r)})
	w.run(newNotifier(), backend)
	w.site("s", "")
	r.waitForTold(t, "s")
	for id := range r.told(t) {
		if !strings.HasSuffix(id, ".1") {
			t.Errorf("the first message is %s", id)
		}
	}
}
