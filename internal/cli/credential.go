package cli

import (
	"context"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

var credentialView = view[*tkopb.CredentialUse]{
	id: (*tkopb.CredentialUse).GetCredential,
	row: func(u *tkopb.CredentialUse) map[string]any {
		return map[string]any{
			"credential": u.GetCredential(), "host": u.GetHost(), "kind": u.GetKind(), "example": u.GetExample(), "count": int64(u.GetCount()), "declared": u.GetDeclared(),
		}
	},
	columns: []column[*tkopb.CredentialUse]{
		{name: "CREDENTIAL", text: (*tkopb.CredentialUse).GetCredential},
		{name: "HOST", text: (*tkopb.CredentialUse).GetHost},
		{name: "KIND", text: (*tkopb.CredentialUse).GetKind},
		{name: "COUNT", text: func(u *tkopb.CredentialUse) string { return strconv.FormatUint(u.GetCount(), 10) }},
		{name: "EXAMPLE", text: (*tkopb.CredentialUse).GetExample},
		{name: "DECLARED", text: func(u *tkopb.CredentialUse) string { return strconv.FormatBool(u.GetDeclared()) }},
	},
}

func (a *app) credentialCommand() *cobra.Command {
	var undeclared bool
	show := &cobra.Command{
		Use: "list", Short: "List how credentials of the server are used",
		Long: `List how sites, templates, plugins and registered GitOps sources use the credentials of the
server: the name of the credential, the host that gets it (none for kubeconfigs, which name
it), how many use it, one of them, and whether the operator declared that in the file of the
server's flag --credentials. Uses that aren't declared go on as they are, but only callers with the
role credential can add uses. The credentials themselves are never shown.`,
		Example: "  tko credential list\n  tko credential list --undeclared",
		Args:    arguments(0, 0),
	}
	show.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		more := false
		err := list(ctx, s, credentialView, nil, func(ctx context.Context) iter.Seq2[*tkopb.CredentialUse, error] {
			return func(yield func(*tkopb.CredentialUse, error) bool) {
				all, err := s.Access().Credentials(ctx, undeclared)
				if err != nil {
					yield(nil, err)
					return
				}
				more = all.GetMore()
				for _, u := range all.GetUses() {
					if !yield(u, nil) {
						return
					}
				}
			}
		})
		if err == nil && more {
			a.notice("there are more uses than the server lists: declare some, and use --undeclared")
		}
		return err
	})
	show.Flags().BoolVar(&undeclared, "undeclared", false, "only uses that the operator did not declare")
	return group("credential", "Credentials of the server", show)
}
