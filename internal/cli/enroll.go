package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

func (a *app) siteEnroll() *cobra.Command {
	valid := tko.DefaultEnrollment
	cmd := &cobra.Command{
		Use: "enroll ID", Short: "Make a one-time token for the agent of a site",
		Long: `Make a one-time token with which the agent of a site gets its certificate, and print it: it can't be
shown again. At the site, tko-agent run --token-file reads it. Another token of the site that was not
used ends. An agent of the site that has a certificate keeps it until the token is used.

The agent gets all that the site shall have, with the values of Secrets. It needs the right to update
the site.`,
		Example:           "  tko site enroll lagos/1 > lagos-1.token\n  tko site enroll lagos/1 --for 8h > lagos-1.token",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeArgs(completeSites),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if valid < time.Second || valid > tko.MaxEnrollment {
			return tko.Errorf(errUsage, "--for is %s: use at least 1s and at most %s", valid, tko.MaxEnrollment)
		}
		seconds := min(int64(valid/time.Second), math.MaxUint32)
		made, err := call(ctx, s, func(ctx context.Context) (*tkopb.EnrollmentToken, error) {
			return s.Access().EnrollSite(ctx, &tkopb.EnrollSite{SiteId: args[0], ValidSeconds: uint32(seconds)}) //nolint:gosec // it was checked
		})
		if err != nil {
			return err
		}
		if made.GetReplaces() {
			a.notice("site %q has an agent with a certificate, which ends when the token is used", args[0])
		}
		a.notice("the token is valid once, until %s", timeText(made.GetExpires()))
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
	return cmd
}

func (a *app) siteRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End the certificate of a site's agent, and its connection",
		Long: `End the certificate of a site's agent, its connection, and its tokens. What the site has stays there, and
the agent goes on to correct it until it is stopped there. To let another agent connect, use
tko site enroll.`,
		Example:           "  tko site revoke lagos/1",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeArgs(completeSites),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if err := s.do(ctx, func(ctx context.Context) error { return s.Access().RevokeSite(ctx, tko.SiteID(args[0])) }); err != nil {
				return err
			}
			a.notice("revoked the agent of site %q", args[0])
			return a.printResult(map[string]any{"site": args[0]})
		}),
	}
}
