package ticket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	maxResponse = 1 << 20 // bytes
	maxText     = 300     // bytes of a text of the system
)

// Do makes the request of a ticket, and returns it with what the system responds, or with the
// reason why it failed.
func (s *Systems) Do(ctx context.Context, t tko.RolloutTicket) tko.RolloutTicket {
	known := s.named(t.System)
	if known == nil {
		t.Failure = fmt.Sprintf("this server has no ticket system %.100q: the operator adds it to the file of --rollout-tickets, or the rollout names another one", t.System)
		return t
	}
	before := t
	if err := known.do(ctx, s.access, &t); err != nil {
		t = before
		t.Failure = printable.Short(printable.Text(err.Error()), 2*maxText)
	}
	return t
}

// do makes the requests of an action.
func (s *system) do(ctx context.Context, access remote.Access, t *tko.RolloutTicket) error {
	access.User = access.Leash.Rollout(t.Rollout)
	ticket := map[string]any{}
	if err := json.Unmarshal(t.Document, &ticket); err != nil {
		return fmt.Errorf("the document of the ticket can't be read: %w", err)
	}
	if _, ok := ticket["ticket"]; !ok {
		ticket["ticket"] = ""
	}
	c := &conversation{system: s, access: access, ticket: ticket, rollout: t.Rollout}
	switch t.Action {
	case execute.TicketAsk:
		return c.ask(ctx, t)
	case execute.TicketRead:
		response, err := c.call(ctx, "read", s.program.read)
		if err != nil {
			return err
		}
		if response == nil {
			return errors.New("the system has the ticket no longer")
		}
		return c.understand(ctx, response, t)
	case execute.TicketTell:
		return c.tell(ctx, t)
	}
	return fmt.Errorf("the action %.40q is unknown: the data controller is newer than this server", t.Action)
}

// A conversation is the requests about one ticket.
type conversation struct {
	*system

	access  remote.Access
	rollout tko.RolloutID
	ticket  map[string]any
}

// ask finds the ticket, or creates it: the system has one ticket of a key, however often it is
// asked for.
func (c *conversation) ask(ctx context.Context, t *tko.RolloutTicket) error {
	response, err := c.find(ctx)
	if err == nil && response == nil {
		response, err = c.call(ctx, "create", c.program.create)
	}
	if err != nil {
		return err
	}
	if response == nil {
		return errors.New("the response has no ticket")
	}
	if err := c.understand(ctx, response, t); err != nil {
		return err
	}
	if t.Ticket == "" {
		return errors.New("the response has no ID of a ticket")
	}
	return nil
}

// find returns the ticket of the key, if the system can be asked for it.
func (c *conversation) find(ctx context.Context) (any, error) {
	if c.program.find.method == "" {
		return nil, nil //nolint:nilnil // it is created by its key
	}
	return c.call(ctx, "find", c.program.find)
}

// tell tells a result. A ticket whose ID isn't known may exist nevertheless: it is looked for
// by its key.
func (c *conversation) tell(ctx context.Context, t *tko.RolloutTicket) error {
	if t.Ticket == "" && c.program.find.method != "" {
		response, err := c.find(ctx)
		if err != nil || response == nil {
			return err
		}
		if err := c.understand(ctx, response, t); err != nil {
			return err
		}
		c.ticket["ticket"] = t.Ticket
	}
	_, err := c.call(ctx, "update", c.program.update)
	if missing, ok := errors.AsType[statusError](err); ok && missing.code == http.StatusNotFound && t.Ticket == "" {
		return nil // it was never created
	}
	return err
}

// A statusError is a response that is no success.
type statusError struct{ code int }

func (e statusError) Error() string {
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the system responded %s: check the credentials and their rights", guard.Status(e.code))
	}
	return "the system responded " + guard.Status(e.code)
}

