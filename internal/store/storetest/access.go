package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
)

var accessPromises = []promise{
	{"a query without a scope selects nothing", noScopeSelectsNothing},
	{"a scope selects the records that its predicate matches, alone and with filters", scopesAgreeWithMatch},
	{"deployments of a record, and their number, are within the scope", associationsAreWithinScope},
	{"an offset within one scope doesn't use the pages of another", offsetsDifferByScope},
	{"metadata of a template or site outside the scope can't be asked for", relatedMetadataIsWithinScope},
	{"rules of access are read as they were written, with their version", accessRulesAreAsWritten},
	{"a write under a former version of the rules of access fails", staleAccessFails},
}

func attributesOf(r record.Record) access.Attributes {
	a := access.Attributes{Kind: r.Kind, ID: r.ID, Template: r.Template, Site: r.Site}
	if r.Metadata != nil {
		a.Metadata = r.Metadata.Effective
	}
	return a
}

func noScopeSelectsNothing(w *world) {
	w.commit(site("s"), deployment("d", at("s")))
	w.equal("no scope", len(w.within(record.Query{Kind: tko.KindSite, Limit: -1})), 0)
	w.equal("no scope, with a filter", len(w.within(record.Query{Kind: tko.KindDeployment, Sites: patterns("s"), Limit: -1})), 0)
	records, err := w.store.Get(w.ctx(), record.Fields{Deployments: true}, siteKey("s"))
	w.ok(err)
	w.equal("deployments without a scope", len(records[0].Deployments), 0)
}

// scopesAgreeWithMatch writes records whose IDs, references and metadata are similar,
// and compares lists in random scopes with the predicate.
func scopesAgreeWithMatch(w *world) {
	templates := []string{"ran/a", "ran/b", "core/a", "ra", "ran/"}
	sites := []string{"emea/1", "emea/2", "emea", "apac/1", "emea/1/x", `a:*`}
	values := []string{"x", "y", "long " + string(make([]rune, 300)[0]+'v')}
	for i, id := range templates {
		w.commit(template(id, own("k", values[i%3], "n", strconv.Itoa(i%2))))
	}
	for i, id := range sites {
		if i == 5 {
			id = "emea2"
		}
		w.commit(site(id, of(templates[i%len(templates)]), own("k", values[i%3])))
	}
	for i := range 60 {
		change := []func(*record.Write){metadata("k", values[i%3], "n", strconv.Itoa(i%2))}
		if i%4 != 0 {
			change = append(change, of(templates[i%len(templates)]))
		}
		if i%5 != 0 {
			change = append(change, at(sites[i%5]))
		}
		if i%7 == 0 {
			change = append(change, ready)
		}
		w.commit(deployment(fmt.Sprintf("d%02d", i), change...))
	}
	w.commit(written(tko.KindPlugin, "prepare|p"))
	everything := map[tko.Kind][]record.Record{}
	kinds := []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin}
	for _, kind := range kinds {
		everything[kind] = w.list(record.Query{Kind: kind, Limit: -1})
	}
	// A scope is within none, one or more of these.
	siteIDs := []string{"", "emea/**", "emea**", "emea/1", "apac/**", "**", "none/**", "emea"}
	templateIDs := []string{"", "ran/**", "ran/a", "ra**", "core/**", "x"}
	rapid.Check(w, func(t *rapid.T) {
		scope := rapid.Custom(func(t *rapid.T) access.Scope {
			s := access.Scope{SiteID: rapid.SampledFrom(siteIDs).Draw(t, "site"), TemplateID: rapid.SampledFrom(templateIDs).Draw(t, "template")}
			if rapid.Bool().Draw(t, "by metadata") {
				s.Metadata = map[string]string{"k": rapid.SampledFrom(append(slices.Clone(values), "none")).Draw(t, "k")}
			}
			if rapid.Bool().Draw(t, "by more metadata") {
				s.Metadata = maps.Clone(s.Metadata)
				if s.Metadata == nil {
					s.Metadata = map[string]string{}
				}
				s.Metadata["n"] = rapid.SampledFrom([]string{"0", "1"}).Draw(t, "n")
			}
			if rapid.Bool().Draw(t, "by kind") {
				s.Kinds = []tko.Kind{rapid.SampledFrom(kinds).Draw(t, "kind")}
			}
			return s
		})
		view := access.ViewOf(rapid.SliceOfN(scope, 0, 4).Draw(t, "scopes")...)
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		query := record.Query{Kind: kind, Limit: -1, Scope: view}
		if rapid.Bool().Draw(t, "filter") {
			query.Metadata = map[string]tko.Pattern{"k": patterns("*")[0]}
		}
		if kind == tko.KindDeployment && rapid.Bool().Draw(t, "flag") {
			query.Is = map[string]bool{"prepared": rapid.Bool().Draw(t, "prepared")}
		}
		var want []string
		for _, r := range everything[kind] {
			if k, ok := attributesOf(r).Metadata["k"]; query.Metadata != nil && (!ok || k == "") || query.Is != nil && query.Is["prepared"] != r.Prepared {
				continue
			}
			if view.Of(kind).Match(attributesOf(r)) {
				want = append(want, r.ID)
			}
		}
		query.Offset = uint32(rapid.IntRange(0, len(want)+1).Draw(t, "offset")) //nolint:gosec // small
		query.Limit = rapid.SampledFrom([]int{-1, 1, 3, 100}).Draw(t, "limit")
		var got []string
		for r, err := range w.store.List(w.ctx(), query) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.ID)
		}
		want = want[min(int(query.Offset), len(want)):]
		if query.Limit >= 0 {
			want = want[:min(query.Limit, len(want))]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%ss within %q, offset %d: got %q, want %q", kind, view.Of(kind).Key(), query.Offset, got, want)
		}
	})
}

