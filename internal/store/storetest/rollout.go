package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

var rolloutPromises = []promise{
	{"states, rows and flights of rollouts are read as they were written", rolloutsAreAsWritten},
	{"only changed rows are read again, until the set of rows is replaced", changedRowsAreRead},
	{"a command reads counts, and only the rows that it selects", commandReadsSelectedRows},
	{"rows that wait are skipped in one write", waitingRowsAreSkipped},
	{"the deployments in flight of rollouts that keep sites apart are read alone", apartFlightsAlone},
	{"the newest evidence of a rollout is kept, until the rollout is deleted", evidenceIsKept},
	{"a write that was decided from an older view of rollouts fails", staleViewFails},
	{"a failed commit changes nothing of rollouts", failedCommitKeepsRollouts},
	{"an applied row has the revision that its commit wrote", appliedRowHasRevision},
	{"a deployment is held by the rollout that started first", firstRolloutHolds},
	{"a change of a deployment in flight enqueues its rollout", changeInFlightEnqueues},
	{"a commit of a rollout makes the work of sites due", commitMakesSitesDue},
	{"what is left is replaced by a new plan in one commit", replanReplacesWhatIsLeft},
	{"revisions that a rollout needs are not collected", pinnedRevisionsStay},
}

var rolloutKey = key(tko.KindRollout, "r")

func (w *world) view(id string) record.RolloutView {
	w.Helper()
	v, err := w.store.RolloutView(w.ctx(), id, record.RowsAt{})
	w.ok(err)
	return v
}

// changing adds a change of rollouts to a write.
func changing(c record.RolloutWrite) func(*record.Write) {
	return func(w *record.Write) { w.Rollout = &c }
}

func rolloutRow(id string, change ...func(*record.RolloutRow)) record.RolloutRow {
	r := record.RolloutRow{Row: plan.Row{Deployment: tko.DeploymentID(id), UID: "uid of " + id, Revision: 1, Kind: plan.Change}, Site: "s", Progress: execute.Waiting}
	for _, c := range change {
		c(&r)
	}
	return r
}

// rollout makes a rollout with a plan.
func (w *world) rollout(id string, started int64, state execute.State, rows ...record.RolloutRow) {
	w.Helper()
	w.ok(w.store.WriteRolloutPlan(w.ctx(), id, 1, rows, []byte(`[]`)))
	_, version, _, err := w.store.RolloutStates(w.ctx())
	w.ok(err)
	w.commit(written(tko.KindRollout, id, changing(record.RolloutWrite{
		Expect: version, States: []record.RolloutState{{ID: id, Family: id, State: state, Plan: 1, Started: started, Rows: version + 1}},
	})))
}

