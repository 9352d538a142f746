package spanner

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// notifierLease is the lease of the server that sends messages.
const notifierLease = "notifier"

// readLease returns the holder of a lease, and until when it has it.
func readLease(ctx context.Context, from reader, name string) (holder string, until time.Time, err error) {
	row, err := from.ReadRow(ctx, "lease", spanner.Key{name}, []string{"holder", "until"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return "", time.Time{}, nil
	}
	if err == nil {
		err = row.Columns(&holder, &until)
	}
	return holder, until, fault("read a lease", err)
}

// lease takes or extends a lease, by the database's clock.
func (s *Store) lease(ctx context.Context, name, holder string, length time.Duration) (held bool, err error) {
	err = s.write(ctx, "take a lease", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		by, until, err := readLease(ctx, tx, name)
		if err != nil {
			return err
		}
		now, err := readNow(ctx, tx)
		held = by == holder || until.Before(now)
		if held && name == notifierLease {
			paused, err := isHeld(ctx, tx, tko.QueueNotify)
			if err != nil {
				return err
			}
			held = !paused
		}
		if held {
			m.put("lease", []string{"name", "holder", "until"}, name, holder, now.Add(length))
		}
		return err
	})
	return held && err == nil, err
}

// HoldNotifier takes or extends the lease of the server that sends messages.
func (s *Store) HoldNotifier(ctx context.Context, holder string, length time.Duration) (held bool, err error) {
	if err := decide.CheckTexts("holder", holder); err != nil {
		return false, err
	}
	return s.lease(ctx, notifierLease, holder, length)
}

// Subscriptions returns the states of subscriptions.
func (s *Store) Subscriptions(ctx context.Context) (states []record.SubscriptionState, err error) {
	err = s.client.Single().Read(ctx, "subscription", spanner.AllKeys(), []string{"name", "doc"}).Do(func(row *spanner.Row) error {
		var one record.SubscriptionState
		err := row.Columns(&one.Name, &one.Doc)
		states = append(states, one)
		return err
	})
	return states, fault("read the states of subscriptions", err)
}

// SaveSubscription writes the state of a subscription, or removes it.
func (s *Store) SaveSubscription(ctx context.Context, holder string, state record.SubscriptionState) error {
	if err := decide.CheckTexts("holder", holder, "name", state.Name, "state", string(state.Doc)); err != nil {
		return err
	}
	return s.write(ctx, "save the state of a subscription", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		by, until, err := readLease(ctx, tx, notifierLease)
		if err != nil {
			return err
		}
		now, err := readNow(ctx, tx)
		switch {
		case err != nil:
			return err
		case by != holder || until.Before(now):
			return tko.Errorf(tko.ErrConflict, "another server sends the messages of subscriptions now")
		case state.Doc == nil:
			m.remove("subscription", spanner.Key{state.Name})
		default:
			m.put("subscription", []string{"name", "doc"}, state.Name, state.Doc)
		}
		return nil
	})
}
