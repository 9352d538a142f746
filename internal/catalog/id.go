package catalog

import (
	"sync"
	"time"

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