func rolloutsAreAsWritten(w *world) {
	w.equal("no rollout", w.view("r").Found, false)
	at := time.UnixMicro(1_700_000_000_000_001).UTC()
	row := rolloutRow("d", func(r *record.RolloutRow) {
		r.Wave, r.Rank, r.Before, r.After, r.Group, r.Findings, r.Unknown = 1, 2, plan.Digest{1}, plan.Digest{2}, 3, []string{"x"}, []string{"y"}
		r.Parent, r.Since, r.Evaluated, r.Credit, r.Counted, r.Broken, r.Reason = "p", at, at, 5, true, true, "because"
		r.Progress, r.Applied, r.Chain, r.Target = execute.Failed, 7, 8, 9
		r.RowDetails = record.RowDetails{Base: 4, Replaces: []string{"o"}, Pins: []plan.Pin{{Kind: tko.KindTemplate, ID: "t", Revision: 1}}, Force: true}
		r.Images, r.Stage = []string{"nf:2"}, execute.Staging{Key: "k", State: tko.StagingPulling, Since: at, Round: 2, Text: "half", Values: map[string]string{"tac": "1"}}
	})
	other := rolloutRow("e", func(r *record.RolloutRow) { r.Kind, r.Wave = plan.Same, plan.NoWave })
	w.rollout("r", 1, execute.Running, row, other)
	v := w.view("r")
	entry := execute.Entry{Deployment: "d", Site: "s", Rollout: "r", Family: "r", Values: map[string]string{"a": "b"}, Apart: []string{"a"}}
	state := v.State
	state.Reason, state.Approvals = execute.Reason{Code: "A", Message: "b"}, map[int]execute.Approval{1: {Plan: plan.Digest{3}, Who: "ann", When: at}}
	w.commit(status(rolloutKey, func() tko.Condition { return tko.Condition{Type: "State", Status: "True"} }()),
		deployment("x", changing(record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{state}, Flight: []execute.Entry{entry}})))
	v = w.view("r")
	if diff := cmp.Diff([]record.RolloutRow{other, row}, v.Rows, cmpopts.EquateEmpty()); diff != "" {
		w.Error(diff)
	}
	if diff := cmp.Diff(state, v.State, cmpopts.EquateEmpty()); diff != "" {
		w.Error(diff)
	}
	if diff := cmp.Diff([]execute.Entry{entry}, v.Flight, cmpopts.EquateEmpty()); diff != "" {
		w.Error(diff)
	}
	w.equal("active rollouts", len(v.Active), 1)
	rows, err := w.store.RolloutRows(w.ctx(), "r", 1, "d", 10)
	w.ok(err)
	w.equal("rows after d", len(rows), 1)
	w.commit(deleted(rolloutKey, changing(record.RolloutWrite{Expect: v.Version, Forget: []string{"r"}})))
	v = w.view("r")
	w.equal("found after its deletion", v.Found, false)
	w.equal("rows after its deletion", len(v.Rows)+len(v.Flight), 0)
}

func evidenceIsKept(w *world) {
	w.rollout("r", 1, execute.Running, rolloutRow("d"))
	value, at := 0.25, time.UnixMicro(1_700_000_000_000_001).UTC()
	first := tko.RolloutEvidence{
		Number: 1, Time: at, Plan: "p", Wave: "canary", Metric: "errors", Query: "up", Outcome: "Bad", Text: "because",
		Changed: tko.RolloutQuery{Count: 3, Sites: []tko.SiteID{"a"}, Value: &value}, Compared: tko.RolloutQuery{At: at, Reason: "none"},
	}
	add := func(more ...tko.RolloutEvidence) {
		w.Helper()
		v := w.view("r")
		w.commit(site(fmt.Sprint("s", v.Version), changing(record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{v.State}, Rollout: "r", Number: 1, Evidence: more})))
	}
	numbers := func(after int64, limit int) string {
		w.Helper()
		all, err := w.store.RolloutEvidence(w.ctx(), "r", after, limit)
		w.ok(err)
		var text strings.Builder
		for _, e := range all {
			fmt.Fprint(&text, e.Number, " ")
		}
		return text.String()
	}
	add(first, tko.RolloutEvidence{Number: 2})
	all, err := w.store.RolloutEvidence(w.ctx(), "r", 0, 1)
	w.ok(err)
	if diff := cmp.Diff([]tko.RolloutEvidence{first}, all, cmpopts.EquateEmpty()); diff != "" {
		w.Error(diff)
	}
	w.equal("after the first", numbers(1, 10), "2 ")
	add(tko.RolloutEvidence{Number: record.MaxEvidence + 1})
	w.equal("beyond the limit", numbers(0, 10), fmt.Sprint("2 ", record.MaxEvidence+1, " "))
	v := w.view("r")
	w.commit(deleted(rolloutKey, changing(record.RolloutWrite{Expect: v.Version, Forget: []string{"r"}})))
	w.equal("after the deletion", numbers(0, 10), "")
}

