package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var listPromises = []promise{
	{"a list is ordered by ID, byte by byte", listIsSorted},
	{"each filter selects its matches, alone and with others", filtersSelect},
	{"a window selects a part of the matches", windowsSelectParts},
	{"the metadata index is updated with the records", metadataIndexIsUpdated},
	{"labels are matched like metadata, and separately from it", labelsAreSeparateFromMetadata},
	{"a record is found by its origin", originSelectsRecord},
	{"metadata from the template alone is found like a deployment's own", inheritedMetadataIsFound},
	{"deployments of many templates are found in the order of IDs", manyTemplatesInOrder},
	{"metadata of very many templates is matched", manySharedMetasets},
	{"long metadata values that differ at the end are distinct", longValuesDiffer},
	{"metadata with very many values is matched", manyValues},
	{"patterns match as tko.Pattern does", patternsMatch},
	{"no pattern matches a template or a site that a deployment lacks", patternsNeedAnID},
	{"a list reads one snapshot, whatever is written concurrently", listIsOneSnapshot},
	{"the caller may stop reading a list, and write while it reads", listMayBeAbandoned},
	{"lists count deployments if the fields select it", listsCountDeployments},
	{"each row of a list has its own deployments, whatever the filters are", rowsHaveTheirDeployments},
	{"an offset is exact, whatever was written since the page before", offsetsAreExact},
	{"filters that exclude each other, or match only at the end, are evaluated correctly", matchesAtTheEnd},
	{"lists that are not read don't block other lists", stalledListsAreClosed},
	{"deployments of an earlier revision of their template are found", outdatedAreFound},
	{"entities that changed since a moment are found", updatesSinceAreFound},
	{"lists select by conditions, also after conditions change", conditionsAreFiltered},
}

func listIsSorted(w *world) {
	names := []string{"b", "a", "B", "a-b", "a/b", "a:b", "a.b", "a_b", "aB", "ab", "10", "9", "Z", "z"}
	for _, name := range names {
		w.commit(site(name, metadata("k", "v")))
	}
	slices.Sort(names)
	w.equal("all", w.ids(record.Query{Kind: tko.KindSite, Limit: -1}), names)
	w.equal("by metadata", w.ids(record.Query{Kind: tko.KindSite, Limit: -1, Metadata: values("k", "v")}), names)
	for i, name := range names {
		w.equal("after "+name, w.ids(record.Query{Kind: tko.KindSite, Limit: -1, After: name}), slices.Clone(names[i+1:]))
	}
}

// labelsAreSeparateFromMetadata checks that the index of labels is updated with the
// records, also if a record has only labels in addition to its template's metadata.
func labelsAreSeparateFromMetadata(w *world) {
	labelled := func(key, value string) func(*record.Write) {
		return func(w *record.Write) {
			m := *w.Record.Metadata
			m.Labels = map[string]string{key: value}
			w.Record.Metadata = &m
		}
	}
	const by = "example.org/by"
	w.commit(deployment("d1", inherited("k", "v")), deployment("d3", inherited("k", "v")))
	w.commit(deployment("d5", inherited("k", "v"), labelled(by, "helm")), deployment("d6", own("k", "v"), labelled(by, "flux")), deployment("d7", own(by, "helm")))
	w.commit(site("s1", own("k", "v"), labelled(by, "helm")))
	query := func(kind tko.Kind, labels, metadata map[string]tko.Pattern) []string {
		return w.ids(record.Query{Kind: kind, Limit: -1, Labels: labels, Metadata: metadata})
	}
	w.equal("a value", query(tko.KindDeployment, values(by, "helm"), nil), []string{"d5"})
	w.equal("a pattern", query(tko.KindDeployment, values(by, "*l*"), nil), []string{"d5", "d6"})
	w.equal("with metadata", query(tko.KindDeployment, values(by, "*"), values("k", "v")), []string{"d5", "d6"})
	w.equal("metadata alone", query(tko.KindDeployment, nil, values("k", "v")), []string{"d1", "d3", "d5", "d6"})
	w.equal("metadata of the same key", query(tko.KindDeployment, nil, values(by, "helm")), []string{"d7"})
	w.equal("another kind", query(tko.KindSite, values(by, "helm"), nil), []string{"s1"})
	w.equal("none", query(tko.KindDeployment, values(by, "argo"), nil), []string{})
	w.equal("read", w.one(deploymentKey("d5")).Metadata.Labels, map[string]string{by: "helm"})

	w.commit(deployment("d5", inherited("k", "v"), labelled(by, "flux"), expect(1)), deployment("d6", own("k", "v"), expect(1)))
	w.equal("changed", query(tko.KindDeployment, values(by, "flux"), nil), []string{"d5"})
	w.equal("no longer", query(tko.KindDeployment, values(by, "helm"), nil), []string{})
	w.commit(deleted(deploymentKey("d5")))
	w.equal("deleted", query(tko.KindDeployment, values(by, "*"), nil), []string{})

	// More values than a list merges or reads at once.
	const many = 1200
	for i := range many {
		w.commit(site(fmt.Sprintf("m%04d", i), own("k", "v"), labelled("n", fmt.Sprintf("x%04d", i))))
	}
	w.equal("many values", len(query(tko.KindSite, values("n", "x*"), nil)), many)
	w.equal("some of many", query(tko.KindSite, values("n", "*0007", by, "*"), nil), []string{})
	w.equal("one of many", query(tko.KindSite, values("n", "*0007"), values("k", "*")), []string{"m0007"})
}

