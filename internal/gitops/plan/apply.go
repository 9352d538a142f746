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

// Apply does what is planned, until something fails: the error names it. save
// keeps the inventory: before anything is created, so that nothing that was
// created is forgotten, and after everything. What was done is answered, too,
// if there is an error.
func (p *Plan) Apply(ctx context.Context, client Writer, revision string, save func(ctx context.Context, items []tko.SourceItem) error) ([]tko.SourceOperation, error) {
	ctx = tko.WithAuthor(ctx, tko.Author{Who: AuthorOf(p.policy.Source), Why: revision})
	r := &run{client: client, source: p.policy.Source, revision: revision, items: map[key]tko.SourceItem{}}
	for _, item := range p.Items {
		r.items[key{tko.Kind(item.Kind), item.Name}] = item
	}
	if r.announce(p.Actions) {
		if err := save(ctx, r.inventory()); err != nil {
			return nil, fmt.Errorf("keep the inventory: %w", err)
		}
	}
	err := r.all(ctx, p.Actions)
	if saveErr := save(ctx, r.inventory()); saveErr != nil {
		err = errors.Join(err, fmt.Errorf("keep the inventory: %w", saveErr))
	}
	return r.done, err
}

// A run does what is planned.
type run struct {
	client   Writer
	source   string
	revision string

	mu    sync.Mutex
	items map[key]tko.SourceItem
	done  []tko.SourceOperation
}

// announce notes what is about to be ours.
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

// all does the actions: those of a kind at the same time, unless they may refer
// to each other.
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
		result, err = r.client.PutEntity(ctx, a.put)
		item.ID, item.Revision, item.Digest = result.ID, result.Revision, a.manifest.Digest
		if a.Kind == tko.KindDeployment && err == nil && !result.Created && a.put.ID == "" {
			item.Digest = "" // made before we were interrupted, perhaps from something older: looked at again
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
	return err
}

// remove deletes an entity with as many descendants as the budget was charged
// with, at most. The count is confirmed, because the budget bounds it.
func (r *run) remove(ctx context.Context, a Action) error {
	if a.With > 0 {
		would, err := r.client.RemoveEntity(ctx, a.Kind, a.ID, true)
		if err != nil {
			return err
		}
		if would.Descendants > a.With {
			return tko.Errorf(tko.ErrConflict, "it has %d descendants by now, and was planned to go with %d: the next plan counts them", would.Descendants, a.With)
		}
		ctx = tko.WithConfirmation(ctx, would.Count)
	}
	_, err := r.client.RemoveEntity(ctx, a.Kind, a.ID, false)
	return err
}

// find answers the ID of a deployment of which only the origin is known. The
// API answers what has an origin by creating it, unless it is there.
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
	case err != nil:
	case a.Verb == Delete:
		delete(r.items, k)
	default:
		r.items[k] = item
	}
}
