package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// A Planner plans with the code of the GitOps controller. It writes nothing.
type Planner interface {
	// ReadManifests reads the manifests in a tree, in the order in which they can be
	// applied. The error is an ErrInvalid with one line for each problem; manifests of
	// GitOps sources are one unless sources is set.
	ReadManifests(tree fs.FS, sources bool) ([]Manifest, error)
	// ReadInventory reads an inventory and returns its sites, in the order of their
	// IDs, and notes about contradictions. If the settings or records are invalid, the
	// error is an ErrInvalid.
	ReadInventory(ctx context.Context, o InventoryOptions) (sites []InventorySite, notes []string, err error)
	// PlanInventory returns what an inventory would change now.
	PlanInventory(ctx context.Context, client SourceClient, o InventoryOptions) (SourcePlan, error)
	// PlanSource reads tree and the server's state, and writes nothing: it calls
	// the writing methods of client with dry runs only. If the tree is invalid, the
	// error is an ErrInvalid with one line for each problem. If an encrypted file
	// can't be decrypted, it is an ErrDenied. With an error the plan still
	// reports New and KeysMissing, as far as they are known.
	PlanSource(ctx context.Context, client SourceClient, tree fs.FS, o PlanOptions) (SourcePlan, error)
}

// SourceClient is the part of the server's API that a [Planner] uses.
type SourceClient interface { //nolint:interfacebloat // it embeds those of lists
	filter.Getter
	filter.Lister
	Source(ctx context.Context, name string) (tko.Source, error)
	Sources(ctx context.Context) ([]tko.Source, error)
	About(ctx context.Context) (tko.About, error)
	PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error)
	RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error)
}

// PlanOptions are the settings of the source that is planned.
type PlanOptions struct {
	Name  string // of the source, which needn't exist yet
	Path  string // folder of the manifests in the tree; "" for all of it
	Prune bool   // the source deletes entities whose manifests were removed
	Adopt bool   // the source takes over existing entities

	AgeKeys    string // file of age keys for files encrypted with SOPS; "" for none
	PGPKeys    string // file of private PGP keys for them; "" for none
	Connection string // connection file of Open Source MANO; "" to leave it out
}

// A SourcePlan lists what a revision would change.
type SourcePlan struct {
	New         bool // the server has no source of that name
	KeysMissing bool // a file is encrypted, and no keys were given
	// OSMSkipped reports that the tree holds, or the source has, network services of Open
	// Source MANO, which were not compared because no connection file was given: Changes has
	// only removals of those that the source has.
	OSMSkipped bool

	Changes  []PlannedChange
	Refused  []error  // changes that Open Source MANO would refuse
	Warnings []string // about network services
	Messages []string // what is left unchanged, and why
}

// A PlannedChange is one change of a [SourcePlan].
type PlannedChange struct {
	Verb, Kind, Name string
	File             string // that asks for it; "" for removals
	Reason           string // "" if the manifest is the reason
	Descendants      int    // deployments that are deleted with this one
	Held             bool   // the change waits for an approval
	Details          []string
}

// errChanges reports that a plan has changes, for --exit-code.
var errChanges = errors.New("there are changes")

var plannedView = view[PlannedChange]{
	id: func(c PlannedChange) string { return c.Verb + " " + c.Kind + " " + c.Name },
	row: func(c PlannedChange) map[string]any {
		row := map[string]any{"verb": c.Verb, "kind": c.Kind, "name": c.Name}
		setText(row, "file", c.File)
		setText(row, "reason", c.reason())
		if len(c.Details) > 0 {
			row["changes"] = listValue(c.Details)
		}
		return row
	},
	below: func(c PlannedChange) []string { return c.Details },
	columns: []column[PlannedChange]{
		{name: "VERB", text: func(c PlannedChange) string { return c.Verb }},
		{name: "KIND", text: func(c PlannedChange) string { return c.Kind }},
		{name: "NAME", text: func(c PlannedChange) string { return c.Name }},
		{name: "FILE", text: func(c PlannedChange) string { return c.File }},
		{name: "REASON", text: PlannedChange.reason},
	},
}

func (c PlannedChange) reason() string {
	switch {
	case c.Held:
		return "waits for an approval"
	case c.Descendants > 0:
		return fmt.Sprintf("and %d below it", c.Descendants)
	}
	return c.Reason
}

