package record

import (
	"fmt"

	"github.com/tko-orchestrator/tko"
)

// A Requirement is a precondition of a Put or of a deletion. If it isn't met,
// the result is an ErrConflict, an ErrNotFound if the record is missing, or an
// [ExistsError].
type Requirement struct {
	Absent   bool   // the record doesn't exist
	Present  bool   // the record exists
	UID      string // the record has this UID; "": any
	Position int64  // the record, with its conditions, hasn't changed since; 0: any
	Revision int64  // the record is at this revision; 0: any
}

// An ExistsError reports that a record exists that must not.
type ExistsError struct {
	Key  Key
	Name string // the name that is taken, if it isn't the ID
}

func (e *ExistsError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("%s %q exists already: its ID is %q", e.Key.Kind, e.Name, e.Key.ID)
	}
	return fmt.Sprintf("%s %q exists already", e.Key.Kind, e.Key.ID)
}

// Is reports true for ErrConflict.
func (e *ExistsError) Is(target error) bool { return target == tko.ErrConflict }

// Check returns why a record, whose revision is 0 if there is none, doesn't meet the requirement.
func (q Requirement) Check(key Key, r Record) error {
	switch {
	case r.Revision != 0 && q.Absent:
		return &ExistsError{Key: key}
	case r.Revision == 0 && (q.Present || q.UID != "" || q.Position != 0 || q.Revision != 0):
		return tko.NotFound(key.Kind, key.ID)
	case q.UID != "" && q.UID != r.UID:
		return tko.Errorf(tko.ErrConflict, "%s %q has the UID %s, not %s: it is another one, read it again", key.Kind, key.ID, r.UID, q.UID)
	case q.Position != 0 && q.Position != r.Position:
		return tko.Errorf(tko.ErrConflict, "%s %q was changed at %d, after %d: read it again", key.Kind, key.ID, r.Position, q.Position)
	case q.Revision != 0 && q.Revision != r.Revision:
		return tko.Errorf(tko.ErrConflict, "%s %q is at revision %d, not at %d: another client has changed it, read it again", key.Kind, key.ID, r.Revision, q.Revision)
	}
	return nil
}
