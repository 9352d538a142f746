package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

// A past is the service of the past of a connection.
type past interface {
	HistoryOf(ctx context.Context, r tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error]
	DiffPast(ctx context.Context, r tko.DiffRequest) iter.Seq2[tko.PastGroup, error]
	RestorePast(ctx context.Context, r tko.RestoreRequest) (tko.Restored, error)
	Retention(ctx context.Context) (tko.Retention, error)
}

var pastKinds = []string{string(tko.KindTemplate), string(tko.KindSite), string(tko.KindDeployment), string(tko.KindPlugin)}

// A pastFilter selects entities by a kind, an ID and the filters of lists.
type pastFilter struct{ sel tko.PastSelect }

func (p *pastFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	patterns(f, &p.sel.IDs, "id", "", "the ID (not of deployments)")
	metadataPatterns(f, &p.sel.Metadata, "metadata", "m", "")
	patterns(f, &p.sel.Templates, "template-id", "", "the template's ID (sites, deployments)")
	metadataPatterns(f, &p.sel.TemplateMetadata, "template-metadata", "", " of the template (deployments)")
	patterns(f, &p.sel.Sites, "site-id", "", "the site's ID (deployments)")
	metadataPatterns(f, &p.sel.SiteMetadata, "site-metadata", "", " of the site (deployments)")
	f.StringVar((*string)(&p.sel.Parent), "parent", "", "`ID` of the parent (deployments)")
	cmd.ValidArgsFunction = fixedFirst(pastKinds...)
}

