package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
)

// A source owns what it created, and existing entities that are equal to its manifest. Any
// other existing entity is an error, unless the manifest or the source has adopt.
func TestExistingEntitiesAreAdopted(t *testing.T) {
	t.Parallel()
	existing := []tko.Put{plugin("p"), template("t", "1"), site("s", "t", "region", "west")}
	differing := []tko.Put{plugin("p"), template("t", "2"), site("s", "t", "region", "east")}
	differing[0].Plugin.Arguments = []string{"other"}
	for i, is := range existing {
		for _, test := range []struct {
			name                            string
			equal, byPolicy, byManifest, ok bool
		}{
			{"equal", true, false, false, true},
			{"different", false, false, false, false},
			{"different, adopted by the source", false, true, false, true},
			{"different, adopted by the manifest", false, false, true, true},
		} {
			t.Run(fmt.Sprint(is.Kind, " ", test.name), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, pruning())
				for _, p := range existing[:i+1] {
					w.put(p)
				}
				m := of(t, differing[i])
				if test.equal {
					m = of(t, existing[i])
				}
				m.Adopt, w.policy.Adopt = test.byManifest, test.byPolicy
				if !test.ok {
					w.refused([]string{"fleet.yaml", m.Name, "isn't owned by this source (ada wrote it last)", manifest.AnnotationAdopt}, m)
					w.policy.Careful = true
					w.refused([]string{"set adopt: true for the source"}, m)
					return
				}
				if p := w.plan(m); len(p.Actions) != 1 || p.Actions[0].Verb != plan.Adopt {
					t.Fatalf("the actions are %v, want one adoption", p.Actions)
				}
				w.apply(m)
				equal(t, "inventory", []string{string(is.Kind) + " " + m.Name}, names(w.items))
				want := fmt.Sprintf("%s %s 2 gitops:fleet", is.Kind, is.ID)
				if test.equal {
					want = fmt.Sprintf("%s %s 1 ada", is.Kind, is.ID) // unchanged entities are not written
				}
				if !slices.Contains(w.entities(), want) {
					t.Errorf("there are %q, want %q", w.entities(), want)
				}
				equal(t, "actions of the next plan", 0, plantest.Changes(w.plan(m)))
				w.apply()
				if text := strings.Join(w.entities(), "\n"); strings.Contains(text, string(is.Kind)+" "+is.ID) {
					t.Errorf("after its manifest was removed, there is %s", text)
				}
			})
		}
	}
}

// A site and its template, which are both equal to their manifests, are adopted together.
func TestEqualSiteAndTemplateAreAdoptedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.put(template("t", "1"))
	w.put(site("s", "t", "region", "west"))
	manifests := w.of(template("t", "1"), site("s", "t", "region", "west"))
	before := w.entities()
	w.apply(manifests...)
	equal(t, "entities", before, w.entities())
	equal(t, "inventory", []string{"template t", "site s"}, names(w.items))

	// A site that is equal now isn't adopted if the revision changes its template: it would
	// be made from that.
	w.items = w.items[:1]
	w.refused([]string{`site "s"`, "differs"}, w.of(template("t", "2"), site("s", "t", "region", "west"))...)

	// A site is adopted if it is equal to what the revision makes of it, also if another client
	// has changed its template, which the revision restores.
	w.apply(w.of(template("t", "1"))...)
	w.put(template("t", "2"))
	w.apply(manifests...)
	equal(t, "entities with a restored template", []string{"template t 3 gitops:fleet", "site s 1 ada"}, w.entities())

	// A site that differs isn't adopted, also if its template is.
	for name, differs := range map[string][]tko.Put{
		"its metadata":     {template("t", "1"), site("s", "t", "region", "east")},
		"its own template": {template("t", "1"), template("t2", "1"), site("s", "t2", "region", "west")},
	} {
		w.items = nil
		w.refused([]string{`site "s"`, "differs"}, w.of(differs...)...)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// Two sources cannot own the same entity: neither one that exists, nor one that another
// client deleted, which its owner will restore.
func TestEntitiesOfOtherSourcesAreRefused(t *testing.T) {
	t.Parallel()
	for _, exists := range []bool{true, false} {
		for _, p := range []tko.Put{plugin("p"), template("t", "1"), plainSite("s")} {
			t.Run(fmt.Sprint(p.Kind, " exists: ", exists), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, pruning())
				w.policy.Adopt = true
				if exists {
					w.put(p)
				}
				w.owns("core", tko.SourceItem{Kind: string(p.Kind), Name: p.ID})
				w.refused([]string{`it is owned by source "core": remove it from one of the two`}, of(t, p))
				w.others = nil
				w.apply(of(t, p))
				w.owns("core", tko.SourceItem{Kind: string(p.Kind), Name: "another"})
				equal(t, "actions with another one of the other source", 0, plantest.Changes(w.plan(of(t, p))))
			})
		}
	}
}

