package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

// A reasoner is a server that explains.
type reasoner struct {
	*fake
	blame  tko.Blame
	site   tko.SiteExplanation
	impact tko.TemplateImpact
	diff   tko.SiteComparison
	asked  any
}

func (r *reasoner) Blame(_ context.Context, request tko.BlameRequest) (tko.Blame, error) {
	r.asked = request
	return r.blame, nil
}

func (r *reasoner) ExplainSite(_ context.Context, request tko.SiteExplanationRequest) (tko.SiteExplanation, error) {
	r.asked = request
	return r.site, nil
}

func (r *reasoner) TemplateImpact(_ context.Context, request tko.TemplateImpactRequest) (tko.TemplateImpact, error) {
	r.asked = request
	return r.impact, nil
}

func (r *reasoner) CompareSite(_ context.Context, id tko.SiteID) (tko.SiteComparison, error) {
	r.asked = id
	return r.diff, nil
}

func TestSiteDiffTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	changes := []tko.SiteChange{
		{Target: "t", Verb: tko.SiteUpdate, Object: `ConfigMap "ran/cu"`, Deployment: "D1", Details: []string{`data.key: "1" → "2"`, "a\x1b[31mb"}},
		{Target: "t", Verb: tko.SiteRemove, Object: `ConfigMap "ran/du"`, Deployment: "D2"},
	}
	orphans := tko.SiteComparison{Orphans: []tko.SiteChange{
		{Target: "t", Verb: tko.SiteOrphan, Object: `ConfigMap "ran/cu"`, Deployment: "D1"}, {Target: "t", Verb: tko.SiteOrphan, Object: "lagos/old/", Details: []string{"2 files"}},
	}}
	unsearched := tko.SiteComparison{Changes: changes[1:], Unsearched: []string{"t: the secrets (forbidden)"}}
	const orphansText = "Orphans, which belong to no deployment of the site and stay:\norphan ConfigMap \"ran/cu\" (labelled with deployment D1)\norphan lagos/old/\n    2 files\n"
	const unsearchedText = "Orphans, which belong to no deployment of the site and stay:\nnot searched: t: the secrets (forbidden)\n"
	for name, test := range map[string]struct {
		c    tko.SiteComparison
		code int
		out  string
		err  string

		flags []string
	}{
		"no differences":               {code: 0},
		"orphans":                      {c: orphans, out: orphansText},
		"orphans count":                {c: orphans, flags: []string{"--count-orphans"}, code: 7, out: orphansText},
		"hidden orphans":               {c: tko.SiteComparison{MoreOrphans: 1}, flags: []string{"--count-orphans"}, code: 7, out: "Orphans, which belong to no deployment of the site and stay:\nand 1 more orphan\n"},
		"not searched":                 {c: unsearched, code: 7, out: "remove ConfigMap \"ran/du\" (deployment D2)\n\n" + unsearchedText},
		"not searched, and they count": {c: unsearched, flags: []string{"--count-orphans"}, code: 9, out: "remove ConfigMap \"ran/du\" (deployment D2)\n\n" + unsearchedText, err: "not everything could be compared: t: the secrets (forbidden)"},

		"differences":       {c: tko.SiteComparison{Changes: changes, More: 3}, code: 7, out: "update ConfigMap \"ran/cu\" (deployment D1)\n    data.key: \"1\" → \"2\"\n    a�[31mb\nremove ConfigMap \"ran/du\" (deployment D2)\nand 3 more changes\n"},
		"a target can't be": {c: tko.SiteComparison{Changes: changes[1:], Problems: []string{"plugin x: away"}}, code: 9, out: "remove ConfigMap \"ran/du\" (deployment D2)\n", err: "not everything could be compared: plugin x: away"},
	} {
		r := &reasoner{fake: &fake{}, diff: test.c}
		flags := test.flags
		out := runServer(t.Context(), r.fake, r, "", append([]string{"site", "diff", "lagos/1", "-o", "table"}, flags...)...)
		if diff := cmp.Diff(test.out, out.out); diff != "" || out.code != test.code || !strings.Contains(out.err, test.err) || r.asked != tko.SiteID("lagos/1") {
			t.Errorf("%s: exit code %d, %q: %s", name, out.code, out.err, diff)
		}
		if out := runServer(t.Context(), r.fake, r, "", append([]string{"site", "diff", "lagos/1", "-o", "json"}, flags...)...); out.code != test.code || !strings.Contains(out.out, `"changes"`) {
			t.Errorf("%s as JSON: exit code %d: %s", name, out.code, out.out)
		}
	}
}

