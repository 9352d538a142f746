// Package tickettest has ticket systems for tests: HTTP servers that keep tickets by their
// keys, as a webhook and as ServiceNow's table API do.
package tickettest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/rollout/ticket"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// Key is the secret of the systems.
const Key = "s3cret-of-tickets"

// A Ticket is what a system has of a ticket.
type Ticket struct {
	ID, Key, Plan string
	Document      map[string]any
	Decision, Who string
	Until         string
	SaysPlan      string // the digest that the system claims to decide about; "": Plan
	SaysID        string // the same for its ID
	Asked         int    // requests that ask for it
	Read          int
	Results       []string // in the order in which they were reported
}

// A System is a ticket system.
type System struct {
	*httptest.Server

	// Respond, if it returns true, has responded in place of the system.
	Respond func(w http.ResponseWriter, r *http.Request) bool

	t       testing.TB
	mutex   sync.Mutex
	tickets []*Ticket
	created int
}

// New returns a system that understands both templates.
func New(t testing.TB) *System {
	t.Helper()
	s := &System{t: t}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// File writes the settings of the system, under the names board (a webhook) and snow.
func (s *System) File(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tickets.yaml")
	text := fmt.Sprintf(`systems:
- {name: board, template: webhook, url: %s/board, secret: "env:TICKETS_KEY", timeout: 1s}
- {name: snow, template: servicenow, url: %s, username: tko, password: "env:SNOW_PASSWORD", timeout: 1s}
`, s.URL, s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Decide decides about the newest ticket.
func (s *System) Decide(change func(*Ticket)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.tickets) == 0 {
		s.t.Fatal("there is no ticket")
	}
	change(s.tickets[len(s.tickets)-1])
}

// Tickets returns copies of the tickets, the oldest first.
func (s *System) Tickets() (all []Ticket) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, t := range s.tickets {
		all = append(all, *t)
	}
	return all
}

func (s *System) serve(w http.ResponseWriter, r *http.Request) {
	if s.Respond == nil || !s.Respond(w, r) {
		s.Handle(w, r)
	}
}

// Handle does what a request asks for, and responds as the system does.
func (s *System) Handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if strings.HasPrefix(r.URL.Path, "/board") {
		if !ticket.Verify(r.Header, secret.Text(Key), time.Now(), body) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.board(w, r, body)
		return
	}
	if user, password, _ := r.BasicAuth(); user != "tko" || password != "pa55" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.snow(w, r, body)
}

// of returns the ticket of a key or an ID.
func (s *System) of(name string) *Ticket {
	for _, t := range s.tickets {
		if t.Key == name || t.ID == name {
			return t
		}
	}
	return nil
}

// create returns the ticket of a key, which is made if there is none.
func (s *System) create(key, plan string, document map[string]any) *Ticket {
	if t := s.of(key); t != nil {
		return t
	}
	s.created++
	t := &Ticket{ID: fmt.Sprintf("CHG%d", 100+s.created), Key: key, Plan: plan, Document: document}
	s.tickets = append(s.tickets, t)
	return t
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func either(first, second string) string {
	if first != "" {
		return first
	}
	return second
}

func (s *System) board(w http.ResponseWriter, r *http.Request, body []byte) {
	document := map[string]any{}
	_ = json.Unmarshal(body, &document)
	_, rest, _ := strings.Cut(r.URL.Path, "/board")
	key, result, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	t := s.of(key)
	switch {
	case r.Method == http.MethodPost && key == "":
		t = s.create(r.Header.Get("Idempotency-Key"), text(document, "plan"), document)
		t.Asked++
	case t == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPost && result == "result":
		t.Results = append(t.Results, text(document, "result"))
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		t.Read++
	}
	respond(w, map[string]any{
		"key": t.Key, "id": either(t.SaysID, t.ID), "decision": either(t.Decision, "pending"), "plan": either(t.SaysPlan, t.Plan), "who": t.Who, "until": t.Until, "text": "in the queue",
	})
}

func (s *System) snow(w http.ResponseWriter, r *http.Request, body []byte) {
	const table = "/api/now/table/change_request"
	fields := map[string]any{}
	_ = json.Unmarshal(body, &fields)
	row := func(t *Ticket) map[string]any {
		approval := map[string]string{"": "requested", "approved": "approved", "denied": "rejected"}[t.Decision]
		return map[string]any{"sys_id": either(t.SaysID, t.ID), "number": "N" + t.ID, "approval": approval, "state": "-4", "correlation_id": t.Key, "correlation_display": either(t.SaysPlan, t.Plan)}
	}
	query := r.URL.Query().Get("sysparm_query")
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, table), "/")
	switch t := s.of(id); {
	case r.URL.Path == "/api/now/table/sysapproval_approver":
		var names []any
		if t := s.of(strings.TrimPrefix(strings.Split(query, "^")[0], "sysapproval=")); t != nil && t.Who != "" {
			names = []any{map[string]any{"approver.user_name": t.Who}}
		}
		respond(w, map[string]any{"result": names})
	case r.URL.Path == table && r.Method == http.MethodGet:
		rows := []any{}
		if t := s.of(strings.TrimPrefix(query, "correlation_id=")); t != nil {
			rows = append(rows, row(t))
		}
		respond(w, map[string]any{"result": rows})
	case r.URL.Path == table && r.Method == http.MethodPost: // as the product does, it makes another one each time
		s.created++
		t := &Ticket{ID: fmt.Sprintf("abc%d", s.created), Key: text(fields, "correlation_id"), Plan: text(fields, "correlation_display"), Document: fields, Asked: 1}
		s.tickets = append(s.tickets, t)
		w.WriteHeader(http.StatusCreated)
		respond(w, map[string]any{"result": row(t)})
	case t != nil && r.Method == http.MethodPatch:
		t.Results = append(t.Results, text(fields, "close_code"))
		respond(w, map[string]any{"result": row(t)})
	case t != nil:
		t.Read++
		respond(w, map[string]any{"result": row(t)})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func respond(w http.ResponseWriter, document map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}
