package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/printable"
)

func (a *app) bundleReport() *cobra.Command {
	var keyFile string
	var write bool
	cmd := &cobra.Command{
		Use: "report FILE", Short: "Verify and show the report of an agent",
		Long: `Verify and show the report that tko-agent apply wrote at a site: the conditions of the site and of its
deployments, each with the revision that it is about. The signature must be that of the site's agent:
of the key in spec.agent.key of the site's Cluster, or in the file of --key.

With --write, the conditions Scheduled and Healthy of the site and of its deployments become those
of the report, with the time of the report in their messages. Only conditions of the revision that an
entity has now are written: nothing is known of a newer one. A report that is older than the one
before changes nothing. It needs the rights of a meta-scheduler (the role controller-schedule).`,
		Example: "  tko bundle report ship-7.report\n  tko bundle report ship-7.report --write",
		Args:    arguments(1, 1), ValidArgsFunction: fileNames,
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		r, err := a.readReport(ctx, s, args[0], keyFile)
		if err != nil {
			return err
		}
		if write {
			if err := a.writeReport(ctx, s, &r); err != nil {
				return err
			}
		}
		return a.printReport(r)
	})
	cmd.Flags().StringVar(&keyFile, "key", "", "`file` of the agent's public key (default: spec.agent.key of the site)")
	cmd.Flags().BoolVar(&write, "write", false, "write the conditions to the server")
	return cmd
}

// An agentReport is a verified report.
type agentReport struct {
	statement bundle.Statement
	states    []bundle.State
	written   map[string]string // by kind and ID: what became of it
}

func (a *app) readReport(ctx context.Context, s *session, name, keyFile string) (r agentReport, err error) {
	file, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return r, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return r, err
	}
	key, err := a.reportKey(ctx, s, file, info.Size(), keyFile)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	verified, err := bundle.Open(file, info.Size(), bundle.TypeReport, key)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	r.statement = verified.Statement
	for row, err := range verified.Rows("") {
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.states = append(r.states, *row.State)
	}
	return r, nil
}

// reportKey returns the public key of the agent of the site that a report claims to be of.
func (a *app) reportKey(ctx context.Context, s *session, file *os.File, size int64, keyFile string) (ed25519.PublicKey, error) {
	if keyFile != "" {
		text, err := readKey(keyFile)
		if err != nil {
			return nil, err
		}
		return bundle.ParsePublic(text)
	}
	claimed, err := bundle.Claimed(file, size, bundle.TypeReport)
	if err != nil {
		return nil, err
	}
	site, err := call(ctx, s, func(ctx context.Context) (tko.Site, error) { return s.Site(ctx, claimed.Site, 0) })
	if err != nil {
		return nil, err
	}
	of, err := agentOf(site)
	if err != nil {
		return nil, err
	}
	if of.Key == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "the key of the agent of site %q isn't known: set spec.agent.key of the site's Cluster to what tko-agent init printed, or name a file with --key", site.ID)
	}
	return bundle.ParsePublic(of.Key)
}

// What became of the conditions of an entity.
const (
	reportWritten   = "written"
	reportSame      = "unchanged"
	reportOther     = "not written: the server has revision %d"
	reportGone      = "not written: it was deleted"
	reportElsewhere = "not written: it is no longer at the site"
	reportOlder     = "not written: the server has a report of %s"
)

// writeReport writes the conditions of a report.
func (a *app) writeReport(ctx context.Context, s *session, r *agentReport) error {
	r.written = map[string]string{}
	for _, state := range r.states {
		what, err := a.writeState(ctx, s, r.statement, state)
		if err != nil {
			return err
		}
		r.written[string(state.Kind)+" "+state.ID] = what
	}
	return nil
}

func (a *app) writeState(ctx context.Context, s *session, of bundle.Statement, state bundle.State) (what string, err error) {
	stamp, at, err := stampOf(ctx, s, state)
	if errors.Is(err, tko.ErrNotFound) {
		return reportGone, nil
	}
	switch {
	case err != nil:
		return "", err
	case at != of.Site:
		return reportElsewhere, nil
	case stamp.Revision != state.Revision:
		return fmt.Sprintf(reportOther, stamp.Revision), nil
	}
	var changed []tko.Condition
	for _, c := range state.Taken() {
		was := tko.FindCondition(stamp.Conditions, c.Type)
		if newest := tko.ReportedAt(was); was != nil && was.ObservedRevision == state.Revision && newest.After(of.Time.Truncate(time.Millisecond)) {
			return fmt.Sprintf(reportOlder, newest.UTC().Format(time.RFC3339)), nil
		}
		changed = append(changed, tko.ReportedCondition(c, of.Time))
	}
	if len(changed) == 0 {
		return reportSame, nil
	}
	return reportWritten, s.do(ctx, func(ctx context.Context) error { return s.SetConditions(ctx, state.Kind, state.ID, changed) })
}

// stampOf reads the entity of a state, and where it is.
func stampOf(ctx context.Context, s *session, state bundle.State) (tko.Stamp, tko.SiteID, error) {
	if state.Kind == tko.KindSite {
		site, err := call(ctx, s, func(ctx context.Context) (tko.Site, error) { return s.Site(ctx, tko.SiteID(state.ID), 0) })
		return site.Stamp, site.ID, err
	}
	d, err := s.deployment(ctx, tko.DeploymentID(state.ID), 0)
	return d.Stamp, d.Site, err
}

// printReport prints a report.
func (a *app) printReport(r agentReport) error {
	if f := a.format(); !isForPeople(f) {
		return a.encoder(f).value(a.out, map[string]any{
			"site": string(r.statement.Site), "serial": r.statement.Serial, "time": r.statement.Time.Format(time.RFC3339Nano), "bundle": r.statement.Bundle, "missing": r.statement.Missing,
			"states": values(r.states, func(s bundle.State) map[string]any {
				m := map[string]any{"kind": string(s.Kind), "id": s.ID, "revision": s.Revision, "conditions": values(s.Conditions, conditionRow)}
				if what := r.written[string(s.Kind)+" "+s.ID]; what != "" {
					m["written"] = what
				}
				return m
			}),
		})
	}
	fmt.Fprintf(a.out, "Report of %s, about a bundle with serial %d, of site %s\n", r.statement.Time.Format(time.RFC3339), r.statement.Serial, r.statement.Site)
	for _, s := range r.states {
		line := fmt.Sprintf("%s %s, revision %d", s.Kind, s.ID, s.Revision)
		if what := r.written[string(s.Kind)+" "+s.ID]; what != "" {
			line += ", " + what
		}
		fmt.Fprintln(a.out, printable.Text(line))
		for _, c := range s.Conditions {
			fmt.Fprintln(a.out, "    "+cut(printable.Text(fmt.Sprintf("%s=%s (%s) %s", c.Type, c.Status, c.Reason, c.Message)), a.width()))
		}
	}
	return nil
}

func conditionRow(c bundle.Condition) map[string]any {
	return map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message}
}
