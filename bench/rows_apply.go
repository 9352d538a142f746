package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

func rowApplySites(n int) string { return fmt.Sprintf("tko apply of %s new sites", thousands(n)) }

func rowApplyAgain(n int) string {
	return fmt.Sprintf("tko apply of %s sites, unchanged", thousands(n))
}

// applySites applies manifests of sites with the command, and again, which changes nothing.
func (r *run) applySites(ctx context.Context) (err error) {
	if _, err := exec.LookPath(r.Command); err != nil {
		return &notMeasuredError{"the command tko is not in the folder -bin"}
	}
	own := r.scope("applied")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	template, err := own.template(ctx, "template", nil, siteMetadata)
	if err != nil {
		return err
	}
	registered, err := own.registerSites(ctx, max(1, r.Applied/10), tko.Site{Template: template})
	if err == nil {
		err = own.purgeSites(ctx)
	}
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "tko-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var manifests strings.Builder
	for i := range r.Applied {
		fmt.Fprintf(&manifests, "---\napiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata:\n  name: site-%06d\nspec:\n  siteId: %q\n  templateId: %q\n", i, own.site(i), template)
	}
	file := filepath.Join(folder, "sites.yaml")
	if err := os.WriteFile(file, []byte(manifests.String()), 0o600); err != nil {
		return err
	}
	for _, row := range []string{rowApplySites(r.Applied), rowApplyAgain(r.Applied)} {
		command := exec.CommandContext(ctx, r.Command, "apply", "--grpc-address="+r.Address, "-f", file, fmt.Sprint("--confirm=", r.Applied)) //nolint:gosec // our own program and arguments
		if row == rowApplyAgain(r.Applied) {
			command.Args = command.Args[:len(command.Args)-1] // there is nothing to confirm
		}
		began := time.Now()
		output, err := command.CombinedOutput()
		took := time.Since(began)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output[max(0, len(output)-500):])
		}
		r.add(rate(row, float64(r.Applied)/took.Seconds(), registered.perSecond(), fmt.Sprintf("registering by %d clients", r.Clients), 0).
			with(took.Round(100*time.Millisecond).String(), "one process, which checks each site before it writes any"))
	}
	return nil
}
