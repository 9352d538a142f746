package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// reachPromises are about the counts of what causes change.
var reachPromises = []promise{
	{"what a commit removes is counted for its cause, with descendants", removalsCounted},
	{"a commit beyond a limit writes nothing, and counts nothing", reachRefused},
	{"two writers that are below a limit, and together above it, exceed it never", reachOfTwoWriters},
	{"records that lose their template or site count, step by step", orphansCounted},
	{"children that are created count, and those that exist don't", childrenCounted},
	{"sites of changed deployments count once each", sitesCounted},
	{"approvals count once", approvalsCounted},
	{"a deployment that another one replaces is not counted", replacedNotCounted},
	{"consent is counted apart, and limits what it is for", consentLimits},
	{"a grant permits later commits", grantPermits},
	{"a change counts no longer when its window has ended", reachWindowEnds},
	{"a limit holds in each period that is as long as the window, with two writers", reachWindowSlides},
	{"a site counts from its last change on", sitesSlide},
	{"sites of derived changes count within a window of their own", derivedSitesCounted},
	{"sites of derived removals and replacements count once", removedSitesCounted},
	{"what was granted before a window still counts as made with consent", grantSlides},
	{"the end of a suspension counts as a change at its site", endOfSuspensionCounted},
	{"a cause without counts has none", noReach},
}

// reach returns the reach of a cause whose limits all have a value.
func reach(cause string, most int, change ...func(*record.Reach)) record.Reach {
	r := record.Reach{Cause: cause, Window: time.Hour, Limits: []record.ReachLimit{
		{Of: []record.Count{record.CountCreated}, Most: most},
		{Of: []record.Count{record.CountApproved}, Most: most},
		{Of: []record.Count{record.CountSites}, Most: most},
		{Of: append(record.Removals(), record.Orphans()...), Most: most},
	}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func derived(r *record.Reach) { r.Derived = true }

// reached returns the counts of a cause, as "count=n" or "count=n/consent".
func (w *world) reached(cause string) map[record.Count]string {
	w.Helper()
	list, err := w.store.Reached(w.ctx(), cause, time.Hour, 100)
	w.ok(err)
	counts := map[record.Count]string{}
	for _, r := range list {
		counts[r.Count] = strconv.Itoa(r.N)
		if r.Consent > 0 {
			counts[r.Count] += fmt.Sprint("/", r.Consent)
		}
	}
	return counts
}

func (w *world) counted(cause string, want map[record.Count]string) {
	w.Helper()
	w.equal("counts of "+cause, w.reached(cause), want)
}

func (w *world) gated(r record.Reach, writes ...record.Write) ([]record.Outcome, error) {
	return w.store.Commit(w.ctx(), record.UngatedReach(r, writes...))
}

// beyond checks that a commit exceeds a limit.
func (w *world) beyond(r record.Reach, writes ...record.Write) {
	w.Helper()
	before, err := w.store.Head(w.ctx())
	w.ok(err)
	_, err = w.gated(r, writes...)
	if exceeded, ok := errors.AsType[*record.ReachError](err); !ok || exceeded.Cause != r.Cause {
		w.Errorf("error %v, want that a limit of %q would be exceeded", err, r.Cause)
	}
	after, err := w.store.Head(w.ctx())
	w.ok(err)
	w.equal("changes of a refused commit", after-before, int64(0))
}

func (w *world) free(r record.Reach, writes ...record.Write) []record.Outcome {
	w.Helper()
	outcomes, err := w.gated(r, writes...)
	w.ok(err)
	return outcomes
}

func removalsCounted(w *world) {
	w.commit(template("t"), site("s"), deployment("a"), deployment("b", under("a")), deployment("c", under("b")), deployment("d"))
	w.free(reach("x", 100), deleted(templateKey("t")), deleted(siteKey("s")), deleted(deploymentKey("a")))
	w.free(reach("x", 100), deleted(deploymentKey("none")))
	w.free(reach("y", 100), deleted(deploymentKey("d")))
	w.counted("x", map[record.Count]string{record.CountTemplates: "1", record.CountSitesGone: "1", record.CountDeployments: "3"})
	w.counted("y", map[record.Count]string{record.CountDeployments: "1"})
	all, err := w.store.Reached(w.ctx(), "", time.Hour, 3)
	w.ok(err)
	w.equal("counts of all causes", len(all), 3)
}

func reachRefused(w *world) {
	for i := range 5 {
		w.commit(deployment(fmt.Sprint("d", i)))
	}
	w.free(reach("x", 3), deleted(deploymentKey("d0")), deleted(deploymentKey("d1")))
	w.beyond(reach("x", 3), deleted(deploymentKey("d2")), deleted(deploymentKey("d3")))
	w.counted("x", map[record.Count]string{record.CountDeployments: "2"})
	w.free(reach("x", 3), deleted(deploymentKey("d2")))
	w.beyond(reach("x", 3), deleted(deploymentKey("d3")))
	w.free(reach("x", 3), deployment("e")) // another change is no removal
}

func reachOfTwoWriters(w *world) {
	const n, most = 40, 25
	for i := range n {
		w.commit(deployment(fmt.Sprintf("d%02d", i)))
	}
	var wait sync.WaitGroup
	for half := range 2 {
		wait.Go(func() {
			for i := range n / 2 {
				_, err := w.gated(reach("x", most), deleted(deploymentKey(fmt.Sprintf("d%02d", half*n/2+i))))
				if _, ok := errors.AsType[*record.ReachError](err); err != nil && !ok {
					w.Error(err)
				}
			}
		})
	}
	wait.Wait()
	w.equal("deployments that are left", len(w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1})), n-most)
	w.counted("x", map[record.Count]string{record.CountDeployments: strconv.Itoa(most)})
}

