package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// Life makes an empty store grow to a number of deployments, with a tenth as many sites that are
// there before them, and then deletes half of them. Several times in between it does one of
// everything, each time about the same amount, and calls before and after around it.
func Life(t *testing.T, store record.Store, size int, before, after func(when string)) {
	t.Helper()
	l := &life{world: &world{T: t, store: store}}
	stage := func(when string) {
		l.stage++
		before(when)
		l.day()
		after(when)
	}
	l.commit(template("t0", metadata("vendor", "v0")), template("t1", metadata("vendor", "v1")))
	stage("a new database")
	for _, n := range []int{size / 100, size / 10} {
		l.growSites(n)
		stage(fmt.Sprintf("%d sites", n))
	}
	for _, n := range []int{size / 50, size / 10, size} {
		l.growDeployments(n)
		stage(fmt.Sprintf("%d deployments", n))
	}
	for l.parents > size/lifeChildren/2 {
		l.parents--
		l.remove(deploymentKey(fmt.Sprintf("p-%05d", l.parents)))
	}
	stage("half of them deleted")
}

const (
	lifeBatch    = 50  // records of one commit
	lifeChildren = 100 // of one deployment
)

// A life is a store that grows.
type life struct {
	*world

	stage, sites, parents int
}

func (l *life) growSites(n int) {
	l.Helper()
	for l.sites < n {
		var batch []record.Write
		for range lifeBatch {
			batch = append(batch, l.newSite(fmt.Sprintf("s-%06d", l.sites)))
			l.sites++
		}
		l.commit(batch...)
	}
}

func (l *life) newSite(id string) record.Write {
	return site(id, of("t0"), audited("ada"), metadata("region", fmt.Sprint("r", l.sites%20), "tier", "edge"))
}

// growDeployments adds children at all sites, below new parents, and rows of rollouts of them.
func (l *life) growDeployments(n int) {
	l.Helper()
	for l.parents*lifeChildren < n {
		parent := fmt.Sprintf("p-%05d", l.parents)
		l.commit(deployment(parent, of("t1"), audited("ada")))
		var rows []record.RolloutRow
		for i := 0; i < lifeChildren; i += lifeBatch {
			var batch []record.Write
			for j := range lifeBatch {
				id := fmt.Sprintf("d-%05d-%03d", l.parents, i+j)
				at := at(fmt.Sprintf("s-%06d", (l.parents*lifeChildren+i+j)%l.sites))
				batch = append(batch, deployment(id, under(parent), of(fmt.Sprint("t", j%2)), at, origin(id), audited("ada"), metadata("function", fmt.Sprint("f", j%10))))
				rows = append(rows, rolloutRow(id))
			}
			l.commit(batch...)
		}
		l.ok(l.store.WriteRolloutPlan(l.ctx(), fmt.Sprint("r", l.parents/10), int64(l.parents%10), rows, []byte("[]")))
		l.parents++
	}
}

// day does one of everything.
func (l *life) day() {
	l.Helper()
	for i := range 3 {
		l.write(fmt.Sprintf("%d-%d", l.stage, i))
		l.read(fmt.Sprintf("%d-%d", l.stage, i))
	}
}

// write creates, changes and deletes records with new IDs.
func (l *life) write(name string) {
	l.Helper()
	s, top, child := "day-site-"+name, "day-top-"+name, "day-child-"+name
	tmpl, r := "day-template-"+name, "day-rollout-"+name
	l.commit(template(tmpl, metadata("vendor", name)), l.newSite(s))
	l.commit(deployment(top, of(tmpl), at(s), origin(top), audited("ada"), metadata("function", "f1")))
	var children []record.Write
	for i := range 20 {
		children = append(children, deployment(fmt.Sprint(child, i), under(top), of(tmpl), at(s), origin(fmt.Sprint(child, i)), ready, metadata("function", fmt.Sprint("f", i%3))))
	}
	l.commit(children...)
	l.commit(deployment(child+"0", expect(1), under(top), of(tmpl), at(s), ready, requires(templateKey(tmpl), siteKey(s)), metadata("function", name)))
	l.commit(status(siteKey(s), tko.Condition{Type: "Scheduled", Status: "True"}), status(deploymentKey(child+"1"), tko.Condition{Type: "x", Status: "True"}))
	_, _, err := l.store.StartModification(l.ctx(), child+"2", name, time.Hour)
	l.ok(err)
	_, _, err = l.store.Modification(l.ctx(), name)
	l.ok(err)
	l.commit(deployment(child+"2", expect(1), token(name), of(tmpl), at(s), under(top)))
	for _, queue := range []string{tko.QueuePrepare, tko.QueueSchedule} {
		items := l.claim(queue, 20, time.Minute)
		items, err := l.store.RenewWork(l.ctx(), items, time.Minute)
		l.ok(err)
		var done []tko.FinishedWork
		for _, item := range items {
			done = append(done, tko.FinishedWork{Item: item, Outcome: tko.WorkDone})
		}
		l.ok(l.store.FinishWork(l.ctx(), done, nil))
	}
	l.ok(l.store.EnqueueWork(l.ctx(), tko.QueueSchedule, []string{s}, false))
	l.roll(r, child, s)
	l.ok(l.store.Audit(l.ctx(), audit.Record{}))
	l.remove(deploymentKey(child + "3"))
	l.remove(siteKey(s))
	l.remove(templateKey(tmpl))
	l.remove(deploymentKey(top))
}