// Deployments are identified within their source: two sources may use the same name.
func TestSourcesMayUseTheSameNamesOfDeployments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainDeployment("upf"))...)
	w.owns("fleet", w.items...)
	w.policy.Source, w.items = "core", nil
	w.apply(w.of(plainDeployment("upf"))...)
	if n := len(w.entities()); n != 2 {
		t.Errorf("there are %d deployments, want 2", n)
	}
}

// Origins are at most 200 bytes, and different for different sources and names.
func TestOriginsAreShortAndUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, source := range []string{"a", strings.Repeat("a", 60), strings.Repeat("a", 61), strings.Repeat("a", 253), strings.Repeat("a", 252) + "b"} {
		for _, name := range []string{"x", strings.Repeat("x", manifest.MaxName)} {
			origin := plan.OriginOf(source, name)
			if len(origin) > 200 || seen[origin] || !strings.HasSuffix(origin, "/"+name) {
				t.Errorf("the origin of %q in %q is %q", name, source, origin)
			}
			seen[origin] = true
		}
	}
	if got := plan.OriginOf(strings.Repeat("a", 60), "x"); got != strings.Repeat("a", 60)+"/x" {
		t.Errorf("the origin has changed: %s", got)
	}
}

// What other clients changed or deleted is restored, and the reason names them.
func TestDriftIsRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	manifests := w.of(plugin("p"), template("t", "1"), site("changed", "t", "region", "west"), plainSite("deleted"), plainSite("same"), plainDeployment("d"))
	w.apply(manifests...)
	equal(t, "actions without changes", 0, plantest.Changes(w.plan(manifests...)))
	w.put(template("t", "2"))
	w.put(site("changed", "t", "region", "east"))
	w.remove(tko.KindSite, "deleted")
	w.remove(tko.KindDeployment, w.item(tko.KindDeployment, "d").ID)
	want := []string{
		`update template "t" (it was changed by ada)`, `update site "changed" (it was changed by ada)`, `create site "deleted" (it was deleted)`, `create deployment "d" (it was deleted)`,
	}
	equal(t, "actions", want, actions(w.apply(manifests...).Actions))
	equal(t, "actions after that", 0, plantest.Changes(w.plan(manifests...)))
	if s, err := w.Site(t.Context(), "changed", 0); err != nil || s.Metadata["region"] != "west" {
		t.Errorf("the site has %v, %v", s.Metadata, err)
	}
}

// Only entities that the source owns are removed.
func TestOnlyOwnedEntitiesAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.put(plainSite("theirs"))
	w.put(plainSite("pending"))
	w.apply(w.of(plainSite("ours"), plainSite("kept"), plainSite("gone"))...)
	w.remove(tko.KindSite, "gone")
	w.put(site("ours", "", "changed", "yes")) // it stays ours
	w.items = append(w.items,
		tko.SourceItem{Kind: string(tko.KindSite), Name: "pending", Pending: true}, // another client was first
		tko.SourceItem{Kind: string(tko.KindSite), Name: "never", Pending: true},
		tko.SourceItem{Kind: "nsInstance", Name: "osm"})
	p := w.plan(w.of(plainSite("kept"))...)
	equal(t, "actions", []string{`delete site "ours"`}, actions(p.Actions))
	equal(t, "inventory of the plan", []string{"site kept", "site ours"}, names(p.Items))
}

