package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

// changeTries is the number of tries to change an entity that other clients change at the
// same time.
const changeTries = 5

// whole reads an entity as it would be written unchanged, at its revision.
func (s *session) whole(ctx context.Context, kind tko.Kind, id string) (tko.Put, error) {
	if !slices.Contains([]tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment}, kind) {
		return tko.Put{}, tko.Errorf(errUsage, "there is no kind %q with metadata and a package: use template, site or deployment", string(kind))
	}
	e, err := s.entity(ctx, kind, id, 0)
	e.Revision, e.Metadata = e.stamp.Revision, maps.Clone(e.Metadata)
	e.Whole = kind == tko.KindSite // what it lacks of its template stays away
	return e.Put, err
}

// change reads an entity, changes it, and writes it if it hasn't changed meanwhile:
// otherwise it starts again. Nothing is written if edit returns false.
func (s *session) change(ctx context.Context, kind tko.Kind, id string, dryRun bool, edit func(p *tko.Put) (bool, error)) (r tko.PutResult, err error) {
	if err := expectID(string(kind)+" ID", id); err != nil {
		return r, err
	}
	for range changeTries {
		var p tko.Put
		if p, err = s.whole(ctx, kind, id); err != nil {
			return r, err
		}
		changed, err := edit(&p)
		if err != nil || !changed {
			return tko.PutResult{ID: id, Revision: p.Revision}, err
		}
		p.DryRun = dryRun
		r, err = s.put(ctx, p)
		if !errors.Is(err, tko.ErrConflict) {
			return r, err
		}
	}
	return r, tko.Errorf(tko.ErrConflict, "%s %q: other clients change it all the time: try again", kind, id)
}

// labels are changes of metadata.
type labels struct {
	set    map[string]string
	remove []string
}

func parseLabels(args []string) (labels, error) {
	l := labels{set: map[string]string{}}
	for _, arg := range args {
		key, value, isSet := strings.Cut(arg, "=")
		if !isSet {
			var isRemove bool
			key, isRemove = strings.CutSuffix(arg, "-")
			if !isRemove {
				return l, tko.Errorf(errUsage, "%q is no change: use KEY=VALUE to set, and KEY- to remove", arg)
			}
		}
		_, twice := l.set[key]
		if key == "" || twice || slices.Contains(l.remove, key) {
			return l, tko.Errorf(errUsage, "%q: its key is empty or given twice: correct it", arg)
		}
		if isSet {
			l.set[key] = value
		} else {
			l.remove = append(l.remove, key)
		}
	}
	return l, nil
}

// apply changes the metadata of an entity.
func (l labels) apply(p *tko.Put, overwrite bool) (changes []string, err error) {
	if p.Metadata == nil {
		p.Metadata = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(l.set)) {
		value := l.set[key]
		before, has := p.Metadata[key]
		switch {
		case has && before == value:
			continue
		case has && !overwrite:
			return nil, tko.Errorf(tko.ErrInvalid, "%s %q has %s=%s already: use --overwrite to replace the value", p.Kind, p.ID, key, before)
		case has:
			changes = append(changes, fmt.Sprintf("%s: %q → %q", key, before, value))
		default:
			changes = append(changes, fmt.Sprintf("%s: %q added", key, value))
		}
		p.Metadata[key] = value
	}
	for _, key := range l.remove {
		if before, has := p.Metadata[key]; has {
			changes = append(changes, fmt.Sprintf("%s: %q removed", key, before))
			delete(p.Metadata, key)
			p.RemoveMetadata = append(p.RemoveMetadata, key)
		}
	}
	return changes, nil
}

