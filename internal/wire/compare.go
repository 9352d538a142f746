package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewSiteComparison writes a comparison of a site.
func NewSiteComparison(c tko.SiteComparison) *tkopb.SiteComparison {
	return &tkopb.SiteComparison{
		SiteId: string(c.Site), Time: NewTime(c.Time), Changes: newSiteChanges(c.Changes), More: int64(c.More), Problems: c.Problems,
		Orphans: newSiteChanges(c.Orphans), MoreOrphans: int64(c.MoreOrphans), Unsearched: c.Unsearched,
	}
}

func newSiteChanges(changes []tko.SiteChange) []*tkopb.SiteChange {
	var all []*tkopb.SiteChange
	for _, change := range changes {
		all = append(all, &tkopb.SiteChange{
			Target: change.Target, Verb: change.Verb, Object: change.Object, DeploymentId: string(change.Deployment), Details: change.Details,
		})
	}
	return all
}

// SiteComparison reads a comparison of a site.
func SiteComparison(m *tkopb.SiteComparison) tko.SiteComparison {
	return tko.SiteComparison{
		Site: tko.SiteID(m.GetSiteId()), Time: Time(m.GetTime()), Changes: siteChanges(m.GetChanges()), More: int(m.GetMore()), Problems: m.GetProblems(),
		Orphans: siteChanges(m.GetOrphans()), MoreOrphans: int(m.GetMoreOrphans()), Unsearched: m.GetUnsearched(),
	}
}

func siteChanges(changes []*tkopb.SiteChange) []tko.SiteChange {
	var all []tko.SiteChange
	for _, change := range changes {
		all = append(all, tko.SiteChange{
			Target: change.GetTarget(), Verb: change.GetVerb(), Object: change.GetObject(), Deployment: tko.DeploymentID(change.GetDeploymentId()), Details: change.GetDetails(),
		})
	}
	return all
}
