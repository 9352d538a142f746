package demo

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A Lister is the part of the client that lists entities.
type Lister interface {
	Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error]
	Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error]
}

// Progress counts the deployments in each state.
type Progress struct {
	Deployments int
	Prepared    int
	Approved    int
	Placed      int // deployments that have a site
	Scheduled   int // of these, the ones that are scheduled there
	Sites       []SiteProgress
	Parents     map[tko.DeploymentID]bool // IDs of the topologies
	Problems    []string                  // conditions that are not true, as text
}

// SiteProgress counts the deployments of a site in each state.
type SiteProgress struct {
	ID          tko.SiteID
	Metadata    map[string]string
	Deployments []tko.Deployment // prepared and approved
	Scheduled   int              // of these
	Waiting     int              // prepared, and waiting for approval
}

// Done returns whether no work is left.
func (p Progress) Done() bool {
	return p.Deployments > 0 && p.Prepared == p.Deployments && p.Scheduled == p.Placed && len(p.Problems) == 0
}

// String returns a summary in one line.
func (p Progress) String() string {
	line := fmt.Sprintf("%d deployments, %d prepared, %d of %d scheduled at their sites", p.Deployments, p.Prepared, p.Scheduled, p.Placed)
	if waiting := p.Prepared - p.Approved; waiting > 0 {
		line += fmt.Sprintf(", %d waiting for approval", waiting)
	}
	return line
}

// Observe lists all entities and counts them.
func Observe(ctx context.Context, from Lister) (Progress, error) {
	var p Progress
	sites := map[tko.SiteID]int{}
	for s, err := range from.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			return p, err
		}
		sites[s.ID] = len(p.Sites)
		p.Sites = append(p.Sites, SiteProgress{ID: s.ID, Metadata: s.Metadata})
		p.problem("site", string(s.ID), s.Stamp.Conditions)
	}
	p.Parents = map[tko.DeploymentID]bool{}
	for d, err := range from.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return p, err
		}
		p.Deployments++
		if d.Parent != "" {
			p.Parents[d.Parent] = true
		}
		if d.Prepared {
			p.Prepared++
		}
		if d.Approved {
			p.Approved++
		}
		p.problem("deployment", string(d.ID), d.Stamp.Conditions)
		i, ok := sites[d.Site]
		if !ok || !d.Prepared {
			continue
		}
		if !d.Approved {
			p.Sites[i].Waiting++
			continue
		}
		p.Placed++
		p.Sites[i].Deployments = append(p.Sites[i].Deployments, d)
		if tko.ConditionIs(d.Stamp.Conditions, tko.ConditionScheduled) == tko.ConditionTrue {
			p.Scheduled++
			p.Sites[i].Scheduled++
		}
	}
	return p, nil
}

func (p *Progress) problem(kind, id string, conditions []tko.Condition) {
	for _, c := range conditions {
		// A deployment may wait for an approval, and a resource stays unhandled
		// if its plugin was left out: Register reports that. Owners of sites usually hold nothing.
		expected := c.Type == tko.ConditionApproved || c.Type == tko.ConditionHandled || c.Type == tko.ConditionHeldByOwner
		if c.Status == tko.ConditionFalse && !expected {
			p.Problems = append(p.Problems, fmt.Sprintf("%s %s is not %s: %s: %s", kind, id, c.Type, c.Reason, c.Text()))
		}
	}
}

// Follow calls Observe at an interval until all work is done, and passes each change
// of progress to report. It returns the last progress, also with an error.
func Follow(ctx context.Context, from Lister, every time.Duration, report func(Progress)) (Progress, error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last Progress
	for {
		p, err := Observe(ctx, from)
		if ctx.Err() != nil {
			return last, context.Cause(ctx)
		}
		if err != nil {
			return last, err
		}
		if p.String() != last.String() || !slices.Equal(p.Problems, last.Problems) {
			report(p)
		}
		last = p
		if p.Done() {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
