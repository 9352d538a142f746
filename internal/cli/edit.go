package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func (a *app) deploymentEdit() *cobra.Command {
	var yes bool
	cmd := a.ofOne(tko.KindDeployment, &cobra.Command{
		Use:   "edit ID",
		Short: "Change a deployment's package in an editor",
		Long: `Change a deployment's package in an editor: VISUAL, EDITOR, or vi. The command shows what
changed, and asks before it stores it; without a terminal, it stores it. Other clients can change
the deployment while the editor is open: then nothing is stored, and the edited file stays. So it
does if the package is invalid. An unchanged file changes nothing.`,
		Example: `  tko deployment edit "$id"` + "\n" + `  EDITOR='sed -i s/v1.4/v1.5/' tko deployment edit "$id"`,
	}, func(ctx context.Context, s *session, id string) error {
		return a.edit(ctx, s, tko.DeploymentID(id), yes)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "store the changes without asking")
	return cmd
}

func (a *app) edit(ctx context.Context, s *session, id tko.DeploymentID, yes bool) error {
	d, err := s.deployment(ctx, id, 0)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "tko-edit-")
	if err != nil {
		return err
	}
	file := filepath.Join(folder, string(id)+".yaml")
	text, err := krm.Encode(krm.YAML, d.Package)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	stored, err := a.editFile(ctx, s, d, file, yes)
	if err != nil && !stored {
		if now, readErr := os.ReadFile(file); readErr == nil && string(now) != string(text) { //nolint:gosec // it is the command's own file
			return &hintedError{err: err, hint: "your changes are in " + file}
		}
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// editFile has the user edit a file with a deployment's package, and stores it. It
// returns whether the changes are stored, or there are none.
func (a *app) editFile(ctx context.Context, s *session, d tko.Deployment, file string, yes bool) (stored bool, err error) {
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
	changes := slices.Collect(d.Package.Changes(pkg))
	if len(changes) == 0 && !stateChanged(d.Package, pkg) {
		a.notice("nothing was changed")
		return true, nil
	}
	a.noticeChanges(changes)
	if !yes && a.interactive && !a.ask("Store it?") {
		return false, errNotConfirmed
	}
	err = modify(ctx, s, d.ID, func(now krm.Package) (krm.Package, error) {
		for change := range d.Package.Changes(now) {
			return nil, tko.Errorf(tko.ErrConflict, "deployment %q was changed while you edited it (%s): nothing was stored", d.ID, change)
		}
		return pkg, nil
	})
	if err != nil {
		return false, err
	}
	a.notice("modified deployment %q", d.ID)
	return true, a.printResult(map[string]any{"id": string(d.ID)})
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
