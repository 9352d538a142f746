package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

const accessHelp = `Rights of clients: who may do what, where.

A binding gives a role to a subject or a group, within a scope, until it expires. Roles:
viewer, editor, approver, operator, admin; for programs controller-prepare,
controller-schedule, controller-gitops, plugin, delegated; and the rights of their own
secret, audit, backup, impersonate, own, credential. Subjects have the prefix of their authenticator, as
tko whoami shows: cert:NAME, spiffe://..., oidc:ALIAS:SUB, k8s:NAME, token:NAME, unix:UID.

The first administrator is made on the machine of the server: tko-server access init.`

func (a *app) accessCommand() *cobra.Command {
	cmd := group("access", "Rights of clients", a.accessList(), a.accessBind(), a.accessUnbind(), a.accessOwn(), a.accessCanI(), a.accessBreakGlass(), a.accessPolicy())
	cmd.Long = accessHelp
	return cmd
}

func scopeText(s *tkopb.Scope) string {
	var parts []string
	for _, part := range [][2]string{{"kind=", strings.Join(s.GetKinds(), "|")}, {"site-id=", s.GetSiteId()}, {"template-id=", s.GetTemplateId()}, {"", metadataText(s.GetMetadata())}} {
		if part[1] != "" {
			parts = append(parts, part[0]+part[1])
		}
	}
	return cmp.Or(strings.Join(parts, ","), "all")
}

func scopeValue(s *tkopb.Scope) map[string]any {
	value := map[string]any{}
	if len(s.GetKinds()) > 0 {
		value["kinds"] = listValue(s.GetKinds())
	}
	setText(value, "siteId", s.GetSiteId())
	setText(value, "templateId", s.GetTemplateId())
	if len(s.GetMetadata()) > 0 {
		value["metadata"] = metadataValue(s.GetMetadata())
	}
	return value
}

func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339)
}

var bindingView = view[*tkopb.Binding]{
	id: (*tkopb.Binding).GetId,
	row: func(b *tkopb.Binding) map[string]any {
		return map[string]any{
			"id": b.GetId(), "subject": b.GetSubject(), "group": b.GetGroup(), "role": b.GetRole(), "scope": scopeValue(b.GetScope()),
			"expires": timeText(b.GetExpires()), "reason": b.GetReason(), "boundBy": b.GetBoundBy(), "created": timeText(b.GetCreated()),
		}
	},
	columns: []column[*tkopb.Binding]{
		{name: "ID", text: (*tkopb.Binding).GetId},
		{name: "SUBJECT", text: (*tkopb.Binding).GetSubject},
		{name: "GROUP", text: (*tkopb.Binding).GetGroup},
		{name: "ROLE", text: (*tkopb.Binding).GetRole},
		{name: "SCOPE", text: func(b *tkopb.Binding) string { return scopeText(b.GetScope()) }},
		{name: "EXPIRES", text: func(b *tkopb.Binding) string { return timeText(b.GetExpires()) }},
		{name: "BY", wide: true, text: (*tkopb.Binding).GetBoundBy},
		{name: "REASON", wide: true, text: (*tkopb.Binding).GetReason},
	},
}

var policyView = view[*tkopb.Policy]{
	id: (*tkopb.Policy).GetId,
	row: func(p *tkopb.Policy) map[string]any {
		return map[string]any{
			"id": p.GetId(), "scope": scopeValue(p.GetScope()), "approvers": int64(p.GetApprovers()), "groups": listValue(p.GetGroups()),
			"reason": p.GetReason(), "addedBy": p.GetAddedBy(), "created": timeText(p.GetCreated()),
		}
	},
	columns: []column[*tkopb.Policy]{
		{name: "ID", text: (*tkopb.Policy).GetId},
		{name: "SCOPE", text: func(p *tkopb.Policy) string { return scopeText(p.GetScope()) }},
		{name: "APPROVERS", text: func(p *tkopb.Policy) string { return strconv.FormatUint(uint64(p.GetApprovers()), 10) }},
		{name: "GROUPS", text: func(p *tkopb.Policy) string { return strings.Join(p.GetGroups(), " ") }},
		{name: "REASON", text: (*tkopb.Policy).GetReason},
	},
}

func (a *app) accessList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List bindings", Long: "List bindings: all of them for those who may bind, otherwise the caller's own.",
		Example: "  tko access list\n  tko access list -o wide",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			return list(ctx, s, bindingView, nil, s.Access().Bindings)
		}),
	}
}

