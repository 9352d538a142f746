package cli

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// editCommand completes a command that changes the package of an entity in an editor.
func (a *app) editCommand(kind tko.Kind, what, example string, read func(ctx context.Context, s *session, id string) (*edited, error)) *cobra.Command {
	var yes bool
	cmd := a.ofOne(kind, &cobra.Command{
		Use:   "edit ID",
		Short: "Change " + what + "'s package in an editor",
		Long: "Change " + what + `'s package in an editor: VISUAL, EDITOR, or vi. The command shows what
changed, and asks before it stores it; without a terminal, it stores it. Other clients can change
the ` + string(kind) + ` while the editor is open: then nothing is stored, and the edited file stays. So it
does if the package is invalid. An unchanged file changes nothing.`,
		Example: example,
	}, func(ctx context.Context, s *session, id string) error {
		e, err := read(ctx, s, id)
		if err != nil {
			return err
		}
		return a.edit(ctx, e, yes)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "store the changes without asking")
	return cmd
}

func (a *app) deploymentEdit() *cobra.Command {
	return a.editCommand(tko.KindDeployment, "a deployment", `  tko deployment edit "$id"`+"\n"+`  EDITOR='sed -i s/v1.4/v1.5/' tko deployment edit "$id"`, editedDeployment)
}

func (a *app) siteEdit() *cobra.Command {
	return a.editCommand(tko.KindSite, "a site", "  tko site edit lagos/1", editedEntity(tko.KindSite))
}

func (a *app) templateEdit() *cobra.Command {
	return a.editCommand(tko.KindTemplate, "a template", "  tko template edit nf/upf:v1", editedEntity(tko.KindTemplate))
}

// An edited entity has a package that a user changes.
type edited struct {
	kind tko.Kind
	id   string
	pkg  krm.Package
	// store stores the changed package, unless another client has changed the entity since it was read.
	store func(ctx context.Context, pkg krm.Package) error
}

func (e *edited) wasChanged(how string) error {
	return tko.Errorf(tko.ErrConflict, "%s %q was changed while you edited it (%s): nothing was stored", e.kind, e.id, how)
}

func editedDeployment(ctx context.Context, s *session, id string) (*edited, error) {
	d, err := s.deployment(ctx, tko.DeploymentID(id), 0)
	e := &edited{kind: tko.KindDeployment, id: id, pkg: d.Package}
	e.store = func(ctx context.Context, pkg krm.Package) error {
		return modify(ctx, s, d.ID, func(now krm.Package) (krm.Package, error) {
			for change := range d.Package.Changes(now) {
				return nil, e.wasChanged(change)
			}
			return pkg, nil
		})
	}
	return e, err
}

// editedEntity returns the function that reads a site or template, which is stored only at the
// revision that was read.
func editedEntity(kind tko.Kind) func(ctx context.Context, s *session, id string) (*edited, error) {
	return func(ctx context.Context, s *session, id string) (*edited, error) {
		p, err := s.whole(ctx, kind, id)
		e := &edited{kind: kind, id: id, pkg: p.Package}
		e.store = func(ctx context.Context, pkg krm.Package) error {
			p.Package = pkg
			_, err := s.put(ctx, p)
			if errors.Is(err, tko.ErrConflict) {
				return e.wasChanged(err.Error())
			}
			return err
		}
		return e, err
	}
}

func (a *app) edit(ctx context.Context, e *edited, yes bool) error {
	folder, err := os.MkdirTemp("", "tko-edit-")
	if err != nil {
		return err
	}
	file := filepath.Join(folder, url.PathEscape(e.id)+".yaml")
	text, err := krm.Encode(krm.YAML, e.pkg)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	stored, err := a.editFile(ctx, e, file, yes)
	if err != nil && !stored {
		if now, readErr := os.ReadFile(file); readErr == nil && string(now) != string(text) { //nolint:gosec // it is the command's own file
			return &hintedError{err: err, hint: "your changes are in " + file}
		}
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// editFile has the user edit a file with an entity's package, and stores it. It returns
// whether the changes are stored, or there are none.
func (a *app) editFile(ctx context.Context, e *edited, file string, yes bool) (stored bool, err error) {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", file) //nolint:gosec // the user's own command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.streams.In, a.streams.Err, a.streams.Err
	if err := cmd.Run(); err != nil {
		return false, tko.Errorf(errUsage, "editor %q failed: %w: nothing was changed; name another with EDITOR", editor, err)
	}
	data, err := os.ReadFile(file) //nolint:gosec // it is the command's own file
	if err != nil {
		return false, err
	}
	pkg, err := krm.Decode(krm.YAML, data, krm.Limits{})
	if err != nil {
		return false, tko.Errorf(tko.ErrInvalid, "the edited package: %w", err)
	}
	if len(pkg) == 0 {
		return false, tko.Errorf(errUsage, "the edited package has no resources: nothing was changed")
	}
	changes := slices.Collect(e.pkg.Changes(pkg))
	if len(changes) == 0 && !stateChanged(e.pkg, pkg) {
		a.notice("nothing was changed")
		return true, nil
	}
	a.noticeChanges(changes)
	if !yes && a.interactive && !a.ask("Store it?") {
		return false, errNotConfirmed
	}
	if err := e.store(ctx, pkg); err != nil {
		return false, err
	}
	a.notice("modified %s %q", e.kind, e.id)
	return true, a.printResult(map[string]any{"id": e.id})
}

// stateChanged reports whether the Deployment resource, whose state
// [krm.Package.Changes] leaves out, differs.
func stateChanged(a, b krm.Package) bool {
	find := func(p krm.Package) krm.Resource {
		for _, r := range p {
			if r.GVK() == krm.DeploymentGVK {
				return r
			}
		}
		return krm.Resource{}
	}
	return differ(find(a), find(b))
}
