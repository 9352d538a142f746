package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

// reasons are the methods of client.Client that explain.
type reasons interface {
	Blame(ctx context.Context, r tko.BlameRequest) (tko.Blame, error)
	ExplainSite(ctx context.Context, r tko.SiteExplanationRequest) (tko.SiteExplanation, error)
	TemplateImpact(ctx context.Context, r tko.TemplateImpactRequest) (tko.TemplateImpact, error)
	CompareSite(ctx context.Context, id tko.SiteID) (tko.SiteComparison, error)
}

func (a *app) blameCommand() *cobra.Command {
	var request tko.BlameRequest
	cmd := &cobra.Command{
		Use:   "blame [KIND] ID",
		Short: "Show where each field of a package has its value from",
		Long: `Show for each field of the package of a deployment who set its value, when, in which
revision, and from which source: a template, the merge of the creation, a plugin, a
rollout, or an edit. KIND is deployment (default), site or template. Values of Secrets
are never shown. Where earlier revisions are no longer retained, the command says so.`,
		Example: `  tko blame 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf
  tko blame 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf --field 'apps/v1 Deployment "smf"'
  tko blame site lagos/1 -o json`,
		Args:              arguments(1, 2),
		ValidArgsFunction: a.completeArgs(completeDeployments),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			request.Kind, request.ID = tko.KindDeployment, args[len(args)-1]
			if len(args) == 2 {
				request.Kind = tko.Kind(args[0])
			}
			switch request.Kind {
			case tko.KindDeployment, tko.KindSite, tko.KindTemplate:
			default:
				return tko.Errorf(errUsage, "the kind %q is not known: use deployment, site or template", args[0])
			}
			if err := expectID(string(request.Kind)+" ID", request.ID); err != nil {
				return err
			}
			b, err := s.blame(ctx, request)
			if err != nil {
				return err
			}
			return a.show(blameText(b), blameValue(b))
		}),
	}
	cmd.Flags().StringVar(&request.Field, "field", "", "`FIELD` to show: a resource, or a resource and a path (default: the whole package)")
	revisionFlag(cmd.Flags(), &request.Revision)
	return cmd
}

func (s *session) blame(ctx context.Context, request tko.BlameRequest) (tko.Blame, error) {
	return call(ctx, s, func(ctx context.Context) (tko.Blame, error) { return s.Blame(ctx, request) })
}

// maxFieldWidth is the maximum width of the column of fields in a blame.
const maxFieldWidth = 60

// blameText returns a blame for users: the fields under their resources.
func blameText(b tko.Blame) string {
	fields, width := make([]string, len(b.Fields)), 0
	for i, f := range b.Fields {
		fields[i] = f.Path + ": " + valueOrHidden(f.Value, f.Hidden)
		width = max(width, min(len(fields[i]), maxFieldWidth))
	}
	var text strings.Builder
	resource := ""
	for i, f := range b.Fields {
		if f.Resource != resource {
			resource = f.Resource
			fmt.Fprintln(&text, resource)
		}
		o := b.Origins[f.Origin]
		fmt.Fprintf(&text, "  %-*s  %s  %s\n", width, fields[i], stampText(o), sourceText(o))
	}
	return text.String()
}

func valueOrHidden(value string, hidden bool) string {
	switch {
	case hidden:
		return "(hidden)"
	case value == "":
		return "(missing)"
	}
	return value
}

// stampText returns, for example, `4 2026-11-22 14:00:00 ann`.
func stampText(o tko.Origin) string {
	return fmt.Sprintf("%d %s %s", o.Revision, o.Time.Local().Format(time.RFC3339), cmp.Or(o.Author.Who, "unknown"))
}