func changedRowsAreRead(w *world) {
	w.rollout("r", 1, execute.Running, rolloutRow("a"), rolloutRow("b"), rolloutRow("c"))
	known := record.RowsAt{}
	read := func(what, want string, changes bool) record.RolloutView {
		w.Helper()
		v, err := w.store.RolloutView(w.ctx(), "r", known)
		w.ok(err)
		var got strings.Builder
		for _, r := range v.Rows {
			fmt.Fprint(&got, r.Deployment, " ", r.Progress, ";")
		}
		w.equal(what, got.String(), want)
		w.equal(what+": only changes", v.Changes, changes)
		known = record.RowsAt{Set: v.State.Rows, Version: v.Version}
		return v
	}
	v := read("at first", "a Waiting;b Waiting;c Waiting;", false)
	change := func(state record.RolloutState, replan int64, rows ...record.RolloutRow) {
		w.Helper()
		w.commit(site(fmt.Sprint("s", v.Version), changing(record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{state}, Rollout: "r", Number: 1, Replan: replan, Rows: rows})))
	}
	v = read("nothing has changed", "", true)
	change(v.State, 0, rolloutRow("b", func(r *record.RolloutRow) { r.Progress = execute.Skipped }))
	w.rollout("other", 2, execute.Running, rolloutRow("a"))
	v = read("a row has changed", "b Skipped;", true)
	v = read("and not again", "", true)
	w.ok(w.store.WriteRolloutPlan(w.ctx(), "r", 2, []record.RolloutRow{rolloutRow("a")}, nil))
	state := v.State
	state.Rows = v.Version + 1
	change(state, 2)
	read("what is left was replaced", "a Waiting;b Skipped;", false)
}

func staleViewFails(w *world) {
	w.rollout("a", 1, execute.Running)
	w.rollout("b", 2, execute.Running)
	a, b := w.view("a"), w.view("b")
	w.commit(deployment("d", changing(record.RolloutWrite{Expect: a.Version, States: []record.RolloutState{a.State}})))
	w.refused(tko.ErrConflict, deployment("e", changing(record.RolloutWrite{Expect: b.Version, States: []record.RolloutState{b.State}})))
	w.equal("the deployment of the refused write", w.get(record.Fields{}, deploymentKey("e"))[0].Revision, int64(0))
	w.commit(deployment("e", changing(record.RolloutWrite{Expect: w.view("b").Version, States: []record.RolloutState{b.State}})))
}

func failedCommitKeepsRollouts(w *world) {
	w.commit(deployment("d"))
	w.rollout("r", 1, execute.Running, rolloutRow("d"))
	v := w.view("r")
	done := v.State
	done.State = execute.Done
	change := record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{done}, Rollout: "r", Number: 1, Rows: v.Rows}
	w.refused(tko.ErrConflict, status(rolloutKey), deployment("d", expect(5), changing(change)))
	after := w.view("r")
	w.equal("version", after.Version, v.Version)
	w.equal("state", after.State.State, execute.Running)
}

func appliedRowHasRevision(w *world) {
	w.commit(deployment("d"))
	w.commit(deployment("d", expect(1), withPackage("another")))
	w.rollout("r", 1, execute.Running, rolloutRow("d", func(r *record.RolloutRow) { r.Revision = 2 }), rolloutRow("gone", func(r *record.RolloutRow) { r.Kind = plan.Delete }))
	w.commit(deployment("gone"))
	v := w.view("r")
	rows := v.Rows
	for i := range rows {
		rows[i].Progress = execute.Applied
	}
	w.commit(deployment("d", expect(2), withPackage("new")), deleted(deploymentKey("gone"), expect(1)),
		status(rolloutKey), site("s", changing(record.RolloutWrite{Expect: v.Version, Rollout: "r", Number: 1, Rows: rows})))
	v = w.view("r")
	w.equal("revisions", fmt.Sprint(v.Rows[0].Applied, v.Rows[0].Chain, v.Rows[1].Applied), "3 3 1")
}

func firstRolloutHolds(w *world) {
	w.rollout("first", 1, execute.Running, rolloutRow("d"), rolloutRow("done", func(r *record.RolloutRow) { r.Progress = execute.Healthy }))
	w.rollout("second", 2, execute.Running, rolloutRow("d"), rolloutRow("done"))
	w.rollout("third", 0, execute.Planned, rolloutRow("d"))
	w.equal("first", len(w.view("first").Held), 0)
	w.equal("second", fmt.Sprint(w.view("second").Held), "map[d:first]")
	w.equal("third", len(w.view("third").Held), 1)
}

