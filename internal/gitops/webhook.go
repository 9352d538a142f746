package gitops

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// maxHook is the most bytes of a webhook's body: GitHub's limit.
const maxHook = 25 << 20

// Hooks returns a handler of webhooks: POST /hook/NAME enqueues a source. It
// refuses requests that aren't signed with the secret, and unknown sources. It
// accepts the signatures of GitHub and Gitea (X-Hub-Signature-256), GitLab
// (X-Gitlab-Token), Bitbucket (X-Hub-Signature), NetBox (X-Hook-Signature), and of
// other senders (X-Signature: sha256=HMAC, of the body). An O2 IMS sends its notifications
// to [inventory.CallbackPath]. readKey is called for each request.
func Hooks(readKey func() (secret.Text, error), names func() []string, call func(ctx context.Context, names ...string) error, log *slog.Logger) http.Handler {
	known := func(name string) bool { return slices.Contains(names(), name) }
	accept := func(w http.ResponseWriter, r *http.Request, name string) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		if err := call(ctx, name); err != nil {
			log.WarnContext(ctx, "a webhook could not enqueue its source", "source", name, "err", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
	key := func(w http.ResponseWriter, r *http.Request) (secret.Text, bool) {
		key, err := readKey()
		if err != nil || key == "" {
			log.ErrorContext(r.Context(), "the webhook secret can't be read", "err", err)
			http.Error(w, "webhooks have no secret", http.StatusServiceUnavailable)
			return "", false
		}
		return key, true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook/{name...}", func(w http.ResponseWriter, r *http.Request) {
		key, ok := key(w, r)
		if !ok {
			return
		}
		name := r.PathValue("name")
		if !signed(r, w, string(key)) || !known(name) {
			http.Error(w, "the signature is wrong, or there is no such source", http.StatusUnauthorized)
			return
		}
		accept(w, r, name)
	})
	// An IMS can't sign its notifications: the path holds a token.
	notified := func(w http.ResponseWriter, r *http.Request) {
		key, ok := key(w, r)
		if !ok {
			return
		}
		name := r.PathValue("name")
		if !hmac.Equal([]byte(r.URL.EscapedPath()), []byte(inventory.CallbackPath(key, name))) || !known(name) {
			http.Error(w, "the token is wrong, or there is no such source", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHook))
		switch {
		case err != nil:
			http.Error(w, "the notification is incomplete, or too large", http.StatusBadRequest)
		case r.Method != http.MethodPost || !inventory.Concerns(body): // GET tests the callback
			w.WriteHeader(http.StatusNoContent)
		default:
			accept(w, r, name)
		}
	}
	mux.HandleFunc("POST /o2ims/{token}/{name}", notified)
	mux.HandleFunc("GET /o2ims/{token}/{name}", notified)
	return mux
}

// signed reads the body, and reports whether the request is signed with key.
func signed(r *http.Request, w http.ResponseWriter, key string) bool {
	mac, long := hmac.New(sha256.New, []byte(key)), hmac.New(sha512.New, []byte(key))
	if _, err := io.Copy(io.MultiWriter(mac, long), http.MaxBytesReader(w, r.Body, maxHook)); err != nil {
		return false
	}
	if token := r.Header.Get("X-Gitlab-Token"); token != "" {
		return subtle.ConstantTimeCompare([]byte(token), []byte(key)) == 1
	}
	if text := r.Header.Get("X-Hook-Signature"); text != "" {
		sum, err := hex.DecodeString(text)
		return err == nil && hmac.Equal(sum, long.Sum(nil))
	}
	signature := cmp.Or(r.Header.Get("X-Hub-Signature-256"), r.Header.Get("X-Signature"), r.Header.Get("X-Hub-Signature"))
	text, ok := strings.CutPrefix(signature, "sha256=")
	sum, err := hex.DecodeString(text)
	return ok && err == nil && hmac.Equal(sum, mac.Sum(nil))
}
