package catalog

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// asOf returns the position as of which the reads of a context are; 0 is now.
func (s *Service) asOf(ctx context.Context) (int64, error) {
	asOf := tko.AsOfOf(ctx)
	if asOf.IsZero() {
		return 0, nil
	}
	return s.positionOf(ctx, asOf)
}

// positionOf returns the position of a moment.
func (s *Service) positionOf(ctx context.Context, asOf tko.AsOf) (int64, error) {
	if asOf.Position != 0 {
		return asOf.Position, nil
	}
	position, err := s.store.PositionAt(ctx, asOf.Time)
	if err == nil && position == 0 {
		err = tko.Errorf(tko.ErrGone, "there was nothing at %s yet: use a later time", asOf.Time.Format(time.RFC3339))
	}
	return position, err
}

// PositionOf returns the position of a moment.
func (s *Service) PositionOf(ctx context.Context, asOf tko.AsOf) (int64, error) {
	if _, _, err := s.enter(ctx, "", access.Read); err != nil {
		return 0, err
	}
	return s.positionOf(ctx, asOf)
}

// RecordAt returns the record of a key as of a position. It returns ErrNotFound if there
// was none, and ErrGone if the state is no longer retained.
func (s *Service) RecordAt(ctx context.Context, fields Fields, key Key, position int64) (Record, error) {
	if err := CheckKey(key); err != nil {
		return Record{}, err
	}
	ctx, c, err := s.enter(ctx, key.Kind, access.Read)
	if err != nil {
		return Record{}, err
	}
	return s.recordAt(ctx, c, position, key, fields)
}

// past returns a record as of the moment of the context. The caller must be allowed to
// read it as it was, and as it is, unless it was deleted.
func (s *Service) past(ctx context.Context, c *caller, key Key, fields Fields) (Record, error) {
	position, err := s.asOf(ctx)
	if err != nil {
		return Record{}, err
	}
	return s.recordAt(ctx, c, position, key, fields)
}

func (s *Service) recordAt(ctx context.Context, c *caller, position int64, key Key, fields Fields) (Record, error) {
	fields.Scope = c.view(s)
	records, err := s.store.GetAt(ctx, position, fields, key)
	if err != nil {
		return Record{}, err
	}
	r, visible := records[0], c.sees(s, records[0])
	if visible && !c.view(s).IsAll() {
		now, err := s.get(ctx, Fields{}, key)
		if err != nil {
			return Record{}, err
		}
		visible = now.Revision == 0 || c.sees(s, now)
	}
	if !visible {
		return Record{}, tko.Errorf(tko.ErrNotFound, "%s %q did not exist as of position %d", key.Kind, key.ID, position)
	}
	return r, nil
}
