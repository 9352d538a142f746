package cli

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// bundleSuffix ends the names of bundles that are written to a folder.
const bundleSuffix = ".bundle"

// scheduling are the methods that bundles need in addition: those of a meta-scheduler.
type scheduling interface {
	Freezes(ctx context.Context) ([]tko.Freeze, error)
	SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error)
	SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error)
	BundleHold(ctx context.Context, id tko.SiteID) (reason string, err error)
	SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error
}

func (a *app) bundleCommand() *cobra.Command {
	cmd := group("bundle", "Files for sites that are never connected", a.bundleCreate(), a.bundleReport(), a.bundleKey())
	cmd.Long = `Files for sites that are never connected. tko bundle create writes the desired state of a site into a
signed file; tko-agent apply applies it at the site, and writes a signed report; tko bundle report
reads that. The package of such a site has a Cluster with spec.agent.`
	return cmd
}

func (a *app) bundleKey() *cobra.Command {
	return &cobra.Command{
		Use: "key FILE", Short: "Make a key that signs bundles",
		Long: `Make an Ed25519 key that signs bundles: the private key in FILE, which must not exist, in PEM (PKCS #8),
and the public one in FILE.pub, for the flag --key of tko-agent. It contacts no server.`,
		Example: "  tko bundle key bundles.key",
		Args:    arguments(1, 1), ValidArgsFunction: fileNames,
		RunE: func(_ *cobra.Command, args []string) error {
			key, text, err := bundle.NewKey()
			if err != nil {
				return err
			}
			for _, file := range []struct {
				name string
				text string
			}{{args[0], string(text)}, {args[0] + ".pub", bundle.PublicText(key) + "\n"}} {
				if err := archive.NewFile(file.name, io.Discard, func(w io.Writer) error {
					_, err := io.WriteString(w, file.text)
					return err
				}); err != nil {
					return err
				}
			}
			return a.printFacts([]fact{textFact("key", "Public key", bundle.PublicText(key))})
		},
	}
}

// createFlags are the flags of tko bundle create.
type createFlags struct {
	sites       []string
	key         string
	recipient   string
	withSecrets bool
	incomplete  bool
}

func (a *app) bundleCreate() *cobra.Command {
	var flags createFlags
	cmd := &cobra.Command{
		Use: "create FILE|FOLDER --site PATTERN --key FILE", Short: "Write the desired state of sites into signed files",
		Long: `Write the desired state of a site into a signed file: the package of the site, and all of its
deployments that are prepared and approved, with the revision and the digest of each. FILE must not
exist. If several sites match, the argument is an existing folder, which gets a file for each.

The package of the site must have a Cluster with spec.agent. A site that is stopped, frozen or
suspended, or that a rollout keeps apart from others, gets no bundle. Deployments that are not
prepared and approved are an error. With --allow-incomplete the site keeps what it has of those that
were approved and have changed since, or are suspended, and removes what it has of others.

The serial number of a bundle is the position of the newest change of the server. An agent refuses
bundles with a smaller one than it had.

A bundle is encrypted for its agent if spec.agent.recipient of the Cluster, or --recipient, has the
recipient that tko-agent init printed. Otherwise Secrets in it are an error, unless --with-secrets
writes them in the clear.

It needs the rights of a meta-scheduler (the role controller-schedule): what is in a bundle is as
good as scheduled. The audit log records each bundle before it is made: who, which site, and why (--reason).`,
		Example: "  tko bundle create ship-7.bundle --site ships/7 --key bundles.key\n  tko bundle create ./stick/ --site 'ships/*' --key env:BUNDLE_KEY",
		Args:    arguments(1, 1), ValidArgsFunction: fileNames,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			return a.createBundles(ctx, s, flags, args[0])
		}),
	}
	f := cmd.Flags()
	patterns(f, &flags.sites, "site", "", "the site's ID")
	f.StringVar(&flags.key, "key", "", "`file` of the private key that signs, or env:NAME for one in a variable")
	f.StringVar(&flags.recipient, "recipient", "", "`recipient` of age for whom the bundle is encrypted (default: spec.agent.recipient of the site)")
	f.BoolVar(&flags.withSecrets, "with-secrets", false, "write Secrets in the clear")
	f.BoolVar(&flags.incomplete, "allow-incomplete", false, "leave out deployments that are not prepared and approved: the site keeps what it has of those that changed after their approval, and removes the others")
	return cmd
}

