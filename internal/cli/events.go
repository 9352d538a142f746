package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// eventsIdle is the time without a change after which the past changes are taken to be
// complete.
const eventsIdle = 3 * time.Second

var eventView = view[tko.Change]{
	id: func(c tko.Change) string { return string(c.Kind) + "/" + c.ID },
	row: func(c tko.Change) map[string]any {
		row := map[string]any{
			"position": c.Position, "kind": string(c.Kind), "id": c.ID, "change": string(c.Op), "revision": c.Revision,
			"who": c.Author.Who, "why": c.Author.Why,
		}
		if !c.Time.IsZero() {
			row["time"] = c.Time.UTC().Format(time.RFC3339Nano)
		}
		return row
	},
	columns: []column[tko.Change]{
		{name: "TIME", text: func(c tko.Change) string { return c.Time.UTC().Format(time.RFC3339) }},
		{name: "KIND", text: func(c tko.Change) string { return string(c.Kind) }},
		{name: "ID", text: func(c tko.Change) string { return c.ID }},
		{name: "CHANGE", text: func(c tko.Change) string { return string(c.Op) }},
		{name: "REVISION", text: func(c tko.Change) string { return strconv.FormatInt(c.Revision, 10) }},
		{name: "POSITION", wide: true, text: func(c tko.Change) string { return strconv.FormatInt(c.Position, 10) }},
		{name: "WHO", text: func(c tko.Change) string { return c.Author.Who }},
		{name: "WHY", text: func(c tko.Change) string { return c.Author.Why }},
	},
}

// eventKinds are the kinds of entities that the change log has.
var eventKinds = []string{"plugin", "template", "site", "deployment", "rollout"}

func (a *app) eventsCommand() *cobra.Command {
	var kinds []string
	var id string
	var last uint32
	var watch bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show the newest changes of all entities, or follow them",
		Long: `Show the newest changes of all entities: who changed what, when and why. A change is
written (a new revision), deleted, or status (conditions). With --watch, the command shows
further changes as they are made, until it is interrupted.`,
		Example: `  tko events
  tko events --kind deployment --last 1000
  tko events --kind site --id lagos/1 --watch`,
	}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "`kind`: plugin, template, site, deployment or rollout; may be repeated (default all)")
	cmd.Flags().StringVar(&id, "id", "", "`ID` of one entity; of a plugin TYPE|NAME (default all)")
	cmd.Flags().Uint32Var(&last, "last", 100, "`number` of changes to look back; filters select among them")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show further changes until interrupted")
	complete(cmd, "kind", fixed(eventKinds...))
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		var selected []tko.Kind
		for _, kind := range kinds {
			if !slices.Contains(eventKinds, kind) {
				return tko.Errorf(errUsage, "--kind %s: use plugin, template, site, deployment or rollout", kind)
			}
			selected = append(selected, tko.Kind(kind))
		}
		if watch && a.globals.sortSteps != nil {
			return tko.Errorf(errUsage, "--sort-by can't be used with --watch: use one")
		}
		about, err := call(ctx, s, s.About)
		if err != nil {
			return err
		}
		to := about.Position
		if err := list(ctx, s, eventView, nil, func(ctx context.Context) iter.Seq2[tko.Change, error] {
			return until(ctx, s, last, to, id, selected)
		}); err != nil || !watch {
			return err
		}
		return a.follow(ctx, s, to, id, selected)
	})
	return cmd
}

// until returns the newest changes, as many as last, up to a position, without waiting for
// further ones.
func until(ctx context.Context, s *session, last uint32, to int64, id string, kinds []tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		if last == 0 || to == 0 {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// Callers who may not see the newest change don't reach the end.
		idle := time.AfterFunc(eventsIdle, cancel)
		defer idle.Stop()
		for c, err := range s.WatchNewest(ctx, to, last) { // of all kinds, to see when it has reached the end
			if err != nil && ctx.Err() != nil {
				return
			}
			idle.Stop()
			if err != nil {
				if errors.Is(err, tko.ErrGone) {
					err = fmt.Errorf("%w: use a smaller --last", err)
				}
				yield(tko.Change{}, err)
				return
			}
			if c.Position > to {
				return
			}
			if (id == "" || c.ID == id) && (len(kinds) == 0 || slices.Contains(kinds, c.Kind)) && !yield(c, nil) {
				return
			}
			if c.Position == to {
				return
			}
			idle.Reset(eventsIdle)
		}
	}
}

// follow prints changes as they are made.
func (a *app) follow(ctx context.Context, s *session, after int64, id string, kinds []tko.Kind) error {
	for c, err := range s.Watch(ctx, after, kinds...) {
		if err != nil {
			return s.explain(ctx, err)
		}
		if id != "" && c.ID != id {
			continue
		}
		switch a.format() {
		case formatTable, formatWide:
			_, err = fmt.Fprintln(a.out, cut(printable.Text(fmt.Sprintf("%s  %s  %s  %s  %d  %s", c.Time.UTC().Format(time.RFC3339), c.Kind, c.ID, c.Op, c.Revision, c.Author)), a.width()))
		case formatBare:
			_, err = fmt.Fprintln(a.out, eventView.id(c))
		default:
			err = a.printStreamed(eventView.row(c))
		}
		if err == nil {
			err = a.out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
