package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

var modificationView = view[tko.OpenModification]{
	id: func(m tko.OpenModification) string { return string(m.Deployment) },
	row: func(m tko.OpenModification) map[string]any {
		row := map[string]any{"deploymentId": string(m.Deployment), "who": m.Author.Who, "why": m.Author.Why, "expires": m.Expires.Format(time.RFC3339Nano)}
		if !m.Started.IsZero() {
			row["started"] = m.Started.Format(time.RFC3339Nano)
		}
		return row
	},
	columns: []column[tko.OpenModification]{
		{name: "DEPLOYMENT", text: func(m tko.OpenModification) string { return string(m.Deployment) }},
		{name: "STARTED", age: func(m tko.OpenModification) time.Time { return m.Started }},
		{name: "EXPIRES", text: func(m tko.OpenModification) string { return m.Expires.Local().Format(time.RFC3339) }},
		{name: "WHO", text: func(m tko.OpenModification) string { return m.Author.Who }},
		{name: "WHY", text: func(m tko.OpenModification) string { return m.Author.Why }},
	},
}

func (a *app) modList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List open modifications",
		Long: `List open modifications: the deployments that no other client can modify now, with
the author and the expiry of each modification. Tokens are not shown.`,
		Example: "  tko deployment mod list",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			open, err := call(ctx, s, s.Modifications)
			if err != nil {
				return err
			}
			return listItems(ctx, s, modificationView, open)
		}),
	}
}

func (a *app) modBreak() *cobra.Command {
	return a.ofOne(tko.KindDeployment, &cobra.Command{
		Use:   "break ID",
		Short: "Break the modification of a deployment",
		Long: `Break the modification of a deployment: its token becomes invalid, and other clients
can modify the deployment at once. Changes that its holder has not stored yet are
lost: the holder must start again.`,
		Example: `  tko deployment mod break "$id"`,
	}, func(ctx context.Context, s *session, id string) error {
		broken, err := call(ctx, s, func(ctx context.Context) (tko.OpenModification, error) {
			return s.BreakModification(ctx, tko.DeploymentID(id))
		})
		if err == nil {
			a.notice("broke the modification of deployment %q by %s", id, cmp.Or(broken.Author.Who, "an unknown client"))
		}
		return err
	})
}
