package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// A fleetPlan is what the digest of a plan is made of.
type fleetPlan struct {
	Rollout   plan.Digest
	Algorithm int
	Rows      []plan.Row
}

func (p *fleetPlan) Digest() plan.Digest {
	return plan.DigestOf(p.Rollout, p.Algorithm, len(p.Rows), func(yield func(*plan.Row) bool) {
		for i := range p.Rows {
			if !yield(&p.Rows[i]) {
				return
			}
		}
	})
}

func fleet(n int) *fleetPlan {
	p := &fleetPlan{Algorithm: 1, Rollout: plan.Digest{7}}
	for i := range n {
		p.Rows = append(p.Rows, plan.Row{
			Deployment: tko.DeploymentID(fmt.Sprintf("2abcdefghijklmnopqrst%06d", i)), UID: fmt.Sprintf("0199c0de-0000-7000-8000-%012d", i), Revision: int64(i % 9), Kind: plan.Change, Wave: i % 3, Rank: i,
			Before: plan.Digest{1, byte(i), byte(i >> 8)}, After: plan.Digest{2, byte(i), byte(i >> 8)},
		})
	}
	return p
}

// Each planned fact changes the digest; groups don't.
func TestDigestNamesAllThatIsPlanned(t *testing.T) {
	t.Parallel()
	want := fleet(3).Digest()
	for what, change := range map[string]func(*fleetPlan){
		"spec": func(p *fleetPlan) { p.Rollout[0]++ }, "algorithm": func(p *fleetPlan) { p.Algorithm++ },
		"deployment": func(p *fleetPlan) { p.Rows[0].Deployment = "x" }, "uid": func(p *fleetPlan) { p.Rows[0].UID = "x" }, "revision": func(p *fleetPlan) { p.Rows[0].Revision++ },
		"kind": func(p *fleetPlan) { p.Rows[0].Kind = plan.Delete }, "wave": func(p *fleetPlan) { p.Rows[0].Wave++ }, "rank": func(p *fleetPlan) { p.Rows[0].Rank++ },
		"before": func(p *fleetPlan) { p.Rows[0].Before[0]++ }, "after": func(p *fleetPlan) { p.Rows[0].After[0]++ },
		"findings": func(p *fleetPlan) { p.Rows[0].Findings = []string{"x"} }, "unknown": func(p *fleetPlan) { p.Rows[0].Unknown = []string{"x"} },
		"edits": func(p *fleetPlan) { p.Rows[0].Edits = []uint8{1} }, "root": func(p *fleetPlan) { p.Rows[0].Root = "x" },
		"row": func(p *fleetPlan) { p.Rows = p.Rows[:2] },
	} {
		p := fleet(3)
		change(p)
		if p.Digest() == want {
			t.Errorf("%s isn't in the digest", what)
		}
	}
	p := fleet(3)
	p.Rows[0].Group = 4
	if p.Digest() != want {
		t.Error("groups are in the digest")
	}
	named, err := plan.ParseDigest("sha256:" + want.String()[:12])
	if err != nil || !want.Matches(named) || (plan.Digest{}).Matches(named) {
		t.Errorf("%q: %v", named, err)
	}
	if _, err := plan.ParseDigest("abc"); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the error of a short digest is %v", err)
	}
}

