package service

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// knownRollouts holds the rows of the rollouts that were advanced last, so that only what
// has changed is read again. It is an optimization only: a service without it, or another
// one, decides the same.
type knownRollouts struct {
	mutex sync.Mutex
	used  []*knownRows // the most recently used one last
}

// maxKnownRows limits the rows in memory, of all rollouts; about 1 KB each. The rollout
// that was used last may have more.
const maxKnownRows = 100_000

// knownRows are the rows of a rollout as of a version.
type knownRows struct {
	id    string
	count int         // of rows, with the mutex of knownRollouts
	lock  pause.Mutex // held while the rollout is advanced

	at    record.RowsAt
	rows  []record.RolloutRow
	index map[tko.DeploymentID]int // in rows
	apply []execute.Row            // those that the rollout applies, without metadata
	of    []int                    // the index in rows of each of them
	place []int                    // the index in apply of each of rows; -1: none

	atSite map[tko.SiteID][]int // the indexes in apply of the rows at each site
}

// of returns the known rows of a rollout, which may be none.
func (k *knownRollouts) of(id string) *knownRows {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	one := &knownRows{id: id}
	if i := slices.IndexFunc(k.used, func(one *knownRows) bool { return one.id == id }); i >= 0 {
		one = k.used[i]
		k.used = slices.Delete(k.used, i, i+1)
	}
	k.used = append(k.used, one)
	return one
}

// trim forgets the rows that were used least recently, beyond the limit, and those that
// nothing needs any more.
func (k *knownRollouts) trim(last *knownRows, needed bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	last.count = len(last.rows)
	total := 0
	for i, one := range slices.Backward(k.used) {
		if one == last && !needed || one != last && total+one.count > maxKnownRows {
			k.used = slices.Delete(k.used, i, i+1)
			continue
		}
		total += one.count
	}
}

// update takes the rows of a view over, and makes a view of changes one of all rows. They
// share memory: the caller uses the view only while it holds the lock. It returns false if
// the changes don't fit the known rows.
func (k *knownRows) update(v *record.RolloutView) bool {
	if !v.Changes {
		k.rows = v.Rows
		k.index = make(map[tko.DeploymentID]int, len(k.rows))
		k.place, k.apply, k.of, k.atSite = make([]int, len(k.rows)), nil, nil, map[tko.SiteID][]int{}
		for i := range k.rows {
			r := &k.rows[i]
			k.index[r.Deployment], k.place[i] = i, -1
			if r.Kind.Applies() {
				k.place[i] = len(k.apply)
				k.atSite[tko.SiteID(r.Site)] = append(k.atSite[tko.SiteID(r.Site)], len(k.apply))
				k.apply, k.of = append(k.apply, executionRow(r)), append(k.of, i)
			}
		}
	} else {
		for _, r := range v.Rows {
			i, ok := k.index[r.Deployment]
			if !ok || k.rows[i].Kind != r.Kind || k.rows[i].Site != r.Site {
				k.at = record.RowsAt{}
				return false
			}
			k.rows[i] = r
			if n := k.place[i]; n >= 0 {
				k.apply[n] = executionRow(&r)
			}
		}
	}
	k.at = record.RowsAt{Set: v.State.Rows, Version: v.Version}
	v.Rows, v.Changes, v.Execution, v.Of = k.rows, false, k.apply, k.of
	v.AtSite = k.atSite
	return true
}

// viewKnown is viewRollout for a caller who holds the lock of the known rows.
func (s *RolloutRunner) viewKnown(ctx context.Context, id tko.RolloutID, known *knownRows, verbs ...access.Verb) (record.Record, record.RolloutView, error) {
	r, v, err := s.viewSince(ctx, id, known.at, verbs...)
	if err == nil && v.Found && !known.update(&v) {
		if r, v, err = s.viewSince(ctx, id, record.RowsAt{}, verbs...); err == nil && !known.update(&v) {
			err = errors.New("the rows of the rollout are inconsistent")
		}
	}
	return r, v, err
}

// executionRow returns the row as package execute has it, without metadata of its site.
func executionRow(r *record.RolloutRow) execute.Row {
	return execute.Row{
		Deployment: r.Deployment, Parent: tko.DeploymentID(r.Parent), Site: tko.SiteID(r.Site), Kind: r.Kind, Wave: r.Wave, Rank: r.Rank,
		Progress: r.Progress, Since: r.Since, Evaluated: r.Evaluated, Credit: r.Credit, Counted: r.Counted, Broken: r.Broken, Reason: r.Reason,
		Stands: r.Stands, Images: r.Images, Stage: r.Stage,
	}
}