func orphansCounted(w *world) {
	const n = 250 // more than the first step changes
	w.commit(template("t"), site("s", of("t")))
	for i := range n {
		w.commit(deployment(fmt.Sprintf("d%03d", i), of("t")))
	}
	steps := 0
	for more := true; more; steps++ {
		more = w.free(reach("x", 1000), deleted(templateKey("t")))[0].More
	}
	if steps < 2 {
		w.Errorf("%d steps, want several", steps)
	}
	w.counted("x", map[record.Count]string{record.CountTemplates: "1", record.CountOrphanSites: "1", record.CountOrphanDeployments: strconv.Itoa(n)})
	w.commit(template("u"))
	for i := range n {
		w.commit(deployment(fmt.Sprintf("e%03d", i), of("u")))
	}
	var err error
	for more := true; more && err == nil; {
		var outcomes []record.Outcome
		if outcomes, err = w.gated(reach("y", 150), deleted(templateKey("u"))); err == nil {
			more = outcomes[0].More
		}
	}
	if _, ok := errors.AsType[*record.ReachError](err); !ok {
		w.Errorf("error %v, want that the limit ends the steps", err)
	}
}

func childrenCounted(w *world) {
	w.commit(deployment("p"))
	first := reach("x", 2, derived)
	w.free(first, deployment("a", under("p"), origin("a")), deployment("b", under("p"), origin("b")))
	w.equal("an existing child", w.free(first, deployment("c", under("p"), origin("a")))[0].Existed, true)
	w.beyond(first, deployment("d", under("p"), origin("d")))
	w.free(reach("y", 0), deployment("e", under("p"))) // clients create what they like
	w.counted("x", map[record.Count]string{record.CountCreated: "2"})
	w.counted("y", map[record.Count]string{})
}