func (a *app) createBundles(ctx context.Context, s *session, flags createFlags, to string) error {
	switch {
	case len(flags.sites) == 0:
		return tko.Errorf(errUsage, "name the sites with --site PATTERN")
	case flags.key == "":
		return tko.Errorf(errUsage, "name the private key that signs with --key FILE: tko bundle key makes one")
	}
	text, err := readKey(flags.key)
	if err != nil {
		return err
	}
	key, err := bundle.ParseKey(text)
	if err != nil {
		return fmt.Errorf("--key %s: %w", flags.key, err)
	}
	var ids []tko.SiteID
	err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Site, error] {
		return s.Sites(ctx, tko.SiteSelect{IDs: flags.sites}, tko.ListOptions{})
	}, func(site tko.Site) error {
		ids = append(ids, site.ID)
		return nil
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(to)
	isFolder := err == nil && info.IsDir()
	switch {
	case len(ids) == 0:
		return tko.Errorf(tko.ErrNotFound, "no site matches --site %s: a bundle of nothing would remove everything; see tko site list", strings.Join(flags.sites, " --site "))
	case len(ids) > 1 && !isFolder:
		return tko.Errorf(errUsage, "%d sites match --site %s, and a bundle is for one: name an existing folder in place of %s", len(ids), strings.Join(flags.sites, " --site "), to)
	}
	var all []madeBundle
	for _, id := range ids {
		name := to
		if isFolder {
			escaped, err := kubename.Escape(string(id))
			if err != nil {
				return err
			}
			name = filepath.Join(to, escaped+bundleSuffix)
		}
		made, err := a.createBundle(ctx, s, flags, key, id, name)
		if err != nil {
			return err
		}
		all = append(all, made)
	}
	if !isForPeople(a.format()) {
		return a.encoder(a.format()).value(a.out, values(all, madeBundle.row))
	}
	for _, one := range all {
		fmt.Fprintf(a.out, "%s: site %s, serial %d, %s\n", one.file, one.Site, one.Serial, count(one.deployments(), "deployment", "deployments"))
	}
	return nil
}

// A madeBundle is the bundle of a site, and its file.
type madeBundle struct {
	bundle.Statement

	file string
	kept int // rows of deployments without packages
}

// deployments returns the number of deployments with packages.
func (m madeBundle) deployments() int { return m.Rows - 1 - m.kept }

func (m madeBundle) row() map[string]any {
	return map[string]any{
		"file": m.file, "site": string(m.Site), "serial": m.Serial, "time": m.Time.Format(time.RFC3339Nano), "sha256": m.Digest, "missing": m.Missing,
		"deployments": m.deployments(),
	}
}

// readKey reads the text of a key from a file or a variable.
func readKey(from string) (string, error) {
	if name, ok := strings.CutPrefix(from, "env:"); ok {
		text := os.Getenv(name)
		if text == "" {
			return "", tko.Errorf(errUsage, "the variable %q is empty: set it to the key", name)
		}
		return text, nil
	}
	const most = 64 << 10
	file, err := os.Open(from) //nolint:gosec // the user names the file
	if errors.Is(err, fs.ErrNotExist) {
		return "", tko.Errorf(errUsage, "there is no file %q with a key: name another one (tko bundle key makes those that sign bundles, and tko-agent init those of an agent)", from)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, most))
	return string(text), err
}

// createBundle writes the bundle of one site.
func (a *app) createBundle(ctx context.Context, s *session, flags createFlags, key ed25519.PrivateKey, id tko.SiteID, name string) (made madeBundle, err error) {
	made.file = name
	about, err := call(ctx, s, s.About) // before the site is read: what changes later gets a greater position
	if err != nil {
		return made, err
	}
	// Before packages are read, which may have Secrets; what holds the site is checked below.
	if _, err := call(ctx, s, func(ctx context.Context) (string, error) { return s.BundleHold(ctx, id) }); err != nil {
		return made, err
	}
	site, err := call(ctx, s, func(ctx context.Context) (tko.Site, error) { return s.Site(ctx, id, 0) })
	if err != nil {
		return made, err
	}
	if err := a.checkHolds(ctx, s, site); err != nil {
		return made, err
	}
	of, err := agentOf(site)
	if err != nil {
		return made, err
	}
	w := &bundleRows{site: site, clear: flags.withSecrets}
	recipient := cmp.Or(flags.recipient, of.Recipient)
	w.clear = w.clear || recipient != ""
	if w.missing, err = a.missingAt(ctx, s, id, flags.incomplete); err != nil {
		return made, err
	}
	statement := bundle.Statement{Site: id, Serial: about.Position, Time: a.now(), Missing: len(w.missing)}
	err = archive.NewFile(name, a.streams.Out, func(out io.Writer) error {
		made.Statement, err = bundle.Write(out, statement, bundle.Options{Type: bundle.TypeBundle, Key: key, Recipient: recipient}, w.rows(ctx, s))
		if err == nil {
			err = a.checkHolds(ctx, s, site) // a stop may be newer than the first check
		}
		return err
	})
	made.kept = w.kept
	return made, err
}

// agentOf returns what the package of a site says of its agent.
func agentOf(site tko.Site) (trigger.Agent, error) {
	r, err := trigger.OfAgent(site.Package)
	if err != nil {
		return trigger.Agent{}, fmt.Errorf("site %q: %w", site.ID, err)
	}
	return trigger.AgentOf(r), nil
}

