package agents

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
)

// maxOwnerText is the maximum length of what the owner of a site says, in bytes.
const maxOwnerText = 4 << 10

// ownerReasons are those that an agent may report.
var ownerReasons = []string{tko.ReasonOwnerRefuses, tko.ReasonOwnerFreeze, tko.ReasonOwnerWindow, tko.ReasonOwnerUnreadable}

// ownerCondition returns the HeldByOwner condition of a report.
func ownerCondition(hold *agentpb.OwnerHold) (tko.Condition, error) {
	c := tko.Condition{Type: tko.ConditionHeldByOwner, Status: tko.ConditionFalse, Reason: tko.ReasonOwnerPermits}
	if hold == nil {
		return c, nil
	}
	c.Status, c.Reason, c.Message = tko.ConditionTrue, hold.GetReason(), hold.GetMessage()
	if !slices.Contains(ownerReasons, c.Reason) || c.Message == "" || len(c.Message) > maxOwnerText || !utf8.ValidString(c.Message) {
		return c, tko.Errorf(tko.ErrInvalid, "the agent reports a hold of the owner of the site for the reason %.40q, in %d bytes: use a known reason and at most %d bytes", c.Reason, len(c.Message), maxOwnerText)
	}
	return c, nil
}

// ownerSays takes over whether the owner of the site holds back changes, if that differs from the
// last report. What follows from a new revision of the site is written when the agent is next heard.
func (c *connection) ownerSays(ctx context.Context, hold *agentpb.OwnerHold) error {
	next, err := ownerCondition(hold)
	if err != nil {
		c.server.options.Log.WarnContext(ctx, "an agent reports what it may not", "site", c.site, "err", err)
		return err
	}
	if c.owner != nil && isSame(*c.owner, next) {
		return nil
	}
	site, err := c.server.backend.Site(ctx, c.site, 0)
	if errors.Is(err, tko.ErrNotFound) || err == nil && site.Stamp.UID != c.uid {
		return nil
	}
	if err != nil {
		return err
	}
	before := c.owner
	c.owner = &next
	if changes := c.ownerChanges(site); len(changes) > 0 {
		if err := c.write(ctx, tko.KindSite, string(c.site), changes); err != nil {
			c.owner = before
			return err
		}
	}
	return nil
}

// ownerChanges returns the HeldByOwner condition if that of the site differs from the last report. A
// site has none whose owner never held it.
func (c *connection) ownerChanges(site tko.Site) []tko.Condition {
	if c.owner == nil {
		return nil
	}
	was := tko.FindCondition(site.Stamp.Conditions, tko.ConditionHeldByOwner)
	if was == nil && c.owner.Status != tko.ConditionTrue || was != nil && isSame(*was, *c.owner) && was.ObservedRevision == site.Stamp.Revision {
		return nil
	}
	next := *c.owner
	next.ObservedRevision, next.LastTransition = site.Stamp.Revision, time.Now()
	if was != nil && was.Status == next.Status {
		next.LastTransition = was.LastTransition
	}
	return []tko.Condition{next}
}

func isSame(a, b tko.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}