func changeInFlightEnqueues(w *world) {
	w.commit(deployment("d"), deployment("e"))
	w.rollout("r", 1, execute.Running, rolloutRow("d"))
	w.commit(site("s", changing(record.RolloutWrite{Expect: w.view("r").Version, Flight: []execute.Entry{{Deployment: "d", Rollout: "r", Family: "r"}}})))
	for _, item := range w.claim(tko.QueueRollout, 1, time.Minute) { // of its registration
		w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: tko.WorkDone}}, nil))
	}
	w.equal("work before", fmt.Sprint(w.dueWork(tko.QueueRollout)), "[]")
	w.commit(status(deploymentKey("e"), tko.Condition{Type: "Healthy", Status: "True"}))
	w.equal("work after a change of another", fmt.Sprint(w.dueWork(tko.QueueRollout)), "[]")
	w.commit(status(deploymentKey("d"), tko.Condition{Type: "Healthy", Status: "True"}))
	w.equal("work after", fmt.Sprint(w.dueWork(tko.QueueRollout)), "[r]")
}

func commitMakesSitesDue(w *world) {
	w.rollout("r", 1, execute.Running, rolloutRow("d"))
	v := w.view("r")
	w.equal("work before", fmt.Sprint(w.dueWork(tko.QueueSchedule)), "[]")
	w.commit(deployment("x", changing(record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{v.State}, Sites: []string{"lagos", "accra", "lagos"}})))
	w.equal("work after", fmt.Sprint(w.dueWork(tko.QueueSchedule)), "[accra lagos]")
}

func replanReplacesWhatIsLeft(w *world) {
	w.rollout("r", 1, execute.Paused, rolloutRow("a", func(r *record.RolloutRow) { r.Progress = execute.Healthy }), rolloutRow("b", func(r *record.RolloutRow) { r.Progress = execute.Stale }), rolloutRow("c"))
	w.ok(w.store.WriteRolloutPlan(w.ctx(), "r", 2, []record.RolloutRow{rolloutRow("b", func(r *record.RolloutRow) { r.Revision = 9 })}, nil))
	v := w.view("r")
	w.equal("rows before", len(v.Rows), 3)
	w.commit(site("s", changing(record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{v.State}, Rollout: "r", Number: 1, Replan: 2})))
	v = w.view("r")
	w.equal("rows", fmt.Sprintf("%d %s %s %d %s", len(v.Rows), v.Rows[0].Deployment, v.Rows[1].Deployment, v.Rows[1].Revision, v.Rows[1].Progress), "2 a b 9 Waiting")
}

func pinnedRevisionsStay(w *world) {
	w.commit(deployment("d"), template("t"))
	for i := range int64(4) {
		w.commit(deployment("d", expect(i+1), withPackage(fmt.Sprintf("d%d", i))), template("t", expect(i+1), withPackage(fmt.Sprintf("t%d", i))))
	}
	w.rollout("r", 1, execute.Running, rolloutRow("d", func(r *record.RolloutRow) {
		r.Revision, r.Pins = 2, []plan.Pin{{Kind: tko.KindTemplate, ID: "t", Revision: 3}}
	}))
	_, err := w.store.Collect(w.ctx(), record.Retention{Changes: time.Nanosecond, Revisions: 1})
	w.ok(err)
	for _, r := range []struct {
		key      record.Key
		revision int64
		there    bool
	}{{deploymentKey("d"), 1, false}, {deploymentKey("d"), 2, true}, {deploymentKey("d"), 3, false}, {templateKey("t"), 2, false}, {templateKey("t"), 3, true}} {
		_, err := w.store.Revision(w.ctx(), r.key, r.revision)
		w.equal(fmt.Sprint(r.key, " at ", r.revision), err == nil, r.there)
	}
}