func (a *app) labelCommand() *cobra.Command {
	var overwrite, dryRun bool
	cmd := &cobra.Command{
		Use:   "label KIND ID KEY=VALUE… KEY-…",
		Short: "Set or remove metadata of a template, site or deployment",
		Long: `Set (KEY=VALUE) or remove (KEY-) metadata of a template, site or deployment. A value that
exists is replaced only with --overwrite. Metadata from the entity's template or package can be
replaced and removed, too; a key that is removed stays removed when the template changes.
Changes that other clients make at the same time are kept.`,
		Example: `  tko label site lagos/1 region=west tier-
  tko label deployment "$id" stage=canary --overwrite`,
		Args: arguments(3, -1), ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= 2 {
				return a.keyValueCompletion(tko.Kind(args[0]))(cmd, args, prefix)
			}
			return a.completeKindAndID(cmd, args, prefix)
		},
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			changes, err := parseLabels(args[2:])
			if err != nil {
				return err
			}
			return s.label(ctx, tko.Kind(args[0]), args[1], changes, overwrite, dryRun)
		}),
	}
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace values that exist")
	dryRunFlag(cmd.Flags(), &dryRun)
	return cmd
}

func (s *session) label(ctx context.Context, kind tko.Kind, id string, l labels, overwrite, dryRun bool) error {
	var changes []string
	r, err := s.change(ctx, kind, id, dryRun, func(p *tko.Put) (bool, error) {
		var err error
		changes, err = l.apply(p, overwrite)
		return len(changes) > 0, err
	})
	if err != nil {
		return err
	}
	return s.changed(kind, id, r, changes, dryRun)
}

// noticeChanges prints the first changes, and how many more there are.
func (a *app) noticeChanges(changes []string) {
	for _, change := range changes[:min(len(changes), applyDetails)] {
		a.notice("%s", change)
	}
	if more := len(changes) - applyDetails; more > 0 {
		a.notice("and %s", count(more, "more change", "more changes"))
	}
}

// changed reports changes of an entity.
func (s *session) changed(kind tko.Kind, id string, r tko.PutResult, changes []string, dryRun bool) error {
	a := s.app
	a.noticeChanges(changes)
	switch {
	case len(changes) == 0:
		a.notice("%s %q: nothing to change", kind, id)
	case dryRun:
		a.notice("would change %s %q", kind, id)
	default:
		a.notice("changed %s %q, revision %d", kind, id, r.Revision)
	}
	return a.printResult(map[string]any{"id": id, "revision": r.Revision, "changes": int64(len(changes)), "dryRun": dryRun})
}

func (a *app) suspend(kind tko.Kind, short, long, example string) *cobra.Command {
	return a.suspension(kind, &cobra.Command{Use: "suspend ID…", Short: short, Long: long, Example: "  " + example}, labels{set: map[string]string{tko.MetadataSuspend: "true"}})
}

func (a *app) resume(kind tko.Kind, short, example string) *cobra.Command {
	return a.suspension(kind, &cobra.Command{Use: "resume ID…", Short: short, Long: short + `: what was changed meanwhile is applied. The metadata
` + tko.MetadataSuspend + ` is removed.`, Example: "  " + example}, labels{remove: []string{tko.MetadataSuspend}})
}

func (a *app) suspension(kind tko.Kind, cmd *cobra.Command, l labels) *cobra.Command {
	var dryRun bool
	confirm := 0
	cmd.Args, cmd.ValidArgsFunction = arguments(1, -1), a.completion(completers[kind])
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if confirm > 0 {
			if !tko.Consents(confirm, len(args)) {
				return tko.Errorf(errUsage, "--confirm is %d, and %d are named: confirm their number", confirm, len(args))
			}
			ctx = tko.WithConfirmation(ctx, confirm)
		}
		for _, id := range args {
			if err := s.label(ctx, kind, id, l, true, dryRun); err != nil {
				return err
			}
		}
		return nil
	})
	dryRunFlag(cmd.Flags(), &dryRun)
	if len(l.remove) > 0 {
		cmd.Flags().IntVar(&confirm, "confirm", 0, "consent to the end of at most this `count` of suspensions: required by the server for many")
	}
	return cmd
}