func associationsAreWithinScope(w *world) {
	w.commit(template("t"), site("s1"), site("s2"))
	w.commit(deployment("d1", of("t"), at("s1")), deployment("d2", of("t"), at("s2")), deployment("d3", of("t")), deployment("d4", of("t"), at("s1"), own("k", "v")))
	for name, c := range map[string]struct {
		scope access.Scope
		want  []string
	}{
		"a site": {access.Scope{SiteID: "s1"}, []string{"d1", "d4"}}, "metadata": {access.Scope{Metadata: map[string]string{"k": "v"}}, []string{"d4"}},
		"all": {access.Scope{}, []string{"d1", "d2", "d3", "d4"}}, "no deployments": {access.Scope{Kinds: []tko.Kind{tko.KindTemplate}}, nil},
	} {
		view := access.ViewOf(c.scope, access.Scope{Kinds: []tko.Kind{tko.KindTemplate}})
		records, err := w.store.Get(w.ctx(), record.Fields{Deployments: true, Scope: view}, templateKey("t"))
		w.ok(err)
		w.equal(name+", read", records[0].Deployments, c.want)
		query := record.Query{Kind: tko.KindTemplate, Limit: -1, Scope: view, Fields: record.Fields{Deployments: true, Counts: true}}
		listed := w.within(query)
		w.equal(name+", listed", listed[0].Deployments, c.want)
		w.equal(name+", counted", listed[0].Count, len(c.want))
	}
	var whole []string // so many sites that their deployments are a range of an index
	for i := range 60 {
		id := fmt.Sprintf("many/%02d", i)
		w.commit(site(id), deployment(id+" seen", at(id), own("k", "v")), deployment(id+" hidden", at(id)))
		whole = append(whole, id+" seen")
	}
	view := access.ViewOf(access.Scope{Metadata: map[string]string{"k": "v"}, Kinds: []tko.Kind{tko.KindDeployment}}, access.Scope{Kinds: []tko.Kind{tko.KindSite}})
	var listed []string
	for _, r := range w.within(record.Query{Kind: tko.KindSite, After: "many", Limit: 60, Scope: view, Fields: record.Fields{Deployments: true}}) {
		listed = append(listed, r.Deployments...)
	}
	w.equal("of many sites, listed", listed, whole)
}

