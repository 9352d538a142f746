package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// longer returns a retention of no old changes except for one revision, and of those of
// deployments whose sites have metadata, for a time.
func longer(keep time.Duration, pairs ...string) record.Retention {
	r := retain(1)
	r.Longer = []record.Longer{{Name: "central", Keep: keep, Select: record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, SiteMetadata: values(pairs...)}}}
	return r
}

func longerEqualsModel(w *world) {
	m := newPastModel(w, 3)
	covered, collected := map[record.Key]bool{}, int64(0) // by a policy, each time
	keep := longer(time.Hour)
	keep.Longer[0].Select.SiteMetadata, keep.Longer[0].Select.Metadata = nil, values("a", "*")
	n := pastCommits(w.T)
	for i := range n {
		m.step()
		if i%(n/4) != 0 {
			continue
		}
		collected = w.head()
		w.collect(keep)
		for key, r := range m.state() {
			before, known := covered[key]
			covered[key] = (before || !known) && r.Metadata.Effective["a"] != ""
		}
	}
	now, equal, refused := m.state(), 0, 0
	for _, position := range m.at[1:] {
		if position >= collected || w.Failed() {
			break
		}
		for _, id := range ids("d%02d", 40) {
			key := deploymentKey(id + m.suffix[id])
			records, err := w.store.GetAt(w.ctx(), position, record.Fields{Package: true}, key)
			if isError(err, tko.ErrGone) && (!covered[key] || now[key].Revision == 0) {
				refused++
				continue
			}
			w.ok(err)
			want := m.stateAt(position)[key]
			want.Key = key
			w.equal(fmt.Sprintf("%s as of %d", key.ID, position), pastRecordOf(records[0]), pastRecordOf(want))
			if covered[key] && want.Revision != 0 && want.Revision < now[key].Revision {
				equal++
			}
		}
	}
	if equal < 50 || refused < 50 {
		w.Errorf("%d older states of deployments with a policy were equal, and %d others refused: want many of both", equal, refused)
	}
}

func policiesRetainLonger(w *world) {
	w.commit(site("core", metadata("tier", "central")), site("far", metadata("tier", "edge")))
	for _, id := range []string{"c", "e", "gone"} {
		where := map[bool]string{true: "far", false: "core"}[id == "e"]
		for revision := range int64(3) {
			w.commit(deployment(id, expect(revision), at(where), withPackage(fmt.Sprint(id, revision))))
		}
	}
	was, existed := w.changes(0), w.head()
	w.commit(deleted(deploymentKey("gone")))
	past := w.head()
	w.collect(longer(time.Hour, "tier", "central"))
	w.collect(longer(time.Hour, "tier", "central"))
	w.equal("revisions with a policy", w.revisions(deploymentKey("c"), 4), []int64{1, 2, 3})
	w.equal("revisions of a deleted one", w.revisions(deploymentKey("gone"), 4), []int64{1, 2, 3})
	w.equal("revisions without a policy", w.revisions(deploymentKey("e"), 4), []int64{3})

	asOf := func(position int64, id string) (string, error) {
		r, err := w.store.GetAt(w.ctx(), position, record.Fields{Package: true}, deploymentKey(id))
		if err != nil {
			return "", err
		}
		return string(r[0].Package), nil
	}
	read := func(position int64, id, want string) {
		w.Helper()
		got, err := asOf(position, id)
		w.ok(err)
		w.equal(fmt.Sprint(id, " as of ", position), got, want)
	}
	read(was[3].Position, "c", "c1")
	read(was[1].Position, "c", "")
	read(existed, "gone", "gone2")
	read(past, "gone", "")
	_, err := asOf(was[6].Position, "e")
	if !isError(err, tko.ErrGone) || !strings.Contains(err.Error(), fmt.Sprintf("its oldest position is %d, of ", was[7].Position)) {
		w.Errorf("a deployment without a policy: %v", err)
	}
	for _, err := range w.store.List(w.ctx(), record.Query{Kind: tko.KindDeployment, Limit: -1, AsOf: existed, Scope: access.ScopeAll, SiteMetadata: values("tier", "central")}) {
		if !isError(err, tko.ErrGone) {
			w.Errorf("a list as of an older position: %v", err)
		}
	}
	if position, err := w.store.PositionAt(w.ctx(), was[3].Time); err != nil || position < was[3].Position {
		w.Errorf("the position of an older time is %d, %v", position, err)
	}
	size, err := w.store.HistorySize(w.ctx())
	w.ok(err)
	for i := range size.Longer {
		size.Longer[i].Bytes = 0
	}
	w.equal("what the policy retains", size.Longer, []record.LongerSize{{Policy: "central", Deployments: 2, Changes: 2 + 3}})

	w.commit(site("core", expect(1), metadata("tier", "edge")))
	w.collect(longer(time.Hour, "tier", "central"))
	w.equal("revisions of one that the policy no longer selects", w.revisions(deploymentKey("c"), 4), []int64{3})
	w.equal("revisions of one that was deleted before", w.revisions(deploymentKey("gone"), 4), []int64{1, 2, 3})
	w.collect(longer(time.Nanosecond, "tier", "central"))
	w.equal("revisions of a deleted one that are too old", w.revisions(deploymentKey("gone"), 4), []int64{})
	if _, err := asOf(existed, "gone"); !isError(err, tko.ErrGone) {
		w.Errorf("a deleted deployment that isn't retained: %v", err)
	}
	size, err = w.store.HistorySize(w.ctx())
	w.ok(err)
	w.equal("what the policy retains in the end", len(size.Longer), 0)
}

func loneRevisionIsNotLater(w *world) {
	w.commit(template("t"), site("s"))
	w.commit(deployment("d", at("s"), func(w *record.Write) { w.Record.Template = "t" }))
	first := w.head()
	_, _, err := w.store.StartModification(w.ctx(), "d", "token", time.Hour)
	w.ok(err)
	w.commit(deleted(siteKey("s")))
	second := w.head()
	w.commit(deleted(templateKey("t")))
	w.collect(retain(1))
	w.equal("revisions", w.revisions(deploymentKey("d"), 4), []int64{1, 3})
	for _, position := range []int64{first, first + 1, second - 1, second} {
		if r, err := w.store.GetAt(w.ctx(), position, record.Fields{}, deploymentKey("d")); !isError(err, tko.ErrGone) {
			w.Errorf("as of %d: %+v, %v", position, r, err)
		}
	}
}
