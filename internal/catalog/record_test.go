package catalog_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

func templateKey(id string) record.Key { return record.Key{Kind: tko.KindTemplate, ID: id} }

func (w *world) put(p catalog.Put) record.Record {
	w.t.Helper()
	r, _, err := w.PutRecord(w.ctx, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestPutChecksItsRequirement(t *testing.T) {
	w := newWorld(t, catalog.Options{})
	first := w.put(catalog.Put{Key: templateKey("t"), Require: record.Requirement{Absent: true}})
	tests := map[string]struct {
		why     string
		id      string
		require record.Requirement
		want    error
	}{
		"absent":           {why: "the record exists", id: "t", require: record.Requirement{Absent: true}, want: tko.ErrConflict},
		"present":          {why: "the record doesn't exist", id: "u", require: record.Requirement{Present: true}, want: tko.ErrNotFound},
		"position":         {why: "the record has another position", id: "t", require: record.Requirement{Position: first.Position + 1}, want: tko.ErrConflict},
		"uid":              {why: "the record has another UID", id: "t", require: record.Requirement{UID: "x"}, want: tko.ErrConflict},
		"position of none": {why: "the record doesn't exist", id: "u", require: record.Requirement{Position: 1}, want: tko.ErrNotFound},
		"all right":        {why: "the requirement is met", id: "t", require: record.Requirement{Present: true, UID: first.UID, Position: first.Position}},
	}
	for name, test := range tests {
		put := catalog.Put{Key: templateKey(test.id), Metadata: map[string]string{"a": "b"}, Require: test.require, DryRun: true}
		if _, _, err := w.PutRecord(w.ctx, put); !errors.Is(err, test.want) {
			t.Errorf("put, %s: %v, want %v: %s", name, err, test.want, test.why)
		}
		if test.require.Absent {
			continue
		}
		if _, _, err := w.RemoveRecord(w.ctx, templateKey(test.id), test.require, true); !errors.Is(err, test.want) {
			t.Errorf("remove, %s: %v, want %v: %s", name, err, test.want, test.why)
		}
	}
	if head := w.head(); head != first.Position {
		t.Errorf("dry runs wrote up to %d", head)
	}
}

func TestPutPassesOnlyChangedMetadata(t *testing.T) {
	w := newWorld(t, catalog.Options{})
	w.template("base", facts("size: 1"), "from", "template")
	site := func(metadata map[string]string) record.Record {
		t.Helper()
		return w.put(catalog.Put{
			Key: record.Key{Kind: tko.KindSite, ID: "s"}, Template: "base", Metadata: metadata, Attached: []byte(`{"a":1}`),
		})
	}
	first := site(map[string]string{"mine": "1"})
	effective := first.Metadata.Effective
	if effective["from"] != "template" || effective["mine"] != "1" {
		t.Fatalf("metadata: %v", effective)
	}
	if again := site(effective); again.Position != first.Position {
		t.Error("writing the metadata that was read changed the record")
	}
	w.template("base", facts("size: 1"), "from", "changed")
	if r := site(effective); r.Metadata.Effective["from"] != "changed" {
		t.Errorf("metadata %v: want inherited metadata to follow the template", r.Metadata.Effective)
	}
	if r := site(map[string]string{"from": "mine"}); r.Metadata.Effective["from"] != "mine" || r.Metadata.Effective["mine"] != "" {
		t.Errorf("metadata %v: want changed metadata to stay, and passed metadata that is missing to be removed", r.Metadata.Effective)
	}
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Metadata: map[string]string{"other": "way"}}); err != nil {
		t.Fatal(err)
	}
	r, err := w.Record(w.ctx, record.Fields{}, record.Key{Kind: tko.KindSite, ID: "s"})
	if err != nil || string(r.Attached()) != `{"a":1}` || r.Metadata.Effective["other"] != "way" {
		t.Errorf("attached %q, metadata %v, error %v: want the attached data unchanged by another transport", r.Attached(), r.Metadata, err)
	}
}