// fixedFirst completes the first argument.
func fixedFirst(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// read returns the selection of the arguments KIND [ID], of plugins KIND [TYPE NAME].
// Filters without arguments select deployments.
func (p *pastFilter) read(args []string) (tko.PastSelect, error) {
	sel := p.sel
	if len(args) == 0 {
		if sel.IsAll() {
			return sel, tko.Errorf(errUsage, "nothing is selected: name a kind (%s), or use filters of deployments", strings.Join(pastKinds, ", "))
		}
		args = []string{string(tko.KindDeployment)}
	}
	if !slices.Contains(pastKinds, args[0]) {
		return sel, tko.Errorf(errUsage, "%q is not a kind: use %s", args[0], strings.Join(pastKinds, ", "))
	}
	sel.Kind = tko.Kind(args[0])
	switch rest := args[1:]; {
	case len(rest) == 0:
		return sel, nil
	case sel.Kind == tko.KindPlugin && len(rest) == 2:
		sel.ID = tko.PluginID(rest[0], rest[1])
	case len(rest) == 1 && sel.Kind != tko.KindPlugin:
		if err := expectID(args[0]+" ID", rest[0]); err != nil {
			return sel, err
		}
		sel.ID = rest[0]
	default:
		return sel, tko.Errorf(errUsage, "name one %s: KIND ID, or plugin TYPE NAME", sel.Kind)
	}
	all := sel
	all.ID = ""
	if !all.IsAll() {
		return sel, tko.Errorf(errUsage, "an ID and filters can't be used together: use one")
	}
	return sel, nil
}

// moment reads a moment; zero if it is "".
func moment(flag, text string) (tko.AsOf, error) {
	if text == "" {
		return tko.AsOf{}, nil
	}
	return parseMoment(flag, text)
}

func parseMoment(flag, text string) (tko.AsOf, error) {
	asOf, err := tko.ParseAsOf(text, time.Now())
	if err != nil {
		return asOf, tko.Errorf(errUsage, "--%s: %w", flag, err)
	}
	return asOf, nil
}

const momentHelp = ": a position, a time (2026-11-22T14:00:00Z), a duration before now (2h), \"yesterday 14:00\""

var historyView = view[tko.HistoryEntry]{
	id: func(e tko.HistoryEntry) string { return strconv.FormatInt(e.Position, 10) },
	row: func(e tko.HistoryEntry) map[string]any {
		return map[string]any{
			"position": e.Position, "time": e.Time.UTC().Format(time.RFC3339Nano), "kind": string(e.Kind), "id": e.ID, "operation": e.What, "revision": e.Revision,
			"who": e.Author.Who, "why": e.Author.Why, "summary": e.Summary,
		}
	},
	columns: []column[tko.HistoryEntry]{
		{name: "POSITION", text: func(e tko.HistoryEntry) string { return strconv.FormatInt(e.Position, 10) }},
		{name: "TIME", text: func(e tko.HistoryEntry) string { return e.Time.Local().Format(time.RFC3339) }}, //nolint:gosmopolitan // for people
		{name: "ID", text: func(e tko.HistoryEntry) string { return e.ID }},
		{name: "REVISION", text: func(e tko.HistoryEntry) string { return strconv.FormatInt(e.Revision, 10) }},
		{name: "CHANGE", text: func(e tko.HistoryEntry) string { return e.What }},
		{name: "BY", text: func(e tko.HistoryEntry) string { return e.Author.Who }},
		{name: "WHY", text: func(e tko.HistoryEntry) string { return e.Author.Why }},
		{name: "WHAT", text: func(e tko.HistoryEntry) string { return e.Summary }},
	},
}

func (a *app) historyCommand() *cobra.Command {
	var filter pastFilter
	var from, to string
	var most int
	cmd := &cobra.Command{
		Use: "history [KIND [ID]]", Short: "List who changed what, when and why, newest first",
		Long: `List the changes of an entity, or of those that match filters, newest first: when, who,
why, and the first thing that changed. An entity matches by what it was after the change,
together with its site and template then. Without KIND, filters select deployments.
Values of Secrets are not shown.`,
		Example: `  tko history deployment 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf
  tko history deployment --site-id 'lagos/*' --from 2h
  tko history site --from 'yesterday 14:00' --to 'yesterday 15:00' -o json`,
		Args: arguments(0, 3),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		sel, err := filter.read(args)
		if err != nil {
			return err
		}
		request := tko.HistoryRequest{Select: sel, Max: most}
		if request.From, err = moment("from", from); err != nil {
			return err
		}
		if request.To, err = moment("to", to); err != nil {
			return err
		}
		return list(ctx, s, historyView, nil, func(ctx context.Context) iter.Seq2[tko.HistoryEntry, error] { return s.HistoryOf(ctx, request) })
	})
	filter.flags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "`moment` after which changes are listed"+momentHelp)
	cmd.Flags().StringVar(&to, "to", "", "`moment` up to which changes are listed, as for --from (default now)")
	cmd.Flags().IntVar(&most, "max-count", 0, "`number` of changes to show at most (default all)")
	return cmd
}

func pastGroupRow(kind tko.Kind, g tko.PastGroup) map[string]any {
	return map[string]any{
		"kind": string(kind), "operation": g.What, "count": int64(g.Count), "examples": listValue(g.Examples), "changes": changesValue(g.Changes), "more": int64(g.More), "coarse": g.Coarse,
	}
}

// printGroup prints a group of a difference.
func (a *app) printGroup(kind tko.Kind, g tko.PastGroup) error {
	var text strings.Builder
	fmt.Fprintf(&text, "=== %s %s: %s", g.What, count(g.Count, string(kind), string(kind)+"s"), strings.Join(g.Examples, ", "))
	if g.Count > len(g.Examples) {
		text.WriteString(", …")
	}
	text.WriteString("\n")
	if g.Coarse {
		text.WriteString("    the same fields change, with different values; for example:\n")
	}
	text.WriteString(groupText(g.Changes, g.More))
	return a.printDifference(text.String())
}

