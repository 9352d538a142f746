package spanner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// checkState refuses a state that doesn't fit into a value.
func checkState(what string, state []byte) error {
	if len(state) > chunkBytes {
		return tko.Errorf(tko.ErrInvalid, "%s has %d bytes, and the limit is %d: make it smaller", what, len(state), chunkBytes)
	}
	return nil
}

// holds returns an error unless a claim is valid. The transaction locks it.
func holds(ctx context.Context, tx *spanner.ReadWriteTransaction, claim tko.WorkItem) error {
	key := itemKey{claim.Queue, claim.Key}
	found, err := readItems(ctx, tx, []itemKey{key})
	if err == nil && (found[key] == nil || found[key].claim != claim.Claim) {
		err = decide.ClaimLost(claim)
	}
	return err
}

func errNoSource(name string) error { return tko.Errorf(tko.ErrNotFound, "source %q: not found", name) }

var sourceColumns = []string{"name", "version", "updated", "status", "approved"}

func scanSource(row *spanner.Row, s *tko.Source, more ...any) error {
	var status []byte
	if err := row.Columns(append([]any{&s.Name, &s.Version, &s.Updated, &status, &s.Approved}, more...)...); err != nil {
		return err
	}
	s.Updated = s.Updated.UTC()
	if err := json.Unmarshal(status, &s.Status); err != nil {
		return fmt.Errorf("the status of source %q: %w", s.Name, err)
	}
	return nil
}

// addWork sets Enqueued and Due of sources. A reconciliation has ended when the item waits, unclaimed, and was not enqueued since it
// was claimed. A missing item was finished by a worker that doesn't have the source.
func addWork(ctx context.Context, from reader, sources []tko.Source) error {
	keys := make([]itemKey, len(sources))
	for n := range sources {
		keys[n] = itemKey{tko.QueueGitOps, sources[n].Name}
	}
	found, err := readItems(ctx, from, keys)
	if err != nil || len(sources) == 0 {
		return err
	}
	v, err := readQueue(ctx, from, tko.QueueGitOps)
	if err != nil {
		return err
	}
	for n := range sources {
		s, i := &sources[n], found[keys[n]]
		s.Enqueued = true
		if i == nil {
			continue
		}
		due := i.dueAt(v.woken)
		s.Enqueued = i.claim != "" || i.generation != i.seen || !due.After(v.now)
		if !due.After(v.now) {
			s.Due = due.UTC()
		}
	}
	return nil
}

// Source returns the GitOps source with a name.
func (s *Store) Source(ctx context.Context, name string) (source tko.Source, err error) {
	if decide.CheckTexts("name", name) != nil {
		return source, errNoSource(name)
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	row, err := snapshot.ReadRow(ctx, "source", spanner.Key{name}, append(slices.Clip(sourceColumns), "state"))
	if errors.Is(err, spanner.ErrRowNotFound) {
		return source, errNoSource(name)
	}
	if err == nil {
		err = scanSource(row, &source, &source.State)
	}
	if err != nil {
		return source, fault("read a source", err)
	}
	list := []tko.Source{source}
	err = addWork(ctx, snapshot, list)
	return list[0], err
}

// Sources returns all GitOps sources, sorted by name, without their State.
func (s *Store) Sources(ctx context.Context) (sources []tko.Source, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	err = snapshot.Read(ctx, "source", spanner.AllKeys(), sourceColumns).Do(func(row *spanner.Row) error {
		var source tko.Source
		err := scanSource(row, &source)
		sources = append(sources, source)
		return err
	})
	if err == nil {
		err = addWork(ctx, snapshot, sources)
	}
	return sources, fault("list sources", err)
}

// readVersion returns the version of a row; 0 if there is none.
func readVersion(ctx context.Context, from reader, table string, key spanner.Key) (version int64, err error) {
	row, err := from.ReadRow(ctx, table, key, []string{"version"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return 0, nil
	}
	if err == nil {
		err = row.Column(0, &version)
	}
	return version, fault("read a version", err)
}

// SaveSource writes a GitOps source and returns its new version.
func (s *Store) SaveSource(ctx context.Context, source tko.Source, claim tko.WorkItem) (version int64, err error) {
	if err := decide.CheckTexts("name", source.Name); err != nil {
		return 0, err
	}
	if err := decide.CheckItem(claim); err != nil {
		return 0, err
	}
	if err := checkState(fmt.Sprintf("the state of source %q", source.Name), source.State); err != nil {
		return 0, err
	}
	status, err := json.Marshal(source.Status)
	if err != nil {
		return 0, tko.Errorf(tko.ErrInvalid, "the status of source %q can't be encoded: %w", source.Name, err)
	}
	err = s.write(ctx, "save a source", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		if err := holds(ctx, tx, claim); err != nil {
			return err
		}
		before, err := readVersion(ctx, tx, "source", spanner.Key{source.Name})
		version = before + 1
		columns, values := []string{"name", "version", "updated", "status", "state"}, []any{source.Name, version, spanner.CommitTimestamp, status, append([]byte{}, source.State...)}
		if before == 0 {
			m.insert("source", append(columns, "approved"), append(values, "")...)
		} else {
			m.update("source", columns, values...)
		}
		return err
	})
	return version, err
}

// ApproveSource sets the digest of the plan that a user approved.
func (s *Store) ApproveSource(ctx context.Context, name, digest string) error {
	if err := decide.CheckTexts("name", name, "digest", digest); err != nil {
		return err
	}
	return s.write(ctx, "approve a source", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		version, err := readVersion(ctx, tx, "source", spanner.Key{name})
		if err == nil && version == 0 {
			err = errNoSource(name)
		}
		m.update("source", []string{"name", "approved"}, name, digest)
		return err
	})
}

