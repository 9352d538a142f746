package catalog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

func (w *world) diff(request tko.DiffRequest) []tko.PastGroup {
	w.t.Helper()
	groups := []tko.PastGroup{}
	for g, err := range w.DiffPast(w.ctx, request) {
		if err != nil {
			w.t.Fatal(err)
		}
		groups = append(groups, g)
	}
	return groups
}

func (w *world) history(request tko.HistoryRequest) []string {
	w.t.Helper()
	lines := []string{}
	for e, err := range w.HistoryOf(w.ctx, request) {
		if err != nil {
			w.t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", e.ID, e.What, e.Revision, e.Summary)))
	}
	return lines
}

func (w *world) restore(request tko.RestoreRequest) (tko.Restored, error) {
	w.t.Helper()
	return w.RestorePast(w.ctx, request)
}

func at(position int64) tko.AsOf { return tko.AsOf{Position: position} }

func secret(value string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: " + value + "}\n"
}

func configMap(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {key: " + value + "}\n"
}

func TestEqualDifferencesAreOneGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	for i := range 4 {
		w.site(fmt.Sprint("s", i), configMap("one"), "region", "north")
	}
	before := w.head()
	for i := range 3 {
		w.site(fmt.Sprint("s", i), configMap("two"), "region", "north")
	}
	w.site("s3", configMap("one"), "region", "south")
	w.site("new", configMap("one"), "region", "north")
	if _, err := w.DeleteSite(w.ctx, "s0"); err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, g := range w.diff(tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindSite}, From: at(before)}) {
		text := fmt.Sprintf("%s %d %v", g.What, g.Count, g.Examples)
		if g.What == tko.PastChanged {
			var changes strings.Builder
			for _, c := range g.Changes {
				fmt.Fprintf(&changes, " %s %s -> %s", c.Path, c.Before, c.After)
			}
			text += changes.String()
		}
		got = append(got, text)
	}
	want := []string{
		"deleted 1 [s0]", "created 1 [new]", `changed 2 [s1 s2] data.key "one" -> "two"`, `changed 1 [s3] spec.metadata.region "north" -> "south"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	selected := w.diff(tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindSite, Metadata: map[string]string{"region": "south"}}, From: at(before)})
	if len(selected) != 1 || selected[0].Examples[0] != "s3" {
		t.Errorf("of the south: %+v, want s3, which is there now", selected)
	}
	if _, err := w.restore(tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindSite}, AsOf: at(before)}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a restore of all sites: %v, want a refusal", err)
	}
}

func TestDifferencesAndHistoriesShowNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", secret("canary-one"))
	before := w.head()
	w.site("s", secret("canary-two"))
	text := fmt.Sprint(
		w.diff(tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindSite}, From: at(before)}),
		w.diff(tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "s"}, FromRevision: 1, ToRevision: 2}),
		w.history(tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite}}),
	)
	if strings.Contains(text, "canary") {
		t.Errorf("a secret is shown: %s", text)
	}
	if strings.Count(text, "password") != 3 {
		t.Errorf("the path of the change is not shown: %s", text)
	}
}

func TestHistoryIsNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", configMap("one"))
	w.site("s", configMap("one"))
	from := w.head()
	w.site("s", configMap("two"), "region", "north")
	w.site("other", "")
	if _, err := w.DeleteSite(w.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	w.site("s", "")
	to := w.head()
	w.site("moving", "", "region", "east")
	d := w.create(tko.NewDeployment{Template: "t", Site: "moving"})
	edit := func(value string) {
		if _, _, err := w.EndModification(w.ctx, w.start(d).Token, mustPackage(t, configMap(value))); err != nil {
			t.Fatal(err)
		}
	}
	w.site("moving", "", "region", "west")
	edit("two")
	w.site("moving", "", "region", "east")
	w.template("t", configMap("one"), "tier", "new")
	edit("one")
	for name, one := range map[string]struct {
		request tko.HistoryRequest
		want    []string
	}{
		"of one site": {
			tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "s"}},
			[]string{"s created 3", "s deleted 2", `s changed 2 v1 ConfigMap "c" data.key: "one" -> "two" (and 1 more)`, "s created 1"},
		},
		"since a moment": {
			tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, IDs: []string{"*"}}, From: at(from), To: at(to), Max: 3},
			[]string{"s created 3", "s deleted 2", "other created 1"},
		},
		"by metadata": {
			tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, Metadata: map[string]string{"region": "north"}}},
			[]string{"s deleted 2", `s changed 2 v1 ConfigMap "c" data.key: "one" -> "two" (and 1 more)`},
		},
		"by the metadata that sites had": {
			tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, SiteMetadata: map[string]string{"region": "west"}}},
			[]string{string(d) + ` changed 2 v1 ConfigMap "c" data.key: "one" -> "two"`},
		},
		"by the metadata that templates had": {
			tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, TemplateMetadata: map[string]string{"tier": "new"}}, Max: 1},
			[]string{string(d) + ` changed 3 v1 ConfigMap "c" data.key: "two" -> "one"`},
		},
		"by metadata that no site had": {
			tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, SiteMetadata: map[string]string{"region": "north"}}},
			[]string{},
		},
	} {
		if diff := cmp.Diff(one.want, w.history(one.request)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Random changes of a fleet, then a restore to a random moment.
func TestDifferenceIsEmptyAfterRestore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(t, catalog.Options{ConfirmAbove: 1000})
			ctx := tko.WithAuthor(w.ctx, tko.Author{Who: "Ann", Why: "incident 7"})
			fleet := tko.PastSelect{Kind: tko.KindDeployment, Metadata: map[string]string{"fleet": "f"}}
			sites := tko.PastSelect{Kind: tko.KindSite, IDs: []string{"s*"}}
			w.template("t", configMap("one"), "fleet", "f")
			var ids []tko.DeploymentID
			change := func() {
				value := strconv.Itoa(random.IntN(3))
				switch site := fmt.Sprint("s", random.IntN(4)); random.IntN(6) {
				case 0, 1:
					w.site(site, configMap(value), "region", value)
				case 2:
					_, _ = w.DeleteSite(w.ctx, tko.SiteID(site)) // it may not exist
				case 3:
					request := tko.NewDeployment{Template: "t", Merge: mustPackage(t, configMap(value+" "+strconv.Itoa(len(ids)))), Prepared: true, Approved: random.IntN(2) == 0}
					if len(ids) > 0 && random.IntN(2) == 0 {
						if parent := ids[random.IntN(len(ids))]; w.exists(parent) {
							request.Parent = parent
						}
					}
					ids = append(ids, w.create(request))
				default:
					if len(ids) == 0 {
						return
					}
					id := ids[random.IntN(len(ids))]
					if random.IntN(4) == 0 {
						_, _ = w.DeleteDeployment(w.ctx, id)
					} else if w.exists(id) {
						m := w.start(id)
						if _, _, err := w.EndModification(w.ctx, m.Token, mustPackage(t, configMap(value))); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for range 25 {
				change()
			}
			moment := w.head()
			for range 25 {
				change()
			}
			for _, sel := range []tko.PastSelect{sites} {
				dry, err := w.RestorePast(ctx, tko.RestoreRequest{Select: sel, AsOf: at(moment), DryRun: true})
				if err != nil {
					t.Fatal(err)
				}
				done, err := w.RestorePast(ctx, tko.RestoreRequest{Select: sel, AsOf: at(moment)})
				if err != nil || done != dry {
					t.Fatalf("restored %+v, %v, want %+v as in the dry run", done, err, dry)
				}
				if got := w.diff(tko.DiffRequest{Select: sel, From: at(moment)}); len(got) > 0 {
					t.Errorf("the difference of %ss after the restore: %+v", sel.Kind, got)
				}
				if done.Changed > 0 {
					for e, err := range w.HistoryOf(w.ctx, tko.HistoryRequest{Select: sel, Max: 1}) {
						if want := fmt.Sprintf("restored as of position %d: incident 7", moment); err != nil || e.Author.Why != want && e.What != tko.PastDeleted {
							t.Errorf("the reason is %q, %v, want %q", e.Author.Why, err, want)
						}
					}
				}
				again, err := w.RestorePast(ctx, tko.RestoreRequest{Select: sel, AsOf: at(moment)})
				if err != nil || again.Created+again.Changed+again.Deleted != 0 {
					t.Errorf("the second restore: %+v, %v, want nothing to do", again, err)
				}
			}
			dry, err := w.RestorePast(ctx, tko.RestoreRequest{Select: fleet, AsOf: at(moment), DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			s := w.restoreFleet("back", fmt.Sprintf("{asOf: %d, select: {metadataPatterns: {fleet: f}}}", moment))
			if got := []int{s.Kinds["Create"], s.Kinds["Change"], s.Kinds["Delete"], s.Kinds["Conflict"]}; !slices.Equal(got, []int{dry.Created, dry.Changed, dry.Deleted, 0}) {
				t.Errorf("the rollout planned %v, want %+v as in the dry run", s.Kinds, dry)
			}
			if got := w.diff(tko.DiffRequest{Select: fleet, From: at(moment)}); len(got) > 0 {
				t.Errorf("the difference of deployments after the rollout: %+v", got)
			}
		})
	}
}

// restoreFleet makes a rollout that restores, starts it, and advances it until it waits. It
// returns its status when it was planned.
func (w *world) restoreFleet(id tko.RolloutID, restore string) tko.RolloutStatus {
	w.t.Helper()
	planned := w.planRestore(id, restore)
	if planned.State != "Planned" {
		w.t.Fatalf("the rollout is %s: %s", planned.State, planned.Reason)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: id, Verb: "start", Plan: planned.Plan}); err != nil {
		w.t.Fatal(err)
	}
	w.advance(id)
	return planned
}

// planRestore registers a rollout that restores, and plans it.
func (w *world) planRestore(id tko.RolloutID, restore string) tko.RolloutStatus {
	w.t.Helper()
	text := fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {restore: %s, limits: {concurrent: 1000}}\n", restore)
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: id, Package: mustPackage(w.t, text)}); err != nil {
		w.t.Fatal(err)
	}
	w.advance(id)
	s, err := w.RolloutStatus(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// advance advances a rollout until it waits.
func (w *world) advance(id tko.RolloutID) {
	w.t.Helper()
	for range 1000 {
		wait, err := w.AdvanceRollout(w.ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		if wait != 0 {
			return
		}
	}
	w.t.Fatal("the rollout has always something to do")
}

func TestRestoreOfDeploymentsIsARollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", configMap("one"))
	w.site("s", "")
	create := func(parent tko.DeploymentID) tko.DeploymentID {
		return w.create(tko.NewDeployment{Template: "t", Site: "s", Merge: mustPackage(t, configMap("below "+string(parent))), Parent: parent, Prepared: true, Approved: true})
	}
	gone, stays := create(""), create("")
	child := create(gone)
	moment := w.head()
	if _, err := w.DeleteDeployment(w.ctx, gone); err != nil {
		t.Fatal(err)
	}
	late := create("")
	head := w.head()
	if _, err := w.restore(tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, ID: string(gone)}, AsOf: at(moment)}); !errors.Is(err, tko.ErrInvalid) || w.head() != head {
		t.Errorf("a restore at once: %v, want a refusal that changes nothing", err)
	}
	for name, one := range map[string]struct{ restore, want string }{
		"a child without its parent": {fmt.Sprintf("{asOf: %d, select: {deploymentIds: [%s]}}", moment, child), "its parent"},
		"a moment that is too new":   {fmt.Sprintf("{asOf: %d, select: {siteIdPatterns: [s]}}", head+1000), "beyond the newest change"},
	} {
		s := w.planRestore(tko.RolloutID(strings.ReplaceAll(name, " ", "-")), one.restore)
		texts := []string{s.Reason}
		for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: s.ID}) {
			texts = append(texts, fmt.Sprint(row.Kind, row.Findings, err))
		}
		text := strings.Join(texts, " ")
		if !strings.Contains(text, one.want) || w.exists(child) {
			t.Errorf("%s: %q, want %q", name, text, one.want)
		}
	}
	s := w.restoreFleet("back", fmt.Sprintf("{asOf: %d, select: {siteIdPatterns: [s]}}", moment))
	if s.Kinds["Create"] != 2 || s.Kinds["Delete"] != 1 || !w.exists(gone) || !w.exists(child) || !w.exists(stays) || w.exists(late) {
		t.Errorf("after the restore: %+v", s.Kinds)
	}
	for e, err := range w.HistoryOf(w.ctx, tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, ID: string(gone)}, Max: 1}) {
		if err != nil || !strings.Contains(e.Author.Why, `rollout "back"`) {
			t.Errorf("the reason is %q, %v, want the rollout", e.Author.Why, err)
		}
	}
}

func TestRestoreOfManyIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ConfirmAbove: 2, ConfirmPercent: 1})
	before := map[bool]int64{}
	for _, again := range []bool{false, true} {
		for i := range 4 {
			w.site(fmt.Sprint("s", i), configMap(strconv.FormatBool(again)))
		}
		before[again] = w.head()
	}
	request := tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindSite, IDs: []string{"*"}}, AsOf: at(before[false])}
	for _, count := range []int{0, 3} {
		if _, err := w.RestorePast(tko.WithConfirmation(w.ctx, count), request); !errors.Is(err, tko.ErrInvalid) || w.head() != before[true] {
			t.Errorf("a restore of 4 sites, confirmed %d: %v, want a refusal that changes nothing", count, err)
		}
	}
	if done, err := w.RestorePast(tko.WithConfirmation(w.ctx, 4), request); err != nil || done.Changed != 4 {
		t.Errorf("a confirmed restore: %+v, %v", done, err)
	}
}

func (w *world) exists(id tko.DeploymentID) bool {
	_, err := w.Deployment(w.ctx, id, 0)
	return err == nil
}

func mustPackage(t *testing.T, yaml string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A placement made the child again, with its origin, after the moment: the restore deletes
// that one first.
func TestRestoredDeploymentTakesTheOriginOfItsSuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", configMap("one"))
	parent := w.create(tko.NewDeployment{Template: "t", Prepared: true, Approved: true})
	place := func() tko.DeploymentID {
		ids, _, err := w.CreateChildren(w.ctx, tko.NewChildren{Parent: parent, Merge: mustPackage(t, configMap("child")), Children: []tko.NewChild{{Origin: "o", Template: "t"}}})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	first := place()
	moment := w.head()
	if _, err := w.DeleteDeployment(w.ctx, first); err != nil {
		t.Fatal(err)
	}
	second := place()
	if s := w.planRestore("alone", fmt.Sprintf("{asOf: %d, select: {deploymentIds: [%s]}}", moment, first)); s.Kinds["Conflict"] != 1 || s.Kinds["Create"] != 0 {
		t.Errorf("without its successor: %v", s.Kinds)
	}
	w.restoreFleet("back", fmt.Sprintf("{asOf: %d, select: {parent: %s}}", moment, parent))
	if !w.exists(first) || w.exists(second) {
		t.Errorf("the first exists: %t, the second: %t", w.exists(first), w.exists(second))
	}
	if got := w.diff(tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}, From: at(moment)}); len(got) > 0 {
		t.Errorf("the difference after the restore: %+v", got)
	}
}

func TestRestoreNamesWhatItNeedsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", configMap("one"))
	w.site("s", "")
	d := w.create(tko.NewDeployment{Template: "t", Site: "s", Prepared: true, Approved: true})
	moment := w.head()
	if _, err := w.DeleteDeployment(w.ctx, d); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteSite(w.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	late := w.create(tko.NewDeployment{Template: "t", Prepared: true, Approved: true})
	child := w.create(tko.NewDeployment{Template: "t", Merge: mustPackage(t, configMap("child")), Parent: late, Prepared: true, Approved: true})
	s := w.planRestore("back", fmt.Sprintf("{asOf: %d, select: {deploymentIds: [%s, %s]}}", moment, d, late))
	found := map[tko.DeploymentID]string{}
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "back"}) {
		if err != nil {
			t.Fatal(err)
		}
		found[row.Deployment] = row.Kind + ": " + strings.Join(row.Findings, "; ")
	}
	want := map[tko.DeploymentID]string{
		d:    `Conflict: its site "s" was deleted since: restore the site first (tko restore site s)`,
		late: fmt.Sprintf("Conflict: it was created after the moment, but its descendant %q isn't deleted: select it, too, or delete it first", child),
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "back", Verb: "start", Plan: s.Plan}); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("started: %v", err)
	}
}

// A deployment that others change while a restore is planned is not overwritten.
func TestRestoreLeavesLaterChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", configMap("one"))
	d := w.create(tko.NewDeployment{Template: "t", Prepared: true, Approved: true})
	moment := w.head()
	edit := func(value string) {
		t.Helper()
		if _, _, err := w.EndModification(w.ctx, w.start(d).Token, mustPackage(t, configMap(value))); err != nil {
			t.Fatal(err)
		}
	}
	edit("two")
	s := w.planRestore("back", fmt.Sprintf("{asOf: %d, select: {deploymentIds: [%s]}}", moment, d))
	edit("three")
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "back", Verb: "start", Plan: s.Plan}); err != nil {
		t.Fatal(err)
	}
	w.advance("back")
	now, err := w.RolloutStatus(w.ctx, "back")
	if err != nil || now.State != "Paused" || w.revision(d) != 3 {
		t.Errorf("the rollout is %s (%s), %v, and the deployment at revision %d", now.State, now.Reason, err, w.revision(d))
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "back", Verb: "plan"}); err != nil {
		t.Fatal(err)
	}
	w.advance("back")
	if now, err = w.RolloutStatus(w.ctx, "back"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "back", Verb: "resume", Plan: now.Plan}); err != nil {
		t.Fatal(err)
	}
	w.advance("back")
	if got := w.diff(tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}, From: at(moment)}); len(got) > 0 {
		t.Errorf("the difference after the restore that was planned again: %+v", got)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "back", Verb: "undo"}); err != nil {
		t.Fatal(err)
	}
	w.advance("back-undo")
	if r, err := w.Deployment(w.ctx, d, 0); err != nil || !strings.Contains(fmt.Sprint(r.Package), "three") {
		t.Errorf("after the undo: %v, %v", r.Package, err)
	}
}

func (w *world) revision(id tko.DeploymentID) int64 {
	w.t.Helper()
	d, err := w.Deployment(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return d.Stamp.Revision
}

// A policy retains the past of one deployment longer than that of the other one.
func TestSingleDeploymentsAreReadBeforeTheOldestMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", configMap("one"))
	w.site("core", "", "tier", "central")
	w.site("far", "", "tier", "edge")
	of := map[string]tko.DeploymentID{}
	for _, site := range []string{"core", "far"} {
		of[site] = w.create(tko.NewDeployment{Template: "t", Site: tko.SiteID(site), Prepared: true, Approved: true})
	}
	moment := w.head()
	for _, value := range []string{"two", "three"} {
		for _, id := range of {
			if _, _, err := w.EndModification(w.ctx, w.start(id).Token, mustPackage(t, configMap(value))); err != nil {
				t.Fatal(err)
			}
		}
	}
	central := tko.PastSelect{Kind: tko.KindDeployment, SiteMetadata: map[string]string{"tier": "central"}}
	policy, err := history.NewLonger("central", time.Hour, central)
	if err != nil {
		t.Fatal(err)
	}
	collector, ok := w.store.(record.Collector)
	if !ok {
		t.Fatal("the store collects nothing")
	}
	if _, err := collector.Collect(w.ctx, record.Retention{Changes: time.Nanosecond, Revisions: 1, Longer: []record.Longer{policy}}); err != nil {
		t.Fatal(err)
	}
	alone := func(site string) tko.PastSelect {
		return tko.PastSelect{Kind: tko.KindDeployment, ID: string(of[site])}
	}
	groups := w.diff(tko.DiffRequest{Select: alone("core"), From: at(moment)})
	if len(groups) != 1 || len(groups[0].Changes) != 1 || groups[0].Changes[0].Before != `"one"` || groups[0].Changes[0].After != `"three"` {
		t.Errorf("the difference of the deployment with a policy: %+v", groups)
	}
	for name, one := range map[string]struct{ got, want []string }{
		"a deployment with a policy": {
			w.history(tko.HistoryRequest{Select: alone("core"), From: at(1)}),
			[]string{`changed 3 v1 ConfigMap "c" data.key: "two" -> "three"`, `changed 2 v1 ConfigMap "c" data.key: "one" -> "two"`, `created 1 from template "t" at site "core"`},
		},
		"a deployment without one": {w.history(tko.HistoryRequest{Select: alone("far")}), []string{"changed 3 the revision before is no longer retained"}},
		"a site":                   {w.history(tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "far"}}), []string{"created 1"}},
	} {
		for i, line := range one.got {
			_, one.got[i], _ = strings.Cut(line, " ")
		}
		if diff := cmp.Diff(one.want, one.got); diff != "" {
			t.Errorf("the history of %s (-want +got):\n%s", name, diff)
		}
	}
	failure := func(list func(func(error) bool)) (failed error) {
		for err := range list {
			failed = err
		}
		return failed
	}
	difference := func(sel tko.PastSelect) error {
		return failure(func(yield func(error) bool) {
			for _, err := range w.DiffPast(w.ctx, tko.DiffRequest{Select: sel, From: at(moment)}) {
				yield(err)
			}
		})
	}
	const hint = "policies retain older states of 1 deployments"
	for name, one := range map[string]struct {
		err  error
		hint bool
	}{
		"the difference of a deployment without a policy": {difference(alone("far")), false},
		"the difference of what the policy selects":       {difference(central), true},
		"the difference of sites":                         {difference(tko.PastSelect{Kind: tko.KindSite}), false},
		"the history of a deployment without a policy": {failure(func(yield func(error) bool) {
			for _, err := range w.HistoryOf(w.ctx, tko.HistoryRequest{Select: alone("far"), From: at(moment)}) {
				yield(err)
			}
		}), false},
		"a list": {failure(func(yield func(error) bool) {
			for _, err := range w.Deployments(tko.WithAsOf(w.ctx, at(moment)), tko.DeploymentSelect{SiteMetadata: central.SiteMetadata}, tko.ListOptions{}) {
				yield(err)
			}
		}), true},
	} {
		if !errors.Is(one.err, tko.ErrGone) || strings.Contains(fmt.Sprint(one.err), hint) != one.hint {
			t.Errorf("%s: %v, want a refusal, with a hint: %t", name, one.err, one.hint)
		}
	}
	dry, err := w.restore(tko.RestoreRequest{Select: alone("core"), AsOf: at(moment), DryRun: true})
	if err != nil || dry.Changed != 1 {
		t.Errorf("the restore of the deployment with a policy would do %+v, %v", dry, err)
	}
	w.restoreFleet("central", fmt.Sprintf("{asOf: %d, select: {deploymentIds: [%s]}}", moment, of["core"]))
	if groups := w.diff(tko.DiffRequest{Select: alone("core"), From: at(moment)}); len(groups) != 0 {
		t.Errorf("the difference after the restore: %+v", groups)
	}
}
