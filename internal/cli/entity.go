package cli

import (
	"context"
	"iter"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/krm"
)

// An entity is one of any kind, as it would be written unchanged, with its stamp.
type entity struct {
	tko.Put
	stamp tko.Stamp
}

var entities = filter.View[entity]{
	Template: func(t tko.Template) entity {
		return entity{tko.Put{Details: t.Details, Metadata: t.Metadata, Package: t.Package}, t.Stamp}
	},
	Site: func(s tko.Site) entity {
		return entity{tko.Put{Template: s.Template, Details: s.Details, Metadata: s.Metadata, Package: s.Package}, s.Stamp}
	},
	Deployment: func(d tko.Deployment) entity {
		return entity{tko.Put{Parent: d.Parent, Template: d.Template, Site: d.Site, Metadata: d.Metadata, Package: d.Package}, d.Stamp}
	},
	Plugin:  func(p tko.Plugin) entity { return entity{tko.Put{Plugin: p}, p.Stamp} },
	Rollout: func(r tko.Rollout) entity { return entity{tko.Put{Metadata: r.Metadata, Package: r.Package}, r.Stamp} },
}

// entity reads an entity, as of a revision; 0 is the current one.
func (s *session) entity(ctx context.Context, kind tko.Kind, id string, revision int64) (entity, error) {
	e, err := call(ctx, s, func(ctx context.Context) (entity, error) { return entities.Get(ctx, s, kind, id, revision) })
	e.Kind, e.ID = kind, id
	return e, err
}

// An entityKind is what the commands of a kind of entities have in common. T is an entity,
// S a select of entities. list and purge are methods of server.
type entityKind[T, S any] struct {
	kind    tko.Kind
	view    view[T]
	list    func(s server, ctx context.Context, sel S, o tko.ListOptions) iter.Seq2[T, error]
	one     func(sel S, id string) S // those of the selected entities that have an ID; may select others, too
	purge   func(s server, ctx context.Context, sel S, dryRun bool) (tko.Deleted, error)
	delete  func(ctx context.Context, s *session, id string) (tko.Deleted, error)
	instead func(ctx context.Context, s *session, sel S, w *windowFlag) (listed bool, err error) // another list; may be nil
}

// A selector holds the flags that select entities.
type selector[S any] interface {
	flags(a *app, cmd *cobra.Command)
	selection() (S, error)
}

// name returns the name of the kind, and its plural.
func (k *entityKind[T, S]) name() (one, many string) { return string(k.kind), string(k.kind) + "s" }

// ofOne completes a command whose only argument is the ID of an entity.
func (a *app) ofOne(kind tko.Kind, cmd *cobra.Command, work func(ctx context.Context, s *session, id string) error) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = arguments(1, 1), a.completeArgs(completers[kind])
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if err := expectID(string(kind)+" ID", args[0]); err != nil {
			return err
		}
		return work(ctx, s, args[0])
	})
	return cmd
}

// getCommand completes a command that prints the package of an entity.
func (k *entityKind[T, S]) getCommand(a *app, cmd *cobra.Command) *cobra.Command {
	var revision int64
	var watch watchFlag
	cmd.Use = "get ID"
	a.ofOne(k.kind, cmd, func(ctx context.Context, s *session, id string) error {
		return watch.get(ctx, s, k.kind, id, revision, func(ctx context.Context) (tko.Stamp, krm.Package, error) {
			e, err := s.entity(ctx, k.kind, id, revision)
			if text := trouble(id, e.stamp.Conditions); k.kind == tko.KindDeployment && err == nil && text != "" && revision == 0 {
				a.notice("%s", text)
			}
			if k.kind == tko.KindRollout && err == nil && revision == 0 && a.globals.format != "" {
				e.Package, err = s.withState(ctx, id, e.Package)
			}
			return e.stamp, e.Package, err
		})
	})
	revisionFlag(cmd.Flags(), &revision)
	if k.kind != tko.KindRollout {
		watch.flags(cmd)
	}
	return cmd
}

