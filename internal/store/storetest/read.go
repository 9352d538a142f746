package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

func isError(err, want error) bool { return errors.Is(err, want) }

var readPromises = []promise{
	{"a record that doesn't exist is returned with revision 0, in its place", missingHasRevisionZero},
	{"a record is read as it was written", writtenIsRead},
	{"packages of every size are read as they were written", packagesOfEverySize},
	{"packages and deployments are read only if the fields select them", optionalFieldsAreOptional},
	{"records returned by a read belong to the caller", readsAreCopies},
	{"each of many concurrent reads returns its own record, as of a time after its call", concurrentReads},
	{"the caller may change a record after writing it", writesAreCopies},
	{"a revision is read as it was written", revisionIsReadUnchanged},
	{"several revisions are read in their order, unknown ones with revision 0", revisionsInOrder},
	{"a revision has its own steps, and a record has none", revisionHasItsSteps},
	{"revisions of deleted records are found", revisionsOfDeleted},
	{"a revision that never existed is not found", unknownRevisionIsNotFound},
	{"only plugins and templates with custom resources change the epoch", epochFollowsSchemas},
	{"text that can't be stored is an ErrInvalid", textThatCannotBeStored},
	{"a read ends when its context ends", readingEndsWithContext},
	{"the backend has a name", backendIsNamed},
}

func missingHasRevisionZero(w *world) {
	w.commit(site("b"), site("a"))
	records := w.get(record.Fields{}, siteKey("b"), siteKey("none"), siteKey("a"), templateKey("a"), siteKey("b"))
	got := make([]string, len(records))
	for i, r := range records {
		got[i] = string(r.Kind) + " " + r.ID
		if (r.Revision == 0) != (i == 1 || i == 3) {
			w.Errorf("%s has revision %d", got[i], r.Revision)
		}
	}
	w.equal("keys", got, []string{"site b", "site none", "site a", "template a", "site b"})
	w.equal("nothing", len(w.get(record.Fields{Package: true, Deployments: true})), 0)
}

func fullWrite() record.Write {
	write := deployment("d", of("t"), at("s"), under("p"), origin("o"), by("Ann", "because"))
	write.Record.Prepared = true
	write.Record.Plugin = []byte{0, 1, 255}
	write.Record.Metadata = &record.Metadata{
		Effective: map[string]string{"a": "1", "b": "ü"}, Inherited: map[string]string{"a": "0"}, Passed: map[string]string{"b": ""},
	}
	write.Record.Conditions = []tko.Condition{{
		Type: tko.ConditionPrepared, Status: tko.ConditionTrue, Reason: "Done", Message: "all \"of\" it",
		LastTransition: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), ObservedRevision: 7,
		Attempt: 3, NextTry: time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC),
	}}
	return write
}

func writtenIsRead(w *world) {
	write := fullWrite()
	began := time.Now().Add(-time.Minute)
	outcome := w.commit(write)[0]
	got := w.one(deploymentKey("d"))
	want := write.Record
	want.Revision, want.Position = 1, outcome.Position
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record.Record{}, "Created", "Updated")); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	if got.Created.Before(began) || !got.Created.Equal(got.Updated) || got.Created.Location() != time.UTC {
		w.Errorf("created %v, updated %v", got.Created, got.Updated)
	}
	w.equal("outcome", outcome, record.Outcome{Key: deploymentKey("d"), Revision: 1, Position: got.Position})
	if listed := w.list(record.Query{Kind: tko.KindDeployment, Limit: -1, Fields: record.Fields{Package: true}}); len(listed) != 1 || !cmp.Equal(listed[0], got) {
		w.Errorf("get and list differ:\n%s", cmp.Diff(got, listed))
	}
}

func packagesOfEverySize(w *world) {
	for _, size := range []int{0, 1, 255, 256, 100_000, 17 << 20} {
		text := strings.Repeat("kind: Thing\n", size/12+1)[:size]
		w.commit(template("t", withPackage(text), expect(record.Any)))
		for range 2 { // once from the database, once from the cache
			if got := w.one(templateKey("t")); !bytes.Equal(got.Package, []byte(text)) || got.Package == nil {
				w.Errorf("a package of %d bytes is read as %d", size, len(got.Package))
			}
		}
	}
	w.commit(written(tko.KindPlugin, "validate|none", func(x *record.Write) { x.Record.Package, x.Record.Digest = nil, record.Digest{} }))
	if got := w.one(key(tko.KindPlugin, "validate|none")); got.Package != nil {
		w.Errorf("a missing package is read as %q", got.Package)
	}
}