func originSelectsRecord(w *world) {
	w.commit(deployment("d1", origin("group/a")), deployment("d2", origin("group/b")), site("s", origin("group/a")))
	query := record.Query{Kind: tko.KindDeployment, Limit: -1, Origin: "group/a"}
	w.equal("by origin", w.ids(query), []string{"d1"})
	query.Origin = "group/c"
	w.equal("none", w.ids(query), []string{})
	query.Origin, query.IDs = "group/b", patterns("d1")
	w.equal("and another filter", w.ids(query), []string{})
	query.IDs = patterns("d*")
	w.equal("and one that fits", w.ids(query), []string{"d2"})
	w.commit(deleted(deploymentKey("d2")))
	w.equal("deleted", w.ids(query), []string{})
}

func patternsNeedAnID(w *world) {
	w.commit(site("s"), template("t"), deployment("neither"), deployment("both", of("t"), at("s")), deployment("template", of("t")), deployment("site", at("s")))
	for _, text := range []string{"*", "**", "", "s"} {
		query := record.Query{Kind: tko.KindDeployment, Limit: -1, Sites: patterns(text)}
		want := []string{"both", "site"}
		if text == "" {
			want = []string{}
		}
		w.equal("sites "+text, w.ids(query), want)
		query.Sites = append(query.Sites, patterns("**")...)
		w.equal("sites "+text+" and all", w.ids(query), want)
	}
	w.equal("templates", w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1, Templates: patterns("**")}), []string{"both", "template"})
	w.equal("both", w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1, Templates: patterns("**"), Sites: patterns("*")}), []string{"both"})
}

func patterns(texts ...string) []tko.Pattern {
	list := make([]tko.Pattern, len(texts))
	for i, text := range texts {
		p, err := tko.ParsePattern(text)
		if err != nil {
			panic(err)
		}
		list[i] = p
	}
	return list
}

func values(pairs ...string) map[string]tko.Pattern {
	m := map[string]tko.Pattern{}
	for pair := range slices.Chunk(pairs, 2) {
		p, err := tko.ParseValuePattern(pair[1])
		if err != nil {
			panic(err)
		}
		m[pair[0]] = p
	}
	return m
}

// writeSample writes records of all kinds, with all sorts of fields.
func writeSample(w *world) {
	crds := func(x *record.Write) { x.Record.CRDs = true }
	prepared := func(x *record.Write) { x.Record.Prepared = true }
	w.commit(
		template("core/upf", metadata("tier", "core", "v", "1.2")),
		template("core/smf", metadata("tier", "core", "v", "1.3"), crds),
		template("edge:du", metadata("tier", "edge")),
		template("base"),
	)
	w.commit(
		site("eu/berlin", of("base"), metadata("region", "eu", "type", "edge")),
		site("eu/paris", of("base"), metadata("region", "eu", "type", "core")),
		site("us/nyc", metadata("region", "us", "type", "edge")),
		site("lab"),
	)
	w.commit(
		deployment("d1", of("core/upf"), at("eu/berlin"), metadata("app", "upf", "rank", "1"), prepared),
		deployment("d2", of("core/smf"), at("eu/paris"), metadata("app", "smf", "rank", "2"), under("d1"), ready),
		deployment("d3", of("edge:du"), at("us/nyc"), metadata("app", "du", "path", "a/b:c"), under("d1")),
		deployment("d4", at("lab"), metadata("app", "upf-test"), under("d2"), ready),
		deployment("d5", of("core/upf"), metadata("app", "")),
		deployment("d6"),
	)
	w.commit(written(tko.KindPlugin, "prepare|a"), written(tko.KindPlugin, "validate|a"))
}

