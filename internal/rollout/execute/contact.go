package execute

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Contact is what is known of the agent of a site, and of what the owner of the site says by it.
// The zero value is that of a site that may be changed, or has no agent.
type Contact struct {
	Away      string    // why the agent isn't heard, for users; "": it is
	AwaySince time.Time // zero: not known
	Held      string    // why the owner holds back changes, for users; "": it doesn't
	Since     time.Time // of Held
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
		return &Block{Code: blockAway, Text: e.away.text(e.out.Rollout.ID)}
	case c.Held != "":
		return &Block{Code: "Owner", Key: c.Held, Text: "the owners of their sites hold back changes (condition HeldByOwner): " + c.Held}
	}
	return nil
}

// namedAway is the number of sites that are away which a Block names.
const namedAway = 3

// An awaySites has the sites that rows wait for because their agents are not heard.
type awaySites struct {
	all   map[tko.SiteID]bool
	named []string // the first ones, each with since when
}

// add adds a site.
func (a *awaySites) add(site tko.SiteID, c Contact) {
	if a.all[site] {
		return
	}
	if a.all == nil {
		a.all = map[tko.SiteID]bool{}
	}
	a.all[site] = true
	if len(a.named) >= namedAway {
		return
	}
	name := fmt.Sprintf("%q", site)
	if !c.AwaySince.IsZero() {
		name += " since " + c.AwaySince.UTC().Format(time.RFC3339)
	}
	a.named = append(a.named, name)
}

// text returns why rows wait for the sites.
func (a *awaySites) text(rollout string) string {
	names := strings.Join(a.named, ", ")
	if more := len(a.all) - len(a.named); more > 0 {
		names += " and " + count(more, "other site", "other sites")
	}
	if names != "" {
		names = ": " + names
	}
	return "the agents of their sites are not heard (condition Connected)" + names + "; to go on without a deployment, pause the rollout and skip it (tko rollout skip " + rollout + " --deployment ID)"
}

// waitAway counts a row that waits because its site is away: its Block names the first sites.
func (e *evaluation) waitAway(i int) {
	c, _ := e.contact(i)
	e.away.add(e.out.Rows[i].Site, c)
	text := e.away.text(e.out.Rollout.ID)
	e.block(Block{Code: blockAway, Text: text}, 1)
	for j := range e.out.Blocks {
		if e.out.Blocks[j].Code == blockAway {
			e.out.Blocks[j].Text = text
		}
	}
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
