package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// A Rereader is an Inventory of which entities may be removed. One that isn't adds
// and changes entities only: see confirm.
type Rereader interface {
	// Reread is Revision, but reads all records anew, whatever earlier readings saw.
	Reread(ctx context.Context) (string, error)
}

// A Saver is an Inventory that has users set values, and says for how long those of
// a removed entity are saved.
type Saver interface {
	Grace() time.Duration
}

const (
	// readings is how often an inventory is read until two readings agree on what is missing.
	readings = 4
	// rereadWait is the time until an inventory that changes all the time is read again.
	rereadWait = 30 * time.Second
)

// errUnsteady is the error if readings of an inventory don't agree on what is missing.
var errUnsteady = errors.New("readings of the inventory don't agree")

// confirm returns a revision of an inventory from which entities may be removed: each one
// that is missing was missing in the reading before it, too. A list that is read in pages
// may miss a record that exists all the time, if others come and go meanwhile; and a
// server may restart in the middle of a list. absent is the key of the absences that were
// confirmed last; it saves the second reading.
func confirm(ctx context.Context, inv Inventory, items []tko.SourceItem, revision, absent string, r reading) (string, string, reading, error) {
	missing := missingIn(items, r.manifests)
	if len(missing) == 0 || absent == absence(revision, missing) {
		return revision, absent, r, nil
	}
	again, ok := inv.(Rereader)
	if !ok {
		return "", "", r, tko.Errorf(tko.ErrInvalid, "%d entities are missing, and this kind of inventory can't confirm that: set prune: false", len(missing))
	}
	for range readings - 1 {
		next, err := again.Reread(ctx)
		if err != nil {
			return "", "", r, err
		}
		if r.manifests, r.notes, err = inv.Manifests(next); err != nil {
			return "", "", r, err
		}
		still := missingIn(items, r.manifests)
		agree := !slices.ContainsFunc(still, func(k string) bool { return !slices.Contains(missing, k) })
		missing = still
		if agree {
			return next, absence(next, missing), r, nil
		}
	}
	return "", "", r, &AgainError{After: rereadWait, Err: fmt.Errorf("%w: %d times in succession it was read without other entities, last without %s; nothing is removed until two readings agree",
		errUnsteady, readings, List(missing, ", ", maxMessage/8))}
}

// missingIn returns the entities of an inventory of which there is no manifest, in their
// order.
func missingIn(items []tko.SourceItem, manifests []manifest.Manifest) (missing []string) {
	there := make(map[string]bool, len(manifests))
	for _, m := range manifests {
		there[string(m.Put.Kind)+" "+m.Name] = true
	}
	for _, item := range items {
		if name := item.Kind + " " + item.Name; !there[name] && slices.Contains(manifest.Order, tko.Kind(item.Kind)) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// absence identifies what is missing in a revision.
func absence(revision string, missing []string) string {
	return revision + " " + prune.Key(missing)
}

// confirmAbsence is confirm for a reconciliation.
func (l *reconciliation) confirmAbsence(ctx context.Context, revision string, r reading) (string, reading, error) {
	if l.spec.Inventory == nil || l.spec.AddOnly || !l.spec.Prune {
		return revision, r, nil
	}
	revision, absent, r, err := confirm(ctx, l.spec.Inventory, l.status.Items, revision, l.source.absent, r)
	if err == nil {
		l.source.absent = absent
	}
	return revision, r, err
}

// A savedSite holds the values that users set at a site that an inventory removed.
type savedSite struct {
	Name    string    `json:"name"`
	Removed time.Time `json:"removed"`
	plan.UserValues
}

// maxSaved is how many removed sites with values of users a source saves. The oldest are
// dropped first.
const maxSaved = 1000

// saveValues saves the values of users at sites that are about to be removed, and drops
// those whose time is over.
func (s *savedState) saveValues(removed map[string]plan.UserValues, grace time.Duration, now time.Time) {
	s.Removed = slices.DeleteFunc(slices.Clone(s.Removed), func(r savedSite) bool {
		_, again := removed[r.Name]
		return again || now.Sub(r.Removed) >= grace
	})
	for name, values := range removed {
		if len(values.Values) > 0 && grace > 0 {
			s.Removed = append(s.Removed, savedSite{name, now.UTC().Truncate(time.Second), values})
		}
	}
	slices.SortFunc(s.Removed, func(a, b savedSite) int {
		if c := a.Removed.Compare(b.Removed); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	s.Removed = s.Removed[max(0, len(s.Removed)-maxSaved):]
}

// savedValues returns the values of users at sites that were removed within the grace
// time.
func (s *savedState) savedValues(grace time.Duration, now time.Time) map[string]plan.UserValues {
	saved := map[string]plan.UserValues{}
	for _, r := range s.Removed {
		if now.Sub(r.Removed) < grace {
			saved[r.Name] = r.UserValues
		}
	}
	return saved
}

func graceOf(inv Inventory) time.Duration {
	if s, ok := inv.(Saver); ok {
		return s.Grace()
	}
	return 0
}