func optionalFieldsAreOptional(w *world) {
	w.commit(template("t"), site("s", of("t")), deployment("d2", of("t"), at("s")), deployment("d1", of("t")), deployment("d3", at("s")))
	for _, k := range []record.Key{templateKey("t"), siteKey("s")} {
		r := w.get(record.Fields{}, k)[0]
		if r.Package != nil || r.Deployments != nil || r.Digest == (record.Digest{}) {
			w.Errorf("%v is read with package %q, deployments %q, digest %x", k, r.Package, r.Deployments, r.Digest)
		}
	}
	w.equal("of the template", w.one(templateKey("t")).Deployments, []string{"d1", "d2"})
	w.equal("at the site", w.one(siteKey("s")).Deployments, []string{"d2", "d3"})
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite} {
		r := w.list(record.Query{Kind: kind, Limit: -1, Fields: record.Fields{Deployments: true}})[0]
		w.equal("listed", len(r.Deployments), 2)
		r = w.list(record.Query{Kind: kind, Limit: -1})[0]
		if r.Deployments != nil || r.Package != nil {
			w.Errorf("%s is listed with package %q, deployments %q", kind, r.Package, r.Deployments)
		}
	}
}

func readsAreCopies(w *world) {
	w.commit(fullWrite(), template("t"))
	k := deploymentKey("d")
	want := w.one(k)
	for _, r := range w.get(record.Fields{Package: true, Deployments: true}, k, k, templateKey("t")) {
		for i := range r.Plugin {
			r.Plugin[i] = 'x'
		}
		for i := range r.Conditions {
			r.Conditions[i].Type = "changed"
		}
		for i := range r.Deployments {
			r.Deployments[i] = "changed"
		}
		w.equal("another read", w.one(k), want)
	}
	twice := w.get(record.Fields{}, k, k)
	twice[0].Conditions[0].Type = "changed"
	w.equal("the same key in one read", twice[1].Conditions[0].Type, tko.ConditionPrepared)
}

func writesAreCopies(w *world) {
	write := fullWrite()
	w.commit(write)
	want := w.one(deploymentKey("d"))
	write.Record.Plugin[0] = 'x'
	write.Record.Package[0] = 'x'
	write.Record.Conditions[0].Type = "changed"
	write.Record.Metadata.Effective["a"] = "changed"
	w.equal("what is stored", w.one(deploymentKey("d")), want)
	w.equal("package", string(want.Package), "package of d")
	w.equal("metadata", want.Metadata.Effective, map[string]string{"a": "1", "b": "ü"})
}

func revisionIsReadUnchanged(w *world) {
	w.commit(fullWrite())
	k := deploymentKey("d")
	first := w.one(k)
	w.commit(deployment("d", expect(1), withPackage("second"), metadata("c", "2"), at("elsewhere"), ready, by("Bob", "")))
	second := w.one(k)
	w.commit(status(k, tko.Condition{Type: tko.ConditionHealthy}))
	for revision, want := range map[int64]record.Record{1: first, 2: second} {
		got, err := w.store.Revision(w.ctx(), k, revision)
		w.ok(err)
		want.Conditions = nil
		if diff := cmp.Diff(want, got); diff != "" {
			w.Errorf("revision %d (-want +got):\n%s", revision, diff)
		}
	}
}

func revisionHasItsSteps(w *world) {
	steps := []tko.PreparationStep{
		{Resource: `v1 ConfigMap "a"`, Plugin: "p", Iteration: 2, Took: 5 * time.Millisecond, Notes: []string{"ä \"b\"", "c\x00"}, NotesLeftOut: 3},
		{Resource: "é"},
	}
	k := deploymentKey("d")
	write := deployment("d", expect(1), withPackage("second"))
	write.Record.Steps = steps
	w.commit(deployment("d"))
	w.commit(write)
	w.commit(status(k, tko.Condition{Type: tko.ConditionHealthy}))
	w.commit(deployment("d", expect(2), withPackage("third")))
	for revision, want := range map[int64][]tko.PreparationStep{1: nil, 2: steps, 3: nil} {
		got, err := w.store.Revision(w.ctx(), k, revision)
		w.ok(err)
		if diff := cmp.Diff(want, got.Steps); diff != "" {
			w.Errorf("steps of revision %d (-want +got):\n%s", revision, diff)
		}
	}
	w.equal("steps of the record", w.one(k).Steps, []tko.PreparationStep(nil))
}