func filtersSelect(w *world) {
	writeSample(w)
	all := "d1 d2 d3 d4 d5 d6"
	tests := map[string]struct {
		why   string
		query record.Query
		want  string
	}{
		"nothing":                   {"without filters, all match", record.Query{}, all},
		"id exact":                  {"", record.Query{IDs: patterns("d3")}, "d3"},
		"id unknown":                {"", record.Query{IDs: patterns("d")}, ""},
		"id prefix":                 {"", record.Query{IDs: patterns("d**")}, all},
		"id and":                    {"all patterns must match", record.Query{IDs: patterns("d*", "*2")}, "d2"},
		"id and nothing":            {"all patterns must match", record.Query{IDs: patterns("d1", "d2")}, ""},
		"template exact":            {"", record.Query{Templates: patterns("core/upf")}, "d1 d5"},
		"template star":             {"* ends at /", record.Query{Templates: patterns("core*")}, ""},
		"template star in part":     {"* stays between /", record.Query{Templates: patterns("core/*")}, "d1 d2 d5"},
		"template two stars":        {"** crosses / and :", record.Query{Templates: patterns("**u**")}, "d1 d3 d5"},
		"template any":              {"a deployment without a template doesn't match", record.Query{Templates: patterns("**")}, "d1 d2 d3 d5"},
		"templates and":             {"", record.Query{Templates: patterns("core/**", "**f")}, "d1 d2 d5"},
		"template unknown":          {"", record.Query{Templates: patterns("core")}, ""},
		"site exact":                {"", record.Query{Sites: patterns("lab")}, "d4"},
		"site prefix":               {"", record.Query{Sites: patterns("eu/**")}, "d1 d2"},
		"site any":                  {"", record.Query{Sites: patterns("**")}, "d1 d2 d3 d4"},
		"parent":                    {"", record.Query{Parent: "d1"}, "d2 d3"},
		"parent unknown":            {"", record.Query{Parent: "d3"}, ""},
		"prepared":                  {"", record.Query{Is: map[string]bool{"prepared": true}}, "d1 d2 d4"},
		"not prepared":              {"", record.Query{Is: map[string]bool{"prepared": false}}, "d3 d5 d6"},
		"approved":                  {"", record.Query{Is: map[string]bool{"approved": true}}, "d2 d4"},
		"prepared, not approved":    {"", record.Query{Is: map[string]bool{"prepared": true, "approved": false}}, "d1"},
		"metadata exact":            {"", record.Query{Metadata: values("app", "upf")}, "d1"},
		"metadata empty":            {"an empty value is a value", record.Query{Metadata: values("app", "")}, "d5"},
		"metadata any":              {"the key must exist", record.Query{Metadata: values("app", "*")}, "d1 d2 d3 d4 d5"},
		"metadata prefix":           {"", record.Query{Metadata: values("app", "upf*")}, "d1 d4"},
		"metadata inside":           {"", record.Query{Metadata: values("app", "*u*")}, "d1 d3 d4"},
		"metadata star crosses":     {"* of values crosses every boundary", record.Query{Metadata: values("path", "a*c")}, "d3"},
		"metadata two keys":         {"", record.Query{Metadata: values("app", "*f", "rank", "*")}, "d1 d2"},
		"metadata two exact":        {"", record.Query{Metadata: values("app", "smf", "rank", "2")}, "d2"},
		"metadata apart":            {"of one record", record.Query{Metadata: values("app", "smf", "rank", "1")}, ""},
		"metadata unknown key":      {"", record.Query{Metadata: values("none", "*")}, ""},
		"metadata of another kind":  {"sites' metadata is not deployments'", record.Query{Metadata: values("region", "eu")}, ""},
		"template metadata":         {"", record.Query{TemplateMetadata: values("tier", "core")}, "d1 d2 d5"},
		"template metadata both":    {"", record.Query{TemplateMetadata: values("tier", "core", "v", "1.3")}, "d2"},
		"template metadata pattern": {"", record.Query{TemplateMetadata: values("tier", "*e*")}, "d1 d2 d3 d5"},
		"template metadata nothing": {"", record.Query{TemplateMetadata: values("tier", "x")}, ""},
		"site metadata":             {"", record.Query{SiteMetadata: values("region", "eu")}, "d1 d2"},
		"site metadata two":         {"", record.Query{SiteMetadata: values("region", "eu", "type", "edge")}, "d1"},
		"site metadata pattern":     {"", record.Query{SiteMetadata: values("type", "e*")}, "d1 d3"},
		"everything": {"", record.Query{
			IDs: patterns("d*"), Templates: patterns("core/*"), Sites: patterns("eu/*"), Metadata: values("rank", "*", "app", "*mf"),
			TemplateMetadata: values("tier", "core"), SiteMetadata: values("region", "eu"), Parent: "d1", Is: map[string]bool{"prepared": true, "approved": true},
		}, "d2"},
	}
	for name, test := range tests {
		test.query.Kind, test.query.Limit = tko.KindDeployment, -1
		if got := strings.Join(w.ids(test.query), " "); got != test.want {
			w.Errorf("%s: %q, want %q: %s", name, got, test.want, test.why)
		}
	}
	others := map[string]struct {
		query record.Query
		want  string
	}{
		"templates":                     {record.Query{Kind: tko.KindTemplate}, "base core/smf core/upf edge:du"},
		"templates with CRDs":           {record.Query{Kind: tko.KindTemplate, CRDs: true}, "core/smf"},
		"templates by metadata":         {record.Query{Kind: tko.KindTemplate, Metadata: values("tier", "core")}, "core/smf core/upf"},
		"sites by template":             {record.Query{Kind: tko.KindSite, Templates: patterns("base")}, "eu/berlin eu/paris"},
		"sites by metadata":             {record.Query{Kind: tko.KindSite, Metadata: values("type", "edge")}, "eu/berlin us/nyc"},
		"plugins":                       {record.Query{Kind: tko.KindPlugin}, "prepare|a validate|a"},
		"plugins of a type":             {record.Query{Kind: tko.KindPlugin, IDs: patterns("prepare|**")}, "prepare|a"},
		"unknown kind":                  {record.Query{Kind: "nothing"}, ""},
		"offset beyond the end":         {record.Query{Kind: tko.KindSite, Offset: 1 << 31}, ""},
		"templates by an unknown value": {record.Query{Kind: tko.KindTemplate, Metadata: values("tier", "cor")}, ""},
	}
	for name, test := range others {
		test.query.Limit = -1
		if got := strings.Join(w.ids(test.query), " "); got != test.want {
			w.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func windowsSelectParts(w *world) {
	const n = 150 // more than a chunk
	var writes []record.Write
	all := ids("s%03d", n)
	for i, id := range all {
		writes = append(writes, site(id, metadata("k", "v", "odd", strconv.Itoa(i%2))))
	}
	w.commit(writes...)
	for _, after := range []string{"", "s", "s010", "s0105", "s148", "s149", "t"} {
		for _, offset := range []int{0, 1, 31, 32, 33, 149, 150, 151} {
			for _, limit := range []int{-1, 0, 1, 32, 33, 150, 1000} {
				for _, query := range []record.Query{{}, {Metadata: values("k", "v")}, {IDs: patterns("s**")}, {Metadata: values("odd", "1")}} {
					var want []string
					for i, id := range all {
						if id > after && (query.Metadata["odd"].String() == "" || i%2 == 1) {
							want = append(want, id)
						}
					}
					want = want[min(offset, len(want)):]
					if limit >= 0 {
						want = want[:min(limit, len(want))]
					}
					query.Kind, query.After, query.Offset, query.Limit = tko.KindSite, after, uint32(offset), limit //nolint:gosec // small
					if got := w.ids(query); !slices.Equal(got, want) {
						w.Fatalf("after %q, offset %d, limit %d: %q, want %q", after, offset, limit, got, want)
					}
				}
			}
		}
	}
}

func metadataIndexIsUpdated(w *world) {
	find := func(pairs ...string) string {
		return strings.Join(w.ids(record.Query{Kind: tko.KindSite, Metadata: values(pairs...), Limit: -1}), " ")
	}
	w.commit(site("a", metadata("k", "1", "same", "x")), site("b", metadata("k", "1", "same", "x")))
	w.equal("written", find("k", "1"), "a b")
	w.commit(site("a", expect(1), metadata("k", "2", "same", "x")))
	w.equal("old value", find("k", "1"), "b")
	w.equal("new value", find("k", "2"), "a")
	w.equal("unchanged value", find("same", "x"), "a b")
	w.commit(site("a", expect(2)))
	w.equal("without metadata", find("same", "x"), "b")
	w.commit(status(siteKey("b"), tko.Condition{Type: tko.ConditionHealthy}))
	w.equal("after a status", find("same", "x"), "b")
	w.commit(deleted(siteKey("b")))
	w.equal("after a deletion", find("same", "x"), "")
	w.commit(site("b", metadata("same", "x")))
	w.equal("written again", find("same", "x"), "b")
	// Two changes in one transaction: the last state counts.
	w.commit(deleted(siteKey("b")), site("c", metadata("same", "x")))
	w.equal("in one commit", find("same", "x"), "c")
}

func longValuesDiffer(w *world) {
	long := strings.Repeat("ä", 300)
	w.commit(site("a", metadata("k", long+"a")), site("b", metadata("k", long+"b")), site("c", metadata("k", long[:302]+"c")))
	for pattern, want := range map[string]string{
		long + "a": "a", long + "b": "b", long + "*": "a b", long[:302] + "*": "a b c", "*b": "b", long + "c": "", long[:302] + "c": "c",
	} {
		got := strings.Join(w.ids(record.Query{Kind: tko.KindSite, Metadata: values("k", pattern), Limit: -1}), " ")
		w.equal(pattern, got, want)
	}
}

func manyValues(w *world) {
	const n = 2500
	var writes []record.Write
	for i, id := range ids("s%04d", n) {
		writes = append(writes, site(id, metadata("name", id, "third", strconv.Itoa(i%3))))
	}
	for part := range slices.Chunk(writes, 500) {
		w.commit(part...)
	}
	w.equal("any", len(w.ids(record.Query{Kind: tko.KindSite, Metadata: values("name", "*"), Limit: -1})), n)
	w.equal("with another", len(w.ids(record.Query{Kind: tko.KindSite, Metadata: values("name", "s*", "third", "1"), Limit: -1})), n/3)
	w.equal("few", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("name", "s000*"), Limit: -1, Offset: 8}), []string{"s0008", "s0009"})
	w.equal("page", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("name", "*"), Limit: 2, Offset: 2000, After: "s0009"}), []string{"s2010", "s2011"})
	w.equal("an unknown key", len(w.ids(record.Query{Kind: tko.KindSite, Metadata: values("nam", "*"), Limit: -1})), 0)
}

