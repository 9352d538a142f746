package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// HoldNotifier takes or extends the lease of the server that sends messages.
func (s *Store) HoldNotifier(ctx context.Context, holder string, lease time.Duration) (held bool, err error) {
	if err := decide.CheckTexts("holder", holder); err != nil {
		return false, err
	}
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		held = false
		return nil, tx.Run(ctx, Statement{
			SQL:  "UPDATE notifier SET holder = $1, until = {now} + $2 WHERE one = 1 AND (holder = $1 OR until < {now}) AND NOT EXISTS (SELECT 1 FROM hold WHERE queue = $3) RETURNING until",
			Args: []any{holder, lease.Microseconds(), tko.QueueNotify},
			Scan: func(from Row) error {
				var until int64
				err := from.Scan(&until)
				held = err == nil
				return err
			},
		})
	})
	return held && err == nil, fault("take the lease of the notifier", err)
}

// Subscriptions returns the states of subscriptions.
func (s *Store) Subscriptions(ctx context.Context) (states []record.SubscriptionState, err error) {
	err = s.read(ctx, func(tx Tx) error {
		states = nil
		return tx.Commit(ctx, Statement{
			SQL: "SELECT name, doc FROM subscription ORDER BY name",
			Scan: func(from Row) error {
				var one record.SubscriptionState
				var doc string
				err := from.Scan(&one.Name, &doc)
				one.Doc = []byte(doc)
				states = append(states, one)
				return err
			},
		})
	})
	return states, fault("read the states of subscriptions", err)
}

// SaveSubscription writes the state of a subscription, or removes it.
func (s *Store) SaveSubscription(ctx context.Context, holder string, state record.SubscriptionState) error {
	if err := decide.CheckTexts("holder", holder, "name", state.Name, "state", string(state.Doc)); err != nil {
		return err
	}
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		held := false
		err := tx.Run(ctx, Statement{
			SQL:  "UPDATE notifier SET holder = holder WHERE one = 1 AND holder = $1 AND until >= {now} RETURNING until",
			Args: []any{holder},
			Scan: func(from Row) error {
				var until int64
				err := from.Scan(&until)
				held = err == nil
				return err
			},
		})
		switch {
		case err != nil:
			return nil, err
		case !held:
			return nil, tko.Errorf(tko.ErrConflict, "another server sends the messages of subscriptions now")
		case state.Doc == nil:
			return []Statement{{SQL: "DELETE FROM subscription WHERE name = $1", Args: []any{state.Name}}}, nil
		}
		return []Statement{{
			SQL:  "INSERT INTO subscription (name, doc) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET doc = excluded.doc",
			Args: []any{state.Name, string(state.Doc)},
		}}, nil
	})
	return fault("save the state of a subscription", err)
}
