package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewSiteComparison writes a comparison of a site.
func NewSiteComparison(c tko.SiteComparison) *tkopb.SiteComparison {
	m := &tkopb.SiteComparison{SiteId: string(c.Site), Time: NewTime(c.Time), More: int64(c.More), Problems: c.Problems}
	for _, change := range c.Changes {
		m.Changes = append(m.Changes, &tkopb.SiteChange{
			Target: change.Target, Verb: change.Verb, Object: change.Object, DeploymentId: string(change.Deployment), Details: change.Details,
		})
	}
	return m
}

// SiteComparison reads a comparison of a site.
func SiteComparison(m *tkopb.SiteComparison) tko.SiteComparison {
	c := tko.SiteComparison{Site: tko.SiteID(m.GetSiteId()), Time: Time(m.GetTime()), More: int(m.GetMore()), Problems: m.GetProblems()}
	for _, change := range m.GetChanges() {
		c.Changes = append(c.Changes, tko.SiteChange{
			Target: change.GetTarget(), Verb: change.GetVerb(), Object: change.GetObject(), Deployment: tko.DeploymentID(change.GetDeploymentId()), Details: change.GetDetails(),
		})
	}
	return c
}
