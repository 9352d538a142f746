package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/kubename"
)

// A Manifest is the desired state of an entity, a GitOps source, a subscription or a view, in a file.
type Manifest struct {
	File   string
	Name   string // the ID; of a deployment, the name of the manifest
	Put    tko.Put
	Source *tko.SourceDefinition // of a GitOps source, whose Put has the kind KindSource only; else nil
	// Subscription is one, and Put has the kind KindSubscription only; else nil.
	Subscription *tko.Subscription
	View         *tko.View // is one, and Put has the kind KindView only; else nil
}

// isDeclared reports whether a manifest is that of a GitOps source, a subscription or a view,
// which are registered last, and together.
func (m Manifest) isDeclared() bool { return m.Source != nil || m.Subscription != nil || m.View != nil }

// KindView is the kind of views among manifests.
const KindView tko.Kind = "view"

// KindSource is the kind of GitOps sources among manifests.
const KindSource tko.Kind = "source"

func (a *app) importCommand() *cobra.Command {
	var dryRun bool
	var confirm int
	var from fromFlag
	var tool toolFlag
	cmd := &cobra.Command{
		Use: "import FOLDER|FILE.tar", Short: "Create or update entities from plain KRM manifests, another server, or packages of other tools",
		Long: `Create or update plugins, templates, sites, deployments, rollouts, GitOps sources, subscriptions
and views from plain KRM manifests, such as those of tko export. Rollouts are planned, and not started; sources and
subscriptions begin at once. A child is created below the new deployment of its parent. The command first checks all of them, and shows what it will create and update. If
one is wrong, nothing is changed. Then it asks; without a terminal, it needs --confirm COUNT with
the number of changes that the plan shows (see --dry-run).

The last lines name what this server can't take over, with its number; the exit code is then 9.

Nothing is deleted. A deployment is created once: manifests of deployments that are there, by their
ID or from an earlier import, change nothing. If the command is interrupted, the same command
continues.

With --from or --from-context, the command copies templates, plugins, sites and deployments from
another server, also of the original TKO: parents first, with their metadata, and prepared and
approved as they are there. Deployments get new IDs. Sites are created suspended, so that two
servers don't apply to the same places: stop the other server, then use tko site resume. A second
import adds what is new, and updates templates, plugins and sites that have changed there.

With --helm, --kustomize, --live or --porch, the command makes or updates the template --template
from a Helm release, a kustomization, the objects in a namespace of a running cluster, or a
package revision of Porch. It runs kubectl or helm, which must be installed, with your own access
to the cluster, and only reads there. Left out, and reported, are what the cluster and its
controllers made, what TKO applied, and Secrets without --secrets; fields that the cluster set are
removed. To take over the running objects, see tko.nephio.org/adopt.`,
		Example: "  tko import ./fleet --dry-run\n  tko import ./fleet\n  tko import emea.tar --confirm 120\n  tko import --from old.example.com:50050 --dry-run\n" +
			"  tko import --helm upf --namespace ran --template nf/upf:v1\n  tko import --live ran --template nf/ran:v1 --kube-context lagos --dry-run",
		Args: arguments(0, 1), ValidArgsFunction: fileNames,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			named, err := tool.named()
			if err != nil {
				return err
			}
			sources := 0
			for _, given := range []bool{from.given(), named != "", len(args) > 0} {
				if given {
					sources++
				}
			}
			if sources != 1 {
				return tko.Errorf(errUsage, "name one thing to import: a folder, a tar file, another server with --from or --from-context, or a package with --helm, --kustomize, --live or --porch")
			}
			var steps []step
			var left leftOut
			apply := func(one step) error { return applyOne(ctx, s, one) }
			switch {
			case named != "":
				steps, err = tool.plan(ctx, s)
			case from.given():
				other, connectErr := from.connect(s)
				if connectErr != nil {
					return connectErr
				}
				c := &copier{from: other, to: s, suspend: from.suspend, ids: newIDs(), inherit: map[tko.TemplateID]map[string]string{}}
				steps, err = c.plan(ctx)
				apply = func(one step) error { return c.apply(ctx, one) }
			default:
				steps, err = a.planImport(ctx, s, args[0], &left)
				apply = importer(ctx, s, steps)
			}
			if err != nil {
				return err
			}
			changes, updates := a.showSteps(steps, false), 0
			for _, step := range steps {
				if step.verb == "update" {
					updates++
				}
			}
			a.notice("%s, %d unchanged", count(changes, "change", "changes"), len(steps)-changes)
			if updates > 0 {
				a.notice("%s an entity of this server that differs", count(updates, "change replaces", "changes replace"))
			}
			if dryRun || changes == 0 {
				return a.report(&left)
			}
			if err := a.confirmChanges(changes, confirm, 0); err != nil {
				return err
			}
			done, err := applyAll(s, steps, apply)
			if err != nil {
				return err
			}
			a.notice("made %s", count(done, "change", "changes"))
			return a.report(&left)
		}),
	}
	f := cmd.Flags()
	from.flags(f)
	tool.flags(f)
	dryRunFlag(f, &dryRun)
	f.IntVar(&confirm, "confirm", 0, "`number` of changes to make, an upper bound: a lower one is refused, and one that is higher by more than a tenth and 100")
	return cmd
}

// nameID returns the ID in the name of a deployment's manifest.
func nameID(name string) tko.DeploymentID {
	id, err := kubename.Unescape(name)
	if err != nil {
		id = name
	}
	return tko.DeploymentID(id)
}

