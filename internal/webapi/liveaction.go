package webapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// Limits of an action.
const (
	maxAction = 256 << 10 // bytes of the request
	maxIDs    = 500
	maxReason = 500 // bytes
)

// An actionBody is a request to change entities, by their IDs or by a filter.
type actionBody struct {
	Verb    string   `json:"verb"` // approve or delete
	Kind    tko.Kind `json:"kind"`
	IDs     []string `json:"ids"`
	Filter  string   `json:"filter"` // the filters of a list, as in its address
	Reason  string   `json:"reason"`
	DryRun  bool     `json:"dryRun"`
	Confirm int      `json:"confirm"` // the count of the dry run, descendants included
}

type resultBody struct {
	Count       int      `json:"count"` // all, descendants and those that lose their template or site included
	Descendants int      `json:"descendants"`
	Orphaned    int      `json:"orphaned"` // those that lose their template or site, and stay
	Position    Position `json:"position"`
}

// act carries out an action, or counts what it would change. Without the count
// of a dry run, and if the count has changed, it is refused.
func (l *live) act(r *http.Request) (*resultBody, error) {
	result, err := l.action(r)
	if err != nil {
		return nil, err
	}
	about, err := l.catalog.About(r.Context())
	if err != nil {
		return nil, err
	}
	return &resultBody{Count: result.Reach(), Descendants: result.Descendants, Orphaned: result.Orphaned, Position: Position(about.Position)}, nil
}

func (l *live) action(r *http.Request) (tko.Deleted, error) {
	var a actionBody
	if err := readJSON(r, &a); err != nil {
		return tko.Deleted{}, err
	}
	f, err := a.check()
	if err != nil {
		return tko.Deleted{}, err
	}
	ctx := tko.WithConfirmation(withReason(r.Context(), a.Reason), a.Confirm)
	if a.Verb == "approve" {
		return l.approve(ctx, a, f)
	}
	if len(a.IDs) > 0 {
		return l.catalog.Remove(ctx, a.Kind, a.IDs, a.DryRun)
	}
	switch a.Kind {
	case tko.KindDeployment:
		return l.catalog.PurgeDeployments(ctx, f.Deployments(), a.DryRun)
	case tko.KindSite:
		return l.catalog.PurgeSites(ctx, f.Sites(), a.DryRun)
	case tko.KindTemplate:
		return l.catalog.PurgeTemplates(ctx, f.Templates(), a.DryRun)
	case tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription:
	}
	return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "%ss are deleted by their IDs only: name them in ids", a.Kind)
}

// withReason returns a context whose changes have a reason.
func withReason(ctx context.Context, reason string) context.Context {
	if reason == "" {
		return ctx
	}
	author := tko.AuthorOf(ctx)
	author.Why = reason
	return tko.WithAuthor(ctx, author)
}

// check returns the filter of an action.
func (a actionBody) check() (f filter.Filter, err error) {
	switch {
	case a.Verb != "approve" && a.Verb != "delete":
		return f, tko.Errorf(tko.ErrInvalid, "the verb %.40q is unknown: use approve or delete", a.Verb)
	case filter.Words(a.Kind) == nil:
		return f, tko.Errorf(tko.ErrInvalid, "the kind %.40q is unknown: use deployment, site, template, plugin or rollout", string(a.Kind))
	case a.Verb == "approve" && a.Kind != tko.KindDeployment:
		return f, tko.Errorf(tko.ErrInvalid, "a %s can't be approved: only deployments can", a.Kind)
	case (len(a.IDs) > 0) == (a.Filter != ""):
		return f, tko.Errorf(tko.ErrInvalid, "give either ids or a filter: an action without both would affect everything")
	case len(a.IDs) > maxIDs:
		return f, tko.Errorf(tko.ErrInvalid, "there are %d ids: use at most %d, or a filter", len(a.IDs), maxIDs)
	case len(a.Reason) > maxReason:
		return f, tko.Errorf(tko.ErrInvalid, "the reason has %d bytes: use at most %d", len(a.Reason), maxReason)
	case !a.DryRun && a.Confirm < 1:
		return f, tko.Errorf(tko.ErrInvalid, "there is no confirmed count: send the action with dryRun first, and then with its count as confirm")
	case a.Filter == "":
		return f, nil
	}
	query, err := url.ParseQuery(a.Filter)
	if err != nil {
		return f, tko.Errorf(tko.ErrInvalid, "the filter %.80q is no query of an address: %v", a.Filter, err)
	}
	if f, err = filter.Parse(a.Kind, query); err == nil && f.IsEmpty() {
		err = tko.Errorf(tko.ErrInvalid, "the filter %.80q selects everything: add a filter", a.Filter)
	}
	return f, err
}

func (l *live) approve(ctx context.Context, a actionBody, f filter.Filter) (tko.Deleted, error) {
	if len(a.IDs) == 0 {
		n, err := l.catalog.ApproveDeployments(ctx, f.Deployments(), a.DryRun)
		return tko.Deleted{Count: n}, err
	}
	var open []tko.DeploymentID
	for _, id := range a.IDs {
		d, err := l.catalog.Deployment(ctx, tko.DeploymentID(id), 0)
		if errors.Is(err, tko.ErrNotFound) {
			continue
		}
		if err != nil {
			return tko.Deleted{}, err
		}
		if d.Prepared && !d.Approved {
			open = append(open, d.ID)
		}
	}
	if a.DryRun {
		return tko.Deleted{Count: len(open)}, nil
	}
	if len(open) != a.Confirm {
		return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "this would approve %d deployments, but %d were confirmed: nothing was changed; look at them again", len(open), a.Confirm)
	}
	approved := 0
	for _, id := range open {
		n, err := l.catalog.ApproveDeployment(ctx, id)
		if err != nil {
			if approved > 0 {
				err = fmt.Errorf("%d of %d deployments were approved before this error: %w", approved, len(open), err)
			}
			return tko.Deleted{Count: approved}, err
		}
		approved += n
	}
	return tko.Deleted{Count: approved}, nil
}
