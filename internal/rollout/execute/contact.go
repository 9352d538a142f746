package execute

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Contact is what is known of the agent of a site, and of what the owner of the site says by it.
// The zero value is that of a site that may be changed, or has no agent.
type Contact struct {
	Away  string    // why the agent isn't heard, for users; "": it is
	Held  string    // why the owner holds back changes, for users; "": it doesn't
	Since time.Time // of Held
}

// blockAway is the code of a Block by an agent that isn't heard.
const blockAway = "Away"

// observed returns an observation of a deployment at a site: what is away is never healthy. Its
// clock goes on: a change that cuts a site off is a failure.
func (c Contact) observed(o Observation) Observation {
	if c.Away != "" && !o.Superseded && o.Healthy {
		o.Healthy, o.Reason = false, c.Away
	}
	return o
}

func (e *evaluation) contact(i int) (c Contact, ok bool) {
	if e.in.Contact == nil || e.out.Rows[i].Site == "" {
		return c, true
	}
	return e.in.Contact(i)
}

// unreachable returns that the site of a row is away, or that its owner holds back changes, or nil.
// An undo changes deployments there, too: a site mustn't get later what is undone now.
func (e *evaluation) unreachable(i int) *Block {
	if e.in.Rollout.Undoes != "" {
		return nil
	}
	c, ok := e.contact(i)
	switch {
	case !ok:
		return &Block{Code: "Page", Text: "they are examined next"}
	case c.Away != "":
		return &Block{Code: blockAway, Text: "the agents of their sites are not heard (condition Connected); to go on without a deployment, pause the rollout and skip it (tko rollout skip " + e.out.Rollout.ID + " --deployment ID)"}
	case c.Held != "":
		return &Block{Code: "Owner", Key: c.Held, Text: "the owners of their sites hold back changes (condition HeldByOwner): " + c.Held}
	}
	return nil
}

// leaveOut leaves out a row whose site is away, if spec.unreachable says so, and reports whether it
// does. One that counts as failed can be waived.
func (e *evaluation) leaveOut(i int) bool {
	row := &e.out.Rows[i]
	c, _ := e.contact(i)
	switch e.in.Rollout.Spec.Unreachable {
	case spec.UnreachableSkip:
		row.Reason = "left out, as spec.unreachable says: " + c.Away
	case spec.UnreachableFail:
		row.Counted, row.Reason = true, "left out, and counted as failed, as spec.unreachable says: "+c.Away
	default:
		return false
	}
	row.Progress, e.leftOut = Skipped, true
	e.out.Update = append(e.out.Update, i)
	e.wake(e.in.Now)
	return true
}

// lost returns a row in flight after an observation: an undo goes on without sites that are away,
// or whose owners hold back changes. What it returns to is committed, and they get it later.
func (e *evaluation) lost(c Contact, was, next Row) Row {
	why := cmp.Or(c.Away, c.Held)
	if e.in.Rollout.Undoes == "" || why == "" || next.Progress != Failed || was.Progress == Failed {
		return next
	}
	next.Progress, next.Counted = Skipped, was.Counted
	next.Reason = fmt.Sprintf("returned, and not known to be healthy within %s: %s", e.in.Rollout.Spec.Health.Within, why)
	return next
}
