package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// comparePause is the time between two looks for the result of a comparison.
const comparePause = 100 * time.Millisecond

// A Comparer compares the desired state of sites with their actual state.
type Comparer struct {
	rights *rights.Authorizer // callers enter and commit through it
	store  record.Store
	wait   time.Duration // for a meta-scheduler

	entities *Entities
}

// CompareSite returns the differences between the desired state of a site and its actual
// state, without those of deployments that the caller may not read. A meta-scheduler
// makes the comparison, after the call began. ErrUnavailable if none does within the
// server's time limit. Concurrent calls share comparisons.
func (s *Comparer) CompareSite(ctx context.Context, id tko.SiteID) (tko.SiteComparison, error) {
	if _, err := s.entities.Site(ctx, id, 0); err != nil {
		return tko.SiteComparison{}, err
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Read)
	if err != nil {
		return tko.SiteComparison{}, err
	}
	deadline := time.Now().Add(s.wait)
	// A running comparison may have begun before a change that the caller made.
	earlier, err := s.comparing(ctx, id)
	if err != nil {
		return tko.SiteComparison{}, err
	}
	if earlier != "" {
		if err := s.compared(ctx, id, deadline, func() (bool, error) {
			now, err := s.comparing(ctx, id)
			return now != earlier, err
		}); err != nil {
			return tko.SiteComparison{}, err
		}
	}
	before, err := s.store.TargetState(ctx, id, tko.ComparisonState)
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		return tko.SiteComparison{}, err
	}
	if err := s.store.EnqueueWork(ctx, tko.QueueCompare, []string{string(id)}, false); err != nil {
		return tko.SiteComparison{}, err
	}
	var now tko.TargetState
	err = s.compared(ctx, id, deadline, func() (bool, error) {
		now, err = s.store.TargetState(ctx, id, tko.ComparisonState)
		if errors.Is(err, tko.ErrNotFound) {
			return false, nil
		}
		return now.Version != before.Version || !now.Updated.Equal(before.Updated), err
	})
	if err != nil {
		return tko.SiteComparison{}, err
	}
	var result tko.SiteComparison
	if err := json.Unmarshal(now.State, &result); err != nil {
		return tko.SiteComparison{}, fmt.Errorf("the comparison of site %q can't be read: %w", id, err)
	}
	err = s.hideChanges(ctx, c, &result)
	return result, err
}

// comparing returns the claim of a running comparison of a site; empty if there is none.
func (s *Comparer) comparing(ctx context.Context, id tko.SiteID) (claim string, err error) {
	claim, _, err = s.store.WorkClaim(ctx, tko.QueueCompare, string(id))
	if errors.Is(err, tko.ErrNotFound) {
		return "", nil
	}
	return claim, err
}

// compared waits until done returns true, or an error.
func (s *Comparer) compared(ctx context.Context, id tko.SiteID, deadline time.Time, done func() (bool, error)) error {
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			break
		}
		if err := pause.For(ctx, comparePause); err != nil {
			return err
		}
	}
	running, err := s.comparing(ctx, id)
	if err != nil {
		return err
	}
	if running != "" {
		return tko.Errorf(tko.ErrUnavailable, "site %q: a meta-scheduler is still comparing it after %s: the site responds slowly; try again", id, s.wait)
	}
	return tko.Errorf(tko.ErrUnavailable, "site %q: no meta-scheduler compared it within %s: check that one runs (tko-server --roles meta-scheduler), of this version or later, and its log", id, s.wait)
}

// hideChanges removes the changes and orphans of deployments that the caller may not
// read, and the texts that name such deployments. Orphans of no deployment are for callers
// that may read all.
func (s *Comparer) hideChanges(ctx context.Context, c *rights.Caller, comparison *tko.SiteComparison) error {
	if c.Grant.On(access.Read, tko.KindDeployment).IsAll() {
		return nil
	}
	v := visibility{entities: s.entities, known: map[tko.DeploymentID]bool{"": false}}
	comparison.Changes, comparison.More = v.changes(ctx, comparison.Changes, comparison.More)
	comparison.Orphans, comparison.MoreOrphans = v.changes(ctx, comparison.Orphans, comparison.MoreOrphans)
	comparison.Problems = v.texts(ctx, comparison.Problems)
	comparison.Unsearched = v.texts(ctx, comparison.Unsearched)
	return v.err
}

// maxNamed bounds the deployments that texts name and whose rights are checked.
const maxNamed = 1000

// namedDeployment matches what names a deployment in a text, and may match more.
var namedDeployment = regexp.MustCompile(`deployment "([^"]*)"|\b[0-9A-Za-z]{27}\b`)

// hiddenProblem replaces texts that name deployments that the caller may not read.
const hiddenProblem = "not everything was compared, for a reason that names deployments you may not read: ask a user who may read all deployments to compare the site"

// A visibility finds which deployments the caller may read.
type visibility struct {
	entities *Entities
	known    map[tko.DeploymentID]bool
	err      error // the first one
}

func (v *visibility) sees(ctx context.Context, id tko.DeploymentID) bool {
	seen, known := v.known[id]
	if !known && v.err == nil {
		_, err := v.entities.Deployment(ctx, id, 0)
		if err != nil && !errors.Is(err, tko.ErrNotFound) && !errors.Is(err, tko.ErrDenied) {
			v.err = err
		}
		seen = err == nil
		v.known[id] = seen
	}
	return seen
}

func (v *visibility) changes(ctx context.Context, all []tko.SiteChange, more int) (visible []tko.SiteChange, hidden int) {
	for _, change := range all {
		if v.sees(ctx, change.Deployment) {
			visible = append(visible, change)
		}
	}
	return visible, more + len(all) - len(visible)
}

// texts replaces the texts that name hidden deployments by one.
func (v *visibility) texts(ctx context.Context, all []string) (visible []string) {
	hidden := false
	for _, text := range all {
		if v.showsAll(ctx, text) {
			visible = append(visible, text)
		} else {
			hidden = true
		}
	}
	if hidden {
		visible = append(visible, hiddenProblem)
	}
	return visible
}

func (v *visibility) showsAll(ctx context.Context, text string) bool {
	for _, match := range namedDeployment.FindAllStringSubmatch(text, -1) {
		id := tko.DeploymentID(cmp.Or(match[1], match[0]))
		if len(v.known) > maxNamed || !v.sees(ctx, id) {
			return false
		}
	}
	return true
}
