package catalog

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/service"
)

// This file serves a transport that treats all kinds alike and writes whole
// records conditionally: the Kubernetes API.

// A RecordWriter reads, writes and deletes whole records of all kinds.
type RecordWriter struct {
	rights     *rights.Authorizer // callers enter and commit through it
	store      record.Store
	reader     record.Lookup
	gate       *gate.Gate
	references *references
	approvals  *approvals
	ids        *idSource

	registry    *Registry
	deployments *DeploymentWriter
	statuses    *Statuses
	approver    *Approver
	remover     *Remover
	rollouts    *service.Keeper
}

// Record returns the current record of a key. It returns ErrNotFound if there
// is none.
func (s *RecordWriter) Record(ctx context.Context, fields record.Fields, key record.Key) (record.Record, error) {
	if err := record.CheckKey(key); err != nil {
		return record.Record{}, err
	}
	ctx, c, err := s.rights.Enter(ctx, key.Kind, access.Read)
	if err != nil {
		return record.Record{}, err
	}
	fields.Scope = c.View()
	r, err := s.reader.One(ctx, fields, key)
	if err == nil && !c.Sees(r) {
		return record.Record{}, tko.NotFound(key.Kind, key.ID)
	}
	return r, err
}

// PutConditions replaces conditions, by type, as SetConditions does, removes
// those of the types without that have attached data, and returns the record.
func (s *RecordWriter) PutConditions(ctx context.Context, key record.Key, conditions []tko.Condition, without []string, require record.Requirement, dryRun bool) (record.Record, error) {
	if err := condition.Check(conditions); err != nil {
		return record.Record{}, err
	}
	ctx, _, err := s.rights.Enter(ctx, key.Kind, access.Condition)
	if err != nil {
		return record.Record{}, err
	}
	if !dryRun {
		if err := s.statuses.setConditions(ctx, key, conditions, without, require); err != nil {
			return record.Record{}, err
		}
	}
	r, err := s.Record(ctx, record.Fields{Package: true, Deployments: true}, key)
	if err != nil || !dryRun {
		return r, err
	}
	if err := require.Check(key, r); err != nil {
		return record.Record{}, err
	}
	r.Conditions = condition.Merge(condition.WithoutAttached(r.Conditions, without), conditions, r.Revision, time.Now())
	return r, nil
}

// PutApproval approves a deployment as ApproveDeployment does, and returns its
// record with the package.
func (s *RecordWriter) PutApproval(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, error) {
	require.Present = true
	ctx, _, err := s.rights.Enter(ctx, tko.KindDeployment, access.Approve)
	if err != nil {
		return record.Record{}, err
	}
	r, wrote, err := s.approver.approve(ctx, key, require, dryRun)
	if err != nil {
		return record.Record{}, err
	}
	if wrote {
		r = s.reread(ctx, r)
	}
	return r, nil
}

// RemoveRecord deletes a record and its descendants, and returns it as it was;
// with dryRun it only counts.
func (s *RecordWriter) RemoveRecord(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, tko.Deleted, error) {
	if key.Kind == tko.KindRollout {
		return s.rollouts.Remove(ctx, key, require, dryRun)
	}
	require.Present = true
	ctx, _, err := s.rights.Enter(ctx, key.Kind, rights.ChangeVerb(key.Kind, access.Delete))
	if err != nil {
		return record.Record{}, tko.Deleted{}, err
	}
	var r record.Record
	var done progress
	more := []record.Key{key}
	err = record.Retry(ctx, func() error {
		var err error
		if r, err = s.Record(ctx, record.Fields{Package: true}, key); err == nil {
			err = require.Check(key, r)
		}
		if err != nil {
			return record.Final(err)
		}
		if dryRun {
			return s.rights.PermitDeletion(ctx, rights.ChangeVerb(key.Kind, access.Delete), key)
		}
		if done.most, err = s.remover.allowDeletion(ctx, key); err != nil {
			return record.Final(err)
		}
		if require == (record.Requirement{Present: true}) {
			return nil
		}
		w := deletion(ctx, key)
		w.Position = r.Position
		more, err = s.remover.deleteStep(ctx, []record.Write{w}, &done)
		return err
	})
	if err != nil {
		return record.Record{}, tko.Deleted{}, err
	}
	if dryRun {
		deleted, err := s.remover.countBelow(ctx, key)
		if err != nil {
			return r, deleted, err
		}
		adds, err := s.remover.removals(ctx, key.Kind, deleted, []record.Key{key})
		return r, withOrphans(deleted, adds), err
	}
	deleted, err := s.remover.deleteRest(ctx, key, more, &done)
	return r, deleted, err
}

// RemoveRecords deletes records of one kind and their descendants, and returns
// their number; with dryRun it only counts. It skips records that don't exist.
// If one doesn't meet the requirement, that is an ErrConflict, and none is
// deleted.
func (s *RecordWriter) RemoveRecords(ctx context.Context, kind tko.Kind, ids []string, require record.Requirement, dryRun bool) (tko.Deleted, error) {
	if kind == tko.KindRollout {
		return s.rollouts.RemoveAll(ctx, ids, require, dryRun)
	}
	verb := rights.ChangeVerb(kind, access.Purge)
	ctx, c, err := s.rights.Enter(ctx, kind, verb, rights.ChangeVerb(kind, access.Delete))
	if err != nil {
		return tko.Deleted{}, err
	}
	if !c.Grant.Somewhere(verb, kind) { // the selection was shown to the caller, as a list
		verb = rights.ChangeVerb(kind, access.Delete)
	}
	var keys []record.Key
	chosen := frozen{seed: maphash.MakeSeed()}
	for batch := range slices.Chunk(ids, record.SelectedPage) {
		wanted := make([]record.Key, len(batch))
		for i, id := range batch {
			wanted[i] = record.Key{Kind: kind, ID: id}
		}
		records, err := s.store.Get(ctx, record.Fields{}, wanted...)
		if err != nil {
			return tko.Deleted{}, err
		}
		for _, r := range records {
			if !c.Sees(r) {
				continue
			}
			if err := require.Check(r.Key, r); err != nil {
				return tko.Deleted{}, err
			}
			keys = append(keys, r.Key)
			chosen.hashes = append(chosen.hashes, chosen.hash(r.ID))
		}
	}
	slices.Sort(chosen.hashes)
	if err := s.rights.PermitDeletion(ctx, verb, keys...); err != nil {
		return tko.Deleted{}, err
	}
	each := func(do func(keys []record.Key) error) error {
		for batch := range slices.Chunk(keys, record.SelectedPage) {
			if err := do(batch); err != nil {
				return err
			}
		}
		return nil
	}
	would, err := s.remover.count(ctx, kind, chosen, each)
	if err != nil {
		return would, err
	}
	return s.remover.purgeChosen(ctx, kind, would, each, dryRun)
}

// RemoveEntity deletes an entity and its descendants; with dryRun it only
// counts. An unknown entity is an ErrNotFound.
func (s *RecordWriter) RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error) {
	_, deleted, err := s.RemoveRecord(ctx, record.Key{Kind: kind, ID: id}, record.Requirement{}, dryRun)
	return deleted, err
}