func TestRowsFitOnlyTheirRevision(t *testing.T) {
	t.Parallel()
	change, create := plan.Row{Deployment: "d", UID: "u", Revision: 2, Kind: plan.Change}, plan.Row{Deployment: "d", Kind: plan.Create}
	for what, test := range map[string]struct {
		row      plan.Row
		exists   bool
		uid      string
		revision int64
		fits     bool
	}{
		"as planned": {change, true, "u", 2, true}, "moved": {change, true, "u", 3, false}, "deleted": {change, false, "", 0, false}, "another": {change, true, "v", 2, false},
		"absent": {create, false, "", 0, true}, "created": {create, true, "u", 1, false},
	} {
		if err := test.row.Check(test.exists, test.uid, test.revision); (err == nil) != test.fits || err != nil && !errors.Is(err, tko.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWavesTakeOneOfEachValueInTurn(t *testing.T) {
	t.Parallel()
	var candidates []plan.Candidate
	for i := range 100 {
		site := map[string]string{"region": []string{"a", "b", "c"}[min(i/49, 2)]}
		if i == 50 {
			site = nil
		}
		candidates = append(candidates, plan.Candidate{Key: strconv.Itoa(i), Site: site})
	}
	places := plan.Assign([]spec.Wave{{Count: 4, Spread: "region"}, {Percent: 10}, {}}, candidates)
	regions, sizes := map[string]int{}, map[int]int{}
	for i, p := range places {
		sizes[p.Wave]++
		if p.Wave == 0 {
			regions[candidates[i].Site["region"]]++
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1, "": 1}, regions); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[int]int{0: 4, 1: 10, 2: 86}, sizes); diff != "" {
		t.Error(diff)
	}
	few := plan.Assign([]spec.Wave{{Percent: 1}, {}}, candidates[:3])
	if few[0].Wave+few[1].Wave+few[2].Wave != 2 {
		t.Errorf("1 %% of 3 isn't one: %v", few)
	}
}

func TestWavesDontDependOnTheOrderOfCandidates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "n")
		candidates := make([]plan.Candidate, n)
		for i := range candidates {
			candidates[i] = plan.Candidate{Key: strconv.Itoa(i), Site: map[string]string{"r": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "r")}}
		}
		waves := []spec.Wave{{Count: rapid.IntRange(1, 9).Draw(t, "count"), Spread: "r"}, {Percent: 20}, {}}
		places := plan.Assign(waves, candidates)
		ranks := map[int]bool{}
		for _, p := range places {
			ranks[p.Rank] = true
		}
		if len(ranks) != n {
			t.Fatalf("%d ranks for %d candidates", len(ranks), n)
		}
		order := rapid.Permutation(candidates).Draw(t, "order")
		again := map[string]plan.Place{}
		for i, p := range plan.Assign(waves, order) {
			again[order[i].Key] = p
		}
		for i, c := range candidates {
			if again[c.Key] != places[i] {
				t.Fatalf("%s: %v, then %v", c.Key, places[i], again[c.Key])
			}
		}
	})
}

func image(id, tag string) krm.Package {
	return krm.Package{{"apiVersion": "x/v1", "kind": "App", "metadata": map[string]any{"name": "app-" + id}, "spec": map[string]any{"image": "smf:" + tag}}}
}

func TestEqualChangesAreOneGroup(t *testing.T) {
	t.Parallel()
	g := plan.NewGrouper(nil, []byte("key"))
	for i := range 300 {
		id := fmt.Sprintf("d%03d", i)
		tag := "2"
		if i == 7 {
			tag = "3"
		}
		g.Add(plan.Row{Deployment: tko.DeploymentID(id), Kind: plan.Change}, image(id, "1"), image(id, tag), map[string]string{id: "{deployment}"})
	}
	groups, _ := g.Finish()
	if len(groups) != 2 || groups[0].Count != 299 || groups[1].Count != 1 || len(groups[0].Examples) != 3 {
		t.Fatalf("%+v", groups)
	}
	want := []plan.Line{{Resource: `x/v1 App "app-{deployment}"`, Path: "spec.image", Before: `"smf:1"`, After: `"smf:2"`}}
	if diff := cmp.Diff(want, groups[0].Changes); diff != "" {
		t.Error(diff)
	}
}

// prepared returns an App and the Deployment resource, with annotations.
func prepared(tag, template string, app, deployment map[string]any) krm.Package {
	with := func(name string, annotations map[string]any) map[string]any {
		if annotations == nil {
			return map[string]any{"name": name}
		}
		return map[string]any{"name": name, "annotations": annotations}
	}
	return krm.Package{
		{"apiVersion": "x/v1", "kind": "App", "metadata": with("app", app), "spec": map[string]any{"image": "smf:" + tag, "templateId": template}},
		{"apiVersion": krm.DeploymentGVK.APIVersion(), "kind": krm.DeploymentGVK.Kind, "metadata": with("deployment", deployment), "spec": map[string]any{"templateId": template}},
	}
}