func (a *app) diffCommand() *cobra.Command {
	var filter pastFilter
	var from, to string
	var files []string
	var manager string
	manifests := a.diffFiles(&files, &manager)
	cmd := &cobra.Command{
		Use: "diff -f FILE|FOLDER|-, or diff [KIND [ID]] --from MOMENT", Short: "Show what tko apply would change, or what changed between two moments",
		Long: `Show what tko apply would change, field by field, without changing anything: the server
derives and validates what it would store. Removals are shown, too. The exit code is 7 if there
are changes, 0 if there are none, and 9 if not everything could be compared. Values of Secrets
are not shown.

` + applyHelp + `

With --from instead of -f: show what differs between two moments, of an entity, of those that
matched filters at either moment (without KIND: of deployments), or, without KIND and filters,
of all sites, templates, deployments and plugins. Equal differences are shown once, with their number. For one entity, --from and --to
may be revisions: r1, r2.`,
		Example: `  tko diff -f ./fleet
  tko diff -f site.yaml && echo 'up to date'
  tko diff --from 2h
  tko diff deployment --site-metadata region=north --from 'yesterday 14:00' --to 'yesterday 15:00'
  tko diff site lagos/1 --from r1 --to r3`,
		Args: arguments(0, 3),
	}
	between := a.run(func(ctx context.Context, s *session, args []string) error {
		var requests []tko.DiffRequest
		kinds := pastKinds
		if len(args) > 0 {
			kinds = args[:1]
		} else if !filter.sel.IsAll() {
			kinds = []string{string(tko.KindDeployment)}
		}
		for _, kind := range kinds {
			sel, err := filter.read(append([]string{kind}, args[min(1, len(args)):]...))
			if err != nil {
				return err
			}
			request, err := diffRequest(sel, from, to)
			if err != nil {
				return err
			}
			requests = append(requests, request)
		}
		pages, err := a.startPager(ctx)
		if err != nil {
			return err
		}
		return pages.end(a.printDiff(ctx, s, requests))
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("filename") {
			return between(cmd, args)
		}
		if len(args) > 0 || from != "" || to != "" || !filter.sel.IsAll() {
			return tko.Errorf(errUsage, "-f can't be used together with KIND, filters, --from or --to: use one")
		}
		return manifests(cmd, args)
	}
	fileFlag(cmd, &files)
	managerFlag(cmd.Flags(), &manager)
	filter.flags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "`moment` to compare with"+momentHelp+"; rN is a revision")
	cmd.Flags().StringVar(&to, "to", "", "later `moment`, as for --from (default now)")
	return cmd
}

// revisionOf reads a revision, rN.
func revisionOf(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "r"), 10, 64)
	return n, err == nil && strings.HasPrefix(text, "r") && n > 0
}

// since reads a moment, or the revision of one entity: the moment since which it had it.
func since(ctx context.Context, p past, sel tko.PastSelect, flag, text string) (tko.AsOf, error) {
	n, ok := revisionOf(text)
	if !ok {
		return moment(flag, text)
	}
	if sel.ID == "" {
		return tko.AsOf{}, tko.Errorf(errUsage, "--%s %s: revisions are of one entity: name it", flag, text)
	}
	for e, err := range p.HistoryOf(ctx, tko.HistoryRequest{Select: sel}) {
		switch {
		case err != nil:
			return tko.AsOf{}, err
		case e.Revision == n && e.What != tko.PastDeleted:
			return tko.AsOf{Position: e.Position}, nil
		}
	}
	return tko.AsOf{}, tko.Errorf(tko.ErrNotFound, "the retained history of %s %q has no revision %d: see tko history %s %s", sel.Kind, sel.ID, n, sel.Kind, sel.ID)
}