// sourceText describes the source of an origin.
func sourceText(o tko.Origin) string {
	var text string
	switch o.Source {
	case tko.SourceTemplate:
		text = fmt.Sprintf("template %s, revision %d", o.Template, o.TemplateRevision)
	case tko.SourceMerge:
		text = "merged at the creation"
	case tko.SourcePreparation:
		text = "preparation by TKO"
		if o.Plugin != "" {
			text = "plugin " + o.Plugin
		}
		if o.Resource != "" {
			text += " for " + o.Resource
		}
	case tko.SourceRollout:
		text = "rollout " + string(o.Rollout)
	case tko.SourceUnknown:
		text = "not known: earlier revisions are no longer retained, or not visible"
	default:
		text = o.Source
	}
	if o.Rollout != "" && o.Source != tko.SourceRollout {
		text += ", by rollout " + string(o.Rollout)
	}
	if o.RestoredBy != "" {
		text += fmt.Sprintf(", restored by rollout %s in revision %d", o.RestoredBy, o.RestoredAt)
	}
	if o.Author.Why != "" && o.Rollout == "" {
		text += ": " + o.Author.Why
	}
	return text
}

func blameValue(b tko.Blame) map[string]any {
	fields := values(b.Fields, func(f tko.BlamedField) map[string]any {
		one := map[string]any{"resource": f.Resource, "path": f.Path, "origin": originValue(b.Origins[f.Origin])}
		if f.Hidden {
			one["hidden"] = true
		} else {
			one["value"] = f.Value
		}
		return one
	})
	return map[string]any{"kind": string(b.Kind), "id": b.ID, "revision": b.Revision, "fields": fields}
}

func originValue(o tko.Origin) map[string]any {
	v := map[string]any{"source": o.Source, "revision": o.Revision, "time": o.Time.UTC().Format(time.RFC3339Nano), "who": o.Author.Who, "why": o.Author.Why}
	for key, text := range map[string]string{
		"template": string(o.Template), "resource": o.Resource, "plugin": o.Plugin, "rollout": string(o.Rollout), "restoredBy": string(o.RestoredBy),
	} {
		setText(v, key, text)
	}
	for key, n := range map[string]int64{"templateRevision": o.TemplateRevision, "pluginRevision": o.PluginRevision, "restoredAt": o.RestoredAt} {
		if n != 0 {
			v[key] = n
		}
	}
	if o.Collected {
		v["collected"] = true
	}
	return v
}

// explainField prints the values that a field has had.
func (a *app) explainField(ctx context.Context, s *session, request tko.BlameRequest) error {
	b, err := s.blame(ctx, request)
	if err != nil {
		return err
	}
	changes := values(b.Changes, func(c tko.FieldChange) map[string]any {
		one := map[string]any{"resource": c.Resource, "path": c.Path, "origin": originValue(c.Origin)}
		if c.Hidden {
			one["hidden"] = true
		} else {
			one["before"], one["after"] = c.Before, c.After
		}
		if len(c.Upstream) > 0 {
			one["upstream"] = originValue(c.Upstream[0])
		}
		return one
	})
	return a.show(changesText(b.Changes), map[string]any{"kind": string(b.Kind), "id": b.ID, "revision": b.Revision, "changes": changes})
}

func changesText(changes []tko.FieldChange) string {
	var text strings.Builder
	for i, c := range changes {
		if i == 0 {
			fmt.Fprintf(&text, "%s %s\n", c.Resource, c.Path)
		}
		fmt.Fprintf(&text, "  %s  %s", valueOrHidden(c.After, c.Hidden), stampText(c.Origin))
		fmt.Fprintf(&text, "  %s\n", sourceText(c.Origin))
		for _, up := range c.Upstream {
			fmt.Fprintf(&text, "    the template has it since its revision %s: %s\n", stampText(up), sourceText(up))
		}
	}
	return text.String()
}