func TestBookkeepingIsNotAmongTheChangesOfGroups(t *testing.T) {
	t.Parallel()
	yes := map[string]any{krm.AnnotationPrepared: "true"}
	both := map[string]any{krm.AnnotationPrepared: "true", krm.AnnotationApproved: "true"}
	own := map[string]any{krm.AnnotationPrepared: "true", "own": "1"}
	tests := map[string]struct {
		why           string
		before, after krm.Package
		want          []string // paths
	}{
		"prepared": {
			"that a changed resource must be prepared again follows from its change",
			prepared("1", "t:v1", yes, yes), prepared("2", "t:v1", nil, nil),
			[]string{"spec.image"},
		},
		"among other annotations": {
			"others stay",
			prepared("1", "t:v1", own, yes), prepared("2", "t:v1", map[string]any{"own": "2"}, nil),
			[]string{"metadata.annotations.own", "spec.image"},
		},
		"template": {
			"only that of the deployment: another resource may have a field of this name",
			prepared("1", "t:v1", nil, nil), prepared("2", "t:v2", nil, nil),
			[]string{"spec.image", "spec.templateId"},
		},
		"approved": {
			"an approval that is withdrawn is what an operator must know",
			prepared("1", "t:v1", nil, both), prepared("2", "t:v1", nil, yes),
			[]string{`metadata.annotations["nephio.org/approved"]`, "spec.image"},
		},
		"approved, without further annotations": {
			"the same",
			prepared("1", "t:v1", nil, both), prepared("2", "t:v1", nil, nil),
			[]string{"metadata.annotations", "spec.image"},
		},
		"nothing else": {
			"a change is never empty",
			prepared("1", "t:v1", yes, nil), prepared("1", "t:v1", nil, nil),
			[]string{"metadata.annotations"},
		},
	}
	for name, test := range tests {
		g := plan.NewGrouper(nil, []byte("key"))
		g.Add(plan.Row{Deployment: "d", Kind: plan.Change}, test.before, test.after, nil)
		groups, _ := g.Finish()
		for where, lines := range map[string][]plan.Line{"group": groups[0].Changes, "row": plan.Lines(test.before, test.after, nil, []byte("key"))} {
			var got []string
			for _, l := range lines {
				got = append(got, l.Path)
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s, %s: %s: %s", name, where, test.why, diff)
			}
		}
	}
	g := plan.NewGrouper(nil, []byte("key"))
	for i, template := range []string{"t:v1", "t:v0"} {
		before := krm.Package{image("", "1")[0], prepared("", template, nil, nil)[1]}
		after := krm.Package{image("", "2")[0], prepared("", "t:v2", nil, nil)[1]}
		g.Add(plan.Row{Deployment: tko.DeploymentID(strconv.Itoa(i)), Kind: plan.Change}, before, after, nil)
	}
	groups, _ := g.Finish()
	if len(groups) != 1 {
		t.Fatalf("equal changes of deployments of two templates are %d groups", len(groups))
	}
	if diff := cmp.Diff([]string{"t:v1 → t:v2", "t:v0 → t:v2"}, groups[0].Templates); diff != "" {
		t.Error(diff)
	}
}

func TestManyDifferentChangesAreCoarseGroups(t *testing.T) {
	t.Parallel()
	g := plan.NewGrouper(nil, []byte("key"))
	var at []int
	for i := range 300 {
		kind := plan.Change
		if i%100 == 0 {
			kind = plan.Delete
		}
		at = append(at, g.Add(plan.Row{Deployment: tko.DeploymentID(strconv.Itoa(i)), Kind: kind}, image("", "1"), image("", fmt.Sprint("v", i)), nil))
	}
	groups, index := g.Finish()
	if len(groups) != 2 || groups[0].Kind != plan.Delete || groups[0].Count != 3 || groups[1].Count != 297 || groups[1].Distinct != 297 || !groups[1].Coarse {
		t.Fatalf("%+v", groups)
	}
	if index[at[100]] != 0 || index[at[101]] != 1 {
		t.Errorf("rows are in groups %d and %d", index[at[100]], index[at[101]])
	}
}

func TestGroupsHideSecretsAndTellThemApart(t *testing.T) {
	t.Parallel()
	secret := func(data string) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "annotations": map[string]any{"copy": data}}, "stringData": map[string]any{"k": data}}
	}
	list := func(data string) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "List", "items": []any{map[string]any(secret(data))}}
	}
	g := plan.NewGrouper(nil, []byte("key"))
	for i, data := range []string{"canary1", "canary1", "canary2"} {
		g.Add(plan.Row{Deployment: tko.DeploymentID(strconv.Itoa(i)), Kind: plan.Change}, krm.Package{secret("canary0"), list("canary0")}, krm.Package{secret(data), list(data)}, nil)
	}
	groups, _ := g.Finish()
	if len(groups) != 2 || groups[0].Count != 2 {
		t.Errorf("%d groups", len(groups))
	}
	if text := fmt.Sprintf("%+v", groups); strings.Contains(text, "canary") {
		t.Error(text)
	}
}
