package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

func (a *app) siteEnroll() *cobra.Command {
	valid := tko.DefaultEnrollment
	var manifest agentManifest
	var sites string
	var bulk bulkFlag
	cmd := &cobra.Command{
		Use: "enroll {ID | --sites PATTERN}", Short: "Make a one-time token for the agent of a site",
		Long: `Make a one-time token with which the agent of a site gets its certificate, and print it: it can't be
shown again. At the site, tko-agent run --token-file reads it. Another token of the site that was not
used ends. An agent of the site that has a certificate keeps it until the token is used.

With --manifest, it prints the objects that run the agent in the cluster of the site, with the token. The
agent gets the rights of cluster-admin there.

With --sites, the token is for the agents of all sites that match a pattern, and permits nothing by
itself: each agent names its site (tko-agent run --site), and waits until a person approves it with tko
site approve. It can be used again until it expires. A pattern that begins with a wildcard must be
confirmed: by --confirm, or at a terminal.

The agent gets all that the site shall have, with the values of Secrets. The command needs the right to
update the site, or all the sites.`,
		Example: "  tko site enroll lagos/1 > lagos-1.token\n  tko site enroll lagos/1 --for 8h > lagos-1.token\n  tko site enroll --sites 'lagos/*' --for 72h > lagos.token\n" +
			"  tko site enroll lagos/1 --manifest --server tko.example.com:50060 --ca ca.crt --image registry.example/tko-server:v1 | kubectl apply -f -",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeArgs(completeSites),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if valid < time.Second || valid > tko.MaxEnrollment {
			return tko.Errorf(errUsage, "--for is %s: use at least 1s and at most %s", valid, tko.MaxEnrollment)
		}
		if err := manifest.check(a); err != nil {
			return err
		}
		if (len(args) == 1) == (sites != "") {
			return usageError(cmd, errors.New("name one site, or several with --sites PATTERN"))
		}
		if sites != "" && manifest.on {
			return tko.Errorf(errUsage, "--manifest is for the token of one site: name the site, and leave out --sites")
		}
		seconds := uint32(min(int64(valid/time.Second), math.MaxUint32)) //nolint:gosec // it was checked
		several := &tkopb.EnrollSites{Pattern: sites, ValidSeconds: seconds, Confirm: uint64(max(bulk.confirm, 0))}
		if sites != "" {
			if err := a.confirmSites(ctx, s, several); err != nil {
				return err
			}
		}
		made, err := call(ctx, s, func(ctx context.Context) (*tkopb.EnrollmentToken, error) {
			if sites != "" {
				return s.Access().EnrollSites(ctx, several)
			}
			return s.Access().EnrollSite(ctx, &tkopb.EnrollSite{SiteId: args[0], ValidSeconds: seconds})
		})
		if err != nil {
			return err
		}
		if made.GetReplaces() {
			a.notice("site %q has an agent with a certificate, which ends when the token is used", args[0])
		}
		if sites != "" {
			a.notice("the token is valid until %s; agents that use it wait for tko site approve", timeText(made.GetExpires()))
		} else {
			a.notice("the token is valid once, until %s", timeText(made.GetExpires()))
		}
		if manifest.on {
			text, err := manifest.text(made.GetToken())
			if err != nil {
				return err
			}
			_, err = io.WriteString(a.out, text)
			return err
		}
		f := a.globals.format
		if f == "" || isForPeople(f) { // also to a file, from which the agent reads it
			_, err := fmt.Fprintln(a.out, made.GetToken())
			return err
		}
		return a.encoder(f).value(a.out, map[string]any{
			"site": made.GetSiteId(), "token": made.GetToken(), "expires": timeText(made.GetExpires()), "replaces": made.GetReplaces(),
		})
	})
	cmd.Flags().DurationVar(&valid, "for", valid, "`time` that the token is valid, at most 720h")
	cmd.Flags().StringVar(&sites, "sites", "", "`pattern` of the IDs of sites whose agents may ask for an approval with the token")
	bulk.confirmFlag(cmd.Flags())
	manifest.flags(cmd.Flags())
	return cmd
}

// confirmSites lets a user at a terminal confirm a pattern of sites that begins with a wildcard, unless
// a flag has. Without a terminal, the server refuses it.
func (a *app) confirmSites(ctx context.Context, s *session, m *tkopb.EnrollSites) error {
	p, err := tko.ParsePattern(m.GetPattern())
	if err != nil {
		return tko.Errorf(errUsage, "--sites: %w", err)
	}
	if p.Prefix() != "" || m.GetConfirm() > 0 || !a.interactive {
		return nil
	}
	n, err := callLong(ctx, s, func(ctx context.Context) (int, error) {
		n := 0
		for _, err := range s.Sites(ctx, tko.SiteSelect{IDs: []string{m.GetPattern()}}, tko.ListOptions{}) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	})
	if err != nil {
		return err
	}
	if !a.ask("An agent with this token could ask to be that of any of %s, or of a later one. Continue?", count(n, "site", "sites")) {
		return errNotConfirmed
	}
	m.Confirm = uint64(max(n, 1))
	return nil
}

