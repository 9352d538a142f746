package execute

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Staging is how far the pull of the images of a row is. The zero value is one that hasn't
// begun. It is recorded with the row before the pull begins, so that whatever is killed, a pull
// is repeated with the same key and counts once.
type Staging struct {
	Key   string    `json:"key,omitempty"`   // identifies the pull at the site
	State string    `json:"state,omitempty"` // tko.StagingPulling, StagingPulled, StagingFailed, StagingEnding; "": not begun, or removed
	Since time.Time `json:"since,omitzero"`  // of the state
	Round int       `json:"round,omitempty"` // counts the pulls, from 1
	Text  string    `json:"text,omitempty"`  // how far it is, or why it failed
	// Values are the metadata of the site when the pull began, under the keys that limit pulls.
	Values map[string]string `json:"values,omitempty"`
}

// stageSlack is the time, in addition to that of the pull, in which a site reports its end.
const stageSlack = time.Minute

// The times after which a pull that failed is repeated.
const (
	minPullAgain = time.Minute
	maxPullAgain = 30 * time.Minute
)

// until returns when a pull must have ended at its site.
func (s Staging) until(within time.Duration) time.Time { return s.Since.Add(within) }

// stageDueAt returns when the pull of a row may begin, or begin again; ok is false if it needs none now.
func (r Row) stageDueAt() (at time.Time, ok bool) {
	switch {
	case len(r.Images) == 0 || r.Progress != Waiting:
		return at, false
	case r.Stage.State == "":
		return at, true
	case r.Stage.State == tko.StagingFailed:
		return r.Stage.Since.Add(doubled(minPullAgain, r.Stage.Round-1, maxPullAgain)), true
	}
	return at, false
}

// stageKey returns the key of a pull: the same each time that it is asked for. Rows of a site
// that need the same images at the same time share a pull.
func (r Rollout) stageKey(row Row, round int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{strconv.Quote(r.ID), strconv.FormatInt(r.Started, 10), strconv.Quote(string(row.Site)), strconv.Quote(strings.Join(row.Images, "\n")), strconv.Itoa(round)}, " ")))
	return hex.EncodeToString(sum[:20])
}

// Pull is what a site pulls for a row.
type Pull struct {
	Key    string
	Images []string
	Until  time.Time
}

// PullOf returns the pull that a row waits for; ok is false if it waits for none.
func (r Rollout) PullOf(row Row) (p Pull, ok bool) {
	if r.Spec.Stage == nil || row.Progress != Waiting || row.Stage.State != tko.StagingPulling || r.State != Running && r.State != Paused {
		return p, false
	}
	return Pull{Key: row.Stage.Key, Images: row.Images, Until: row.Stage.until(r.Spec.Stage.Within)}, true
}

// EndOf returns the pull of a row that is to be removed at its site, because the row no longer
// waits for it; ok is false if there is none.
func (r Rollout) EndOf(row Row) (p Pull, ok bool) {
	if r.Spec.Stage == nil || row.Stage.State != tko.StagingEnding {
		return p, false
	}
	return Pull{Key: row.Stage.Key, Images: row.Images, Until: row.Stage.until(r.Spec.Stage.Within)}, true
}

// ends reports whether the pull of a row goes on at its site, and the row doesn't wait for it any
// more: it was skipped, or the rollout was cancelled.
func (s Staging) ends(p Progress) bool {
	return s.State == tko.StagingEnding || s.State == tko.StagingPulling && p.Ended()
}

// Ends reports whether something of the pull of a row is to be removed at its site.
func (r Row) Ends() bool { return r.Stage.ends(r.Progress) }

// ended returns a pull of which nothing is left.
func (s Staging) ended(now time.Time) Staging { return Staging{Round: s.Round, Since: now} }

// endPulls has the sites remove the pulls that no row waits for any more. A site that doesn't
// report it in time no longer has the pull: the cluster has ended it itself.
func (e *evaluation) endPulls() {
	st := e.out.Rollout.Spec.Stage
	if st == nil {
		return
	}
	for i := range e.out.Rows {
		row := &e.out.Rows[i]
		if !row.Ends() {
			continue
		}
		late := row.Stage.until(st.Within).Add(stageSlack)
		switch {
		case row.Stage.State == tko.StagingPulling:
			row.Stage.State, row.Stage.Since, row.Stage.Text = tko.StagingEnding, e.in.Now, "it isn't wanted any more, and is removed at the site"
			late = row.Stage.until(st.Within).Add(stageSlack)
			e.out.Pull = append(e.out.Pull, i)
		case e.in.Now.Before(late):
			e.wake(late)
			continue
		default:
			row.Stage = row.Stage.ended(e.in.Now)
		}
		e.wake(late)
		e.out.Update = append(e.out.Update, i)
	}
}

