package decide

import (
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Versions are those of what all writes share, as the database has them.
type Versions struct {
	Access   int64 // of the rules of access
	Rollouts int64 // of the states of rollouts
	Epoch    int64 // see [record.Reader]
}

// Check returns an error if the database, with the writes before this one, isn't as a write
// expects: see the fields of [record.Write], without Token, Claim and SingleStep. state returns
// a record, or nil if it doesn't exist; it knows the records that w names.
func Check(w *record.Write, state func(record.Key) *record.Record, v Versions) error {
	key := w.Record.Key
	current := state(key)
	switch {
	case current == nil && w.Expect > record.Absent, current == nil && w.Op == tko.OpStatus:
		return tko.NotFound(key.Kind, key.ID)
	case current != nil && w.Expect == record.Absent:
		return tko.Errorf(tko.ErrConflict, "%s %q exists already", key.Kind, key.ID)
	case current != nil && w.Expect > record.Absent && w.Expect != current.Revision:
		return tko.Errorf(tko.ErrConflict, "%s %q is at revision %d, not %d: read it again", key.Kind, key.ID, current.Revision, w.Expect)
	}
	if w.Position != 0 && (current == nil || current.Position != w.Position) {
		return tko.Errorf(tko.ErrConflict, "%s %q is no longer at position %d: read it again", key.Kind, key.ID, w.Position)
	}
	for _, required := range w.Requires {
		if r := state(required); r == nil || r.Deleting() {
			return &record.MissingError{Key: required, Deleting: r != nil}
		}
	}
	if err := checkVersions(w, v); err != nil {
		return err
	}
	for _, version := range w.ReadSet {
		if r := state(version.Key); r == nil || r.Position != version.Position {
			return &record.StaleError{What: fmt.Sprintf("%s %q", version.Key.Kind, version.Key.ID)}
		}
	}
	return checkParent(w, state)
}

// StaleAccess is the name of the rules of access in a [record.StaleError].
const StaleAccess = "the rules of access"

func checkVersions(w *record.Write, v Versions) error {
	switch {
	case w.Access != nil && *w.Access != v.Access:
		return &record.StaleError{What: StaleAccess}
	case w.Rollout != nil && w.Rollout.Expect != v.Rollouts:
		return &record.StaleError{What: "the set of rollouts in progress"}
	case w.Epoch != nil && *w.Epoch != v.Epoch:
		return &record.StaleError{What: "the set of plugins and custom resource definitions"}
	}
	return nil
}

func checkParent(w *record.Write, state func(record.Key) *record.Record) error {
	if w.ParentRevision == 0 {
		return nil
	}
	key, id := w.Record.Key, w.Record.Parent
	parent := state(record.Key{Kind: key.Kind, ID: id})
	switch {
	case parent == nil:
		return tko.Errorf(tko.ErrConflict, "parent %q of %s %q was deleted: read it again", id, key.Kind, key.ID)
	case parent.Deleting():
		return tko.Errorf(tko.ErrConflict, "parent %q of %s %q is being deleted: read it again", id, key.Kind, key.ID)
	case parent.Revision != w.ParentRevision:
		return tko.Errorf(tko.ErrConflict, "parent %q of %s %q is at revision %d, not %d: read it again", id, key.Kind, key.ID, parent.Revision, w.ParentRevision)
	}
	return nil
}

// MovesEpoch reports whether a change moves the epoch: packages are validated against plugins and
// custom resource definitions.
func MovesEpoch(op tko.Op, before, after *record.Record) bool {
	return op != tko.OpStatus && (after.Kind == tko.KindPlugin || before.CRDs || after.CRDs)
}
