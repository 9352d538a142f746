package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/manual"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/version"
)

const rootHelp = `The agent of a site. With run, it calls a TKO server: it gets what the site shall have, applies it,
and reports what became of it. At a site that is never connected, apply applies bundles, which
tko bundle create made, and writes reports, which tko bundle report reads.

Exit codes: 0 the site has all of the bundle, and none of it is known to be unhealthy; 1 failure;
2 invalid command or file; 3 not found; 4 the bundle is older than the one before, or another
tko-agent is running; 6 the bundle is not signed by a trusted key, or is for another site; 9 the
bundle was applied, and the site doesn't have all of it yet, or some of it is not healthy.`

// defaultFolder is the default of the flag --state.
const defaultFolder = "/var/lib/tko-agent"

// errPartly is the error of a site that isn't as its bundle says.
var errPartly = errors.New("the site is not as the bundle says")

func rootCommand(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	root := &cobra.Command{
		Use: "tko-agent", Short: "Apply what a site shall have", Long: rootHelp, SilenceErrors: true, SilenceUsage: true,
		Version: version.String(), Example: "  tko-agent init --site ships/7\n  tko-agent apply ship-7.bundle --key bundles.key.pub --kubeconfig admin.conf --report ship-7.report",
		Args: usage(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	root.SetVersionTemplate("tko-agent {{.Version}}\n")
	folder := root.PersistentFlags().String("state", defaultFolder, "`folder` of the agent's keys and state")
	root.AddCommand(initCommand(folder), applyCommand(folder, log), runCommand(folder, log, level), statusCommand(folder), manual.Command("8"))
	return root
}

func initCommand(folder *string) *cobra.Command {
	var site string
	cmd := &cobra.Command{
		Use: "init --site ID", Short: "Set up the agent of a site",
		Long: `Set up the agent of a site: make its folder, with keys of its own, and print what the package of the
site must have, for the server. Called again, it prints the same.`,
		Example: "  tko-agent init --site ships/7",
		Args:    exactly(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if site == "" {
				return &usageError{errors.New("name the site with --site ID, as the server has it")}
			}
			s, err := agent.Init(*folder, tko.SiteID(site))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), `# in the package of site %s
apiVersion: kubernetes.plugin.nephio.org/v1alpha1
kind: Cluster
metadata:
  name: site
spec:
  agent:
    key: %s
    recipient: %s
`, s.Site, s.Key, s.Recipient)
			return err
		},
	}
	cmd.Flags().StringVar(&site, "site", "", "`ID` of the site")
	return cmd
}

// placeFlags are the flags of the place that is changed.
type placeFlags struct {
	place  agent.Place
	charts string
}

func (f *placeFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.place.Kubeconfig, "kubeconfig", "", "`file` of the kubeconfig of the site's cluster")
	flags.BoolVar(&f.place.InCluster, "in-cluster", false, "apply to the cluster that the agent runs in, with the rights of its service account")
	flags.StringVar(&f.place.Repository, "repository", "", "`folder` of a bare git repository, which is made if there is none")
	flags.StringVar(&f.charts, "charts", "", "`folder` of Helm charts that packages name by path")
}

// complete adds the target for clusters, and checks the place.
func (f *placeFlags) complete(log *slog.Logger) error {
	limits, err := guard.New(guard.Options{})
	if err != nil {
		return err
	}
	f.place.Clusters = func(kubeconfigs string, inCluster bool) schedule.Clusters {
		return kubernetes.New(kubernetes.Options{Kubeconfigs: kubeconfigs, InCluster: inCluster, Charts: f.charts, Guard: limits, Log: log})
	}
	if err := f.place.Check(); err != nil {
		return &usageError{err}
	}
	return nil
}

// applyFlags are the flags of tko-agent apply.
type applyFlags struct {
	placeFlags

	keys    []string
	report  string
	older   bool
	timeout time.Duration
}

func applyCommand(folder *string, log *slog.Logger) *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use: "apply [FILE] --key FILE", Short: "Apply a bundle",
		Long: `Verify a bundle, and apply it: create and change what the site shall have, and remove what an earlier
bundle brought and this one doesn't have. Nothing is changed unless the bundle is signed by a key of
--key, is for the site of this agent, is not older than the one before, and can be read as a whole.

Without FILE, the bundle before is applied again, which corrects what others have changed.

The place is one of a cluster (--kubeconfig, or --in-cluster) and a bare repository of git on this
machine (--repository), which gets the same files as the repository of a site of a server.

The command waits until all is healthy, at most --wait. It can be interrupted or killed at any time:
called again, it goes on.`,
		Example: "  tko-agent apply ship-7.bundle --key bundles.key.pub --kubeconfig admin.conf --report ship-7.report\n  tko-agent apply --key bundles.key.pub --kubeconfig admin.conf",
		Args:    usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.apply(cmd.Context(), *folder, args, cmd.OutOrStdout(), log)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&flags.keys, "key", nil, "`file` of a public key that bundles must be signed with (may be repeated)")
	flags.flags(f)
	f.StringVar(&flags.report, "report", "", "`file` for the signed report, which is replaced")
	f.BoolVar(&flags.older, "allow-older", false, "apply a bundle that is older than the one before")
	f.DurationVar(&flags.timeout, "wait", 5*time.Minute, "`time` to wait at most until all is healthy; 0 applies once")
	return cmd
}

// trusted reads the public keys.
func (f *applyFlags) trusted() ([]ed25519.PublicKey, error) {
	if len(f.keys) == 0 {
		return nil, &usageError{errors.New("name the public key of those who make bundles with --key FILE: without one, everybody could change the site")}
	}
	var keys []ed25519.PublicKey
	for _, name := range f.keys {
		text, err := os.ReadFile(name) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, err
		}
		key, err := bundle.ParsePublic(string(text))
		if err != nil {
			return nil, fmt.Errorf("--key %s: %w", name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (f *applyFlags) apply(ctx context.Context, folder string, args []string, out io.Writer, log *slog.Logger) error {
	keys, err := f.trusted()
	if err != nil {
		return err
	}
	if err := f.complete(log); err != nil {
		return err
	}
	a, err := agent.Open(folder, log)
	if err != nil {
		return err
	}
	defer a.Close()
	if len(args) == 1 {
		if _, err := a.Accept(ctx, args[0], keys, f.older); err != nil {
			return err
		}
	}
	o, err := a.Apply(ctx, keys, f.place, f.timeout)
	if len(o.States) == 0 {
		return err
	}
	if f.report != "" {
		if reportErr := agent.Replace(f.report, func(w io.Writer) error { return a.Report(w, o, time.Now()) }); reportErr != nil {
			return errors.Join(err, fmt.Errorf("writing the report, run tko-agent apply without FILE to write it again: %w", reportErr))
		}
	}
	if err := describe(out, o); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if !o.Whole() {
		return fmt.Errorf("%w: %d of %d deployments are applied, and %d report that they are healthy; the conditions are in the report (--report), and tko-agent apply goes on", errPartly, o.Scheduled, o.Deployments, o.Healthy)
	}
	return nil
}

// describe prints an outcome.
func describe(out io.Writer, o agent.Outcome) error {
	_, err := fmt.Fprintf(out, "bundle %s: %d of %d deployments applied, %d healthy, %d kept as they are\n", o.Statement, o.Scheduled, o.Deployments, o.Healthy, o.Kept)
	for _, s := range o.States {
		for _, c := range s.Conditions {
			if c.Status != tko.ConditionTrue && err == nil {
				_, err = fmt.Fprintf(out, "%s %s: %s=%s (%s) %s\n", s.Kind, s.ID, c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	return err
}