// commandView returns the IDs of the rows of a view for a command, and the counts as text.
func (w *world) commandView(filter record.RowFilter) (ids, counts string, v record.RolloutView) {
	w.Helper()
	v, err := w.store.RolloutCommandView(w.ctx(), "r", filter)
	w.ok(err)
	var list, all strings.Builder
	for _, r := range v.Rows {
		list.WriteString(string(r.Deployment))
	}
	slices.SortFunc(v.Counts, func(a, b record.RolloutCount) int {
		return strings.Compare(fmt.Sprint(a.Kind, a.Progress), fmt.Sprint(b.Kind, b.Progress))
	})
	for _, c := range v.Counts {
		fmt.Fprint(&all, c.Rows, " ", c.Kind, " ", c.Progress, ";")
	}
	return list.String(), all.String(), v
}

func (w *world) mixedRollout() {
	w.Helper()
	progress := func(p execute.Progress, counted bool) func(*record.RolloutRow) {
		return func(r *record.RolloutRow) { r.Progress, r.Counted = p, counted }
	}
	w.rollout("r", 1, execute.Running, rolloutRow("a"), rolloutRow("b"), rolloutRow("c", progress(execute.Stale, false)), rolloutRow("d", progress(execute.Failed, true)),
		rolloutRow("e", progress(execute.Skipped, false), func(r *record.RolloutRow) { r.Kind = plan.Conflict }))
}

func commandReadsSelectedRows(w *world) {
	w.mixedRollout()
	for _, test := range []struct {
		filter record.RowFilter
		want   string
	}{
		{record.RowFilter{}, ""},
		{record.RowFilter{Stale: true}, "c"},
		{record.RowFilter{Counted: true}, "d"},
		{record.RowFilter{Blocked: true, Held: true}, "e"},
		{record.RowFilter{Deployment: "b"}, "b"},
		{record.RowFilter{Deployment: "none"}, ""},
	} {
		ids, counts, v := w.commandView(test.filter)
		w.equal(fmt.Sprintf("rows of %+v", test.filter), ids, test.want)
		w.equal("counts", counts, "1 Change Failed;1 Change Stale;2 Change Waiting;1 Conflict Skipped;")
		w.equal("active rollouts", len(v.Active), 1)
	}
	_, err := w.store.RolloutCommandView(w.ctx(), "r", record.RowFilter{Deployment: "\x00"})
	w.failed(err, tko.ErrInvalid)
}

func waitingRowsAreSkipped(w *world) {
	w.mixedRollout()
	before := w.view("r")
	w.commit(site("s1", changing(record.RolloutWrite{Expect: before.Version, States: []record.RolloutState{before.State}, Rollout: "r", Number: 1, Skip: "because"})))
	_, counts, _ := w.commandView(record.RowFilter{})
	w.equal("counts", counts, "1 Change Failed;3 Change Skipped;1 Conflict Skipped;")
	v, err := w.store.RolloutView(w.ctx(), "r", record.RowsAt{Set: before.State.Rows, Version: before.Version})
	w.ok(err)
	w.equal("changed rows", len(v.Rows), 3)
	for _, r := range v.Rows {
		w.equal("reason", r.Reason, "because")
	}
}

func apartFlightsAlone(w *world) {
	w.mixedRollout()
	entries := []execute.Entry{
		{Deployment: "a", Site: "s", Rollout: "r", Family: "r", Values: map[string]string{"k": "v"}, Apart: []string{"k"}},
		{Deployment: "b", Site: "s", Rollout: "r", Family: "r"},
	}
	v := w.view("r")
	w.commit(site("s1", changing(record.RolloutWrite{Expect: v.Version, States: []record.RolloutState{v.State}, Flight: entries})))
	found, err := w.store.ApartFlights(w.ctx())
	w.ok(err)
	w.equal("flights", found, entries[:1])
	w.commit(site("s2", changing(record.RolloutWrite{Expect: v.Version + 1, States: []record.RolloutState{v.State}, Land: []string{"a"}})))
	found, err = w.store.ApartFlights(w.ctx())
	w.ok(err)
	w.equal("flights after landing", len(found), 0)
}