func sitesCounted(w *world) {
	change := withPackage
	w.commit(site("s"), site("t"), site("u"))
	for i, at := range []func(*record.Write){at("s"), at("s"), at("t")} {
		w.commit(deployment(fmt.Sprint("d", i), at, ready))
	}
	w.commit(deployment("idle", at("u")))
	w.free(reach("x", 1), deployment("d0", at("s"), ready, change("new"), expect(1)))
	w.free(reach("x", 1), deployment("d0", at("s"), ready, change("newer"), expect(2)))
	w.free(reach("x", 1), deployment("d1", at("s"), ready, change("new"), expect(1)))
	w.free(reach("x", 1), deployment("idle", at("u"), change("new"), expect(1)))
	w.free(reach("x", 1), deployment("d2", at("t"), ready, expect(1))) // nothing changes at the site
	w.counted("x", map[record.Count]string{record.CountSites: "1"})
	w.beyond(reach("x", 1), deployment("d2", at("t"), ready, change("new"), expect(2)))
	w.beyond(reach("x", 1), deployment("d2", at("u"), ready, expect(2)))
	w.beyond(reach("x", 1), deployment("d2", at("t"), expect(2))) // its site would lose it
	w.free(reach("x", 3), deployment("d2", at("u"), ready, expect(2)))
	w.counted("x", map[record.Count]string{record.CountSites: "3"})
}

func approvalsCounted(w *world) {
	prepared := func(c *record.Write) { c.Record.Prepared = true }
	w.commit(deployment("a", prepared), deployment("b", prepared))
	w.free(reach("x", 1), deployment("a", ready, expect(1)))
	w.free(reach("x", 1), deployment("a", ready, withPackage("new"), expect(2)))
	w.beyond(reach("x", 1), deployment("b", ready, expect(1)))
	w.free(reach("y", 0, derived), deployment("b", ready, expect(1)))
	w.counted("x", map[record.Count]string{record.CountApproved: "1"})
}

func replacedNotCounted(w *world) {
	w.commit(deployment("old"), deployment("new"))
	replaced := deleted(deploymentKey("old"))
	replaced.SingleStep, replaced.Expect = true, 1
	w.free(reach("x", 0, derived), deployment("new", ready, expect(1)), replaced)
	w.counted("x", map[record.Count]string{})
}

func consentLimits(w *world) {
	for i := range 6 {
		w.commit(deployment(fmt.Sprint("d", i)))
	}
	consent := func(n int) record.Reach { return reach("x", 1, func(r *record.Reach) { r.Consent = n }) }
	if _, err := w.gated(consent(1), deleted(deploymentKey("d0")), deleted(deploymentKey("d1"))); !errors.Is(err, tko.ErrInvalid) {
		w.Errorf("two removals with consent to one: %v", err)
	}
	w.free(consent(2), deleted(deploymentKey("d0")), deleted(deploymentKey("d1")))
	w.free(consent(1), deleted(deploymentKey("d2")))
	w.counted("x", map[record.Count]string{record.CountDeployments: "3/3"})
	w.free(reach("x", 1), deleted(deploymentKey("d3"))) // the free one is still there
	w.beyond(reach("x", 1), deleted(deploymentKey("d4")))
}

func grantPermits(w *world) {
	w.commit(deployment("p"))
	w.beyond(reach("x", 1, derived), deployment("a", under("p"), origin("a")), deployment("b", under("p"), origin("b")), deployment("c", under("p"), origin("c")))
	w.free(reach("x", 1, derived, func(r *record.Reach) { r.Grant = map[record.Count]int{record.CountCreated: 2} }), deployment("p", expect(1)))
	w.free(reach("x", 1, derived), deployment("a", under("p"), origin("a")), deployment("b", under("p"), origin("b")), deployment("c", under("p"), origin("c")))
	w.counted("x", map[record.Count]string{record.CountCreated: "3/2"})
	w.beyond(reach("x", 1, derived), deployment("d", under("p"), origin("d")))
}

func reachWindowEnds(w *world) {
	const window = 50 * time.Millisecond
	short := reach("x", 1, func(r *record.Reach) { r.Window = window })
	w.commit(deployment("a"), deployment("b"))
	w.free(short, deleted(deploymentKey("a")))
	ended := time.After(2 * window) // the database's clock decides
	<-ended
	w.free(short, deleted(deploymentKey("b")))
	w.counted("x", map[record.Count]string{record.CountDeployments: "2"}) // of an hour
}

