package spanner

import (
	"context"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// The roles of records that others refer to.
const (
	asTemplate = "template"
	asSite     = "site"
	asParent   = "parent"
)

var roles = []string{asParent, asSite, asTemplate}

// target returns the ID to which a record refers in a role; "" if it doesn't.
func target(r *record.Record, role string) string {
	switch {
	case r == nil:
		return ""
	case role == asTemplate:
		return r.Template
	case role == asSite:
		return r.Site
	}
	return r.Parent
}

// referenceColumns are those of the table reference, whose rows have the shard of the record that refers: those of one
// target spread, and are in the same place as their records.
var referenceColumns = []string{"shard", "role", "target", "kind", "id"}

// putReferences puts what differs between the references of two states of a record. Either may be nil.
func putReferences(m *mutations, before, after *record.Record) {
	r := after
	if r == nil {
		r = before
	}
	for _, role := range roles {
		was, is := target(before, role), target(after, role)
		if was == is {
			continue
		}
		if was != "" {
			m.remove("reference", spanner.Key{shardOf(r.ID), role, was, string(r.Kind), r.ID})
		}
		if is != "" {
			m.put("reference", referenceColumns, shardOf(r.ID), role, is, string(r.Kind), r.ID)
		}
	}
}

// manyRanges is the number of targets whose references are read together: each takes a range of each shard.
const manyRanges = 16

// readReferrers calls found with the keys of records that refer to targets in a role, in no order, until found returns
// false.
func readReferrers(ctx context.Context, from reader, role string, targets []string, found func(target string, key record.Key) bool) error {
	for part := range slices.Chunk(targets, manyRanges) {
		ranges := make([]spanner.KeySet, 0, len(part)*shards)
		for _, t := range part {
			if !record.Storable(t) {
				continue
			}
			for shard := range int64(shards) {
				ranges = append(ranges, spanner.Key{shard, role, t}.AsPrefix())
			}
		}
		if len(ranges) == 0 {
			continue
		}
		enough := false
		err := from.Read(ctx, "reference", spanner.KeySets(ranges...), []string{"target", "kind", "id"}).Do(func(row *spanner.Row) error {
			var of, kind, id string
			if err := row.Columns(&of, &kind, &id); err != nil {
				return err
			}
			enough = !found(of, record.Key{Kind: tko.Kind(kind), ID: id})
			if enough {
				return errEnough
			}
			return nil
		})
		if enough {
			return nil
		}
		if err != nil {
			return fault("read references", err)
		}
	}
	return ctx.Err()
}

// addDeployments reads the deployments of templates and sites within a scope, or only their numbers.
func addDeployments(ctx context.Context, from reader, scope access.Predicate, fields record.Fields, records []record.Record) error {
	if !fields.Deployments && !fields.Counts || scope.Empty() {
		return nil
	}
	for role, kind := range map[string]tko.Kind{asTemplate: tko.KindTemplate, asSite: tko.KindSite} {
		var targets []string
		for i := range records {
			if records[i].Kind == kind && records[i].Revision != 0 {
				targets = append(targets, records[i].ID)
			}
		}
		slices.Sort(targets)
		of := map[string][]record.Key{}
		err := readReferrers(ctx, from, role, slices.Compact(targets), func(target string, key record.Key) bool {
			if key.Kind == tko.KindDeployment {
				of[target] = append(of[target], key)
			}
			return true
		})
		if err == nil && !scope.IsAll() {
			err = keepWithin(ctx, from, scope, of)
		}
		if err != nil {
			return err
		}
		for i := range records {
			r := &records[i]
			if r.Kind != kind || len(of[r.ID]) == 0 {
				continue
			}
			if fields.Counts {
				r.Count = len(of[r.ID])
			}
			if fields.Deployments {
				for _, key := range of[r.ID] {
					r.Deployments = append(r.Deployments, key.ID)
				}
				slices.Sort(r.Deployments)
			}
		}
	}
	return nil
}

// keepWithin removes the keys of records that aren't in a scope.
func keepWithin(ctx context.Context, from reader, scope access.Predicate, of map[string][]record.Key) error {
	for target, keys := range of {
		found, err := readRecords(ctx, from, keys)
		if err != nil {
			return err
		}
		of[target] = slices.DeleteFunc(keys, func(key record.Key) bool {
			r := found[key]
			return r == nil || !scope.Match(record.AttributesOf(*r))
		})
	}
	return nil
}

// Descendants visits the descendants of deployments, from one snapshot, level by level.
func (s *Store) Descendants(ctx context.Context, ids []string, visit func(id string)) error {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if err := decide.CheckTexts("ID", id); err != nil {
			return err
		}
		seen[id] = true
	}
	for level := ids; len(level) > 0; {
		var next []string
		err := readReferrers(ctx, snapshot, asParent, level, func(_ string, key record.Key) bool {
			if !seen[key.ID] {
				seen[key.ID] = true
				next = append(next, key.ID)
			}
			return true
		})
		if err != nil {
			return err
		}
		for _, id := range next {
			visit(id)
		}
		level = next
	}
	return ctx.Err()
}
