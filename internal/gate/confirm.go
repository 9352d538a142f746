package gate

import (
	"context"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Allow checks a request that affects count records of a kind, descendants included. It is
// an ErrInvalid if it confirms a number that isn't consent to count, or if it confirms none and exceeds
// both ConfirmAbove and ConfirmPercent of the kind. doing is the verb of the
// request: delete, approve or freeze.
func (s *Gate) Allow(ctx context.Context, doing string, kind tko.Kind, count int) error {
	if confirmed, ok := tko.ConfirmationOf(ctx); ok {
		if !tko.Consents(confirmed, count) {
			return tko.Errorf(tko.ErrInvalid, "this would %s %s, but %d were confirmed: nothing was changed; check the selection, and confirm %d to proceed (--confirm=%d)",
				doing, entities(count, kind), confirmed, count, count)
		}
		return nil
	}
	if count <= s.settings.ConfirmAbove {
		return nil
	}
	percent := s.settings.ConfirmPercent
	enough := (count*100 + percent - 1) / percent // if there are this many, count is within the percentage
	total := 0
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return rights.ErrNotEntered
	}
	for _, err := range s.store.List(ctx, record.Query{Kind: kind, Scope: c.View(), Limit: enough}) {
		if err != nil {
			return err
		}
		total++
	}
	if total >= enough {
		return nil
	}
	return tko.Errorf(tko.ErrInvalid,
		"this would %s %d of %d %ss, which is more than %d and more than %d %% of them: nothing was changed; check the selection, and confirm %d to proceed (--confirm=%d)",
		doing, count, max(total, count), kind, s.settings.ConfirmAbove, percent, count, count)
}

// entities returns, for example, "1 site" or "2 sites".
func entities(n int, kind tko.Kind) string {
	if n == 1 {
		return "1 " + string(kind)
	}
	return fmt.Sprintf("%d %ss", n, kind)
}