// manySharedMetasets checks more shared metasets than a list reads one by one.
func manySharedMetasets(w *world) {
	const n = 1100
	var writes []record.Write
	for i, id := range ids("d%04d", n) {
		writes = append(writes, deployment(id, inherited("name", id, "third", strconv.Itoa(i%3))))
	}
	for part := range slices.Chunk(writes, 500) {
		w.commit(part...)
	}
	w.equal("any", len(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("name", "*"), Limit: -1})), n)
	w.equal("with another", len(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("name", "d*", "third", "1"), Limit: -1})), (n+1)/3)
	w.equal("few", w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("name", "d000*"), Limit: -1, Offset: 8}), []string{"d0008", "d0009"})
	w.equal("page", w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("third", "2"), Limit: 2, After: "d1009"}), []string{"d1010", "d1013"})
}

func inheritedMetadataIsFound(w *world) {
	find := func(pairs ...string) string {
		return strings.Join(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values(pairs...), Limit: -1}), " ")
	}
	w.commit(deployment("a", inherited("k", "1", "same", "x")), deployment("b", own("k", "1", "same", "x")), site("s", inherited("k", "1", "same", "x")))
	w.commit(deployment("c", inherited("k", "1", "same", "x")), deployment("d", inherited("k", "1")))
	w.equal("one key", find("k", "1"), "a b c d")
	w.equal("two keys", find("k", "1", "same", "x"), "a b c")
	w.equal("patterns", find("k", "*", "same", "*"), "a b c")
	w.equal("sites", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("k", "1", "same", "x"), Limit: -1}), []string{"s"})
	w.commit(deployment("a", expect(1), inherited("k", "2", "same", "x")))
	w.equal("another template", find("k", "1"), "b c d")
	w.equal("another template, its value", find("k", "2"), "a")
	w.commit(deployment("a", expect(2), own("k", "2", "same", "x")), deployment("b", expect(1), inherited("k", "1", "same", "x")))
	w.equal("its own metadata", find("k", "2", "same", "x"), "a")
	w.equal("the template's metadata", find("k", "1", "same", "x"), "b c")
	w.commit(deployment("a", expect(3), inherited("k", "2", "same", "x")), deployment("b", expect(2)))
	w.equal("the template's metadata again", find("same", "x"), "a c")
	w.commit(deleted(deploymentKey("c")), status(deploymentKey("a"), tko.Condition{Type: tko.ConditionHealthy}))
	w.equal("after a deletion", find("same", "x"), "a")
	w.commit(deleted(deploymentKey("a")))
	w.collect(retain(1))
	w.equal("after all were deleted", find("same", "x"), "")
	w.commit(deployment("e", inherited("k", "2", "same", "x")), deployment("f", own("k", "2")))
	w.equal("after it was collected", find("k", "2"), "e f")
	w.equal("after it was collected, two keys", find("k", "2", "same", "x"), "e")
}