func TestPermitCanRefuseAPut(t *testing.T) {
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{})
	r, err := w.Record(w.ctx, record.Fields{Package: true}, record.Key{Kind: tko.KindDeployment, ID: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := r.Resources()
	if err != nil {
		t.Fatal(err)
	}
	pkg = krm.Package{pkg[0].Clone()}
	pkg[0].SetAnnotation(krm.AnnotationApproved, "true")
	put := catalog.Put{Key: r.Key, Package: pkg, Permit: func(before, after record.Record) error {
		if !before.Approved && after.Approved {
			return tko.ErrDenied
		}
		return nil
	}}
	if _, _, err := w.PutRecord(w.ctx, put); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("it would approve: %v", err)
	}
	put.Permit = nil
	if r := w.put(put); !r.Approved || r.Position != w.head() {
		t.Errorf("approved: %v at %d", r.Approved, r.Position)
	}
}

// After random writes, the records as of a position are those that there were, and
// the events since then lead from them to the current records.
func TestRecordsAndEventsReconstructHistory(t *testing.T) {
	w := newWorld(t, unconfirmed)
	state := func(at int64, after string) map[string]string {
		t.Helper()
		now := map[string]string{}
		for r, err := range w.Records(w.ctx, record.Query{Kind: tko.KindTemplate, After: after, Limit: -1}, at) {
			if err != nil {
				t.Fatal(err)
			}
			now[r.ID] = r.UID + " " + r.Metadata.Effective["n"]
		}
		return now
	}
	type moment struct {
		position int64
		state    map[string]string
	}
	moments := []moment{{w.head(), state(w.head(), "")}}
	for i := range 60 {
		id := fmt.Sprintf("t%d", i*7%10)
		if _, err := w.Record(w.ctx, record.Fields{}, templateKey(id)); err == nil && i%3 == 0 {
			if _, err := w.DeleteTemplate(w.ctx, tko.TemplateID(id)); err != nil {
				t.Fatal(err)
			}
		} else {
			w.template(id, "", "n", strconv.Itoa(i))
		}
		moments = append(moments, moment{w.head(), state(w.head(), "")})
	}
	for _, m := range moments {
		if diff := cmp.Diff(m.state, state(m.position, "")); diff != "" {
			t.Fatalf("as of %d: %s", m.position, diff)
		}
		after := map[string]string{}
		for id, s := range m.state {
			if id > "t4" {
				after[id] = s
			}
		}
		if diff := cmp.Diff(after, state(m.position, "t4")); diff != "" {
			t.Fatalf("as of %d, after t4: %s", m.position, diff)
		}
		for position := m.position; position < w.head(); {
			events, upTo, _, err := w.Events(w.ctx, tko.KindTemplate, position)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				_, had := m.state[e.ID]
				if e.New == had {
					t.Fatalf("event %d of %q has New %t", e.Position, e.ID, e.New)
				}
				if before, err := w.Before(w.ctx, e); err != nil || had != (before.Revision != 0) || had && before.UID+" "+before.Metadata.Effective["n"] != m.state[e.ID] {
					t.Fatalf("before event %d of %q: %v, %v, want %q", e.Position, e.ID, before, err, m.state[e.ID])
				}
				if e.Op == tko.OpDeleted {
					delete(m.state, e.ID)
				} else {
					m.state[e.ID] = e.Record.UID + " " + e.Record.Metadata.Effective["n"]
				}
			}
			position = upTo
		}
		if diff := cmp.Diff(moments[len(moments)-1].state, m.state); diff != "" && m.position != w.head() {
			t.Fatalf("from %d on: %s", m.position, diff)
		}
	}
}