func reachWindowSlides(w *world) {
	const window, most = time.Second, 3
	r := reach("x", most, func(r *record.Reach) { r.Window = window })
	for i := range 3 * most {
		w.commit(deployment(fmt.Sprint("d", i)))
	}
	type success struct{ began, ended time.Time }
	var (
		lock sync.Mutex
		made []success
		wait sync.WaitGroup
	)
	remove := func(id string) bool {
		began := time.Now()
		_, err := w.gated(r, deleted(deploymentKey(id)))
		if _, ok := errors.AsType[*record.ReachError](err); err != nil && !ok {
			w.Error(err)
		}
		lock.Lock()
		defer lock.Unlock()
		if err == nil {
			made = append(made, success{began, time.Now()})
		}
		return err == nil
	}
	begun := time.Now()
	remove("d0")
	late := time.After(window * 8 / 10)
	<-late
	for writer := range 2 {
		wait.Go(func() {
			for i := writer + 1; i < 3*most && time.Since(begun) < 3*window; {
				if remove(fmt.Sprint("d", i)) {
					i += 2
				} else {
					pause := time.After(window / 50)
					<-pause
				}
			}
		})
	}
	wait.Wait()
	if len(made) <= most {
		w.Errorf("%d removals in three windows: want that a window ends", len(made))
	}
	for i := range len(made) - most {
		if took := made[i+most].ended.Sub(made[i].began); took < window {
			w.Errorf("%d removals within %s: want at most %d within %s", most+1, took, most, window)
		}
	}
}

func sitesSlide(w *world) {
	const window = 2 * time.Second
	r := reach("x", 2, func(r *record.Reach) { r.Window = window })
	revision := map[string]int64{}
	w.commit(site("s0"), site("s1"), site("s2"))
	for _, at := range []string{"s0", "s1", "s2"} {
		w.commit(deployment("at-"+at, func(c *record.Write) { c.Record.Site = at }, ready))
		revision[at] = 1
	}
	touch := func(at string) error {
		_, err := w.gated(r, deployment("at-"+at, func(c *record.Write) { c.Record.Site = at }, ready, withPackage(strconv.FormatInt(revision[at], 10)), expect(revision[at])))
		if err == nil {
			revision[at]++
		}
		return err
	}
	w.ok(touch("s0"))
	w.ok(touch("s1"))
	late := time.After(window * 8 / 10)
	<-late
	w.ok(touch("s0"))
	w.ok(touch("s1"))
	again := time.Now()
	ended := time.After(window * 4 / 10)
	<-ended
	if err := touch("s2"); err == nil {
		if took := time.Since(again); took < window {
			w.Errorf("a third site was changed %s after two others: want that it isn't within %s", took, window)
		}
		return // the store was so slow that the others count no longer
	}
	w.counted("x", map[record.Count]string{record.CountSites: "2"})
}

func derivedSitesCounted(w *world) {
	w.commit(site("s"), site("t"))
	w.commit(deployment("a", at("s"), ready))
	w.commit(deployment("b", at("t"), ready))
	sites := reach("x", 1, derived, func(r *record.Reach) { r.SitesWindow = time.Minute })
	w.free(sites, deployment("a", at("s"), ready, withPackage("new"), expect(1)))
	w.beyond(sites, deployment("b", at("t"), ready, withPackage("new"), expect(1)))
	w.free(reach("x", 0, derived), deployment("b", at("t"), ready, withPackage("new"), expect(1)))
	w.counted("x", map[record.Count]string{record.CountSites: "1"})
}

