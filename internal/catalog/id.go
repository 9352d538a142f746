package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/ksuid"

	"github.com/tko-orchestrator/tko"
)

// An idSource makes IDs that sort in the order in which they were made, also
// within a second, and when the clock goes back.
type idSource struct {
	mu   sync.Mutex
	last ksuid.KSUID
}

// next makes n IDs in ascending order.
func (s *idSource) next(n int) ([]string, error) {
	fresh, err := ksuid.NewRandomWithTime(time.Now())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, n)
	for i := range ids {
		if ksuid.Compare(fresh, s.last) <= 0 {
			fresh = s.last.Next()
		}
		s.last = fresh
		ids[i] = fresh.String()
	}
	return ids, nil
}

// isDeploymentID says whether an ID can be one of a deployment. What can't is
// not looked up.
func isDeploymentID[ID ~string](id ID) bool {
	_, err := ksuid.Parse(string(id))
	return err == nil
}

func newUID() string { return uuid.NewString() }

// originOf names what is made exactly once: within whom, and what it is
// called there. What is short and plain can be read again.
func originOf(within, origin string) string {
	const long = 120
	if len(origin) > long || !storable(origin) {
		sum := sha256.Sum256([]byte(origin))
		origin = "sha256:" + hex.EncodeToString(sum[:])
	}
	return within + "/" + origin
}

// maxOrigin is the limit of the length of origins, in bytes.
const maxOrigin = 200

func checkOrigin(origin string) error {
	switch {
	case origin == "":
		return tko.Errorf(tko.ErrInvalid, "the origin is empty: give the name that makes this one the same when it is asked for again")
	case len(origin) > maxOrigin:
		return tko.Errorf(tko.ErrInvalid, "the origin %.40q… has %d characters: use at most %d", origin, len(origin), maxOrigin)
	}
	return nil
}

// A lock is a mutex for which one can stop waiting.
type lock struct {
	once  sync.Once
	token chan struct{}
}

func (l *lock) lock(ctx context.Context) (unlock func(), err error) {
	l.once.Do(func() { l.token = make(chan struct{}, 1) })
	select {
	case l.token <- struct{}{}:
		return func() { <-l.token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