// withState returns the package of a rollout with its state, as kubectl shows it.
func (s *session) withState(ctx context.Context, id string, pkg krm.Package) (krm.Package, error) {
	r, err := call(ctx, s, func(ctx context.Context) (tko.Rollout, error) { return s.Rollout(ctx, tko.RolloutID(id), 0) })
	if err != nil {
		return nil, err
	}
	pkg = slices.Clone(pkg)
	for i, one := range pkg {
		if one.GVK() == krm.ParseGVK(entityVersion, "Rollout") {
			pkg[i] = one.Clone()
			pkg[i]["status"] = map[string]any{"state": r.State, "reason": r.Reason}
		}
	}
	return pkg, nil
}

// deleteCommand completes a command that deletes an entity without descendants.
func (k *entityKind[T, S]) deleteCommand(a *app, cmd *cobra.Command) *cobra.Command {
	bulk := bulkFlag{unasked: 1}
	cmd.Use = "delete ID"
	a.ofOne(k.kind, cmd, func(ctx context.Context, s *session, id string) error { return k.deleteOne(ctx, s, id, id, &bulk) })
	bulk.confirmFlag(cmd.Flags())
	dryRunFlag(cmd.Flags(), &bulk.dryRun)
	return cmd
}

// deleteOne deletes an entity without descendants, or only counts it. The name is the part
// of the ID that the user gave last.
func (k *entityKind[T, S]) deleteOne(ctx context.Context, s *session, id, name string, b *bulkFlag) error {
	one, many := k.name()
	return s.app.purge(ctx, s, b, one, many, func(ctx context.Context, dryRun bool) (tko.Deleted, error) {
		if !dryRun {
			return k.delete(ctx, s, id)
		}
		var all S
		d, err := k.purge(s, ctx, k.one(all, id), true)
		if err == nil && d.Count == 0 {
			if err = tko.CheckID(string(k.kind)+" ID", name); err == nil {
				err = tko.NotFound(k.kind, id)
			}
		}
		return d, err
	})
}

// listCommand completes a command that lists selected entities.
func (k *entityKind[T, S]) listCommand(a *app, cmd *cobra.Command, f selector[S]) *cobra.Command {
	var window windowFlag
	var watch watchFlag
	cmd.Use = "list"
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		sel, err := f.selection()
		if err != nil {
			return err
		}
		if k.instead != nil {
			if listed, err := k.instead(ctx, s, sel, &window); listed || err != nil {
				return err
			}
		}
		ask := func(ctx context.Context) iter.Seq2[T, error] { return k.list(s, ctx, sel, window.options(a)) }
		if !watch.on {
			return list(ctx, s, k.view, &window, ask)
		}
		return watchList(ctx, s, &window, watched[T]{
			view: k.view, kind: k.kind, all: ask,
			one: func(ctx context.Context, id string) iter.Seq2[T, error] {
				return k.list(s, ctx, k.one(sel, id), window.options(a))
			},
		})
	})
	f.flags(a, cmd)
	window.flags(cmd.Flags())
	if k.kind != tko.KindRollout {
		watch.flags(cmd)
	}
	return cmd
}

// purgeCommand completes a command that deletes selected entities.
func (k *entityKind[T, S]) purgeCommand(a *app, cmd *cobra.Command, f selector[S]) *cobra.Command {
	var bulk bulkFlag
	one, many := k.name()
	cmd.Use = "purge"
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		if err := bulk.check(cmd); err != nil {
			return err
		}
		sel, err := f.selection()
		if err != nil {
			return err
		}
		return a.purge(ctx, s, &bulk, one, many, func(ctx context.Context, dryRun bool) (tko.Deleted, error) {
			return k.purge(s, ctx, sel, dryRun)
		})
	})
	f.flags(a, cmd)
	bulk.flags(cmd.Flags(), many)
	return cmd
}
