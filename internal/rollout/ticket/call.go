package ticket

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// The headers of a signed request.
const (
	HeaderTime      = "TKO-Timestamp" // seconds since 1970
	HeaderSignature = "TKO-Signature" // sha256=HMAC of the time, a full stop, and the body
)

// maxAge is how old, or how far in the future, a signature may be.
const maxAge = 5 * time.Minute

// Sign signs a request.
func Sign(header http.Header, key secret.Text, at time.Time, body []byte) {
	text := strconv.FormatInt(at.Unix(), 10)
	header.Set(HeaderTime, text)
	header.Set(HeaderSignature, "sha256="+hex.EncodeToString(signature(key, text, body)))
}

func signature(key secret.Text, at string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify reports whether a request is signed with a key, and not too old.
func Verify(header http.Header, key secret.Text, now time.Time, body []byte) bool {
	at := header.Get(HeaderTime)
	seconds, err := strconv.ParseInt(at, 10, 64)
	text, ok := strings.CutPrefix(header.Get(HeaderSignature), "sha256=")
	sum, hexErr := hex.DecodeString(text)
	age := now.Sub(time.Unix(seconds, 0)).Abs()
	return err == nil && ok && hexErr == nil && key != "" && age <= maxAge && hmac.Equal(sum, signature(key, at, body))
}

const (
	maxCall     = 64 << 10 // bytes of a report
	maxCalls    = 8        // that are handled at once
	callTimeout = 30 * time.Second
)

// A decided is the report of a ticket system about a ticket.
type decided struct {
	Rollout  string `json:"rollout"`
	Key      string `json:"key"`
	Plan     string `json:"plan"`
	ID       string `json:"id"`
	Number   string `json:"number"`
	Decision string `json:"decision"`
	Who      string `json:"who"`
	Until    string `json:"until"`
	Text     string `json:"text"`
}

// Calls returns a handler of the reports of ticket systems: POST /ticket/NAME, signed with the
// secret of the system. What a report decides counts as what is read from the system does.
func (s *Systems) Calls(report func(context.Context, tko.RolloutTicket) error, log *slog.Logger) http.Handler {
	slots := make(chan struct{}, maxCalls)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ticket/{name}", func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "too many reports at once: try again", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
		if err != nil {
			http.Error(w, "the report is incomplete, or too large", http.StatusBadRequest)
			return
		}
		t, ok := s.verified(ctx, r, body)
		if !ok {
			http.Error(w, "the signature is wrong or too old, or there is no such ticket system", http.StatusUnauthorized)
			return
		}
		if t.Failure != "" {
			http.Error(w, t.Failure, http.StatusBadRequest)
			return
		}
		respond(ctx, w, report(ctx, t), log)
	})
	return mux
}

// respond tells the caller whether its report counts.
func respond(ctx context.Context, w http.ResponseWriter, err error, log *slog.Logger) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, tko.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, tko.ErrConflict), errors.Is(err, tko.ErrInvalid):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		log.WarnContext(ctx, "the report of a ticket system was not recorded", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

// verified returns what a signed report says; not ok if it isn't signed by its system. A
// report that can't be read has a Failure.
func (s *Systems) verified(ctx context.Context, r *http.Request, body []byte) (t tko.RolloutTicket, ok bool) {
	known := s.named(r.PathValue("name"))
	if known == nil || known.Secret == "" {
		return t, false
	}
	var d decided
	readErr := json.Unmarshal(body, &d)
	access := s.access
	access.User = access.Leash.Rollout(tko.RolloutID(d.Rollout))
	key, err := known.signingKey(ctx, access)
	if err != nil || !Verify(r.Header, key, time.Now(), body) {
		return t, false
	}
	short := func(text string) string { return printable.Short(printable.Text(text), maxText) }
	t = tko.RolloutTicket{
		Rollout: tko.RolloutID(d.Rollout), Key: d.Key, System: known.Name, Action: execute.TicketCall, Ticket: d.ID, Number: short(d.Number), Plan: short(d.Plan), Who: short(d.Who), Text: short(d.Text),
	}
	if readErr == nil {
		t.Decision, readErr = decisionOf(d.Decision)
	}
	if readErr == nil {
		t.Until, readErr = timeOf(d.Until)
	}
	if readErr == nil && d.ID != "" && !identifier.MatchString(d.ID) {
		readErr = errors.New("the ID is no ID of a ticket")
	}
	if readErr != nil {
		t.Failure = "the report can't be read: " + readErr.Error()
	}
	return t, true
}