// checkHolds returns an error if the meta-scheduler would schedule nothing at a site now.
func (a *app) checkHolds(ctx context.Context, s *session, site tko.Site) error {
	var hold bundle.Hold
	var err error
	if hold.Stop, err = call(ctx, s, func(ctx context.Context) (tko.SiteStop, error) { return s.SiteStop(ctx, site.ID) }); err != nil {
		return err
	}
	if hold.Freezes, err = call(ctx, s, s.Freezes); err != nil {
		return err
	}
	if hold.Apart, err = call(ctx, s, func(ctx context.Context) (string, error) { return s.SiteHold(ctx, site.ID) }); err != nil {
		return err
	}
	if why := hold.Reason(site, a.now()); why != "" {
		return tko.Errorf(tko.ErrConflict, "site %q gets no bundle: %s", site.ID, why)
	}
	return nil
}

// missingAt returns the deployments at a site that are not prepared and approved, or are suspended.
func (a *app) missingAt(ctx context.Context, s *session, id tko.SiteID, allow bool) (missing map[tko.DeploymentID]bool, err error) {
	missing = map[tko.DeploymentID]bool{}
	var names, removed []string
	err = s.eachDeployment(ctx, atSite(id), tko.ListOptions{}, func(d tko.Deployment) {
		if bundle.IsDue(d) {
			return
		}
		missing[d.ID] = true
		names = append(names, string(d.ID))
		if !bundle.Stays(d) {
			removed = append(removed, string(d.ID))
		}
	})
	if err != nil || len(names) == 0 {
		return missing, err
	}
	text := fmt.Sprintf("%s at site %q not prepared and approved, or suspended, such as %s", count(len(names), "deployment is", "deployments are"), id, names[0])
	effect := "the site keeps what it has of them"
	n := len(removed)
	switch {
	case n == len(names):
		effect = "the site has nothing of them, or removes it, because they were never approved, or a user took their approval back"
	case n > 0:
		effect = fmt.Sprintf("the site keeps what it has of %s; of %s, such as %s, which were never approved, or whose approval a user took back, it has nothing, or removes it",
			count(len(names)-n, "deployment", "deployments"), count(n, "deployment", "deployments"), removed[0])
	}
	if !allow {
		return nil, tko.Errorf(tko.ErrConflict, "%s: wait for them (tko wait), approve them, or leave them out with --allow-incomplete: %s", text, effect)
	}
	a.notice("%s: %s", text, effect)
	return missing, nil
}

func atSite(id tko.SiteID) tko.DeploymentSelect {
	return tko.DeploymentSelect{Sites: []string{tko.LiteralPattern(string(id))}}
}

// bundleRows are the rows of a bundle, one in memory at a time.
type bundleRows struct {
	site    tko.Site
	clear   bool // Secrets may be written
	missing map[tko.DeploymentID]bool
	kept    int // rows without packages
}

func (w *bundleRows) rows(ctx context.Context, s *session) iter.Seq2[bundle.Row, error] {
	return func(yield func(bundle.Row, error) bool) {
		row, err := w.siteRow()
		if !yield(row, err) || err != nil {
			return
		}
		stopped := errors.New("stopped")
		err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Deployment, error] {
			return s.Deployments(ctx, atSite(w.site.ID), tko.ListOptions{Packages: true})
		}, func(d tko.Deployment) error {
			row, ok, err := w.deploymentRow(d)
			if err != nil || !ok {
				return err
			}
			if !yield(row, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(bundle.Row{}, err)
		}
	}
}

func (w *bundleRows) siteRow() (bundle.Row, error) {
	row, err := bundle.SiteRow(w.site)
	if err == nil {
		err = w.checkSecrets("site", string(w.site.ID), w.site.Package)
	}
	return row, err
}

// deploymentRow returns the row of a deployment; ok is false if the site is to remove what it has
// of it.
func (w *bundleRows) deploymentRow(d tko.Deployment) (row bundle.Row, ok bool, err error) {
	due := bundle.IsDue(d)
	if !due && !w.missing[d.ID] {
		return row, false, tko.Errorf(tko.ErrBusy, "deployment %q at site %q has changed meanwhile: create the bundle again", d.ID, w.site.ID)
	}
	row, ok, err = bundle.DeploymentRow(d)
	switch {
	case err != nil:
	case due:
		err = w.checkSecrets("deployment", string(d.ID), d.Package)
	case ok:
		w.kept++
	}
	return row, ok, err
}

// checkSecrets refuses packages with Secrets that must not be written in the clear.
func (w *bundleRows) checkSecrets(kind, id string, pkg krm.Package) error {
	if !w.clear && pkg.HasSecrets() {
		return tko.Errorf(tko.ErrInvalid, "the package of %s %q has a Secret: set spec.agent.recipient of the site's Cluster to what tko-agent init printed, so that the bundle is encrypted, or write it in the clear with --with-secrets", kind, id)
	}
	return nil
}