// A pending entity that the source itself created is removed with its manifest, and isn't
// adopted anew while it has one.
func TestPendingEntitiesOfTheSourceAreOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainSite("s"))...)
	w.items = []tko.SourceItem{{Kind: string(tko.KindSite), Name: "s", Pending: true}}
	equal(t, "with another content", []string{`update site "s"`}, actions(w.plan(w.of(site("s", "", "a", "b"))...).Actions))
	equal(t, "without a manifest", []string{`delete site "s"`}, actions(w.plan().Actions))
	w.put(site("s", "", "theirs", "x"))
	w.refused([]string{`site "s"`, "ada wrote it last"}, w.of(plainSite("s"))...)
	w.remove(tko.KindSite, "s")
	equal(t, "if it doesn't exist", []string{`create site "s"`}, actions(w.plan(w.of(plainSite("s"))...).Actions))
}

// With the annotation the entity stays when its manifest is removed, and without pruning
// all do. They stay owned, and the messages say so.
func TestEntitiesStayWithoutPruning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	kept := of(t, plainSite("kept"))
	kept.Keep = true
	w.apply(kept, of(t, plainSite("pruned")))
	if !plan.Keeps(w.item(tko.KindSite, "kept")) || plan.Keeps(w.item(tko.KindSite, "pruned")) {
		t.Errorf("the inventory is %+v", w.items)
	}
	p := w.apply()
	equal(t, "actions", []string{`delete site "pruned"`}, actions(p.Actions))
	if text := strings.Join(p.Messages, "\n"); !strings.Contains(text, `site "kept" stays although its manifest was removed: it had the annotation`) {
		t.Errorf("the messages are %q", text)
	}
	equal(t, "inventory", []string{"site kept"}, names(w.items))

	// Its manifest without the annotation makes it subject to pruning again.
	kept.Keep = false
	equal(t, "changes", 0, plantest.Changes(w.apply(kept)))
	w.policy.Prune = false
	p = w.apply()
	equal(t, "changes without pruning", 0, plantest.Changes(p))
	if text := strings.Join(p.Messages, "\n"); !strings.Contains(text, `site "kept" stays although its manifest was removed: pruning is off`) {
		t.Errorf("the messages are %q", text)
	}
	w.policy.Prune = true
	equal(t, "actions with pruning", []string{`delete site "kept"`}, actions(w.apply().Actions))
	equal(t, "entities", []string{}, w.entities())
}

// A policy that only adds, as that of catalogs, changes and removes nothing: neither what
// it owns, nor the templates of others. What is invalid stops nothing else,
// and what others registered with the same content is no conflict.
func TestAddOnlyNeverChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan.Policy{AddOnly: true, Prune: true, Adopt: true})
	w.put(template("theirs", "other"))
	w.put(template("equal", "1"))
	w.apply(w.of(template("a", "1"), template("b", "1"), template("c", "1"), template("gone", "1"))...)
	w.put(template("c", "by ada"))
	w.remove(tko.KindTemplate, "gone")
	before := w.entities()
	invalid := template("invalid", "1")
	invalid.Package = append(invalid.Package, invalid.Package...) // twice the same resource
	p := w.apply(w.of(template("a", "2"), template("c", "1"), template("gone", "1"), template("theirs", "1"), template("equal", "1"), template("new", "1"), invalid)...)
	equal(t, "actions", []string{`create template "gone" (it was deleted)`, `create template "new"`}, actions(p.Actions))
	for _, want := range []string{`template "a" stays as it is (gitops:fleet wrote it last)`, `template "c" stays as it is (ada wrote it last)`, `template "theirs" stays as it is (ada wrote it last)`} {
		if !strings.Contains(strings.Join(p.Messages, "\n"), want) {
			t.Errorf("the messages are %q, want one with %q", p.Messages, want)
		}
	}
	equal(t, "messages", 3, len(p.Messages))
	if len(p.Invalid) != 1 || !strings.Contains(p.Invalid[0], `template "invalid"`) {
		t.Errorf("invalid are %q", p.Invalid)
	}
	for _, line := range before {
		if !slices.Contains(w.entities(), line) {
			t.Errorf("%s was changed: there are %q", line, w.entities())
		}
	}
	equal(t, "without manifests", 0, plantest.Changes(w.apply()))
	equal(t, "inventory", []string{"template a", "template b", "template c", "template gone", "template new"}, names(w.items))
}

