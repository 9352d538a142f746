package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

func (a *app) subscriptionCommand() *cobra.Command {
	cmd := group("subscription", "Messages about changes, for people and programs", a.subscriptionRegister(), a.subscriptionList(), a.subscriptionGet(), a.subscriptionDelete(), a.subscriptionTest())
	cmd.Long = `Subscriptions: messages about changes, conditions, rollouts, GitOps sources and audit records, to a
webhook, Slack, a mail server, Alertmanager, or a receiver of CloudEvents. A subscription
tells what its owner, who changed it last, may read when a message is sent. Changing them
needs the right subscribe.`
	return cmd
}

func (a *app) subscriptionRegister() *cobra.Command {
	var files []string
	var at string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "register -f FILE|- …",
		Short: "Register subscriptions, or change them",
		Long: `Register subscriptions, or change them: all of the manifests, or none if one of them is invalid.
They are of the kind Subscription; tko explain Subscription shows the fields. Messages tell
what happens from then on; a changed subscription goes on where it was. Credentials are
references, such as env:NAME or vault:PATH#KEY, which the server's operator allows.`,
		Example:           "  tko subscription register -f ops.yaml --dry-run\n  tko subscription register -f ops.yaml",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			if at != "" {
				files = append(files, at)
			}
			all, err := readDeclared(ctx, a, files, tko.SubscriptionOf)
			if err != nil {
				return err
			}
			results, err := s.registerSubscriptions(ctx, all, dryRun)
			if err != nil {
				return err
			}
			for _, r := range results {
				a.noticeRegistered("subscription", r.Name, r.Created, r.Changed, dryRun)
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` of manifests, or - for stdin (may be repeated)")
	cmd.Flags().StringVarP(&at, "url", "u", "", "`location` of manifests: a file, a folder, a URL, a git repository, or LOCATION!/PATH within one")
	dryRunFlag(cmd.Flags(), &dryRun)
	complete(cmd, "filename", fileNames)
	return cmd
}

// noticeRegistered says what was done with something that is declared.
func (a *app) noticeRegistered(what, name string, created, changed, dryRun bool) {
	would := either(dryRun, "would be ", "")
	done := "unchanged"
	switch {
	case created:
		done = would + "registered"
	case changed:
		done = would + "changed"
	}
	a.notice("%s %q %s", what, name, done)
}

// readDeclared reads manifests of what is declared and is no entity.
func readDeclared[T any](ctx context.Context, a *app, files []string, of func(krm.Resource) (T, error)) ([]T, error) {
	if len(files) == 0 {
		return nil, tko.Errorf(errUsage, "no manifests: name a file with -f, a location with -u, or - for stdin")
	}
	var all []T
	var wrong []error
	for _, file := range files {
		var found krm.Package
		var err error
		if file == "-" {
			found, err = location.ReadStream(ctx, a.streams.In, "stdin", location.Options{})
		} else {
			found, err = location.Read(ctx, file, location.Options{})
		}
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			d, err := of(r)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
			}
			all = append(all, d)
		}
	}
	return all, errors.Join(wrong...)
}

// registerSubscriptions registers subscriptions, or only checks them. The results are in
// their order.
func (s *session) registerSubscriptions(ctx context.Context, all []tko.Subscription, dryRun bool) ([]tko.RegisteredSubscription, error) {
	return call(ctx, s, func(ctx context.Context) ([]tko.RegisteredSubscription, error) {
		return s.RegisterSubscriptions(ctx, all, dryRun)
	})
}

// subscriptionMessage returns what is wrong with a subscription; "" if nothing is.
func subscriptionMessage(s tko.Subscription) string {
	for _, typ := range []string{tko.ConditionAccepted, tko.ConditionComplete, tko.ConditionRendered} {
		if c := tko.FindCondition(s.Status.Conditions, typ); c != nil && c.Status == tko.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

var subscriptionView = view[tko.Subscription]{
	id: func(s tko.Subscription) string { return s.Name },
	row: func(s tko.Subscription) map[string]any {
		row := map[string]any{
			"name": s.Name, "uid": s.UID, "registeredBy": s.By.Who, "declaredBy": s.Parent, "owner": s.Owner.String(), "created": s.Created.UTC().Format(time.RFC3339), "updated": s.Updated.UTC().Format(time.RFC3339),
			"sent": s.Status.Sent, "position": s.Status.Position, "lagSeconds": int64(s.Status.Lag / time.Second), "attempts": s.Status.Attempts, "lastMessageId": s.Status.LastMessage,
			"conditions": conditionRows(s.Status.Conditions), "message": subscriptionMessage(s),
		}
		if !s.Status.LastSent.IsZero() {
			row["lastSent"] = s.Status.LastSent.UTC().Format(time.RFC3339)
		}
		return row
	},
	columns: []column[tko.Subscription]{
		{name: "NAME", text: func(s tko.Subscription) string { return s.Name }},
		{name: "ACCEPTED", text: func(s tko.Subscription) string { return status(s.Status.Conditions, tko.ConditionAccepted) }},
		{name: "COMPLETE", text: func(s tko.Subscription) string { return status(s.Status.Conditions, tko.ConditionComplete) }},
		{name: "RENDERED", wide: true, text: func(s tko.Subscription) string { return status(s.Status.Conditions, tko.ConditionRendered) }},
		{name: "SENT", text: func(s tko.Subscription) string { return strconv.FormatInt(s.Status.Sent, 10) }},
		{name: "LAST", age: func(s tko.Subscription) time.Time { return s.Status.LastSent }},
		{name: "LAG", text: func(s tko.Subscription) string { return s.Status.Lag.String() }},
		{name: "OWNER", wide: true, text: func(s tko.Subscription) string { return s.Owner.String() }},
		{name: "DECLARED BY", wide: true, text: func(s tko.Subscription) string { return s.Parent }},
		{name: "MESSAGE", text: subscriptionMessage},
	},
}

func (a *app) subscriptionList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the subscriptions, and how far they are",
		Long: `List the subscriptions, and how far they are: whether destinations accept their messages, with
the last error, since when, and the age of what is not reported yet (LAG); and whether events
were removed before they could be reported (COMPLETE).`,
		Example: "  tko subscription list\n  tko subscription list -o json", Args: arguments(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			all, err := call(ctx, s, s.Subscriptions)
			if err != nil {
				return err
			}
			return listItems(ctx, s, subscriptionView, all)
		}),
	}
}

func (a *app) subscriptionGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show the manifest of a subscription",
		Example: "  tko subscription get ops > ops.yaml", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			all, err := call(ctx, s, s.Subscriptions)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(s tko.Subscription) bool { return s.Name == args[0] })
			if i < 0 {
				return tko.Errorf(tko.ErrNotFound, "subscription %q: not found: tko subscription list shows those that are registered", args[0])
			}
			manifest, err := all[i].Manifest()
			if err != nil {
				return err
			}
			return a.showManifest(manifest, registration{all[i].By, all[i].Parent, all[i].Created, all[i].Updated})
		}),
	}
}

// A registration is who registered something, and when; parent is the source whose repository declares it.
type registration struct {
	by               tko.Author
	parent           string
	created, updated time.Time
}

// String returns a comment of YAML, which manifests may have: a status would be refused when they are registered again.
func (r registration) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "# Last changed %s", r.updated.UTC().Format(time.RFC3339))
	if r.by.Who != "" {
		fmt.Fprintf(&text, " by %s", printable.Text(r.by.Who))
	}
	if r.by.Why != "" {
		fmt.Fprintf(&text, ": %s", printable.Text(r.by.Why))
	}
	if !r.created.Equal(r.updated) {
		fmt.Fprintf(&text, "\n# Created %s", r.created.UTC().Format(time.RFC3339))
	}
	if r.parent != "" {
		fmt.Fprintf(&text, "\n# Declared by the source %s", printable.Text(r.parent))
	}
	return text.String() + "\n"
}

// showManifest writes a manifest, as YAML unless the user wants another format. YAML begins with its registration as a comment.
func (a *app) showManifest(manifest krm.Resource, r registration) error {
	f := a.globals.format
	if f == "" || isForPeople(f) {
		f = formatYAML
	}
	if f == formatYAML {
		if _, err := io.WriteString(a.out, r.String()); err != nil {
			return err
		}
	}
	return a.encoder(f).value(a.out, map[string]any(manifest))
}

func (a *app) subscriptionDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a subscription",
		Long:    `Delete a subscription. Messages that were not sent yet are never sent.`,
		Example: "  tko subscription delete ops", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			err := s.do(ctx, func(ctx context.Context) error { return s.DeleteSubscription(ctx, args[0]) })
			if err == nil {
				a.notice("subscription %q is deleted", args[0])
			}
			return err
		}),
	}
}

func (a *app) subscriptionTest() *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "Send a test message to the destination of a subscription",
		Long:    `Send a test message to the destination of a subscription, now, and show its ID, or why the destination doesn't accept it.`,
		Example: "  tko subscription test ops", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			id, err := call(ctx, s, func(ctx context.Context) (string, error) { return s.TestSubscription(ctx, args[0]) })
			if err == nil {
				a.notice("the test message %s was accepted", id)
			}
			return err
		}),
	}
}