func (a *app) siteRevoke() *cobra.Command {
	var sites string
	cmd := &cobra.Command{
		Use: "revoke {ID | --sites PATTERN}", Short: "End the certificate of a site's agent, and its connection",
		Long: `End the certificate of a site's agent, its connection, and its tokens. The objects at the site stay there, and
the agent goes on to correct it until it is stopped there. To let another agent connect, use
tko site enroll.

With --sites, the token that tko site enroll made for the same pattern ends, and so do the agents that
wait with it. Agents that were approved stay.`,
		Example:           "  tko site revoke lagos/1\n  tko site revoke --sites 'lagos/*'",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeArgs(completeSites),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if (len(args) == 1) == (sites != "") {
			return usageError(cmd, errors.New("name one site, or the pattern of a token with --sites PATTERN"))
		}
		if sites != "" {
			err := s.do(ctx, func(ctx context.Context) error {
				_, err := s.Access().EnrollSites(ctx, &tkopb.EnrollSites{Pattern: sites, End: true})
				return err
			})
			if err != nil {
				return err
			}
			a.notice("ended the token for the sites %q", sites)
			return a.printResult(map[string]any{"sites": sites})
		}
		if err := s.do(ctx, func(ctx context.Context) error { return s.Access().RevokeSite(ctx, tko.SiteID(args[0])) }); err != nil {
			return err
		}
		a.notice("revoked the agent of site %q", args[0])
		return a.printResult(map[string]any{"site": args[0]})
	})
	cmd.Flags().StringVar(&sites, "sites", "", "`pattern` whose token ends")
	return cmd
}

var waitingAgentView = view[*tkopb.WaitingAgent]{
	id: (*tkopb.WaitingAgent).GetSiteId,
	row: func(w *tkopb.WaitingAgent) map[string]any {
		return map[string]any{
			"site": w.GetSiteId(), "key": w.GetKey(), "from": w.GetFrom(), "pattern": w.GetPattern(), "since": timeText(w.GetSince()), "expires": timeText(w.GetExpires()), "replaces": w.GetReplaces(),
		}
	},
	columns: []column[*tkopb.WaitingAgent]{
		{name: "SITE", text: (*tkopb.WaitingAgent).GetSiteId},
		{name: "KEY", text: func(w *tkopb.WaitingAgent) string { return fmt.Sprintf("%.16s", w.GetKey()) }},
		{name: "FROM", text: (*tkopb.WaitingAgent).GetFrom},
		{name: "SINCE", text: func(w *tkopb.WaitingAgent) string { return timeText(w.GetSince()) }},
		{name: "REPLACES", text: func(w *tkopb.WaitingAgent) string { return either(w.GetReplaces(), "an agent", "") }},
		{name: "PATTERN", wide: true, text: (*tkopb.WaitingAgent).GetPattern},
		{name: "EXPIRES", wide: true, text: func(w *tkopb.WaitingAgent) string { return timeText(w.GetExpires()) }},
	},
}

func (a *app) siteWaiting() *cobra.Command {
	return &cobra.Command{
		Use: "waiting", Short: "List the agents that wait until they are approved",
		Long: `List the agents that wait until they are approved to be those of their sites. They have a token of tko
site enroll --sites. The log of an agent has its key.`,
		Example: "  tko site waiting", Args: arguments(0, 0),
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			return list(ctx, s, waitingAgentView, nil, s.Access().WaitingAgents)
		}),
	}
}

func (a *app) siteApprove() *cobra.Command {
	m := &tkopb.ApproveAgent{}
	cmd := &cobra.Command{
		Use: "approve ID [ID...]", Short: "Let the agents that wait be those of sites",
		Long: `Let the agent that waits be that of a site, or refuse it. It gets all that the site shall have, with the
values of Secrets, and reports the site's state: compare the key that its log shows with the one that
waits, and name it with --key. Without --key, the only agent that waits for the site is meant.

An agent that was refused can't wait again with the same token and key. The agent that a site has is
replaced only with --replace. The command needs the right to update the sites.`,
		Example:           "  tko site approve lagos/1 --key 3f9a01c2d4e5f607\n  tko site approve lagos/1 lagos/2\n  tko site approve lagos/1 --refuse",
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeArgs(completeSites),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if m.GetRefuse() && m.GetReplace() {
				return tko.Errorf(errUsage, "--refuse and --replace contradict each other: use one")
			}
			if m.GetKey() != "" && len(args) > 1 {
				return tko.Errorf(errUsage, "--key is that of one agent: name one site")
			}
			return a.approveAgents(ctx, s, m, args)
		}),
	}
	cmd.Flags().StringVar(&m.Key, "key", "", "beginning of the agent's `key`, at least 16 digits; required if several agents wait for the site")
	cmd.Flags().BoolVar(&m.Refuse, "refuse", false, "refuse the agent")
	cmd.Flags().BoolVar(&m.Replace, "replace", false, "let the agent replace the one that the site has, whose certificate ends")
	return cmd
}

// approveAgents approves or refuses the agents of sites, one after the other. It reports the key of each:
// without --key, it is the one that is listed, so that no agent is approved that comes later.
func (a *app) approveAgents(ctx context.Context, s *session, m *tkopb.ApproveAgent, sites []string) error {
	waiting := map[string][]*tkopb.WaitingAgent{}
	for w, err := range s.Access().WaitingAgents(ctx) {
		if err != nil {
			return err
		}
		waiting[w.GetSiteId()] = append(waiting[w.GetSiteId()], w)
	}
	for _, site := range sites {
		one := &tkopb.ApproveAgent{SiteId: site, Key: m.GetKey(), Refuse: m.GetRefuse(), Replace: m.GetReplace()}
		if one.GetKey() == "" && len(waiting[site]) == 1 {
			one.Key = waiting[site][0].GetKey()
		}
		if err := s.do(ctx, func(ctx context.Context) error { return s.Access().ApproveAgent(ctx, one) }); err != nil {
			return err
		}
		a.notice("%s the agent of site %q with the key %.16s", either(m.GetRefuse(), "refused", "approved"), site, one.GetKey())
	}
	return a.printResult(map[string]any{"sites": sites, "approved": !m.GetRefuse()})
}