// Staged returns a row after a report of its site about a pull. One about another pull, or that
// says nothing new, changes nothing.
func (r Rollout) Staged(row Row, key, state, text string, now time.Time) (to Row, changes bool) {
	if _, over := r.EndOf(row); over && row.Stage.Key == key && state != tko.StagingPulling {
		row.Stage = row.Stage.ended(now) // also if it was pulled before: it was removed then
		return row, true
	}
	if _, waits := r.PullOf(row); !waits || row.Stage.Key != key {
		return row, false
	}
	switch {
	case state == tko.StagingPulled || state == tko.StagingFailed:
		row.Stage.State, row.Stage.Since, row.Stage.Text = state, now, text
	case state == tko.StagingPulling && row.Stage.Text != text:
		row.Stage.Text = text
	default:
		return row, false
	}
	return row, true
}

// overdue ends the pulls of which no site has reported the end in time.
func (e *evaluation) overdue() {
	st := e.out.Rollout.Spec.Stage
	if st == nil {
		return
	}
	for i := range e.out.Rows {
		row := &e.out.Rows[i]
		pull, ok := e.out.Rollout.PullOf(*row)
		if !ok {
			continue
		}
		late := pull.Until.Add(stageSlack)
		if e.in.Now.Before(late) {
			e.wake(late)
			continue
		}
		text := fmt.Sprintf("not pulled within %s: ", st.Within)
		if row.Stage.Text == "" {
			text += "its site has not reported it; check that a meta-scheduler reaches the cluster (tko site get)"
		} else {
			text += row.Stage.Text
		}
		row.Stage.State, row.Stage.Since, row.Stage.Text = tko.StagingFailed, e.in.Now, text
		e.out.Update = append(e.out.Update, i)
	}
}

// stage begins pulls for rows of a wave that could be admitted, as far as the limits of pulls
// allow. Limits on changes don't matter: a row may wait for them with its images pulled.
func (e *evaluation) stage(n int) {
	st := e.out.Rollout.Spec.Stage
	if st == nil {
		return
	}
	pulling, per := 0, map[valueKey]int{}
	add := func(s Staging) {
		pulling++
		for key, value := range s.Values {
			per[valueKey{key, value}]++
		}
	}
	for i := range e.out.Rows {
		if _, ok := e.out.Rollout.PullOf(e.out.Rows[i]); ok {
			add(e.out.Rows[i].Stage)
		}
	}
	for i := range e.out.Rows {
		row := &e.out.Rows[i]
		if row.Wave != n {
			continue
		}
		at, due := row.stageDueAt()
		if !due {
			continue
		}
		if row.Stage.State == tko.StagingFailed && st.OnFailure == spec.StageGo {
			continue // it is changed nevertheless
		}
		if e.in.Now.Before(at) {
			e.wake(at)
			continue
		}
		if pulling >= st.Concurrent {
			return
		}
		values, ok := e.mayPull(i, st, per)
		if !ok {
			continue
		}
		round := row.Stage.Round + 1
		row.Stage = Staging{Key: e.out.Rollout.stageKey(*row, round), State: tko.StagingPulling, Since: e.in.Now, Round: round, Values: values}
		add(row.Stage)
		e.out.Update, e.out.Pull = append(e.out.Update, i), append(e.out.Pull, i)
		e.wake(row.Stage.until(st.Within).Add(stageSlack))
	}
}

// mayPull reports whether the pull of a row may begin now, and returns the metadata that limits
// it.
func (e *evaluation) mayPull(i int, st *spec.Stage, per map[valueKey]int) (values map[string]string, ok bool) {
	row := e.out.Rows[i]
	if e.in.Metadata != nil {
		row.Metadata, ok = e.in.Metadata(i)
		if !ok {
			return nil, false
		}
	}
	for _, p := range st.Per {
		value, has := row.Metadata[p.Key]
		if !has {
			continue
		}
		if per[valueKey{p.Key, value}] >= p.Max {
			return nil, false
		}
		if values == nil {
			values = map[string]string{}
		}
		values[p.Key] = value
	}
	if b := e.held(i, row); b != nil {
		return nil, false
	}
	if b := e.closed(row, st.Before); b != nil {
		if b.Code == blockWindow && !b.Until.IsZero() {
			e.wake(b.Until.Add(-st.Before))
		}
		return nil, false
	}
	return values, e.unreachable(i) == nil
}

// unstaged returns what a row waits for whose images aren't pulled, or nil.
func (e *evaluation) unstaged(row Row) *Block {
	st := e.out.Rollout.Spec.Stage
	if st == nil || len(row.Images) == 0 {
		return nil
	}
	switch s := row.Stage; s.State {
	case tko.StagingPulled:
		return nil
	case tko.StagingPulling:
		return &Block{Code: "Staging", Key: tko.StagingPulling, Text: "staging: their images are being pulled"}
	case tko.StagingFailed:
		if st.OnFailure == spec.StageGo {
			return nil
		}
		b := &Block{Code: "Staging", Key: s.Text, Text: "staging: " + s.Text + "; it is tried again; to go on without the deployment, pause the rollout and skip it (tko rollout skip " + e.out.Rollout.ID + " --deployment ID)"}
		if again, _ := row.stageDueAt(); again.After(e.in.Now) {
			b.Text, b.Until = b.Text+"; it waits", again
		}
		return b
	}
	return &Block{Code: "Staging", Text: "staging: their images are to be pulled first, at most " + count(st.Concurrent, "deployment", "deployments") + " at once"}
}