func removedSitesCounted(w *world) {
	w.commit(site("s"), site("t"), site("u"))
	w.commit(deployment("p"))
	w.commit(deployment("a", at("s"), under("p"), ready), deployment("b", at("t"), under("p"), ready), deployment("idle", at("u"), under("p")))
	w.commit(deployment("c", at("s"), under("p"), ready))
	sites := reach("x", 1, derived, func(r *record.Reach) { r.SitesWindow, r.RemovedSites = time.Minute, true })
	sites.Limits = []record.ReachLimit{{Of: []record.Count{record.CountSites}, Most: 1}}
	replacing := func(w *record.Write) { w.Record.Replaces = []string{"b"} }
	w.free(sites, deleted(deploymentKey("idle"))) // it doesn't run
	w.free(sites, deleted(deploymentKey("a")))
	w.free(sites, deleted(deploymentKey("c"))) // at the same site
	w.beyond(sites, deployment("new", at("t"), under("p"), origin("n"), replacing))
	w.beyond(sites, deleted(deploymentKey("b")))
	sites.RemovedSites = false
	w.free(sites, deployment("new", at("t"), under("p"), origin("n"), replacing))
	w.free(sites, deleted(deploymentKey("b")))
	w.counted("x", map[record.Count]string{record.CountSites: "1", record.CountCreated: "1", record.CountDeployments: "4"})
}

func grantSlides(w *world) {
	w.commit(deployment("p"))
	revision := int64(1)
	for window := time.Second; !grantSlidesWithin(w, window, revision); window *= 3 { // the machine is slow: it takes longer
		revision++
		if window > time.Minute {
			w.Fatalf("no commits within %s were fast enough to tell", window)
		}
	}
}

// grantSlidesWithin is grantSlides with a window, for p at a revision. It reports whether the commits were fast enough to tell.
func grantSlidesWithin(w *world, window time.Duration, revision int64) bool {
	w.Helper()
	cause := "x" + window.String()
	r := func(change ...func(*record.Reach)) record.Reach {
		return reach(cause, 1, append(change, derived, func(r *record.Reach) { r.Window = window })...)
	}
	child := func(name string) record.Write {
		return deployment(name+cause, under("p"), origin(name+cause))
	}
	granted := time.Now()
	w.free(r(func(r *record.Reach) { r.Grant = map[record.Count]int{record.CountCreated: 2} }), deployment("p", expect(revision)))
	late := time.After(window * 8 / 10)
	<-late
	began := time.Now()
	_, err := w.gated(r(), child("a"), child("b"), child("c"))
	if time.Since(granted) >= window {
		return false
	}
	w.ok(err)
	ended := time.After(window * 4 / 10) // the grant is over, what was made with it still counts
	<-ended
	_, err = w.gated(r(), child("d"))
	if time.Since(began) >= window {
		return false
	}
	if exceeded, ok := errors.AsType[*record.ReachError](err); !ok || exceeded.Had != 1 {
		w.Errorf("error %v, want that one without consent was counted before", err)
	}
	return true
}

func endOfSuspensionCounted(w *world) {
	suspend := func(value string) func(*record.Write) { return metadata(tko.MetadataSuspend, value) }
	w.commit(site("s", suspend("true")), site("t", suspend("false")), site("u", suspend("true")))
	w.commit(deployment("d", at("t"), ready, suspend("true")))
	w.commit(deployment("idle", at("t"), suspend("true")))
	free := reach("x", 1)
	w.free(free, site("t", expect(1)), site("u", expect(1), suspend("yes")), deployment("idle", at("t"), expect(1)))
	w.counted("x", map[record.Count]string{})
	w.free(free, site("s", expect(1)))
	w.beyond(free, site("u", expect(2)))
	w.beyond(free, deployment("d", at("t"), ready, expect(1)))
	w.free(reach("x", 2), deployment("d", at("t"), ready, expect(1)))
	w.free(reach("x", 2), site("s", expect(2))) // it isn't suspended any more
	w.counted("x", map[record.Count]string{record.CountSites: "2"})
}

func noReach(w *world) {
	w.commit(deployment("a"))
	w.free(record.Reach{}, deleted(deploymentKey("a")))
	w.counted("", map[record.Count]string{})
	w.counted("x", map[record.Count]string{})
}