func revisionsOfDeleted(w *world) {
	k := templateKey("t")
	w.commit(template("t"))
	w.commit(template("t", expect(1), withPackage("second")))
	w.commit(deleted(k))
	got, err := w.store.Revision(w.ctx(), k, 2)
	w.ok(err)
	w.equal("package", string(got.Package), "second")
	// A revision number is never used again.
	outcome := w.commit(template("t", withPackage("again")))[0]
	w.equal("revision of the new one", outcome.Revision, int64(3))
	if got, err = w.store.Revision(w.ctx(), k, 1); err != nil || string(got.Package) != "package of t" {
		w.Errorf("revision 1: %q, %v", got.Package, err)
	}
}

func revisionsInOrder(w *world) {
	k, other := deploymentKey("d"), siteKey("s")
	w.commit(deployment("d"), site("s"))
	w.commit(deployment("d", expect(1), withPackage("second")))
	wanted := []record.AtRevision{{Key: k, Revision: 2}, {Key: other, Revision: 1}, {Key: k, Revision: 9}, {Key: siteKey("s\x00"), Revision: 1}, {Key: k, Revision: 1}, {Key: k, Revision: 2}}
	found, err := w.store.Revisions(w.ctx(), record.Fields{Package: true}, wanted...)
	w.ok(err)
	var got []string
	for i, r := range found {
		w.equal("key", r.Key, wanted[i].Key)
		got = append(got, fmt.Sprintf("%d %s", r.Revision, r.Package))
	}
	w.equal("revisions", got, []string{"2 second", "1 package of s", "0 ", "0 ", "1 package of d", "2 second"})
	found, err = w.store.Revisions(w.ctx(), record.Fields{}, wanted[:1]...)
	w.ok(err)
	w.equal("package that isn't selected", len(found[0].Package), 0)
	found, err = w.store.Revisions(w.ctx(), record.Fields{})
	w.ok(err)
	w.equal("no revisions", len(found), 0)
}

func unknownRevisionIsNotFound(w *world) {
	w.commit(site("s"))
	for _, k := range []record.Key{siteKey("none"), templateKey("s"), siteKey("s\x00"), siteKey("\xff")} {
		_, err := w.store.Revision(w.ctx(), k, 1)
		w.failed(err, tko.ErrNotFound)
	}
	for _, revision := range []int64{-1, 0, 2} {
		_, err := w.store.Revision(w.ctx(), siteKey("s"), revision)
		w.failed(err, tko.ErrNotFound)
	}
}

func epochFollowsSchemas(w *world) {
	epoch := func() int64 {
		e, err := w.store.Epoch(w.ctx())
		w.ok(err)
		return e
	}
	crds := func(x *record.Write) { x.Record.CRDs = true }
	steps := []struct {
		why   string
		write record.Write
		moves bool
	}{
		{"packages are not validated against sites", site("s"), false},
		{"packages are not validated against a plain template", template("t"), false},
		{"a template gets custom resources", template("t", expect(1), crds), true},
		{"a template with custom resources changes", template("t", expect(2), crds, withPackage("new")), true},
		{"a template loses its custom resources", template("t", expect(3)), true},
		{"a template without custom resources changes", template("t", expect(4), withPackage("newer")), false},
		{"a plugin is registered", written(tko.KindPlugin, "validate|p"), true},
		{"a plugin is deleted", deleted(key(tko.KindPlugin, "validate|p")), true},
		{"a missing plugin is deleted", deleted(key(tko.KindPlugin, "validate|p")), false},
		{"a new template has custom resources", template("u", crds), true},
		{"a template with custom resources is deleted", deleted(templateKey("u")), true},
	}
	for _, step := range steps {
		before := epoch()
		outcome := w.commit(step.write)[0]
		switch after := epoch(); {
		case step.moves && after != outcome.Position:
			w.Errorf("%s: the epoch is %d, want %d", step.why, after, outcome.Position)
		case !step.moves && after != before:
			w.Errorf("%s: the epoch moved from %d to %d", step.why, before, after)
		}
	}
}