func (a *app) siteExplain() *cobra.Command {
	var topology string
	var cmd *cobra.Command
	cmd = a.ofOne(tko.KindSite, &cobra.Command{
		Use:   "explain ID",
		Short: "Show where a site's template and metadata come from, or why a topology selects it or not",
		Long: `Show for the template and each key of the metadata of a site where the value comes
from: an origin of an inventory, another GitOps source, the site's template, or a user;
and who set it when. It reads the newest 50 revisions.

With --topology: show for each template of each placement of a topology whether it selects a site, and if
not, the smallest set of conditions that the site doesn't meet. The topology is a
deployment, or a template that deployments are made from. With --as-of, the topology, the
site and the deployments are those of then.`,
		Example: `  tko site explain lagos/1
  tko site explain lagos/1 --topology 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf
  tko site explain lagos/1 --topology topology/cu:v1`,
	}, func(ctx context.Context, s *session, id string) error {
		if topology == "" {
			if cmd.Flags().Changed("topology") {
				return tko.Errorf(errUsage, "--topology is empty: name a deployment or a template")
			}
			if !tko.AsOfOf(ctx).IsZero() {
				return tko.Errorf(errUsage, "--as-of explains a topology only, because the GitOps sources of a site are known as of now: add --topology")
			}
			parts, owner, err := readSiteParts(ctx, s, tko.SiteID(id))
			if err != nil {
				return err
			}
			if c := readiness(owner); c.Status != "" && c.Status != tko.ConditionTrue {
				a.notice("source %q has not been ready for %s: its values may be old. The reason: tko gitops status %s", owner.Name, age(a.now(), c.LastTransition), owner.Name)
			}
			return listItems(ctx, s, sitePartView, parts)
		}
		request := tko.SiteExplanationRequest{Site: tko.SiteID(id), Template: tko.TemplateID(topology)}
		if looksLikeDeployment(topology) {
			request.Deployment, request.Template = tko.DeploymentID(topology), ""
		}
		e, err := call(ctx, s, func(ctx context.Context) (tko.SiteExplanation, error) { return s.ExplainSite(ctx, request) })
		if err != nil {
			return err
		}
		return a.show(explanationText(e, topology), explanationValue(e))
	})
	cmd.Flags().StringVar(&topology, "topology", "", "`ID` of the deployment or template of a topology")
	return cmd
}

// deploymentIDLength is the length of the IDs of deployments.
const deploymentIDLength = 27

func looksLikeDeployment(id string) bool {
	return len(id) == deploymentIDLength && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

func explanationText(e tko.SiteExplanation, topology string) string {
	if len(e.Placements) == 0 {
		return topology + " has no placement with templates.\n"
	}
	var text strings.Builder
	for _, p := range e.Placements {
		fmt.Fprint(&text, p.Placement)
		if p.Template != "" {
			fmt.Fprintf(&text, ", template %q", p.Template)
		}
		switch {
		case p.Selected:
			fmt.Fprintf(&text, ": selects %s, by %s\n", e.Site, p.Sites)
		case p.Sites != "":
			fmt.Fprintf(&text, ": doesn't select %s, because %s wants:\n", e.Site, p.Sites)
		default:
			fmt.Fprintf(&text, ": doesn't select %s\n", e.Site)
		}
		for _, c := range p.Unmet {
			fmt.Fprintf(&text, "  %s is %s, wanted %q\n", c.Field, either(c.Present, strconv.Quote(c.Value), "missing"), c.Wanted)
		}
		if len(p.Deployments) > 0 {
			fmt.Fprintf(&text, "  deployed there as %s\n", strings.Join(idTexts(p.Deployments), ", "))
		}
		if p.Note != "" {
			fmt.Fprintf(&text, "  note: %s\n", p.Note)
		}
	}
	return text.String()
}

func explanationValue(e tko.SiteExplanation) map[string]any {
	placements := values(e.Placements, func(p tko.PlacementExplanation) map[string]any {
		unmet := values(p.Unmet, func(c tko.UnmetCondition) map[string]any {
			one := map[string]any{"field": c.Field, "wanted": c.Wanted}
			if c.Present {
				one["value"] = c.Value
			}
			return one
		})
		return map[string]any{
			"placement": p.Placement, "template": p.Template, "sites": p.Sites, "selected": p.Selected, "unmet": unmet, "deployments": listValue(p.Deployments), "note": p.Note,
		}
	})
	return map[string]any{"site": string(e.Site), "placements": placements}
}

func (a *app) templateImpact() *cobra.Command {
	var pkg packageFlag
	cmd := a.ofOne(tko.KindTemplate, &cobra.Command{
		Use:   "impact ID",
		Short: "Show what depends on a template, and what a change of it would touch",
		Long: `Show what depends on a template: deployments by revision, sites, topologies and rollouts.
Deployments keep the revision that they were made from until they are upgraded. The
command shows what upgrades of all of them would change, grouped by equal changes: to the
current revision, or, with --url or --stdin, to a package that isn't registered yet.
Nothing is changed.`,
		Example: `  tko template impact nf/upf:v1
  tko template impact nf/upf:v1 --url ./upf -o diff`,
		Annotations: map[string]string{withDiff: "true"},
	}, func(ctx context.Context, s *session, id string) error {
		content, err := pkg.read(ctx, a)
		if err != nil {
			return err
		}
		request := tko.TemplateImpactRequest{Template: tko.TemplateID(id), Package: content}
		i, err := call(ctx, s, func(ctx context.Context) (tko.TemplateImpact, error) { return s.TemplateImpact(ctx, request) })
		if err != nil {
			return err
		}
		if a.globals.format == formatDiff {
			return a.printLines(impactGroups(i, true))
		}
		return a.show(impactText(i)+impactGroups(i, false), impactValue(i))
	})
	pkg.flags(cmd.Flags())
	return cmd
}

func impactText(i tko.TemplateImpact) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Template:     %s, revision %d\n", i.Template, i.Revision)
	fmt.Fprintf(&text, "Deployments:  %d, at %s\n", i.Deployments, count(i.DeploymentSites, "site", "sites"))
	for _, r := range i.Revisions {
		name := either(r.Revision == 0, "a revision that wasn't recorded", fmt.Sprintf("revision %d", r.Revision))
		fmt.Fprintf(&text, "              %d of %s\n", r.Deployments, name)
	}
	fmt.Fprintf(&text, "Sites:        %d based on it\n", i.Sites)
	for _, t := range i.Topologies {
		fmt.Fprintf(&text, "Topology:     %s %s: %s %s\n", t.Kind, t.ID, t.Resource, either(t.Selects, "selects it by metadata", "names it"))
	}
	for _, r := range i.Rollouts {
		fmt.Fprintf(&text, "Rollout:      %s, %s\n", r.ID, r.State)
	}
	if i.More {
		fmt.Fprintln(&text, "And more: lists are cut.")
	}
	return text.String()
}

