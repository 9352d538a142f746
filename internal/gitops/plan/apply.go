package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
)

// Apply applies the plan until an action fails: the error names the entity. What a user has
// stopped doesn't keep the others from being applied; the error is an ErrStopped then. It
// calls save with the inventory before it creates entities, so that none is lost
// after a crash, and at the end. It returns the operations that were done, also
// with an error.
func (p *Plan) Apply(ctx context.Context, client Writer, revision string, save func(ctx context.Context, items []tko.SourceItem) error) ([]tko.SourceOperation, error) {
	ctx = tko.WithAuthor(ctx, tko.Author{Who: AuthorOf(p.policy.Source), Why: revision})
	r := &run{client: client, source: p.policy.Source, revision: revision, items: map[key]tko.SourceItem{}}
	for _, item := range p.Items {
		r.items[key{tko.Kind(item.Kind), item.Name}] = item
	}
	if r.announce(p.Actions) {
		if err := save(ctx, r.inventory()); err != nil {
			return nil, fmt.Errorf("save the inventory: %w", err)
		}
	}
	err := r.all(ctx, p.Actions)
	if n := len(r.stopped); n > 0 && err == nil {
		err = tko.Errorf(tko.ErrStopped, "%d of %d changes wait: %w", n, len(p.Actions), r.stopped[0])
	}
	if saveErr := save(ctx, r.inventory()); saveErr != nil {
		err = errors.Join(err, fmt.Errorf("save the inventory: %w", saveErr))
	}
	return r.done, err
}

// A run is one application of a plan.
type run struct {
	client   Writer
	source   string
	revision string

	mu    sync.Mutex
	items map[key]tko.SourceItem
	done  []tko.SourceOperation
	// stopped are the errors of changes of what a user has stopped. The others don't wait.
	stopped []error
}

// announce adds entities that are about to be created or adopted to the inventory,
// as pending.
func (r *run) announce(actions []Action) (news bool) {
	for _, a := range actions {
		k := key{a.Kind, a.Name}
		if _, known := r.items[k]; !known && (a.Verb == Create || a.Verb == Adopt) {
			r.items[k] = tko.SourceItem{Kind: string(a.Kind), Name: a.Name, Pending: true}
			news = true
		}
	}
	return news
}

func (r *run) inventory() []tko.SourceItem {
	r.mu.Lock()
	defer r.mu.Unlock()
	items := make([]tko.SourceItem, 0, len(r.items))
	for _, item := range r.items {
		items = append(items, item)
	}
	sortItems(items)
	return items
}

// all applies the actions: those of one kind concurrently, kind after kind,
// because entities may refer to those of earlier kinds.
func (r *run) all(ctx context.Context, actions []Action) error {
	for len(actions) > 0 {
		first := actions[0]
		n := slices.IndexFunc(actions, func(a Action) bool { return a.Kind != first.Kind || (a.Verb == Delete) != (first.Verb == Delete) })
		if n < 0 {
			n = len(actions)
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(asks)
		for _, a := range actions[:n] {
			group.Go(func() error {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return r.one(ctx, a)
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		actions = actions[n:]
	}
	return nil
}

func (r *run) one(ctx context.Context, a Action) error {
	item := tko.SourceItem{Kind: string(a.Kind), Name: a.Name}
	var err error
	if a.Verb == Delete {
		if a.ID == "" {
			a.ID, err = r.find(ctx, a.Name)
		}
		if err == nil {
			err = r.remove(ctx, a)
		}
		if errors.Is(err, tko.ErrNotFound) {
			err = nil
		}
	} else {
		var result tko.PutResult
		if a.consented {
			ctx = tko.WithConfirmation(ctx, 1)
		}
		result, err = r.client.PutEntity(ctx, a.put)
		item.ID, item.Revision, item.Digest, item.Origins = result.ID, result.Revision, a.manifest.Digest, a.origins
		if a.Kind == tko.KindDeployment && err == nil && !result.Created && a.put.ID == "" {
			item.Digest = "" // created before an interruption, perhaps from an older manifest: compare it again
		}
		if a.manifest.Keep {
			item.Status = statusKeep
		}
	}
	if err != nil {
		name := fmt.Sprintf("%s %q", a.Kind, a.Name)
		if a.File != "" {
			name = a.File + ": " + name
		}
		err = fmt.Errorf("%s %s: %w", a.Verb, name, err)
	}
	r.note(a, item, err)
	if errors.Is(err, tko.ErrStopped) {
		return nil
	}
	return err
}

// maxOrphaned is the maximum number of entities that lose their template by a removal for
// which the budget is consent: a template in use by more is removed by a user.
const maxOrphaned = tko.DefaultConfirmAbove

// remove deletes an entity. It refuses to delete more descendants of a deployment than
// were charged to the budget. It confirms the count, because the budget bounds it.
func (r *run) remove(ctx context.Context, a Action) error {
	if a.Kind != tko.KindDeployment {
		count := 1
		if a.Kind == tko.KindSite || a.Kind == tko.KindTemplate {
			would, err := r.client.RemoveEntity(ctx, a.Kind, a.ID, true)
			if err != nil {
				return err
			}
			if a.Kind == tko.KindSite || would.Orphaned <= maxOrphaned { // a budget asks about sites with deployments
				count = max(count, would.Reach())
			}
		}
		_, err := r.client.RemoveEntity(tko.WithConfirmation(ctx, count), a.Kind, a.ID, false)
		return err
	}
	count := 1
	if a.With > 0 {
		would, err := r.client.RemoveEntity(ctx, a.Kind, a.ID, true)
		if err != nil {
			return err
		}
		count = min(would.Count, a.With+1)
	}
	_, err := r.client.RemoveEntity(tko.WithConfirmation(ctx, count), a.Kind, a.ID, false)
	if errors.Is(err, tko.ErrInvalid) { // the deletion would be of another number
		return tko.Errorf(tko.ErrConflict, "the plan counted %d descendants: the next plan counts them again: %s", a.With, err.Error())
	}
	return err
}

// find returns the ID of a deployment of which only the origin is known. The API
// returns the ID of an origin only by creating its deployment, unless it exists.
func (r *run) find(ctx context.Context, name string) (id string, err error) {
	found, err := r.client.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: OriginOf(r.source, name)})
	return found.ID, err
}

func (r *run) note(a Action, item tko.SourceItem, err error) {
	op := tko.SourceOperation{Time: time.Now().UTC(), Revision: r.revision, Verb: a.Verb, Kind: string(a.Kind), Name: a.Name}
	if err != nil {
		op.Error = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, op)
	k := key{a.Kind, a.Name}
	switch {
	case errors.Is(err, tko.ErrStopped):
		r.stopped = append(r.stopped, err)
	case err != nil:
	case a.Verb == Delete:
		delete(r.items, k)
	default:
		r.items[k] = item
	}
}
