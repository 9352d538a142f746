package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko/internal/identity"
)

// runPrefix is the prefix of the tokens of [Runs].
const runPrefix = "tkor_"

// Runs issue and authenticate the tokens of plugins that run for no work item, as
// those that validate do. A token is valid at this server, and as long as the plugin runs.
// The zero value works, and may be used concurrently.
type Runs struct {
	mutex sync.Mutex
	live  map[[sha256.Size]byte]identity.Plugin
}

// Issue returns the token of a plugin's run. The caller calls end when the run has
// ended.
func (r *Runs) Issue(typ, name string) (token string, end func()) {
	token = runPrefix + rand.Text()
	sum := sha256.Sum256([]byte(token))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.live == nil {
		r.live = map[[sha256.Size]byte]identity.Plugin{}
	}
	r.live[sum] = identity.Plugin{Type: typ, Name: name}
	return token, func() {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		delete(r.live, sum)
	}
}

// Read returns the identity of a plugin's run.
func (r *Runs) Read(_ context.Context, token string) (identity.Identity, bool, error) {
	if !strings.HasPrefix(token, runPrefix) {
		return identity.Identity{}, false, nil
	}
	r.mutex.Lock()
	run, ok := r.live[sha256.Sum256([]byte(token))]
	r.mutex.Unlock()
	if !ok {
		return identity.Identity{}, true, unauthenticated("the plugin's token has ended with its run, or is of another server")
	}
	return identity.OfPlugin(run, time.Time{}, ""), true, nil
}