// scopeFlags adds the flags of a scope.
func scopeFlags(cmd *cobra.Command, s *tkopb.Scope) {
	cmd.Flags().StringSliceVar(&s.Kinds, "kind", nil, "`kinds` of the scope: template, site, deployment, plugin (default all)")
	cmd.Flags().StringVar(&s.SiteId, "site-id", "", "`ID` of the site, or the beginning of IDs followed by **: sites, and deployments at them")
	cmd.Flags().StringVar(&s.TemplateId, "template-id", "", "`ID` of the template, or the beginning of IDs followed by **: templates, and sites and deployments made from them")
	keyValues(cmd.Flags(), &s.Metadata, "metadata", "", "`KEY=VALUE` that the metadata must have")
}

func (a *app) accessBind() *cobra.Command {
	b := &tkopb.Binding{Scope: &tkopb.Scope{}}
	var isGroup bool
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "bind SUBJECT ROLE", Short: "Give a role to a subject or a group",
		Long: `Give a role to a subject or a group, within a scope. One binds only roles and scopes that
one holds. A scope covers only kinds that have all its fields: for example, --site-id
covers sites and deployments, and no templates. Use --reason to record why.`,
		Example: `  tko access bind oidc:corp:248289761001 editor --site-id 'emea/**' --expires 720h
  tko access bind oidc:corp:noc viewer --group`,
		Args: arguments(2, 2),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			b.Subject, b.Role, b.Reason = args[0], args[1], a.globals.reason
			if isGroup {
				b.Subject, b.Group = "", args[0]
			}
			if expires < 0 {
				return tko.Errorf(errUsage, "--expires %s is negative", expires)
			}
			if expires > 0 {
				b.Expires = timestamppb.New(a.now().Add(expires))
			}
			bound, err := call(ctx, s, func(ctx context.Context) (*tkopb.Binding, error) { return s.Access().Bind(ctx, b) })
			if err != nil {
				return err
			}
			return a.printFacts([]fact{textFact("id", "ID", bound.GetId())})
		}),
	}
	scopeFlags(cmd, b.GetScope())
	cmd.Flags().BoolVar(&isGroup, "group", false, "the name is that of a group")
	cmd.Flags().DurationVar(&expires, "expires", 0, "`duration` after which the binding ends (0: never)")
	return cmd
}

func (a *app) accessUnbind() *cobra.Command {
	var bulk bulkFlag
	cmd := &cobra.Command{
		Use: "unbind ID", Short: "Remove a binding or a policy",
		Long: `Remove a binding or a policy. Writes of its subject that have not committed fail, and
its streams end within a second. What controllers derive from the entities that the subject
owns is held, if it has no other right to it: with --access=enforce, the server then needs
their number (--confirm), and a terminal shows it and asks. Nothing is deleted. To let it
go on, name another owner before (tko access own).`,
		Example: "  tko access unbind \"$id\"\n  tko access unbind \"$id\" --confirm 1000", Args: arguments(1, 1),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		err := bulk.checkCount(cmd, "entities")
		if err == nil {
			ctx, err = a.confirmUnbind(ctx, s, args[0], bulk.confirm)
		}
		if err == nil {
			err = s.do(ctx, func(ctx context.Context) error { return s.Access().Unbind(ctx, args[0]) })
		}
		if err == nil {
			a.notice("removed %q", args[0])
		}
		return err
	})
	bulk.confirmFlag(cmd.Flags())
	return cmd
}

// confirmUnbind shows how many entities the subject of a binding owns, and asks a user at a
// terminal whether to go on.
func (a *app) confirmUnbind(ctx context.Context, s *session, id string, confirm int) (context.Context, error) {
	if confirm > 0 {
		return tko.WithConfirmation(ctx, confirm), nil
	}
	n, err := call(ctx, s, func(ctx context.Context) (*tkopb.Owned, error) { return s.Access().CountOwned(ctx, id) })
	if errors.Is(err, errors.ErrUnsupported) { // a server of an earlier version
		return ctx, nil
	}
	if err != nil {
		return nil, err
	}
	owned := tko.Owned{Deployments: int(n.GetDeployments()), Rollouts: int(n.GetRollouts()), Sources: int(n.GetSources()), Sites: int(n.GetSites())} //nolint:gosec // counts
	if owned.Count() == 0 {
		return ctx, nil
	}
	text := fmt.Sprintf("the owner of %s has rights by this binding: what is derived from them is held without it", owned)
	if !a.interactive {
		a.notice("%s", text)
		return ctx, nil
	}
	if !a.ask("%s. Remove it?", text) {
		return nil, errNotConfirmed
	}
	return tko.WithConfirmation(ctx, owned.Count()), nil
}