// impactGroups returns what upgrades would change: all changes, or a line each.
func impactGroups(i tko.TemplateImpact, whole bool) string {
	var text strings.Builder
	if !whole && i.Deployments > 0 {
		fmt.Fprintf(&text, "Upgrades:     %s wouldn't change\n", count(i.Same, "deployment", "deployments"))
		if i.Unknown > 0 {
			fmt.Fprintf(&text, "              for %s part of it is known only after preparation\n", count(i.Unknown, "deployment", "deployments"))
		}
	}
	for _, g := range i.Groups {
		fmt.Fprintf(&text, "=== %s %s, such as %s\n", g.Kind, count(g.Deployments, "deployment", "deployments"), strings.Join(idTexts(g.Examples), ", "))
		for _, c := range g.Conflicts {
			fmt.Fprintf(&text, "! %s\n", c)
		}
		text.WriteString(groupText(g.Changes, g.MoreChanges))
	}
	return text.String()
}

func impactValue(i tko.TemplateImpact) map[string]any {
	revisions := values(i.Revisions, func(r tko.ImpactRevision) map[string]any {
		return map[string]any{"revision": r.Revision, "deployments": int64(r.Deployments)}
	})
	topologies := values(i.Topologies, func(t tko.ImpactTopology) map[string]any {
		return map[string]any{"kind": string(t.Kind), "id": t.ID, "resource": t.Resource, "selects": t.Selects}
	})
	rollouts := values(i.Rollouts, func(r tko.ImpactRollout) map[string]any { return map[string]any{"id": string(r.ID), "state": r.State} })
	groups := values(i.Groups, func(g tko.ImpactGroup) map[string]any {
		return map[string]any{
			"kind": g.Kind, "deployments": int64(g.Deployments), "examples": listValue(g.Examples), "changes": changesValue(g.Changes), "conflicts": listValue(g.Conflicts), "moreChanges": int64(g.MoreChanges),
		}
	})
	return map[string]any{
		"template": string(i.Template), "revision": i.Revision, "deployments": int64(i.Deployments), "deploymentSites": int64(i.DeploymentSites), "sites": int64(i.Sites),
		"revisions": revisions, "topologies": topologies, "rollouts": rollouts, "groups": groups, "same": int64(i.Same), "unknown": int64(i.Unknown), "more": i.More,
	}
}