// Conditions are written only if the requirement is met.
func TestPutConditionsChecksItsRequirement(t *testing.T) {
	w := newWorld(t, catalog.Options{})
	key := record.Key{Kind: tko.KindSite, ID: "s"}
	made, _, err := w.PutRecord(t.Context(), catalog.Put{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	conditions := []tko.Condition{{Type: "Mine", Status: tko.ConditionTrue}}
	put, err := w.PutConditions(t.Context(), key, conditions, nil, record.Requirement{Position: made.Position, UID: made.UID}, false)
	if err != nil || len(put.Conditions) != 1 || put.Position == made.Position {
		t.Fatalf("%v, %v", put, err)
	}
	for _, dryRun := range []bool{false, true} {
		for _, require := range []record.Requirement{{Position: made.Position}, {UID: "another"}} {
			conditions[0].Status = tko.ConditionFalse
			if _, err := w.PutConditions(t.Context(), key, conditions, nil, require, dryRun); !errors.Is(err, tko.ErrConflict) {
				t.Errorf("%+v (dry run: %t): error is %v", require, dryRun, err)
			}
		}
	}
	if r, err := w.Record(t.Context(), record.Fields{}, key); err != nil || r.Position != put.Position {
		t.Errorf("a refused change was written: %v, %v", r, err)
	}
}

// PutConditions removes only conditions with attached data; another writer of a
// condition removes its attached data.
func TestPutConditionsRemovesOnlyConditionsWithAttachedData(t *testing.T) {
	w := newWorld(t, catalog.Options{})
	key := record.Key{Kind: tko.KindSite, ID: "s"}
	if _, _, err := w.PutRecord(t.Context(), catalog.Put{Key: key}); err != nil {
		t.Fatal(err)
	}
	own := []tko.Condition{{Type: "Own", Status: tko.ConditionTrue}}
	if err := w.SetConditions(t.Context(), tko.KindSite, "s", own); err != nil {
		t.Fatal(err)
	}
	put := func(want string, dryRun bool, without []string, conditions ...tko.Condition) {
		t.Helper()
		r, err := w.PutConditions(t.Context(), key, conditions, without, record.Requirement{}, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, c := range r.Conditions {
			all.WriteString(c.Type + c.Attached + " ")
		}
		if got := all.String(); got != want {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	put("A[1] B[2] Own ", false, nil, tko.Condition{Type: "A", Status: tko.ConditionTrue, Attached: "[1]"}, tko.Condition{Type: "B", Status: tko.ConditionTrue, Attached: "[2]"})
	put("B[2] Own ", true, []string{"A", "Own", "Other"})
	put("A[3] B[2] Own ", false, nil, tko.Condition{Type: "A", Status: tko.ConditionTrue, Attached: "[3]"})
	put("B[2] Own ", false, []string{"A", "Own", "Other"})
	own[0].Type = "B"
	if err := w.SetConditions(t.Context(), tko.KindSite, "s", own); err != nil {
		t.Fatal(err)
	}
	put("B Own ", false, []string{"B"})
	large := tko.Condition{Type: "A", Status: tko.ConditionTrue, Attached: strings.Repeat("x", 64<<10+1)}
	if _, err := w.PutConditions(t.Context(), key, []tko.Condition{large}, nil, record.Requirement{}, false); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("too much attached data: %v, want ErrInvalid", err)
	}
}

func TestRemovedRecordsAreCountedWithTheirDescendants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	parent := w.create(tko.NewDeployment{})
	child := w.create(tko.NewDeployment{Parent: parent})
	w.create(tko.NewDeployment{Parent: child})
	other := w.create(tko.NewDeployment{})
	ids := []string{string(parent), string(child), "2T7yVwVYb5bVQKgZPsPZqUcWxYZ"} // the last one doesn't exist
	want := tko.Deleted{Count: 3, Descendants: 1}
	for _, dryRun := range []bool{true, false} {
		deleted, err := w.RemoveRecords(w.ctx, tko.KindDeployment, ids, record.Requirement{}, dryRun)
		if err != nil || deleted != want {
			t.Errorf("dry run %t: %+v, %v; want %+v", dryRun, deleted, err, want)
		}
		if left, all := w.countDeployments(), map[bool]int{true: 4, false: 1}[dryRun]; left != all {
			t.Errorf("dry run %t: %d deployments are left, want %d", dryRun, left, all)
		}
	}
	deleted, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{}, false)
	if err != nil || deleted != (tko.Deleted{Count: 1}) {
		t.Errorf("%+v, %v: only %s is left", deleted, err, other)
	}
}

func TestPurgeOfDeploymentsCountsDescendantsThatWereNotSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	parent := w.create(tko.NewDeployment{Metadata: map[string]string{"purge": "yes"}})
	w.create(tko.NewDeployment{Parent: parent})
	for _, dryRun := range []bool{true, false} {
		deleted, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{Metadata: map[string]string{"purge": "yes"}}, dryRun)
		if want := (tko.Deleted{Count: 2, Descendants: 1}); err != nil || deleted != want {
			t.Errorf("dry run %t: %+v, %v; want %+v", dryRun, deleted, err, want)
		}
	}
}