func (a *app) accessOwn() *cobra.Command {
	var isGroup bool
	cmd := &cobra.Command{
		Use: "own KIND ID [SUBJECT]", Short: "Show or set the owner of an entity",
		Long: `Show or set the owner of a deployment, a rollout, a registered source, or a site that waits
for its template: as whom controllers derive from it. Who changes an entity owns it. Without
SUBJECT, the owner is shown; ` + tko.OwnerUnowned + ` means that there is none, and that controllers use
their own rights. To set it, the right own is needed.`,
		Example: "  tko access own deployment \"$id\"\n  tko access own deployment \"$id\" oidc:corp:noc --group", Args: arguments(2, 3),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if len(args) == 2 {
				if isGroup {
					return tko.Errorf(errUsage, "--group is for the owner to be set: name it")
				}
				o, err := call(ctx, s, func(ctx context.Context) (*tkopb.Owner, error) {
					return s.Access().Owner(ctx, tko.Kind(args[0]), args[1])
				})
				if err != nil {
					return err
				}
				return a.printFacts([]fact{textFact("subject", "Subject", o.GetSubject()), textFact("groups", "Groups", strings.Join(o.GetGroups(), ", "))})
			}
			m := &tkopb.SetOwner{Kind: args[0], Id: args[1], Subject: args[2]}
			if isGroup {
				m.Subject, m.Group = "", args[2]
			}
			err := s.do(ctx, func(ctx context.Context) error { return s.Access().SetOwner(ctx, m) })
			if err == nil {
				a.notice("%s %q is owned by %s", args[0], args[1], args[2])
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&isGroup, "group", false, "the name is that of a group")
	return cmd
}

func (a *app) accessCanI() *cobra.Command {
	return &cobra.Command{
		Use: "can-i VERB [KIND [ID]]", Short: "Whether you may do something",
		Long: `Whether you may use a verb on an entity, or on some entity of a kind. Verbs: read, create,
update, delete, purge, approve, call, register, commit, provision, condition, secret;
without a kind inspect, bind, own, audit, backup, log, impersonate. The exit code is 6 if you may not.`,
		Example: "  tko access can-i update site emea/lagos\n  tko access can-i bind", Args: arguments(1, 3),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			args = append(args, "", "")
			may, err := call(ctx, s, func(ctx context.Context) (*tkopb.CanIResponse, error) {
				return s.Access().CanI(ctx, &tkopb.CanI{Verb: args[0], Kind: args[1], Id: args[2]})
			})
			if err != nil {
				return err
			}
			text := either(may.GetAllowed(), "yes", "no")
			if err := a.printFacts([]fact{{"allowed", "Allowed", text, may.GetAllowed()}, textFact("access", "Rights", may.GetAccess())}); err != nil {
				return err
			}
			if !may.GetAllowed() {
				return tko.Errorf(tko.ErrDenied, "you may not %s", strings.TrimSpace(strings.Join(args[:3], " ")))
			}
			return nil
		}),
	}
}

func (a *app) accessBreakGlass() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use: "break-glass", Short: "Become administrator for an hour, in an emergency",
		Long: `Become administrator for an hour, in an emergency: only on the machine of the server,
through its Unix socket, as the server's user or as root. It is recorded in the audit
log, and exported with the severity critical.`,
		Example: `  tko access break-glass --why 'the identity provider is down'`,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			b, err := call(ctx, s, func(ctx context.Context) (*tkopb.Binding, error) { return s.Access().BreakGlass(ctx, why) })
			if err != nil {
				return err
			}
			return a.printFacts([]fact{
				textFact("subject", "Subject", b.GetSubject()), textFact("role", "Role", b.GetRole()), textFact("expires", "Expires", timeText(b.GetExpires())),
			})
		}),
	}
	cmd.Flags().StringVar(&why, "why", "", "`reason`, which is recorded")
	return cmd
}

func (a *app) accessPolicy() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List policies of approvals", Example: "  tko access policy list",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			return list(ctx, s, policyView, nil, s.Access().Policies)
		}),
	}
	p := &tkopb.Policy{Scope: &tkopb.Scope{}}
	add := &cobra.Command{
		Use: "add", Short: "Require approvals by others than the authors",
		Long: `Require explicit approvals of the deployments of a scope, by others than those who changed
them since their last approval. Deployments are not approved automatically any more, and
a change of an approved deployment withdraws its approval.`,
		Example: "  tko access policy add --site-id 'emea/**' --approvers 2 --groups oidc:corp:change-board",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			p.Reason = a.globals.reason
			added, err := call(ctx, s, func(ctx context.Context) (*tkopb.Policy, error) { return s.Access().AddPolicy(ctx, p) })
			if err != nil {
				return err
			}
			return a.printFacts([]fact{textFact("id", "ID", added.GetId())})
		}),
	}
	scopeFlags(add, p.GetScope())
	add.Flags().Uint32Var(&p.Approvers, "approvers", 1, "`number` of persons who must approve")
	add.Flags().StringSliceVar(&p.Groups, "groups", nil, "`groups` that approvers are from (default any)")
	return group("policy", "Policies of approvals", list, add)
}