// call makes one request, and returns the part of the response that counts; nil if there is
// none.
func (c *conversation) call(ctx context.Context, name string, of call) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the system did not respond within %s", c.timeout))
	defer cancel()
	path, err := textOf(ctx, name+".path", of.path, c.ticket, nil)
	if err != nil {
		return nil, err
	}
	body, err := jsonOf(ctx, name+".body", of.body, c.ticket)
	if err != nil {
		return nil, err
	}
	header, err := c.header(ctx, body)
	if err != nil {
		return nil, err
	}
	server, err := remote.New(ctx, c.URL, c.Credentials, c.access, "Bearer", maxResponse)
	if err != nil {
		return nil, err
	}
	code, data, err := server.SendWith(ctx, of.method, strings.TrimSuffix(c.URL, "/")+path, header, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if code < 200 || code > 299 {
		return nil, statusError{code}
	}
	if name == "update" || code == http.StatusNoContent {
		return nil, nil //nolint:nilnil // nothing is read from it
	}
	var response any
	if err := json.Unmarshal(data, &response); err != nil {
		return nil, errors.New("the response is no JSON: check the URL")
	}
	return of.chosen(ctx, name, c.ticket, response)
}

// header returns the headers of a request, with its signature.
func (c *conversation) header(ctx context.Context, body []byte) (http.Header, error) {
	header := http.Header{}
	if key, ok := c.ticket["key"].(string); ok {
		header.Set("Idempotency-Key", key)
	}
	if c.Secret == "" {
		return header, nil
	}
	key, err := c.signingKey(ctx, c.access)
	if err != nil {
		return nil, err
	}
	Sign(header, key, time.Now(), body)
	return header, nil
}

// signingKey reads the key of signatures. An empty one is refused.
func (s *system) signingKey(ctx context.Context, access remote.Access) (secret.Text, error) {
	key, _, err := remote.Credentials{Token: s.Secret}.Read(ctx, access, s.URL)
	if err == nil && key == "" {
		err = tko.Errorf(tko.ErrInvalid, "the secret of the ticket system %q is empty", s.Name)
	}
	return key, err
}

// identifier is what the ID of a ticket may be: it becomes a part of paths.
var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)

// understand reads a response.
func (c *conversation) understand(ctx context.Context, response any, t *tko.RolloutTicket) error {
	var key, id, decision, until string
	for _, field := range []struct {
		name string
		to   *string
	}{{"key", &key}, {"id", &id}, {"number", &t.Number}, {"decision", &decision}, {"plan", &t.Plan}, {"until", &until}, {"text", &t.Text}} {
		text, err := textOf(ctx, field.name, c.program.expression(field.name), c.ticket, response)
		if err != nil {
			return err
		}
		*field.to = printable.Short(printable.Text(text), maxText)
	}
	switch {
	case key != "" && key != t.Key:
		return errors.New("the system responded with another ticket, of another key")
	case id != "" && !identifier.MatchString(id):
		return fmt.Errorf("the system responded with the ID %.40q, which is no ID of a ticket", id)
	}
	if id != "" {
		t.Ticket = id
	}
	var err error
	if t.Decision, err = decisionOf(decision); err != nil {
		return err
	}
	if t.Until, err = timeOf(until); err != nil || t.Decision == "" {
		return err
	}
	if c.program.approver.method != "" {
		c.ticket["ticket"], c.ticket["decision"] = t.Ticket, strings.ToLower(t.Decision)
		if response, err = c.call(ctx, "approver", c.program.approver); err != nil || response == nil {
			return err
		}
	}
	who, err := textOf(ctx, "who", c.program.who, c.ticket, response)
	t.Who = printable.Short(printable.Text(who), maxText)
	return err
}

// decisionOf returns a decision as TKO writes it. Only the words approved and denied decide.
func decisionOf(text string) (string, error) {
	switch strings.ToLower(text) {
	case "approved":
		return string(execute.TicketApproved), nil
	case "denied":
		return string(execute.TicketDenied), nil
	case "", "pending":
		return "", nil
	}
	return "", fmt.Errorf("the decision %.40q is unknown: it must be approved, denied or pending", text)
}

func timeOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("until is %.40q: it must be a time of RFC 3339", text)
	}
	return t, nil
}
