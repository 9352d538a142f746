package spanner

import (
	"context"
	"errors"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// accessState is the row of the table state with the version of the rules of access: each commit under these rules reads it, and few write it.
const accessState = "access"

// readState returns the value of a row of the table state; 0 if there is none.
func readState(ctx context.Context, from reader, name string) (value int64, err error) {
	row, err := from.ReadRow(ctx, "state", spanner.Key{name}, []string{"value"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return 0, nil
	}
	if err == nil {
		err = row.Column(0, &value)
	}
	return value, fault("read the state "+name, err)
}

func readAccessVersion(ctx context.Context, from reader) (int64, error) {
	return readState(ctx, from, accessState)
}

// AccessVersion returns the version of the rules of access.
func (s *Store) AccessVersion(ctx context.Context) (int64, error) {
	return readAccessVersion(ctx, s.client.Single())
}

// Access returns the rules of access.
func (s *Store) Access(ctx context.Context) (version int64, rules []record.AccessRule, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	if version, err = readAccessVersion(ctx, snapshot); err != nil {
		return 0, nil, err
	}
	err = snapshot.Read(ctx, "access_rule", spanner.AllKeys(), []string{"kind", "id", "doc"}).Do(func(row *spanner.Row) error {
		var r record.AccessRule
		var doc string
		err := row.Columns(&r.Kind, &r.ID, &doc)
		r.Doc = []byte(doc)
		rules = append(rules, r)
		return err
	})
	return version, rules, fault("read the rules of access", err)
}

// ChangeAccess writes and removes rules of access.
func (s *Store) ChangeAccess(ctx context.Context, expect int64, put, remove []record.AccessRule, records ...audit.Record) (version int64, err error) {
	for _, r := range slices.Concat(put, remove) {
		if err := decide.CheckTexts("kind", r.Kind, "ID", r.ID, "rule", string(r.Doc)); err != nil {
			return 0, err
		}
	}
	err = s.writeOnce(ctx, "change the rules of access", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		now, err := readAccessVersion(ctx, tx)
		if err != nil {
			return err
		}
		if now != expect {
			return &record.StaleError{What: decide.StaleAccess}
		}
		version = now + 1
		m.put("state", []string{"name", "value"}, accessState, version)
		for _, r := range remove {
			m.remove("access_rule", spanner.Key{r.Kind, r.ID})
		}
		for _, r := range put {
			m.put("access_rule", []string{"kind", "id", "doc"}, r.Kind, r.ID, string(r.Doc))
		}
		putNews(m)
		return putAudits(m, records)
	})
	if err != nil {
		return 0, err
	}
	s.wake(map[string]bool{})
	return version, nil
}
