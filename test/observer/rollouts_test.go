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
}

// A rolled is what a rollout found when it changed a deployment.
type rolled struct {
	rollout string
	before  *record // nil: the rollout created it
}

// A rolloutJudge judges the changes of rollouts: how many are in flight at once, and what undos restore. A change is in
// flight until a commit has its content.
type rolloutJudge struct {
	delivered func(site string, c content, until time.Time) bool
	rows      map[string][]row            // by rollout
	last      map[tko.DeploymentID]rolled // the newest change of each that isn't a preparer's
	undone    int                         // deployments that undos restored
	most      int                         // changes in flight at once
}

var (
	rolloutName = regexp.MustCompile(`^rollout "([^"]*)"`)
	ofOperator  = regexp.MustCompile(`^pair-\d+$`)
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
	_, number, _ := strings.Cut(site, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return site
	}
	return strconv.Itoa(n / 2)
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
			if is := c.record; is.digest != was.before.digest || is.template != was.before.template || is.site != was.before.site {
				report(c, "the undo of rollout %s made %s from %q at %q, and not what it had been: %s from %q at %q", undoes, is.content, is.template, is.site, was.before.content, was.before.template, was.before.site)
			}
		}
	}
	j.last[id] = rolled{by, before}
	if ofOperator.MatchString(by) && c.Op == tko.OpWritten && c.record != nil && before != nil && before.running {
		j.admit(c, by, report)
	}
}

// admit judges a change that a rollout begins.
func (j *rolloutJudge) admit(c change, by string, report func(c change, format string, args ...any)) {
	rows := slices.DeleteFunc(j.rows[by], func(r row) bool {
		return j.last[r.id].rollout != by || len(r.content) == 0 || j.delivered(r.site, r.content, c.Time.Add(time.Second))
	})
	is := row{c.record.id, c.record.site, pairOf(c.record.site), c.record.content}
	for _, r := range rows {
		if r.pair == is.pair && r.site != is.site {
			report(c, "the rollout keeps pairs apart, and its change of %s at %s is in flight", r.id, r.site)
		}
	}
	rows = append(rows, is)
	j.most = max(j.most, len(rows))
	if len(rows) > concurrent {
		report(c, "the rollout has %d changes in flight, and may have %d", len(rows), concurrent)
	}
	j.rows[by] = rows
}

// cutLast cuts a text at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}