func (a *app) gitopsPlan() *cobra.Command {
	var dir string
	var exitCode bool
	o := PlanOptions{}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a working tree would change",
		Long: `Show what a working tree would change if it were the next revision of a source, for
example in a pull request. Nothing is changed. The server validates the entities.
For each entity, the first 20 changed fields are shown, without the values of
Secrets. Network services in Open Source MANO are compared if a connection file is
given; of their values, only the paths that change are shown.

With --exit-code the exit code is 7 if something would change, 0 if not, and 9 if not
everything was compared: the network services of a tree without --connection. If the tree is invalid, it is 2, as for all invalid input.`,
		Example:           "  tko gitops plan --dir . --name fleet\n  tko gitops plan --dir ./fleet --path sites --exit-code",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			root, err := os.OpenRoot(dir)
			if err != nil {
				return tko.Errorf(errUsage, "--dir: %w", err)
			}
			defer func() { _ = root.Close() }()
			if o.Name == "" {
				absolute, err := filepath.Abs(dir)
				if err != nil {
					return err
				}
				o.Name = filepath.Base(absolute)
			}
			plan, err := callLong(ctx, s, func(ctx context.Context) (SourcePlan, error) { return a.planner.PlanSource(ctx, s, root.FS(), o) })
			if err != nil {
				return a.wrongTree(err, o.Name, plan)
			}
			if plan.New {
				a.notice("source %q: not found: these are the changes of a new one (to plan an existing source, set --name)", o.Name)
			}
			return a.printPlan(ctx, s, plan, exitCode)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", ".", "`folder` of the working tree")
	f.StringVar(&o.Name, "name", "", "`name` of the source (default: the folder's)")
	f.StringVar(&o.Path, "path", "", "`folder` of the manifests in the tree (default: all)")
	f.BoolVar(&o.Prune, "prune", true, "the source deletes entities whose manifests were removed")
	f.BoolVar(&o.Adopt, "adopt", false, "the source takes over existing entities")
	f.StringVar(&o.Connection, "connection", "", "connection `file` of Open Source MANO")
	f.StringVar(&o.AgeKeys, "age-keys", "", "`file` of age keys for files encrypted with SOPS")
	f.StringVar(&o.PGPKeys, "pgp-keys", "", "`file` of private PGP keys for files encrypted with SOPS")
	f.BoolVar(&exitCode, "exit-code", false, "exit code 7 if something would change, 9 if not everything was compared")
	return cmd
}

// wrongTree prints the problems of a working tree, each on a line of its own.
func (a *app) wrongTree(err error, name string, plan SourcePlan) error {
	const most = 1000
	printed := err
	if lines := strings.Split(err.Error(), "\n"); len(lines) > 1 {
		for _, line := range lines[:min(most, len(lines))] {
			fmt.Fprintln(a.streams.Err, printable.Text(line))
		}
		if more := len(lines) - most; more > 0 {
			fmt.Fprintf(a.streams.Err, "and %d more\n", more)
		}
		printed = &summary{err: err, text: fmt.Sprintf("the tree has %d problems", len(lines))}
	}
	switch {
	case plan.KeysMissing:
		return &hintedError{err: printed, hint: "give --age-keys or --pgp-keys"}
	case plan.New:
		return &hintedError{err: printed, hint: fmt.Sprintf("source %q: not found: to plan an existing source, set --name", name)}
	}
	return printed
}

// A summary is an error whose parts were printed before.
type summary struct {
	err  error
	text string
}

func (s *summary) Error() string { return s.text }
func (s *summary) Unwrap() error { return s.err }

// printPlan prints a plan. With exitCode, the error is errChanges if there are any.
func (a *app) printPlan(ctx context.Context, s *session, plan SourcePlan, exitCode bool) error {
	for _, warning := range plan.Warnings {
		a.notice("%s", warning)
	}
	if plan.OSMSkipped {
		a.notice("not compared: the network services of Open Source MANO; only removals of those that the source is known to have are shown: give --connection to compare them")
	}
	for _, message := range plan.Messages {
		a.notice("%s", message)
	}
	var skipped error
	if plan.OSMSkipped && exitCode {
		skipped = fmt.Errorf("%w: the network services, without --connection", errIncomplete)
	}
	if len(plan.Changes) == 0 && len(plan.Refused) == 0 && (a.format() == formatTable || a.format() == formatWide) {
		if !plan.OSMSkipped {
			a.notice("nothing would change")
		}
		return skipped
	}
	if err := listItems(ctx, s, plannedView, plan.Changes); err != nil {
		return err
	}
	if err := errors.Join(plan.Refused...); err != nil {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	if skipped != nil {
		return skipped
	}
	if len(plan.Changes) > 0 && exitCode {
		return errChanges
	}
	return nil
}