func TestBlameNamesTheSourceOfEachField(t *testing.T) {
	t.Parallel()
	origin := func(source string, change func(*tko.Origin)) tko.Origin {
		o := tko.Origin{Source: source, Revision: 4, Time: noon, Author: tko.Author{Who: "ann"}}
		if change != nil {
			change(&o)
		}
		return o
	}
	b := tko.Blame{
		Origins: []tko.Origin{
			origin(tko.SourceTemplate, func(o *tko.Origin) { o.Template, o.TemplateRevision, o.Rollout = "smf:v2", 3, "smf-v2" }),
			origin(tko.SourcePreparation, func(o *tko.Origin) { o.Plugin, o.Resource, o.Author.Who = "ipam", `a/v1 One "x"`, "preparer" }),
			origin(tko.SourceEdit, func(o *tko.Origin) { o.Author.Why, o.RestoredBy, o.RestoredAt = "more load", "r-undo", 9 }),
			origin(tko.SourceUnknown, nil),
		},
		Fields: []tko.BlamedField{
			{Resource: `v1 ConfigMap "a"`, Path: "data.x", Value: `"1"`},
			{Resource: `v1 ConfigMap "a"`, Path: "data.longer", Value: `"2"`, Origin: 1},
			{Resource: `v1 Secret "b"`, Path: "data.p", Hidden: true, Origin: 2},
			{Resource: `v1 Secret "b"`, Path: "kind", Value: `"Secret"`, Origin: 3},
		},
	}
	got := strings.ReplaceAll(blameText(b), noon.Local().Format(time.RFC3339), "TIME")
	want := `v1 ConfigMap "a"
  data.x: "1"       4 TIME ann  template smf:v2, revision 3, by rollout smf-v2
  data.longer: "2"  4 TIME preparer  plugin ipam for a/v1 One "x"
v1 Secret "b"
  data.p: (hidden)  4 TIME ann  edit, restored by rollout r-undo in revision 9: more load
  kind: "Secret"    4 TIME ann  not known: earlier revisions are no longer retained, or not visible
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	r := &reasoner{fake: &fake{}, blame: b}
	out := runServer(t.Context(), r.fake, r, "", "blame", "site", "lagos/1", "--field", `v1 ConfigMap "a"`, "-o", "json")
	if out.code != 0 || !strings.Contains(out.out, `"template": "smf:v2"`) && !strings.Contains(out.out, `"template":"smf:v2"`) || strings.Contains(out.out, `"hidden":false`) {
		t.Errorf("exit code %d: %s%s", out.code, out.out, out.err)
	}
	if diff := cmp.Diff(tko.BlameRequest{Kind: tko.KindSite, ID: "lagos/1", Field: `v1 ConfigMap "a"`}, r.asked); diff != "" {
		t.Error(diff)
	}
	if out := runServer(t.Context(), r.fake, r, "", "blame", "pod", "x"); out.code == 0 || !strings.Contains(out.err, "deployment, site or template") {
		t.Errorf("an unknown kind: %q", out.err)
	}
}

func TestExplainFieldFollowsTheTemplate(t *testing.T) {
	t.Parallel()
	r := &reasoner{fake: &fake{}, blame: tko.Blame{Changes: []tko.FieldChange{
		{Resource: `v1 ConfigMap "a"`, Path: "data.x", Before: "1", After: "2", Origin: tko.Origin{Source: tko.SourceEdit, Revision: 4, Time: noon, Author: tko.Author{Who: "ann"}}},
		{
			Resource: `v1 ConfigMap "a"`, Path: "data.x", After: "1", Origin: tko.Origin{Source: tko.SourceTemplate, Template: "t:v1", TemplateRevision: 2, Revision: 1, Time: noon, Author: tko.Author{Who: "bob"}},
			Upstream: []tko.Origin{{Source: tko.SourceEdit, Revision: 2, Time: noon, Author: tko.Author{Who: "carol"}}},
		},
	}}}
	out := runServer(t.Context(), r.fake, r, "", "deployment", "explain", "D1", "--field", `v1 ConfigMap "a" data.x`, "-o", "table")
	want := `v1 ConfigMap "a" data.x
  2  4 TIME ann  edit
  1  1 TIME bob  template t:v1, revision 2
    the template has it since its revision 2 TIME carol: edit
`
	if diff := cmp.Diff(want, strings.ReplaceAll(out.out, noon.Local().Format(time.RFC3339), "TIME")); diff != "" || out.code != 0 {
		t.Errorf("exit code %d, %q: %s", out.code, out.err, diff)
	}
	if diff := cmp.Diff(tko.BlameRequest{Kind: tko.KindDeployment, ID: "D1", Field: `v1 ConfigMap "a" data.x`, History: true}, r.asked); diff != "" {
		t.Error(diff)
	}
}

func TestSiteExplainNamesWhatIsUnmet(t *testing.T) {
	t.Parallel()
	r := &reasoner{fake: &fake{}, site: tko.SiteExplanation{Site: "lagos/1", Placements: []tko.PlacementExplanation{
		{Placement: `x Placement "p"`, Template: "a", Sites: `x Sites "north"`, Unmet: []tko.UnmetCondition{{Field: "metadata.region", Present: true, Value: "south", Wanted: "north"}, {Field: "metadata.tier", Wanted: "core"}}},
		{Placement: `x Placement "p"`, Template: "b", Sites: `x Sites "all"`, Selected: true, Deployments: []tko.DeploymentID{"D1"}, Note: "a note"},
	}}}
	out := runServer(t.Context(), r.fake, r, "", "site", "explain", "lagos/1", "--topology", "top:v1", "-o", "table")
	want := `x Placement "p", template "a": doesn't select lagos/1, because x Sites "north" wants:
  metadata.region is "south", wanted "north"
  metadata.tier is missing, wanted "core"
x Placement "p", template "b": selects lagos/1, by x Sites "all"
  deployed there as D1
  note: a note
`
	if diff := cmp.Diff(want, out.out); diff != "" || out.code != 0 {
		t.Errorf("exit code %d, %q: %s", out.code, out.err, diff)
	}
	if diff := cmp.Diff(tko.SiteExplanationRequest{Site: "lagos/1", Template: "top:v1"}, r.asked); diff != "" {
		t.Error(diff)
	}
	runServer(t.Context(), r.fake, r, "", "site", "explain", "lagos/1", "--topology", "2Zq8LmV3xT6YbN9cWd4RkJ5HsGf")
	if diff := cmp.Diff(tko.SiteExplanationRequest{Site: "lagos/1", Deployment: "2Zq8LmV3xT6YbN9cWd4RkJ5HsGf"}, r.asked); diff != "" {
		t.Error(diff)
	}
	if out := runServer(t.Context(), r.fake, r, "", "site", "explain", "lagos/1", "--topology", ""); out.code == 0 || !strings.Contains(out.err, "--topology is empty") {
		t.Errorf("an empty topology: %q", out.err)
	}
}

func TestTemplateImpactShowsGroupsAndReadsAPackage(t *testing.T) {
	t.Parallel()
	r := &reasoner{fake: &fake{}, impact: tko.TemplateImpact{
		Template: "t:v1", Revision: 2, Deployments: 4, DeploymentSites: 3, Sites: 1, Same: 1,
		Revisions:  []tko.ImpactRevision{{Revision: 2, Deployments: 1}, {Revision: 1, Deployments: 3}},
		Topologies: []tko.ImpactTopology{{Kind: tko.KindTemplate, ID: "top:v1", Resource: `x Template "t"`}},
		Rollouts:   []tko.ImpactRollout{{ID: "r", State: "Planned"}},
		Groups: []tko.ImpactGroup{{Kind: "Change", Deployments: 3, Examples: []tko.DeploymentID{"D1", "D2"}, Changes: []tko.RolloutChange{
			{Resource: `v1 ConfigMap "a"`, Path: "data.x", Before: `"1"`, After: `"2"`},
		}}},
	}}
	out := runServer(t.Context(), r.fake, r, thingYAML, "template", "impact", "t:v1", "-i", "-o", "table")
	want := `Template:     t:v1, revision 2
Deployments:  4, at 3 sites
              1 of revision 2
              3 of revision 1
Sites:        1 based on it
Topology:     template top:v1: x Template "t" names it
Rollout:      r, Planned
Upgrades:     1 deployment wouldn't change
=== Change 3 deployments, such as D1, D2
@@ v1 ConfigMap "a" @@
-data.x: "1"
+data.x: "2"
`
	if diff := cmp.Diff(want, out.out); diff != "" || out.code != 0 {
		t.Errorf("exit code %d, %q: %s", out.code, out.err, diff)
	}
	if request, ok := r.asked.(tko.TemplateImpactRequest); !ok || request.Template != "t:v1" || len(request.Package) != 1 {
		t.Errorf("asked %+v", r.asked)
	}
}

const thingYAML = "apiVersion: v1\nkind: Thing\nmetadata: {name: a}\n"