// importer returns the function that makes the changes of an import. Children are created below
// the new deployments of their parents; sources are registered together.
func importer(ctx context.Context, s *session, steps []step) func(step) error {
	register := sync.OnceValue(func() error { return s.registerDeclared(ctx, steps) })
	ids := newIDs() // of parents, by those in the manifests
	for _, one := range steps {
		if one.there != "" {
			ids.set(nameID(one.Name), one.there)
		}
	}
	return func(one step) error {
		if one.isDeclared() {
			return register()
		}
		if id, ok := ids.of(one.Put.Parent); ok {
			one.Put.Parent = id
		}
		if one.id != "" {
			return applyOne(ctx, s, one)
		}
		r, err := s.put(ctx, one.Put)
		if err == nil && one.Put.Kind == tko.KindDeployment {
			ids.set(nameID(one.Name), tko.DeploymentID(r.ID))
		}
		return err
	}
}

// planImport reads and checks all manifests.
func (a *app) planImport(ctx context.Context, s *session, from string, left *leftOut) ([]step, error) {
	tree, done, err := openTree(from)
	if err != nil {
		return nil, err
	}
	defer done()
	manifests, err := a.planner.ReadManifests(tree, true)
	if err != nil {
		return nil, err
	}
	checkMarks(ctx, s, manifests, left)
	all, err := a.earlierRevisions(tree)
	if err != nil {
		return nil, err
	}
	if len(manifests) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "%s has no manifests of the group tko.nephio.org", from)
	}
	first := len(manifests) // of the sources
	if i := slices.IndexFunc(manifests, Manifest.isDeclared); i >= 0 {
		first = i
	}
	entities, err := sortParents(manifests[:first])
	if err != nil {
		return nil, err
	}
	steps, wrong := planAll(s, entities, func(m Manifest, coming *coming) (step, error) { return planOne(ctx, s, m, coming) })
	if wrong != nil && steps == nil {
		return nil, wrong
	}
	sources, err := planDeclared(ctx, s, manifests[first:])
	if err := errors.Join(wrong, err); err != nil {
		return nil, err
	}
	b := &bases{s: s}
	steps, coming, err := withEarlier(ctx, b, steps, all)
	if err != nil {
		return nil, err
	}
	for _, one := range steps {
		madeFrom := one.Put.MadeFrom
		if one.verb != "create" || madeFrom == "" || madeFrom == unrecorded || coming[one.Put.Template][madeFrom] {
			continue
		}
		known, err := b.isKnown(ctx, one.Put.Template, madeFrom)
		if err != nil {
			return nil, err
		}
		if !known {
			left.add(true, "revisions of templates from which deployments were made, and which this server lacks: their template revision will be unknown", one.Name)
		}
	}
	return append(steps, sources...), nil
}

// planOne checks a manifest on the server. References to entities of the same import
// need not exist yet.
func planOne(ctx context.Context, s *session, m Manifest, coming *coming) (step, error) {
	step := step{Manifest: m}
	if m.Put.Kind == tko.KindDeployment {
		id := nameID(m.Name)
		_, err := s.deployment(ctx, id, 0)
		if err == nil {
			step.there = id
			return step, nil
		}
		if !errors.Is(err, tko.ErrNotFound) && !errors.Is(err, tko.ErrInvalid) {
			return step, err
		}
		step.Put.Origin = importOrigin(m.Name)
	}
	r, unchecked, err := tryPut(ctx, s, step.Put, coming)
	switch {
	case err != nil:
		return step, err
	case r.Created:
		step.verb = "create"
	case m.Put.Kind == tko.KindDeployment:
		step.there = tko.DeploymentID(r.ID)
	case r.Changed, unchecked && m.Put.Kind == tko.KindSite:
		step.verb, step.Put.Revision = "update", r.Revision // another client's change after the plan isn't overwritten
	}
	return step, nil
}

// The limits of a tar file to import.
const (
	maxImport      = 4 << 30
	maxImportFiles = 1_000_000
)

// openTree opens a folder, or a tar file, which it unpacks into a temporary folder.
func openTree(from string) (tree fs.FS, done func(), err error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	folder, remove := from, func() {}
	if !info.IsDir() {
		if folder, err = os.MkdirTemp("", "tko-import-"); err != nil {
			return nil, nil, err
		}
		remove = func() { _ = os.RemoveAll(folder) }
		if err := unpack(from, folder); err != nil {
			remove()
			return nil, nil, tko.Errorf(tko.ErrInvalid, "%s: %w", from, err)
		}
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		remove()
		return nil, nil, err
	}
	return root.FS(), func() {
		_ = root.Close()
		remove()
	}, nil
}

// unpack writes the files of a tar file into a folder, and nothing outside of it.
func unpack(from, folder string) error {
	file, err := os.Open(from) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	in := tar.NewReader(file)
	for size, files := int64(0), 0; ; files++ {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		size += header.Size
		if size > maxImport || files > maxImportFiles {
			return fmt.Errorf("it has more than %d bytes or %d files: unpack it, and import a folder", int64(maxImport), maxImportFiles)
		}
		name := filepath.FromSlash(strings.TrimPrefix(header.Name, "./"))
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the name %.100q leads out of the file", header.Name)
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.CopyN(out, in, header.Size)
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}
