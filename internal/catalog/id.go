package catalog

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/ksuid"

	"github.com/tko-orchestrator/tko"
)

// An idSource makes IDs that sort in the order in which they were made, also
// within a second, and if the clock goes backwards.
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

// isDeploymentID reports whether a text has the form of a deployment's ID.
// Texts of another form are not looked up.
func isDeploymentID[ID ~string](id ID) bool {
	_, err := ksuid.Parse(string(id))
	return err == nil
}

func newUID() string { return uuid.NewString() }

// maxOrigin is the maximum length of an origin, in bytes.
const maxOrigin = 200

func checkOrigin(origin string) error {
	switch {
	case origin == "":
		return tko.Errorf(tko.ErrInvalid, "the origin is empty: give a name that identifies the entity when the request is repeated")
	case len(origin) > maxOrigin:
		return tko.Errorf(tko.ErrInvalid, "the origin %.40q… has %d characters: use at most %d", origin, len(origin), maxOrigin)
	}
	return nil
}

// A lock is a mutex that a context can stop waiting for.
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