// Messages name ten entities that stay, and count the others.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	for n, more := range map[int]string{10: "", 11: "and 1 more stay as they are", 13: "and 3 more stay as they are"} {
		w := newWorld(t, plan.Policy{AddOnly: true})
		for _, p := range numbered(n, plainSite, "s") {
			w.put(p)
		}
		changed := func(id string) tko.Put {
			p := plainSite(id)
			p.Metadata = map[string]string{"changed": "yes"}
			return p
		}
		p := w.plan(w.of(numbered(n, changed, "s")...)...)
		if len(p.Messages) != min(n, 11) || more != "" && p.Messages[10] != more || !strings.HasPrefix(p.Messages[9], `site "s09"`) {
			t.Errorf("%d sites: the messages are %q", n, p.Messages)
		}
		invalid := func(id string) tko.Put {
			return tko.Put{Kind: tko.KindSite, ID: id, Package: append(configMap("a", "1"), configMap("a", "2")...)}
		}
		p = w.plan(w.of(numbered(n, invalid, "x")...)...)
		if len(p.Invalid) != min(n, 11) || more != "" && p.Invalid[10] != strings.Replace(more, "stay as they are", "are invalid", 1) {
			t.Errorf("%d sites: invalid are %q", n, p.Invalid)
		}
	}
}

// A site is compared with its content after the plan, also if the plan restores or changes
// its template.
func TestSitesAreComparedWithTheirTemplatesAfterThePlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why    string
		before func(w *world)
		value  string // of the template
		want   []string
	}{
		"drifted template": {"the site was made before the drift", func(w *world) {
			w.put(site("s", "t"))
			w.put(template("t", "2"))
		}, "1", []string{`update template "t" (it was changed by ada)`, `adopt site "s"`}},
		"changed template": {"the site was made of the next content", func(w *world) {
			w.put(template("t", "2"))
			w.put(site("s", "t"))
			w.apply(w.of(template("t", "1"))...)
		}, "2", []string{`update template "t"`, `adopt site "s"`}},
		"deleted template": {"the policy adopts what differs", func(w *world) {
			w.policy.Adopt = true
			w.put(site("s", "t"))
			w.remove(tko.KindTemplate, "t")
		}, "1", []string{`create template "t" (it was deleted)`, `adopt site "s"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pruning())
			w.apply(w.of(template("t", "1"))...)
			c.before(w)
			equal(t, "actions, as "+c.why, c.want, actions(w.plan(w.of(template("t", c.value), site("s", "t"))...).Actions))
		})
	}
}

// A policy that only adds completes a creation that was interrupted.
func TestAddOnlyCompletesCreations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan.Policy{AddOnly: true})
	w.apply(w.of(template("a", "1"))...)
	w.items = []tko.SourceItem{{Kind: string(tko.KindTemplate), Name: "a", Pending: true}}
	before := w.entities()
	p := w.apply(w.of(template("a", "1"))...)
	equal(t, "actions", []string{`update template "a"`}, actions(p.Actions))
	equal(t, "messages", 0, len(p.Messages))
	equal(t, "entities", before, w.entities())
	if item := w.item(tko.KindTemplate, "a"); item.Pending || item.Digest == "" {
		t.Errorf("the inventory has %+v", item)
	}
}

// If the inventory has no revision of an entity, it isn't known who changed it.
func TestDriftFromUnknownRevisionsHasNoAuthor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainSite("s"))...)
	w.items[0].Revision = 0
	w.put(site("s", "", "region", "west"))
	equal(t, "actions", []string{`update site "s"`}, actions(w.plan(w.of(plainSite("s"))...).Actions))
}