// roll plans a rollout of children, applies a row and deletes the rollout.
func (l *life) roll(r, child, site string) {
	l.Helper()
	var rows []record.RolloutRow
	for i := range 20 {
		rows = append(rows, rolloutRow(fmt.Sprint(child, i)))
	}
	l.rollout(r, int64(l.stage), execute.Running, rows...)
	v := l.view(r)
	row := v.Rows[4]
	row.Progress = execute.Applied
	entry := execute.Entry{Deployment: row.Deployment, Site: tko.SiteID(site), Rollout: r, Family: r, Apart: []string{"k"}, Values: map[string]string{"k": "v"}}
	l.commit(deployment(string(row.Deployment), expect(1), at(site), changing(record.RolloutWrite{
		Expect: v.Version, States: []record.RolloutState{v.State}, Rollout: r, Number: 1, Rows: []record.RolloutRow{row}, Flight: []execute.Entry{entry}, Evidence: []tko.RolloutEvidence{{Number: 1, Metric: "errors"}},
	})))
	l.commit(deployment(string(row.Deployment), expect(2), at(site)))
	_, err := l.store.RolloutView(l.ctx(), r, record.RowsAt{Set: v.State.Rows, Version: v.Version})
	l.ok(err)
	for _, filter := range []record.RowFilter{{Stale: true}, {Counted: true}, {Blocked: true, Held: true}, {Deployment: row.Deployment}} {
		_, err := l.store.RolloutCommandView(l.ctx(), r, filter)
		l.ok(err)
	}
	_, err = l.store.RolloutRows(l.ctx(), r, 1, "", 10)
	l.ok(err)
	_, err = l.store.RolloutEvidence(l.ctx(), r, 0, 10)
	l.ok(err)
	_, err = l.store.ApartFlights(l.ctx())
	l.ok(err)
	_, err = l.store.ReservedOrigins(l.ctx(), "day")
	l.ok(err)
	v = l.view(r)
	l.commit(deleted(key(tko.KindRollout, r), changing(record.RolloutWrite{Expect: v.Version, Land: []string{string(entry.Deployment)}, Forget: []string{r}})))
}

// read reads a few records in all ways.
func (l *life) read(name string) {
	l.Helper()
	head := l.head()
	var keys []record.Key
	for i := range 20 {
		keys = append(keys, siteKey(fmt.Sprintf("s-%06d", i*7)), deploymentKey(fmt.Sprintf("d-%05d-%03d", i, i)), siteKey(fmt.Sprint("none", name, i)))
	}
	l.get(record.Fields{Package: true, Deployments: false}, keys...)
	for i, k := range keys {
		if k.Kind == tko.KindSite && i < 20 {
			l.get(record.Fields{Package: true, Deployments: true}, k)
		}
		l.get(record.Fields{Package: true}, k)
	}
	_, err := l.store.GetAt(l.ctx(), head-1, record.Fields{Package: true}, keys[:20]...)
	l.ok(err)
	_, err = l.store.Changes(l.ctx(), head-20, 20)
	l.ok(err)
	for _, kind := range []tko.Kind{tko.KindSite, tko.KindDeployment} {
		_, err := l.store.History(l.ctx(), record.HistoryQuery{Kind: kind, ID: keys[1].ID, Limit: 20})
		l.ok(err)
		_, err = l.store.History(l.ctx(), record.HistoryQuery{Kind: kind, After: head - 50, Limit: 20})
		l.ok(err)
	}
	_, err = l.store.PositionAt(l.ctx(), time.Now())
	l.ok(err)
	l.ok(l.store.Descendants(l.ctx(), []string{"p-00000"}, func(string) {}))
	_, _, _, err = l.store.Audited(l.ctx(), 1, 20)
	l.ok(err)
	_, err = l.store.Modifications(l.ctx())
	l.ok(err)
	_, err = l.store.Reached(l.ctx(), "author/"+name, time.Hour, 10)
	l.ok(err)
}