func textThatCannotBeStored(w *world) {
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		writes := []record.Write{
			site(bad), site("s", of(bad)), deployment("d", at(bad)), deployment("d", under(bad)), deployment("d", origin(bad)),
			site("s", metadata(bad, "v")), site("s", metadata("k", bad)), site("s", by(bad, "")), site("s", by("", bad)),
			site("s", requires(siteKey(bad))), deployment("d", token(bad)), deleted(siteKey(bad)),
			status(siteKey("s"), tko.Condition{Message: bad}),
		}
		w.commit(site("s", expect(record.Any)))
		for _, write := range writes {
			write.Expect = record.Any
			w.refused(tko.ErrInvalid, write)
		}
		if strings.Contains(bad, "\x00") { // patterns are valid UTF-8
			pattern, err := tko.ParsePattern(bad)
			w.ok(err)
			for _, q := range []record.Query{{IDs: []tko.Pattern{pattern}}, {Metadata: map[string]tko.Pattern{"k": pattern}}} {
				q.Kind, q.Limit, q.Scope = tko.KindSite, -1, access.ScopeAll
				for _, err := range w.store.List(w.ctx(), q) {
					w.failed(err, tko.ErrInvalid)
				}
			}
		}
		for _, err := range w.store.List(w.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, After: bad, Limit: -1}) {
			w.failed(err, tko.ErrInvalid)
		}
		if r := w.get(record.Fields{}, siteKey(bad))[0]; r.Revision != 0 {
			w.Errorf("%q was found, want none", bad)
		}
		_, _, err := w.store.Modification(w.ctx(), bad)
		w.failed(err, tko.ErrNotFound)
		w.failed(w.store.CancelModification(w.ctx(), bad), tko.ErrNotFound)
	}
	long := strings.Repeat("k", 5000)
	w.refused(tko.ErrInvalid, site("long", metadata(long, "v")))
	w.commit(site("long", metadata("k", strings.Repeat("long value ", 5000))))
}

func readingEndsWithContext(w *world) {
	w.commit(site("s"))
	ctx, cancel := context.WithCancel(w.ctx())
	cancel()
	if _, err := w.store.Get(ctx, record.Fields{}, siteKey("s")); !errors.Is(err, context.Canceled) {
		w.Errorf("get: %v", err)
	}
	for _, err := range w.store.List(ctx, record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1}) {
		if !errors.Is(err, context.Canceled) {
			w.Errorf("list: %v", err)
		}
	}
	if _, err := w.store.Changes(ctx, 0, 1); !errors.Is(err, context.Canceled) {
		w.Errorf("changes: %v", err)
	}
	if _, err := w.store.Commit(ctx, record.Ungated(site("t"))); err != nil && !errors.Is(err, context.Canceled) {
		w.Errorf("commit: %v", err)
	}
	w.commit(site("u"))
}

func backendIsNamed(w *world) {
	if w.store.Backend() == "" {
		w.Error("the backend has no name")
	}
}

// concurrentReads reads, from many callers, records that they have just written,
// records that all of them read, and records that don't exist.
func concurrentReads(w *world) {
	w.commit(fullWrite())
	shared := w.one(deploymentKey("d"))
	var callers sync.WaitGroup
	for caller := range 40 {
		id := fmt.Sprintf("c%d", caller)
		callers.Go(func() {
			for revision := range int64(10) {
				write := site(id, withPackage(fmt.Sprint(id, revision)), own("revision", strconv.FormatInt(revision, 10)), expect(revision))
				outcomes, err := w.store.Commit(w.ctx(), record.Ungated(write))
				if err != nil {
					w.Errorf("%s: %v", id, err)
					return
				}
				for _, key := range []record.Key{siteKey(id), deploymentKey("d"), siteKey("none"), templateKey(id)} {
					got, err := w.store.Get(w.ctx(), record.Fields{Package: true}, key)
					switch {
					case err != nil:
						w.Errorf("%v: %v", key, err)
					case key == siteKey(id):
						if r := got[0]; r.Position != outcomes[0].Position || string(r.Package) != fmt.Sprint(id, revision) || r.Metadata.Effective["revision"] != strconv.FormatInt(revision, 10) {
							w.Errorf("%v after revision %d: %+v", key, revision+1, r)
						}
					case key == deploymentKey("d"):
						if diff := cmp.Diff(shared.Conditions, got[0].Conditions); diff != "" {
							w.Errorf("%v: %s", key, diff)
						}
						got[0].Conditions[0].Message, got[0].Plugin[0] = id, 7 // the record is the caller's
					case got[0].Revision != 0 || got[0].Key != key:
						w.Errorf("%v: %+v", key, got[0])
					}
				}
			}
		})
	}
	callers.Wait()
}