func offsetsDifferByScope(w *world) {
	for i := range 40 {
		w.commit(site(fmt.Sprintf("%s/%02d", []string{"a", "b"}[i%2], i)))
	}
	page := func(scope, want string) {
		w.Helper()
		query := record.Query{Kind: tko.KindSite, Offset: 10, Limit: 5, Scope: access.ViewOf(access.Scope{SiteID: scope})}
		for range 2 { // the second time with the remembered end of a page
			w.equal("first of the page of "+scope, w.within(query)[0].ID, want)
		}
	}
	page("**", "a/20")
	page("b/**", "b/21")
	page("a/**", "a/20")
	query := record.Query{Kind: tko.KindSite, Offset: 10, Limit: 5, Scope: access.ViewOf(access.Scope{SiteID: "b/**"}, access.Scope{SiteID: "a/0**"})}
	w.equal("of a union", w.within(query)[0].ID, "b/11")
}

func relatedMetadataIsWithinScope(w *world) {
	w.commit(template("t", own("secret", "x")), site("s", own("secret", "y")), site("other", own("secret", "y")))
	w.commit(deployment("d1", of("t"), at("s")), deployment("d2", of("t"), at("other")))
	deployments := access.Scope{Kinds: []tko.Kind{tko.KindDeployment}}
	query := record.Query{Kind: tko.KindDeployment, Limit: -1, Scope: access.ViewOf(deployments), TemplateMetadata: values("secret", "x")}
	w.equal("by the metadata of a template", len(w.within(query)), 0)
	query.TemplateMetadata, query.SiteMetadata = nil, values("secret", "y")
	w.equal("by the metadata of a site", len(w.within(query)), 0)
	query.Scope = access.ViewOf(deployments, access.Scope{Kinds: []tko.Kind{tko.KindSite}, SiteID: "s"})
	records := w.within(query)
	w.equal("by the metadata of a site within the scope", len(records), 1)
	w.equal("its ID", records[0].ID, "d1")
}

func accessRulesAreAsWritten(w *world) {
	version, rules, err := w.store.Access(w.ctx())
	w.ok(err)
	w.equal("version of an empty store", version, int64(0))
	w.equal("rules of an empty store", len(rules), 0)
	a, b := record.AccessRule{Kind: "binding", ID: "b1", Doc: []byte(`{"a":1}`)}, record.AccessRule{Kind: "policy", ID: "p1", Doc: []byte(`{}`)}
	version, err = w.store.ChangeAccess(w.ctx(), 0, []record.AccessRule{b, a}, nil, audit.Record{Kind: "binding"})
	w.ok(err)
	w.equal("version", version, int64(1))
	_, err = w.store.ChangeAccess(w.ctx(), 0, []record.AccessRule{{Kind: "binding", ID: "b2", Doc: []byte("{}")}}, nil)
	w.failed(err, tko.ErrConflict)
	version, rules, err = w.store.Access(w.ctx())
	w.ok(err)
	w.equal("version read", version, int64(1))
	w.equal("rules", rules, []record.AccessRule{a, b})
	version, err = w.store.ChangeAccess(w.ctx(), 1, nil, []record.AccessRule{a})
	w.ok(err)
	w.equal("version of a removal", version, int64(2))
	_, rules, err = w.store.Access(w.ctx())
	w.ok(err)
	w.equal("rules left", rules, []record.AccessRule{b})
	version, err = w.store.AccessVersion(w.ctx())
	w.ok(err)
	w.equal("version alone", version, int64(2))
}

func staleAccessFails(w *world) {
	under := func(version int64) func(*record.Write) {
		return func(w *record.Write) { w.Access = &version }
	}
	w.commit(site("s0"), site("s1", under(0)))
	_, err := w.store.ChangeAccess(w.ctx(), 0, nil, nil)
	w.ok(err)
	for _, change := range []record.Write{site("s2", under(0)), site("s1", under(0), expect(1)), deleted(siteKey("s1"))} {
		if change.Op == tko.OpDeleted {
			under(0)(&change)
		}
		w.refused(tko.ErrConflict, change)
	}
	w.commit(site("s2", under(1)), site("s1", under(1), expect(1)))
	w.equal("written", w.ids(record.Query{Kind: tko.KindSite, Limit: -1}), []string{"s0", "s1", "s2"})
}