// diffRequest reads the moments or revisions of a difference.
func diffRequest(sel tko.PastSelect, from, to string) (tko.DiffRequest, error) {
	request := tko.DiffRequest{Select: sel}
	if from == "" {
		return request, tko.Errorf(errUsage, "name what to compare with: --from MOMENT, or of one entity --from rN; or compare with manifests: -f FILE")
	}
	first, ok := revisionOf(from)
	if last, also := revisionOf(to); ok || also {
		if sel.ID == "" || !ok || !also && to != "" {
			return request, tko.Errorf(errUsage, "revisions (r1) are of one entity: name it, and use revisions for --from and --to")
		}
		request.FromRevision, request.ToRevision = first, last
		return request, nil
	}
	var err error
	if request.From, err = moment("from", from); err == nil {
		request.To, err = moment("to", to)
	}
	return request, err
}

func (a *app) printDiff(ctx context.Context, p past, requests []tko.DiffRequest) error {
	rows, any := []any{}, false
	f := a.format()
	text := isForPeople(f)
	for _, request := range requests {
		for g, err := range p.DiffPast(ctx, request) {
			if err != nil {
				return err
			}
			any = true
			if !text {
				rows = append(rows, pastGroupRow(request.Select.Kind, g))
				continue
			}
			if err := a.printGroup(request.Select.Kind, g); err != nil {
				return err
			}
		}
	}
	if !text {
		if err := a.encoder(f).value(a.out, rows); err != nil {
			return err
		}
	}
	if any {
		return errChanges
	}
	a.notice("no differences")
	return nil
}

func (a *app) retentionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "retention", Short: "Show which part of the past can be read, and what it takes", Example: "  tko retention",
		Long: `Show the oldest moment that --as-of, history, diff and restore can read, what the server's
settings --keep-changes and --keep-revisions keep, what the policies of --keep-longer keep in
addition, and its size. Packages are stored once for
equal contents, together with those that entities have now: they are part of the size of the
database only.`,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			r, err := call(ctx, s, s.Retention)
			if err != nil {
				return err
			}
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			oldest := momentText(r.OldestTime)
			if r.OldestPosition == 0 {
				oldest = "the beginning"
			}
			all, revisions := r.KeepChanges.String(), number(int64(r.KeepRevisions))+" of each entity"
			if r.KeepChanges == 0 {
				all = "ever"
			}
			if r.KeepRevisions == 0 {
				revisions = "all"
			}
			facts := []fact{
				{"oldestPosition", "Oldest position", number(r.OldestPosition), number(r.OldestPosition)},
				{"oldestTime", "Oldest time", oldest, momentText(r.OldestTime)},
				{"newestPosition", "Newest position", number(r.NewestPosition), number(r.NewestPosition)},
				{"newestTime", "Newest time", momentText(r.NewestTime), momentText(r.NewestTime)},
				{"keepChanges", "All is kept for", all, r.KeepChanges.String()},
				{"keepRevisions", "Revisions kept longer", revisions, int64(r.KeepRevisions)},
				{"changes", "Changes", number(r.Changes), r.Changes},
			}
			for _, size := range []fact{{key: "bytes", name: "Size of the changes", value: r.Bytes}, {key: "databaseBytes", name: "Size of the database", value: r.DatabaseBytes}} {
				if bytes, _ := size.value.(int64); bytes > 0 {
					size.text = fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
					facts = append(facts, size)
				}
			}
			lines := isForPeople(a.format())
			var policies []any
			for _, p := range r.Longer {
				text := fmt.Sprintf("%d changes of %d deployments", p.Changes, p.Deployments)
				if p.Bytes > 0 {
					text += fmt.Sprintf(", about %.1f MB", float64(p.Bytes)/1e6)
				}
				if p.Keep > 0 {
					text += ", for " + p.Keep.String()
				}
				policies = append(policies, map[string]any{
					"name": p.Name, "keep": p.Keep.String(), "deployments": p.Deployments, "changes": p.Changes, "bytes": p.Bytes,
				})
				if lines {
					facts = append(facts, fact{"", "Policy " + p.Name, text, nil})
				}
			}
			if len(policies) > 0 && !lines {
				facts = append(facts, fact{"policies", "", "", policies})
			}
			return a.printFacts(facts)
		}),
	}
}