// manyTemplatesInOrder checks deployments of 60 templates: some one template after the
// other, some mixed, some with their own metadata.
func manyTemplatesInOrder(w *world) {
	const n = 600
	var writes []record.Write
	want := map[string][]string{}
	for i, id := range ids("d%04d", n) {
		of := i / 20  // one template after the other
		if i >= n/2 { // mixed, and rarer and rarer
			of = 30 + i*i%30
		}
		pairs := []string{"template", fmt.Sprintf("t%02d", of), "third", strconv.Itoa(of % 3), "all", "yes"}
		writes = append(writes, deployment(id, metadata(pairs...)))
		for pair := range slices.Chunk(pairs, 2) {
			text := pair[0] + "=" + pair[1]
			want[text] = append(want[text], id)
		}
		text := "third=" + pairs[3] + " tens=" + pairs[1][:2]
		want[text] = append(want[text], id)
	}
	for part := range slices.Chunk(writes, 500) {
		w.commit(part...)
	}
	check := func(text string, query record.Query) {
		query.Kind, query.Limit = tko.KindDeployment, -1
		all := append([]string{}, want[text]...)
		w.equal(text, w.ids(query), all)
		if len(all) < 4 {
			return
		}
		query.After = all[len(all)/4]
		w.equal(text+" after "+query.After, w.ids(query), all[len(all)/4+1:])
		query.Offset, query.Limit = uint32(len(all)/4), 7 //nolint:gosec // is small
		page := all[min(2*(len(all)/4)+1, len(all)):]
		w.equal(text+", a page", w.ids(query), page[:min(7, len(page))])
	}
	for text := range want {
		key, value, _ := strings.Cut(text, "=")
		if !strings.Contains(value, " ") && (key != "template" || strings.HasSuffix(value, "4")) {
			check(text, record.Query{Metadata: values(key, value)})
		}
	}
	for third := range 3 {
		for tens := range 6 {
			text := fmt.Sprintf("third=%d tens=t%d", third, tens)
			check(text, record.Query{Metadata: values("third", strconv.Itoa(third), "template", fmt.Sprintf("t%d*", tens), "all", "*")})
		}
	}
}

func patternsMatch(w *world) {
	var stored []string
	taken := map[string]bool{}
	generate := rapid.StringMatching(`[ab./:*\\\[\](){}^$+?|ü-]{1,6}`)
	for i := range 200 {
		id := generate.Example(i)
		if !taken[id] {
			taken[id] = true
			stored = append(stored, id)
		}
	}
	stored = append(stored, "\n", "a\nb", "\U0010FFFF", "\U0010FFFFa", "\uD7FF", "\uE000")
	slices.Sort(stored)
	var writes []record.Write
	for _, id := range stored {
		writes = append(writes, site(id, metadata("k", id)))
	}
	w.commit(writes...)
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
		"*", "**", `\*`, `\\`, "a", "b", ".", "/", ":", "[", "]", "(", ")", "{", "}", "^", "$", "+", "?", "|", "ü", "-", "\n", "\U0010FFFF", "\uD7FF",
	}), 0, 5)
	rapid.Check(w.T, func(t *rapid.T) {
		text := strings.Join(pieces.Draw(t, "pattern"), "")
		p, err := tko.ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := tko.ParseValuePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		queries := map[string]record.Query{
			"ID":    {Kind: tko.KindSite, Limit: -1, IDs: []tko.Pattern{p}},
			"value": {Kind: tko.KindSite, Limit: -1, Metadata: map[string]tko.Pattern{"k": v}},
		}
		for what, query := range queries {
			pattern := p
			if what == "value" {
				pattern = v
			}
			want := []string{}
			for _, id := range stored {
				if pattern.Match(id) {
					want = append(want, id)
				}
			}
			if got := w.ids(query); !slices.Equal(got, want) {
				t.Fatalf("%s pattern %q: %q, want %q", what, text, got, want)
			}
		}
	})
}

func listIsOneSnapshot(w *world) {
	const n = 300
	var writes []record.Write
	all := ids("s%03d", n)
	for _, id := range all {
		writes = append(writes, site(id, metadata("k", "old")))
	}
	w.commit(writes...)
	seen := map[string]string{}
	for r, err := range w.store.List(w.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1, Fields: record.Fields{Package: true}}) {
		w.ok(err)
		seen[r.ID] = r.Metadata.Effective["k"] + " " + string(r.Package)
		if len(seen) == 1 { // all others are changed, one is deleted and one created
			changed := []record.Write{deleted(siteKey("s299")), site("s1505")}
			for _, id := range all[:299] {
				changed = append(changed, site(id, expect(1), metadata("k", "new"), withPackage("new")))
			}
			w.commit(changed...)
		}
	}
	want := map[string]string{}
	for _, id := range all {
		want[id] = "old package of " + id
	}
	w.equal("records read", seen, want)
	w.equal("afterwards", len(w.ids(record.Query{Kind: tko.KindSite, Metadata: values("k", "new"), Limit: -1})), n-1)
	w.equal("IDs", slices.Sorted(maps.Keys(seen)), all)
}

