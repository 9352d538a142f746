package cli

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A watchFlag has a list or a get continue with what changes.
type watchFlag struct{ on bool }

func (w *watchFlag) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.on, "watch", "w", false, "show further changes until interrupted")
}

// get prints the package of an entity, and with --watch each new one.
func (w *watchFlag) get(ctx context.Context, s *session, kind tko.Kind, id string, revision int64, read func(ctx context.Context) (tko.Stamp, krm.Package, error)) error {
	a := s.app
	if !w.on {
		_, pkg, err := read(ctx)
		if err != nil {
			return err
		}
		return a.printPackage(pkg)
	}
	if revision != 0 {
		return tko.Errorf(errUsage, "--revision and --watch can't be used together: an old revision doesn't change")
	}
	about, err := call(ctx, s, s.About)
	if err != nil {
		return err
	}
	printed := int64(0)
	show := func() error {
		stamp, pkg, err := read(ctx)
		if err != nil || stamp.Revision <= printed {
			return err
		}
		if printed > 0 && (a.globals.format == "" || a.globals.format == formatYAML) {
			fmt.Fprintln(a.out, "---")
		}
		printed = stamp.Revision
		if err := a.printPackage(pkg); err != nil {
			return err
		}
		return a.out.Flush()
	}
	if err := show(); err != nil {
		return err
	}
	for c, err := range s.Watch(ctx, about.Position, kind) {
		switch {
		case err != nil:
			return s.explain(ctx, err)
		case c.ID != id:
		case c.Op == tko.OpDeleted:
			return tko.NotFound(kind, id)
		case c.Op == tko.OpWritten:
			if err := show(); err != nil {
				return err
			}
		}
	}
	return s.explain(ctx, context.Cause(ctx))
}

// watched is a list that is followed.
type watched[T any] struct {
	view view[T]
	kind tko.Kind
	all  func(ctx context.Context) iter.Seq2[T, error]
	one  func(ctx context.Context, id string) iter.Seq2[T, error] // those of all with an ID; may contain others
}

// watchList lists entities, and then shows each one that changes: the server decides if it
// is still selected. It ends when it is interrupted.
func watchList[T any](ctx context.Context, s *session, w *windowFlag, l watched[T]) error {
	a := s.app
	if a.globals.sortSteps != nil || w.max >= 0 || w.offset > 0 {
		return tko.Errorf(errUsage, "--watch shows changes in the order in which they are made: leave --sort-by, --max-count and --offset out")
	}
	about, err := call(ctx, s, s.About)
	if err != nil {
		return err
	}
	f := a.format()
	t := newTable(a, l.view.columns, l.view.below)
	shown := map[string]uint64{} // by ID, a digest of what was shown
	show := func(item T) error {
		row := l.view.row(item)
		id, digest := l.view.id(item), digestOf(row)
		if before, ok := shown[id]; ok && before == digest {
			return nil
		}
		shown[id] = digest
		switch f {
		case formatTable, formatWide:
			return t.add(item)
		case formatBare:
			_, err := fmt.Fprintln(a.out, id)
			return err
		default:
			return a.printStreamed(row)
		}
	}
	if err := each(ctx, s, l.all, show); err != nil {
		return err
	}
	if (f == formatTable || f == formatWide) && !t.began {
		if err := t.begin(); err != nil {
			return err
		}
	}
	if err := a.out.Flush(); err != nil {
		return err
	}
	for c, err := range s.Watch(ctx, about.Position, l.kind) {
		if err != nil {
			return s.explain(ctx, err)
		}
		selected := false
		if c.Op != tko.OpDeleted {
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[T, error] { return l.one(ctx, c.ID) }, func(item T) error {
				if l.view.id(item) != c.ID {
					return nil
				}
				selected = true
				return show(item)
			})
		}
		if _, had := shown[c.ID]; err == nil && had && !selected {
			delete(shown, c.ID)
			err = a.showGone(l.kind, c)
		}
		if err == nil {
			err = a.out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return s.explain(ctx, context.Cause(ctx))
}

// showGone reports that an entity was deleted, or is no longer selected.
func (a *app) showGone(kind tko.Kind, c tko.Change) error {
	change, text := "unselected", "is no longer selected"
	if c.Op == tko.OpDeleted {
		change, text = "deleted", "was deleted"
	}
	if !isForPeople(a.format()) {
		return a.printStreamed(map[string]any{string(kind) + "Id": c.ID, "change": change})
	}
	a.notice("%s %q %s", kind, c.ID, text)
	return nil
}

// printStreamed writes one row of a list that doesn't end: all rows together are a list in
// YAML, and a sequence of values in other formats.
func (a *app) printStreamed(row map[string]any) error {
	f := a.format()
	if f == formatYAML {
		return a.encoder(f).value(a.out, []any{row})
	}
	return a.encoder(f).value(a.out, row)
}

// digestOf returns a digest of a row.
func digestOf(row map[string]any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, row) // maps are printed in the order of their keys
	return h.Sum64()
}
