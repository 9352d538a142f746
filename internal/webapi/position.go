package webapi

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A Position is a position of the change log in a response. It is a string in JSON: positions may
// be greater than 2^53, beyond which JavaScript rounds numbers.
type Position int64

// MarshalText returns the digits of p.
func (p Position) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(p), 10), nil }

// UnmarshalText parses digits.
func (p *Position) UnmarshalText(text []byte) (err error) {
	*(*int64)(p), err = strconv.ParseInt(string(text), 10, 64)
	return err
}

// momentSearch limits the search for the time of a position: a caller with few rights may see none of
// the many changes after it.
const momentSearch = 2 * time.Second

// timeOf returns a time as of which the caller sees the same as at a position: that of its change or, if
// the caller sees no change there, just before the next one that the caller sees. It is zero if it isn't known.
func (l *live) timeOf(ctx context.Context, position int64, kept tko.Retention) (time.Time, error) {
	if position < kept.OldestPosition || position > kept.NewestPosition {
		return time.Time{}, nil
	}
	search, cancel := context.WithTimeout(ctx, momentSearch)
	defer cancel()
	for c, err := range l.catalog.Changes(search, max(0, position-1)) {
		switch {
		case errors.Is(err, tko.ErrGone): // it was removed since
			return time.Time{}, nil
		case err != nil && ctx.Err() == nil && search.Err() != nil:
			return time.Time{}, nil
		case err != nil:
			return time.Time{}, err
		case c.Position > position:
			return c.Time.Add(-time.Millisecond), nil
		}
		return c.Time, nil
	}
	return kept.NewestTime, nil
}