func listMayBeAbandoned(w *world) {
	var writes []record.Write
	for _, id := range ids("s%03d", 100) {
		writes = append(writes, site(id))
	}
	w.commit(writes...)
	for range 50 { // more than there can be connections
		for r, err := range w.store.List(w.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1}) {
			w.ok(err)
			if r.ID == "s040" {
				break
			}
		}
	}
	var wait sync.WaitGroup
	for range 40 { // more lists than connections, each of which writes
		wait.Go(func() {
			for r, err := range w.store.List(w.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: 3}) {
				if err == nil {
					_, err = w.store.Commit(w.ctx(), record.Ungated(status(r.Key)))
				}
				if err != nil {
					w.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

func listsCountDeployments(w *world) {
	w.commit(template("t"), template("u"), site("s", of("t")), deployment("d2", of("t"), at("s")), deployment("d1", of("t")), deployment("d3"))
	counts := func(kind tko.Kind) map[string]int {
		m := map[string]int{}
		for _, r := range w.list(record.Query{Kind: kind, Limit: -1, Fields: record.Fields{Counts: true}}) {
			m[r.ID] = r.Count
			w.equal("deployments", r.Deployments, []string(nil))
		}
		return m
	}
	w.equal("of templates: sites don't count", counts(tko.KindTemplate), map[string]int{"t": 2, "u": 0})
	w.equal("of sites", counts(tko.KindSite), map[string]int{"s": 1})
	w.equal("of deployments", counts(tko.KindDeployment), map[string]int{"d1": 0, "d2": 0, "d3": 0})
	w.equal("not selected", w.list(record.Query{Kind: tko.KindTemplate, Limit: 1})[0].Count, 0)
}

// offsetsAreExact pages, and changes rows before the offset between the pages.
func offsetsAreExact(w *world) {
	w.commit(template("t", metadata("tier", "core")), site("here", metadata("region", "eu")), site("there"))
	present := map[string]bool{}
	var writes []record.Write
	for _, id := range ids("d%04d", 300) {
		present[id] = true
		writes = append(writes, deployment(id, of("t"), at("here"), ready, metadata("k", "v", "name", id)))
	}
	w.commit(writes...)
	queries := map[string]record.Query{
		"all":               {},
		"metadata":          {Metadata: values("k", "v")},
		"many values":       {Metadata: values("name", "d*")},
		"template":          {Templates: patterns("t")},
		"template metadata": {TemplateMetadata: values("tier", "core")},
		"site metadata":     {SiteMetadata: values("region", "eu")},
		"prepared":          {Is: map[string]bool{"prepared": true}},
	}
	check := func(when string, offset int, selected map[string]bool) {
		w.Helper()
		want := sortedKeys(selected)
		want = want[min(offset, len(want)):]
		want = want[:min(20, len(want))]
		for name, query := range queries {
			query.Kind, query.Offset, query.Limit = tko.KindDeployment, uint32(offset), 20 //nolint:gosec // small
			if got := w.ids(query); !slices.Equal(got, want) {
				w.Fatalf("%s: %s at offset %d: %q, want %q", when, name, offset, got, want)
			}
		}
	}
	for offset := 0; offset < 200; offset += 20 {
		check("paging", offset, present)
	}
	steps := []struct {
		what   string
		writes []record.Write
		gone   []string
		come   []string
	}{
		{"create one behind the offset", []record.Write{deployment("d9999", of("t"), at("here"), ready, metadata("k", "v", "name", "d"))}, nil, []string{"d9999"}},
		{"create one before the offset", []record.Write{deployment("a", of("t"), at("here"), ready, metadata("k", "v", "name", "d"))}, nil, []string{"a"}},
		{"delete one", []record.Write{deleted(deploymentKey("d0050"))}, []string{"d0050"}, nil},
		{"delete one and create one", []record.Write{
			deleted(deploymentKey("d0060")), deployment("b", of("t"), at("here"), ready, metadata("k", "v", "name", "d")),
		}, []string{"d0060"}, []string{"b"}},
		{"set conditions", []record.Write{status(deploymentKey("d0001"), tko.Condition{Type: tko.ConditionHealthy})}, nil, nil},
		{"delete several in one commit", []record.Write{
			deleted(deploymentKey("d0001")), deleted(deploymentKey("d0100")), deleted(deploymentKey("d0200")),
		}, []string{"d0001", "d0100", "d0200"}, nil},
	}
	for _, step := range steps {
		w.commit(step.writes...)
		for _, id := range step.gone {
			delete(present, id)
		}
		for _, id := range step.come {
			present[id] = true
		}
		for _, offset := range []int{180, 40, 200, 60} {
			check(step.what, offset, present)
		}
	}
	// A changed record exists, but no longer matches.
	w.commit(deployment("d0003", expect(1), at("there")))
	delete(present, "d0003")
	all := queries["all"]
	delete(queries, "all")
	check("change one", 180, present)
	all.Kind, all.Offset, all.Limit = tko.KindDeployment, 2, 2
	w.equal("the changed record exists", w.ids(all), []string{"d0000", "d0002"})
	w.commit(site("here", expect(1)), template("t", expect(1)))
	for name, want := range map[string]int{"site metadata": 0, "template metadata": 0, "metadata": 1} {
		query := queries[name]
		query.Kind, query.Offset, query.Limit = tko.KindDeployment, 180, 1
		w.equal("after the metadata of site and template was removed: "+name, len(w.ids(query)), want)
	}
}

// matchesAtTheEnd checks matches for which the first choice of an access path is wrong.
func matchesAtTheEnd(w *world) {
	const n = 6000
	var sites, writes []record.Write
	for i, id := range ids("s%04d", 600) {
		sites = append(sites, site(id, metadata("half", strconv.Itoa(i/300), "name", id)))
	}
	w.commit(sites...)
	all := ids("d%05d", n)
	for i, id := range all {
		// The second half of the sites, and the last values, come at the end.
		d := deployment(id, at("s"+siteOf(i, n)), metadata("odd", strconv.Itoa(i%2), "late", strconv.FormatBool(i >= n-10), "nr", id))
		d.Record.Prepared = i%2 == 0
		writes = append(writes, d)
		if len(writes) == 1000 {
			w.commit(writes...)
			writes = nil
		}
	}
	tests := map[string]struct {
		query record.Query
		want  func(i int) bool
	}{
		"sites of late ones":  {record.Query{SiteMetadata: values("half", "1")}, func(i int) bool { return i >= n/2 }},
		"by site ID":          {record.Query{Sites: patterns("s0[5]**", "s05**")}, func(int) bool { return false }},
		"by prefix":           {record.Query{Sites: patterns("s05**")}, func(i int) bool { return i*600/n >= 500 }},
		"by end":              {record.Query{Sites: patterns("**99")}, func(i int) bool { return i*600/n%100 == 99 }},
		"late":                {record.Query{Metadata: values("late", "true")}, func(i int) bool { return i >= n-10 }},
		"odd and prepared":    {record.Query{Metadata: values("odd", "1"), Is: map[string]bool{"prepared": true}}, func(int) bool { return false }},
		"odd, not prepared":   {record.Query{Metadata: values("odd", "1"), Is: map[string]bool{"prepared": false}}, func(i int) bool { return i%2 == 1 }},
		"odd and late":        {record.Query{Metadata: values("odd", "1", "late", "true")}, func(i int) bool { return i%2 == 1 && i >= n-10 }},
		"many values, late":   {record.Query{Metadata: values("nr", "*99", "late", "true")}, func(i int) bool { return i%100 == 99 && i >= n-10 }},
		"many values":         {record.Query{Metadata: values("nr", "d059*")}, func(i int) bool { return i >= 5900 && i < 6000 }},
		"very many values":    {record.Query{Metadata: values("nr", "d05*", "odd", "0")}, func(i int) bool { return i >= 5000 && i%2 == 0 }},
		"sites of many names": {record.Query{SiteMetadata: values("name", "s0*9")}, func(i int) bool { return i*600/n%10 == 9 }},
		"both halves":         {record.Query{SiteMetadata: values("half", "0", "name", "s05*")}, func(int) bool { return false }},
		"one half of some":    {record.Query{SiteMetadata: values("half", "1", "name", "s05*")}, func(i int) bool { return i*600/n >= 500 }},
	}
	for name, test := range tests {
		want := []string{}
		for i, id := range all {
			if test.want(i) {
				want = append(want, id)
			}
		}
		test.query.Kind, test.query.Limit = tko.KindDeployment, -1
		if got := w.ids(test.query); !slices.Equal(got, want) {
			w.Errorf("%s: %d, want %d", name, len(got), len(want))
		}
		for _, offset := range []int{1, len(want) / 2, max(1, len(want)-1), len(want) + 1} {
			test.query.Offset, test.query.Limit = uint32(offset), 3 //nolint:gosec // small
			page := want[min(offset, len(want)):]
			page = page[:min(3, len(page))]
			if got := w.ids(test.query); !slices.Equal(got, page) {
				w.Errorf("%s at offset %d: %q, want %q", name, offset, got, page)
			}
			test.query.Offset, test.query.Limit = 0, -1
		}
	}
}

// siteOf returns the number of one of 600 sites for the i-th of n deployments.
func siteOf(i, n int) string {
	return fmt.Sprintf("%04d", i*600/n)
}

// stalledListsAreClosed reads the first row of more lists than there are connections.
func stalledListsAreClosed(w *world) {
	var writes []record.Write
	all := ids("s%04d", 100)
	for _, id := range all {
		writes = append(writes, site(id))
	}
	w.commit(writes...)
	const lists = 30
	reached := make(chan int, lists)
	release := make(chan struct{})
	results := make([]error, lists)
	cursors := make([]string, lists)
	var wait sync.WaitGroup
	for i := range lists {
		wait.Go(func() {
			first := true
			for r, err := range w.store.List(w.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1}) {
				if err != nil {
					results[i] = err
					return
				}
				if first {
					first = false
					reached <- i
					<-release
				}
				cursors[i] = r.ID
			}
		})
	}
	for range lists { // each list returns its first row
		select {
		case <-reached:
		case <-time.After(eventually.Limit):
			w.Fatal("a list waits for lists that are not read")
		}
	}
	close(release)
	wait.Wait()
	closed := 0
	for i, err := range results {
		if err == nil {
			w.equal("last row of a list that was not closed", cursors[i], all[len(all)-1])
			continue
		}
		closed++
		w.failed(err, tko.ErrBusy)
		if !strings.Contains(err.Error(), strconv.Quote(cursors[i])) {
			w.Errorf("the error of a list that was closed after %q doesn't name it: %v", cursors[i], err)
		}
		rest := w.ids(record.Query{Kind: tko.KindSite, Limit: -1, After: cursors[i]})
		if i := slices.Index(all, cursors[i]); !slices.Equal(rest, all[i+1:]) {
			w.Errorf("continued after %q, the list returns %q", cursors[i], rest)
		}
	}
	if w.embedded {
		w.equal("closed lists of a store whose lists hold nothing while they aren't read", closed, 0)
		return
	}
	if closed == 0 || closed == lists {
		w.Errorf("%d of %d lists were closed, want some but not all", closed, lists)
	}
}

func outdatedAreFound(w *world) {
	made := func(revision int64) func(*record.Write) {
		return func(w *record.Write) { w.Record.Base = revision }
	}
	w.commit(template("t"), template("u"))
	w.commit(deployment("d1", of("t"), made(1)), deployment("d2", of("u"), made(1)), deployment("d3"), deployment("d4", of("t")), deployment("d5", of("none"), made(1)))
	w.commit(template("t", expect(1)))
	w.commit(deployment("d6", of("t"), made(2)), deployment("d7", of("t")))
	find := func(outdated bool, patterns ...string) []string {
		q := record.Query{Kind: tko.KindDeployment, Outdated: &outdated, Limit: -1}
		for _, text := range patterns {
			pattern, err := tko.ParsePattern(text)
			w.equal("pattern", err, error(nil))
			q.Templates = append(q.Templates, pattern)
		}
		return w.ids(q)
	}
	// d4 and d7 have no Base: the time of their creation decides.
	w.equal("outdated", find(true), []string{"d1", "d4"})
	w.equal("others", find(false), []string{"d2", "d3", "d5", "d6", "d7"})
	w.equal("of a template", find(true, "t"), []string{"d1", "d4"})
	w.equal("of others", find(true, "u*"), []string{})
	w.commit(template("u", expect(1)))
	w.equal("of both", find(true, "*"), []string{"d1", "d2", "d4"})
}

func updatesSinceAreFound(w *world) {
	w.commit(site("s1"), site("s2"), template("t1"), deployment("d1"), deployment("d2"))
	updated := func(kind tko.Kind, id string) time.Time {
		return w.one(record.Key{Kind: kind, ID: id}).Updated
	}
	first := updated(tko.KindDeployment, "d2")
	position := w.head()
	for !time.Now().After(first.Add(2 * time.Microsecond)) { // moments are microseconds
		time.Sleep(time.Microsecond)
	}
	w.commit(site("s2", expect(1)), deployment("d1", expect(1)))
	w.commit(record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{
		Key: record.Key{Kind: tko.KindSite, ID: "s1"}, Conditions: []tko.Condition{{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "R"}},
	}})
	find := func(kind tko.Kind, since time.Time, asOf int64) []string {
		return w.ids(record.Query{Kind: kind, Since: map[string]time.Time{"updated": since}, AsOf: asOf, Limit: -1})
	}
	later := updated(tko.KindDeployment, "d1")
	w.equal("all", find(tko.KindDeployment, first, 0), []string{"d1", "d2"})
	w.equal("changed deployments", find(tko.KindDeployment, later, 0), []string{"d1"})
	w.equal("changed sites, not those with another condition", find(tko.KindSite, first.Add(time.Microsecond), 0), []string{"s2"})
	w.equal("no template", find(tko.KindTemplate, later, 0), []string{})
	w.equal("after the last change", find(tko.KindDeployment, later.Add(time.Microsecond), 0), []string{})
	w.equal("as of before the change", find(tko.KindDeployment, first, position), []string{"d1", "d2"})
	w.equal("nothing then was changed later", find(tko.KindDeployment, later, position), []string{})
}

func conditionsAreFiltered(w *world) {
	report := func(id, status, reason string) record.Write {
		return record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{
			Key: record.Key{Kind: tko.KindSite, ID: id}, Conditions: []tko.Condition{{Type: tko.ConditionHealthy, Status: status, Reason: reason}},
		}}
	}
	var all []record.Write
	for i := range 30 {
		all = append(all, site(fmt.Sprintf("s%02d", i)))
	}
	w.commit(all...)
	w.commit(report("s03", tko.ConditionTrue, ""), report("s17", tko.ConditionFalse, "CrashLoop"), report("s29", tko.ConditionFalse, "Missing"))
	find := func(change func(*record.Query), texts ...string) []string {
		q := record.Query{Kind: tko.KindSite, Limit: -1}
		for _, text := range texts {
			c, err := tko.ParseConditionSelect(text)
			w.equal("condition", err, error(nil))
			q.Conditions = append(q.Conditions, c)
		}
		if change != nil {
			change(&q)
		}
		return w.ids(q)
	}
	w.equal("by status", find(nil, "Healthy=False"), []string{"s17", "s29"})
	w.equal("by reason", find(nil, "Healthy:Missing"), []string{"s29"})
	w.equal("both", find(nil, "Healthy=False", "Healthy!=False:Missing"), []string{"s17"})
	w.equal("not", len(find(nil, "Healthy!=False")), 28)
	w.equal("offset", find(func(q *record.Query) { q.Offset, q.Limit = 1, 1 }, "Healthy=False"), []string{"s29"})
	w.commit(report("s01", tko.ConditionFalse, "Missing"))
	w.equal("offset after a change", find(func(q *record.Query) { q.Offset, q.Limit = 1, 1 }, "Healthy=False"), []string{"s17"})
	w.equal("first", find(func(q *record.Query) { q.Limit = 1 }, "Healthy=False"), []string{"s01"})
	w.equal("after", find(func(q *record.Query) { q.After = "s01" }, "Healthy=False"), []string{"s17", "s29"})
}

// rowsHaveTheirDeployments lists more rows than a store reads one by one: all, those
// of a range, and those of filters that match some of a range.
func rowsHaveTheirDeployments(w *world) {
	writes := []record.Write{template("x/t"), template("y/t"), template("z/none")}
	for i := range 60 {
		var change []func(*record.Write)
		if i%3 == 0 {
			change = append(change, own("third", "yes"))
		}
		writes = append(writes, site(fmt.Sprintf("s%02d", i), change...), site(fmt.Sprintf("s%02d/in", i)))
	}
	want := map[string][]string{}
	for i := range 150 {
		id, owner := fmt.Sprintf("d%03d", i), fmt.Sprintf("s%02d", i*i%60)
		writes = append(writes, deployment(id, at(owner), of([]string{"x/t", "y/t"}[i%2])))
		want[owner] = append(want[owner], id)
		template := []string{"x/t", "y/t"}[i%2]
		want[template] = append(want[template], id)
	}
	w.commit(writes...)
	fields := record.Fields{Deployments: true}
	queries := map[string]struct {
		query record.Query
		rows  int
	}{
		"all sites":        {record.Query{Kind: tko.KindSite, Limit: -1, Fields: fields}, 120},
		"a range":          {record.Query{Kind: tko.KindSite, After: "s10", Limit: 40, Fields: fields}, 40},
		"skipped":          {record.Query{Kind: tko.KindSite, Offset: 7, Limit: 50, Fields: fields}, 50},
		"by metadata":      {record.Query{Kind: tko.KindSite, Limit: -1, Fields: fields, Metadata: map[string]tko.Pattern{"third": patterns("yes")[0]}}, 20},
		"by ID":            {record.Query{Kind: tko.KindSite, Limit: -1, Fields: fields, IDs: patterns("s1*")}, 10},
		"by ID, at a part": {record.Query{Kind: tko.KindSite, Limit: -1, Fields: fields, IDs: patterns("s*/in")}, 60},
		"templates":        {record.Query{Kind: tko.KindTemplate, Limit: -1, Fields: fields}, 3},
	}
	for name, q := range queries {
		rows := w.list(q.query)
		w.equal(name+": rows", len(rows), q.rows)
		for _, r := range rows {
			w.equal(name+": deployments of "+r.ID, r.Deployments, want[r.ID])
		}
	}
}
