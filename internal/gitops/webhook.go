package gitops

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/secret"
)

// maxHook is the longest body of a webhook: the limit of those who send most.
const maxHook = 25 << 20

// Hooks serves webhooks, so that sources needn't be waited for: POST /hook/NAME
// has the source looked at now. What isn't signed with the secret is refused,
// and so is a source that isn't known. The signature is GitHub's
// (X-Hub-Signature-256), which Gitea sends, too, GitLab's (X-Gitlab-Token),
// Bitbucket's (X-Hub-Signature), or anybody's (X-Signature: sha256=…, of the
// body).
func Hooks(readKey func() (secret.Text, error), names func() []string, call func(ctx context.Context, names ...string) error, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook/{name...}", func(w http.ResponseWriter, r *http.Request) {
		key, err := readKey()
		if err != nil || key == "" {
			log.ErrorContext(r.Context(), "the secret of webhooks can't be read", "err", err)
			http.Error(w, "webhooks have no secret", http.StatusServiceUnavailable)
			return
		}
		name := r.PathValue("name")
		known := false
		for _, n := range names() {
			known = known || n == name
		}
		if !signed(r, w, string(key)) || !known {
			http.Error(w, "the signature is wrong, or there is no such source", http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		if err := call(ctx, name); err != nil {
			log.WarnContext(ctx, "a webhook could not call for its source", "source", name, "err", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	return mux
}

// signed reads the body, and says whether it is from somebody who knows the
// secret.
func signed(r *http.Request, w http.ResponseWriter, key string) bool {
	mac := hmac.New(sha256.New, []byte(key))
	if _, err := io.Copy(mac, http.MaxBytesReader(w, r.Body, maxHook)); err != nil {
		return false
	}
	if token := r.Header.Get("X-Gitlab-Token"); token != "" {
		return subtle.ConstantTimeCompare([]byte(token), []byte(key)) == 1
	}
	signature := cmp.Or(r.Header.Get("X-Hub-Signature-256"), r.Header.Get("X-Signature"), r.Header.Get("X-Hub-Signature"))
	text, ok := strings.CutPrefix(signature, "sha256=")
	sum, err := hex.DecodeString(text)
	return ok && err == nil && hmac.Equal(sum, mac.Sum(nil))
}
