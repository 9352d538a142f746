package ticket_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket/tickettest"
	"github.com/tko-orchestrator/tko/internal/secret"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The example of the docs is one that the server accepts.
func TestDocumentedTicketSystemsAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rollouts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml tickets\n")
	example, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/rollouts.md has no example of ticket systems")
	}
	systems, err := ticket.Read(write(t, example), remote.Access{})
	if err != nil || !systems.Signed() {
		t.Error(err)
	}
}

func TestDangerousSettingsAreRefused(t *testing.T) {
	t.Parallel()
	const good = `{name: a, template: webhook, url: "https://example.net/x", secret: "env:KEY"}`
	tests := map[string]struct{ from, to, want string }{
		"no TLS":                {"https:", "http:", "has no TLS, so anyone on the way could approve"},
		"no secret":             {`, secret: "env:KEY"`, "", "secret is missing"},
		"a secret in the file":  {`"env:KEY"`, "hunter2", "is no reference"},
		"a password in the URL": {"https://", "https://a:b@", "contains credentials"},
		"an unknown template":   {"webhook", "jira", "use webhook or servicenow"},
		"no name":               {"name: a", `name: ""`, "name is missing"},
		"an unknown field":      {"name: a", "name: a, approve: always", "approve"},
		"an endless timeout":    {"name: a", "name: a, timeout: 24h", "timeout"},
		"a wrong expression":    {"name: a", `name: a, map: {decision: "response."}`, "map.decision"},
		"no path":               {"name: a", `name: a, map: {find: {method: GET}}`, "map.find has a method and no path"},
		"a query":               {"/x", "/x?y=1", "without a query"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(good, test.from, test.to, 1)
			_, err := ticket.Read(write(t, "systems: ["+text+"]"), remote.Access{})
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	if _, err := ticket.Read(write(t, "systems: ["+good+", "+good+"]"), remote.Access{}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("two of a name: %v", err)
	}
	if _, err := ticket.Read("", remote.Access{}); err != nil {
		t.Error(err)
	}
}

func ask(system string) tko.RolloutTicket {
	return tko.RolloutTicket{Rollout: "r", Key: "k", System: system, Action: "ask", Document: []byte(`{"key":"k","rollout":"r","plan":"p","wave":"w","text":"t","undo":{"command":"undo"}}`)}
}

// A rollout names a system only: which credentials it gets, and which hosts are reached, the
// operator says.
func TestHostsAndCredentialsOfTicketSystemsAreGuarded(t *testing.T) {
	t.Setenv("TICKETS_KEY", tickettest.Key)
	t.Setenv("SNOW_PASSWORD", "pa55")
	s := tickettest.New(t)
	file := s.File(t)
	declare := func(rollouts string) *leash.Leash {
		l, err := leash.Open(write(t, fmt.Sprintf(`credentials: [{name: "env:**", hosts: [127.0.0.1], rollouts: [%q]}]`, rollouts)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	closed, err := guard.New(guard.Options{Hosts: []string{"tickets.example.net"}})
	if err != nil {
		t.Fatal(err)
	}
	listed := secret.Sources{Environment: []string{"TICKETS_KEY", "SNOW_PASSWORD"}}
	tests := map[string]struct {
		access remote.Access
		want   string // "": it works
	}{
		"declared":             {remote.Access{Secrets: listed, Leash: declare("r")}, ""},
		"for another rollout":  {remote.Access{Secrets: listed, Leash: declare("other")}, "declared, but not for this rollout and host"},
		"an unlisted variable": {remote.Access{Leash: declare("r")}, "not one of --secret-environment"},
		"a host not allowed":   {remote.Access{Secrets: listed, Guard: closed}, "127.0.0.1"},
	}
	for name, test := range tests {
		for _, system := range []string{"board", "snow"} {
			systems, err := ticket.Read(file, test.access)
			if err != nil {
				t.Fatal(err)
			}
			got := systems.Do(t.Context(), ask(system))
			if (got.Failure == "") != (test.want == "") || !strings.Contains(got.Failure, test.want) || strings.Contains(got.Failure, tickettest.Key) || strings.Contains(got.Failure, "pa55") {
				t.Errorf("%s at %s: %q, want %q", name, system, got.Failure, test.want)
			}
		}
	}
}

func TestSignaturesAreOfTheBodyTheTimeAndTheKey(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	tests := map[string]struct {
		key  string
		at   time.Time
		body string
		drop string
		want bool
	}{
		"right":             {key: "k", at: now, body: "b", want: true},
		"another key":       {key: "x", at: now, body: "b"},
		"another body":      {key: "k", at: now, body: "c"},
		"too old":           {key: "k", at: now.Add(6 * time.Minute), body: "b"},
		"of the future":     {key: "k", at: now.Add(-6 * time.Minute), body: "b"},
		"without a time":    {key: "k", at: now, body: "b", drop: ticket.HeaderTime},
		"without signature": {key: "k", at: now, body: "b", drop: ticket.HeaderSignature},
	}
	for name, test := range tests {
		header := http.Header{}
		ticket.Sign(header, "k", now, []byte("b"))
		header.Del(test.drop)
		if got := ticket.Verify(header, secret.Text(test.key), test.at, []byte(test.body)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	header := http.Header{}
	ticket.Sign(header, "", now, nil)
	if ticket.Verify(header, "", now, nil) {
		t.Error("an empty key is accepted")
	}
	ticket.Sign(header, "k", now, []byte("b"))
	header.Set(ticket.HeaderTime, strconv.FormatInt(now.Add(time.Minute).Unix(), 10))
	if ticket.Verify(header, "k", now, []byte("b")) {
		t.Error("another time is accepted")
	}
}

// Only signed reports of a system reach the rollout; the response says whether they count.
func TestOnlySignedReportsAreAccepted(t *testing.T) {
	t.Setenv("TICKETS_KEY", tickettest.Key)
	s := tickettest.New(t)
	systems, err := ticket.Read(s.File(t), remote.Access{Secrets: secret.Sources{Environment: []string{"TICKETS_KEY"}}})
	if err != nil {
		t.Fatal(err)
	}
	var reported []tko.RolloutTicket
	var result error
	h := systems.Calls(func(_ context.Context, one tko.RolloutTicket) error { reported = append(reported, one); return result }, slog.New(slog.DiscardHandler))
	const body = `{"rollout":"r","key":"k","plan":"p","id":"CHG1","decision":"approved","who":"ann","until":"2030-01-02T03:04:05Z"}`
	tests := map[string]struct {
		system, key, body string
		result            error
		want              int
	}{
		"right":                 {"board", tickettest.Key, body, nil, 204},
		"another key":           {"board", "x", body, nil, 401},
		"not signed":            {"board", "", body, nil, 401},
		"of an unsigned system": {"snow", tickettest.Key, body, nil, 401},
		"of an unknown system":  {"other", tickettest.Key, body, nil, 401},
		"unreadable":            {"board", tickettest.Key, "{", nil, 400},
		"an unknown decision":   {"board", tickettest.Key, `{"decision":"yes"}`, nil, 400},
		"a strange ID":          {"board", tickettest.Key, `{"id":"../x"}`, nil, 400},
		"too long":              {"board", tickettest.Key, `{"text":"` + strings.Repeat("x", 70_000) + `"}`, nil, 400},
		"refused":               {"board", tickettest.Key, body, tko.Errorf(tko.ErrConflict, "another plan"), 409},
		"of no ticket":          {"board", tickettest.Key, body, tko.Errorf(tko.ErrNotFound, "no ticket"), 404},
		"while the data is off": {"board", tickettest.Key, body, errors.New("unreachable"), 503},
	}
	for name, test := range tests {
		reported, result = nil, test.result
		r := httptest.NewRequest(http.MethodPost, "/ticket/"+test.system, strings.NewReader(test.body))
		if test.key != "" {
			ticket.Sign(r.Header, secret.Text(test.key), time.Now(), []byte(test.body))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if reaches := test.want == 204 || test.result != nil; w.Code != test.want || (len(reported) > 0) != reaches {
			t.Errorf("%s: %d %s, reported %v", name, w.Code, w.Body, reported)
		}
		if name == "right" && (len(reported) != 1 || reported[0].Action != "call" || reported[0].Decision != "Approved" || reported[0].Who != "ann" || reported[0].Plan != "p" || reported[0].Until.IsZero() || reported[0].System != "board") {
			t.Errorf("%+v", reported)
		}
	}
}