// ForgetSource removes a GitOps source.
func (s *Store) ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error {
	if err := decide.CheckTexts("name", name); err != nil {
		return err
	}
	if err := decide.CheckItem(claim); err != nil {
		return err
	}
	return s.write(ctx, "forget a source", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		m.remove("source", spanner.Key{name})
		return holds(ctx, tx, claim)
	})
}

func errNoTargetState(site tko.SiteID, name string) error {
	return tko.Errorf(tko.ErrNotFound, "state of target %q of site %q: not found", name, site)
}

// TargetState returns the state that a target saved for a site.
func (s *Store) TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	state := tko.TargetState{Site: site, Name: name}
	if decide.CheckTexts("site", string(site), "name", name) != nil {
		return tko.TargetState{}, errNoTargetState(site, name)
	}
	row, err := s.client.Single().ReadRow(ctx, "target_state", targetKey(site, name), []string{"version", "updated", "state"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return tko.TargetState{}, errNoTargetState(site, name)
	}
	if err == nil {
		err = row.Columns(&state.Version, &state.Updated, &state.State)
	}
	if err != nil {
		return tko.TargetState{}, fault("read the state of a target", err)
	}
	state.Updated = state.Updated.UTC()
	return state, nil
}

func targetKey(site tko.SiteID, name string) spanner.Key {
	return spanner.Key{shardOf(string(site)), string(site), name}
}

// comparisonAge is how long comparisons of sites are retained.
const comparisonAge = time.Hour

// SaveTargetState writes the state of a target. A comparison of a site removes older ones, of the same shard.
func (s *Store) SaveTargetState(ctx context.Context, state tko.TargetState, claim tko.WorkItem) (version int64, err error) {
	if err := decide.CheckTexts("site", string(state.Site), "name", state.Name); err != nil {
		return 0, err
	}
	if err := decide.CheckItem(claim); err != nil {
		return 0, err
	}
	if err := checkState(fmt.Sprintf("the state of target %q of site %q", state.Name, state.Site), state.State); err != nil {
		return 0, err
	}
	key := targetKey(state.Site, state.Name)
	err = s.write(ctx, "save the state of a target", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		if err := holds(ctx, tx, claim); err != nil {
			return err
		}
		before, err := readVersion(ctx, tx, "target_state", key)
		if err == nil && claim.Queue == tko.QueueCompare {
			err = removeComparisons(ctx, tx, m, state.Site)
		}
		version = before + 1
		m.put("target_state", []string{"shard", "site", "name", "version", "updated", "state"}, key[0], key[1], key[2], version, spanner.CommitTimestamp, append([]byte{}, state.State...))
		return err
	})
	return version, err
}

// removeComparisons removes old comparisons of the sites that have the shard of one.
func removeComparisons(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations, site tko.SiteID) error {
	now, err := readNow(ctx, tx)
	if err != nil {
		return err
	}
	statement := spanner.Statement{
		SQL:    "SELECT site FROM target_state WHERE shard = @shard AND name = @name AND updated < @old",
		Params: map[string]any{"shard": shardOf(string(site)), "name": tko.ComparisonState, "old": now.Add(-comparisonAge)},
	}
	return fault("read comparisons", tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var of string
		err := row.Column(0, &of)
		m.remove("target_state", targetKey(tko.SiteID(of), tko.ComparisonState))
		return err
	}))
}
