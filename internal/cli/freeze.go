package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

var freezeView = view[*tkopb.Freeze]{
	id: (*tkopb.Freeze).GetId,
	row: func(f *tkopb.Freeze) map[string]any {
		return map[string]any{
			"id": f.GetId(), "siteMetadata": metadataValue(f.GetSiteMetadata()), "until": timeText(f.GetUntil()), "reason": f.GetReason(),
			"frozenBy": f.GetFrozenBy(), "created": timeText(f.GetCreated()),
		}
	},
	columns: []column[*tkopb.Freeze]{
		{name: "ID", text: (*tkopb.Freeze).GetId},
		{name: "SITES", text: func(f *tkopb.Freeze) string { return metadataText(f.GetSiteMetadata()) }},
		{name: "UNTIL", text: func(f *tkopb.Freeze) string { return timeText(f.GetUntil()) }},
		{name: "BY", text: (*tkopb.Freeze).GetFrozenBy},
		{name: "REASON", text: (*tkopb.Freeze).GetReason},
		{name: "CREATED", wide: true, text: func(f *tkopb.Freeze) string { return timeText(f.GetCreated()) }},
	},
}

func (a *app) freezeCommand() *cobra.Command {
	var metadata map[string]string
	var until string
	var bulk bulkFlag
	cmd := &cobra.Command{
		Use: "freeze --site-metadata KEY=PATTERN --until TIME --reason TEXT", Short: "Keep sites as they are until a time",
		Long: `Keep sites as they are until a time: nothing is scheduled there, and no rollout changes
deployments there. Packages may be changed meanwhile; they are scheduled when the freeze
ends. The conditions of sites and deployments report what waits. A freeze ends by itself.
Sites whose metadata matches later are frozen, too.

A freeze with the same selection as one that is not over extends it: the ID stays. To end
a freeze earlier, use tko unfreeze.`,
		Example: `  tko freeze --site-metadata region=north --until 2026-12-27T06:00:00Z --reason 'year-end peak'
  tko freeze --site-metadata tier=core,region=south --until 8h --reason 'switch replacement'
  tko freeze list`,
		Args: arguments(0, 0),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		if err := bulk.checkCount(cmd, "sites"); err != nil {
			return err
		}
		switch {
		case len(metadata) == 0:
			return tko.Errorf(errUsage, "name the sites with --site-metadata KEY=PATTERN: a freeze of everything is not a default")
		case until == "":
			return tko.Errorf(errUsage, "state with --until when the freeze ends: a time such as 2026-12-27T06:00:00Z, or a duration such as 8h")
		case strings.TrimSpace(a.globals.reason) == "":
			return tko.Errorf(errUsage, "state with --reason why, for those who wait for the end of the freeze")
		}
		at, err := a.timeAfter(until)
		if err != nil {
			return err
		}
		ctx, err = bulk.settle(ctx, s, "freeze", "site", "sites", func(ctx context.Context) (int, error) {
			n := 0
			for _, err := range s.Sites(ctx, tko.SiteSelect{Metadata: metadata}, tko.ListOptions{}) {
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
		f, err := call(ctx, s, func(ctx context.Context) (*tkopb.Freeze, error) {
			confirmed, _ := tko.ConfirmationOf(ctx)
			return s.Access().Freeze(ctx, &tkopb.Freeze{
				SiteMetadata: metadata, Until: timestamppb.New(at), Reason: a.globals.reason, Confirm: uint64(confirmed), //nolint:gosec // a count of entities is not negative
			})
		})
		if err != nil {
			return err
		}
		return a.printFacts([]fact{
			textFact("id", "ID", f.GetId()), textFact("sites", "Sites", metadataText(f.GetSiteMetadata())), textFact("until", "Until", timeText(f.GetUntil())),
		})
	})
	bulk.confirmFlag(cmd.Flags())
	keyValues(cmd.Flags(), &metadata, "site-metadata", "", "`KEY=PATTERN` that the metadata of sites must match")
	cmd.Flags().StringVar(&until, "until", "", "`time` at which the freeze ends, or duration until then")
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List the freezes that are not over", Example: "  tko freeze list",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			return list(ctx, s, freezeView, nil, s.Access().Freezes)
		}),
	})
	return cmd
}

func (a *app) unfreezeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unfreeze ID...", Short: "End freezes", Long: "End freezes. Deployments that wait are scheduled at once.",
		Example: `  tko unfreeze "$id"`, Args: arguments(1, -1),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			err := s.do(ctx, func(ctx context.Context) error { return s.Access().Unfreeze(ctx, args...) })
			if err == nil {
				a.notice("ended %s", count(len(args), "freeze", "freezes"))
			}
			return err
		}),
	}
}

// timeAfter reads a time in RFC 3339, a local time such as 2026-12-27 06:00, or a
// duration from now.
func (a *app) timeAfter(text string) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return a.now().Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, tko.Errorf(errUsage, "the time %q is not known: use a time such as 2026-12-27T06:00:00Z or '2026-12-27 06:00', or a duration such as 8h", text)
}
