package observer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// concurrent is the limit of the rollouts that the operator registers.
const concurrent = 5

// A row is a change of a rollout that its site doesn't have yet.
type row struct {
	id         tko.DeploymentID
	site, pair string
	content    content
	revision   int64
	// failedBefore is whether the deployment failed already when it was changed: then it doesn't count.
	failedBefore bool
	at           time.Time
	rollout      string
}

// A rolled is what a rollout found when it changed a deployment.
type rolled struct {
	rollout string
	before  *record // nil: the rollout created it
	at      time.Time
}

// A rolloutJudge judges the changes of rollouts: how many are in flight at once, what begins after failures, and what
// undos restore. A change is in flight until a commit has its content.
type rolloutJudge struct {
	delivered func(site string, c content, from, until time.Time) bool
	failed    func(id tko.DeploymentID, then time.Time) (revision int64)
	rows      map[string][]row            // by rollout, that of an undo with those of what it undoes
	last      map[tko.DeploymentID]rolled // the newest change of each that isn't a preparer's
	undos     []undo
	late      map[string]int // changes that began after too many failures were seen, by rollout
	undone    int            // deployments that undos restored
	most      int            // changes in flight at once
	changed   map[string]int // by the kind of rollout
	latest    int            // changes that one began after that
}

var (
	rolloutName = regexp.MustCompile(`^rollout "([^"]*)"`)
	ofUnits     = regexp.MustCompile(`^(pair|moved|bad|piar)-[ab]-\d+(-undo\d*)?$`) // those of rollers
)

// rolloutOf returns the rollout that made a change; "" if none did.
func rolloutOf(c change) string {
	if m := rolloutName.FindStringSubmatch(c.Author.Why); m != nil {
		return m[1]
	}
	return ""
}

// pairOf returns the pair of a site, as in the metadata of the fleet.
func pairOf(site string) string {
	tenant, number, _ := strings.Cut(site, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return site
	}
	return tenant + strconv.Itoa(n/2)
}

// take judges a change of a deployment. before is the revision before, nil if it is new.
func (j *rolloutJudge) take(c change, before *record, report func(c change, format string, args ...any)) {
	id, by := tko.DeploymentID(c.ID), rolloutOf(c)
	if c.Author.Who == "preparer" && by == "" {
		return // it prepares what others wrote
	}
	if undoes, _, ok := cutLast(by, "-undo"); ok && c.Op == tko.OpWritten && c.record != nil && c.record.id != "" {
		if was := j.last[id]; was.rollout == undoes && was.before != nil {
			j.undone++
			if was.before.site != "" && was.before.running {
				j.undos = append(j.undos, undo{id, was.before.site, was.before.content.String(), undoes, was.at, c.Time})
			}
			if is := c.record; is.digest != was.before.digest || is.template != was.before.template || is.site != was.before.site {
				report(c, "the undo of rollout %s made %s from %q at %q, and not what it had been: %s from %q at %q", undoes, is.content, is.template, is.site, was.before.content, was.before.template, was.before.site)
			}
		}
	}
	j.last[id] = rolled{by, before, c.Time}
	if ofUnits.MatchString(by) && c.Op == tko.OpWritten && c.record != nil && before != nil && before.running {
		j.admit(c, by, report)
	}
}

// admit judges a change that a rollout begins.
func (j *rolloutJudge) admit(c change, by string, report func(c change, format string, args ...any)) {
	kind, _, _ := strings.Cut(by, "-")
	own, _, isUndo := cutLast(by, "-undo")
	is := row{c.record.id, c.record.site, pairOf(c.record.site), c.record.content, c.record.revision, j.failed(c.record.id, c.Time) != 0, c.Time, by}
	takesOver := slices.ContainsFunc(j.rows[own], func(r row) bool { return isUndo && r.id == is.id && !j.isDelivered(r, c.Time) })
	failed := 0
	for family, rows := range j.rows {
		j.rows[family] = slices.DeleteFunc(rows, func(r row) bool { return j.last[r.id].rollout != r.rollout || j.isDelivered(r, c.Time) })
		for _, r := range j.rows[family] {
			if r.pair == is.pair && r.site != is.site && !takesOver {
				report(c, "rollouts keep pairs apart, and the change of %s at %s by %s is in flight", r.id, r.site, r.rollout)
			}
			if r.rollout == by && !r.failedBefore && j.failed(r.id, c.Time) == r.revision {
				failed++
			}
		}
	}
	j.rows[own] = append(j.rows[own], is)
	j.changed[kind]++
	j.most = max(j.most, len(j.rows[own]))
	if n := len(j.rows[own]); n > concurrent && !takesOver {
		report(c, "the rollout has %d changes in flight, and may have %d", n, concurrent)
	}
	if failed <= budgets[kind] || isUndo {
		j.late[by] = 0
		return
	}
	j.late[by]++
	j.latest = max(j.latest, j.late[by])
	if j.late[by] > concurrent {
		report(c, "it is change %d of the rollout after %d failed, and %d may", j.late[by], failed, budgets[kind])
	}
}

func (j *rolloutJudge) isDelivered(r row, until time.Time) bool {
	return len(r.content) == 0 || j.delivered(r.site, r.content, r.at, until)
}

// cutLast cuts a text at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

func newRolloutJudge() *rolloutJudge {
	return &rolloutJudge{
		rows: map[string][]row{}, last: map[tko.DeploymentID]rolled{}, late: map[string]int{}, changed: map[string]int{},
		delivered: func(string, content, time.Time, time.Time) bool { return false },
		failed:    func(tko.DeploymentID, time.Time) int64 { return 0 },
	}
}
