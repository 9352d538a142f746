package cli

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

// A detailFlags holds a flag for each of the details of a template or a site.
type detailFlags struct {
	details tko.Details
	cmd     *cobra.Command
}

func (d *detailFlags) flags(cmd *cobra.Command) {
	d.cmd = cmd
	for _, f := range tko.DetailFields() {
		cmd.Flags().StringVar(f.In(&d.details), f.Name, "", f.Help+"; without it, an existing one stays")
	}
}

// given returns the details of the flags, and a context that keeps those of an existing entity
// if there are none. Of several, those that aren't given become empty.
func (d *detailFlags) given(ctx context.Context) (context.Context, tko.Details) {
	for _, f := range tko.DetailFields() {
		if d.cmd.Flags().Changed(f.Name) {
			return ctx, d.details
		}
	}
	return tko.WithDetailsKept(ctx), tko.Details{}
}

// describe changes details, and returns what changed. Names that are removed become empty.
func (l labels) describe(d *tko.Details) (changes []string, err error) {
	texts := map[string]string{}
	for _, name := range l.remove {
		texts[name] = ""
	}
	maps.Copy(texts, l.set)
	var names []string
	for _, f := range tko.DetailFields() {
		names = append(names, f.Name)
		text, given := texts[f.Name]
		if delete(texts, f.Name); !given || text == *f.In(d) {
			continue
		}
		changes = append(changes, fmt.Sprintf("%s: %q → %q", f.Name, *f.In(d), text))
		*f.In(d) = text
	}
	for name := range texts {
		return nil, tko.Errorf(errUsage, "templates and sites have no %q: use %s", name, strings.Join(names, ", "))
	}
	return changes, nil
}

func (a *app) setCommand() *cobra.Command {
	var dryRun bool
	var help []string
	for _, f := range tko.DetailFields() {
		help = append(help, "  "+f.Name+": "+f.Help)
	}
	cmd := &cobra.Command{
		Use:   "set KIND ID NAME=TEXT… NAME-…",
		Short: "Set or remove what a template or a site says about itself, such as its description",
		Long: `Set (NAME=TEXT) or remove (NAME-) what a template or a site says about itself to readers. TKO
doesn't act on it: for what selects, use tko label. The names:

` + strings.Join(help, "\n"),
		Example: `  tko set site lagos/1 description='Roof of the post office; the key is at the gate'
  tko set template nf/upf:v1 description-`,
		Args: arguments(3, -1), ValidArgsFunction: a.completeKindAndID,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			kind, id := tko.Kind(args[0]), args[1]
			if kind != tko.KindTemplate && kind != tko.KindSite {
				return tko.Errorf(errUsage, "a %.40s has no description: use template or site", string(kind))
			}
			texts, err := parseLabels(args[2:])
			if err != nil {
				return err
			}
			var changes []string
			r, err := s.change(ctx, kind, id, dryRun, func(p *tko.Put) (bool, error) {
				var err error
				changes, err = texts.describe(&p.Details)
				return len(changes) > 0, err
			})
			if err != nil {
				return err
			}
			return s.changed(kind, id, r, changes, dryRun)
		}),
	}
	dryRunFlag(cmd.Flags(), &dryRun)
	return cmd
}
