package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewOpenModification writes a token as clients other than its holder may see
// it.
func NewOpenModification(m tko.OpenModification) *tkopb.Modification {
	return &tkopb.Modification{
		DeploymentId: string(m.Deployment), Started: NewTime(m.Started), Expires: NewTime(m.Expires), Who: m.Author.Who, Why: m.Author.Why,
	}
}

// OpenModification reads a token as clients other than its holder may see it.
func OpenModification(m *tkopb.Modification) tko.OpenModification {
	return tko.OpenModification{
		Deployment: tko.DeploymentID(m.GetDeploymentId()), Started: Time(m.GetStarted()), Expires: Time(m.GetExpires()),
		Author: tko.Author{Who: m.GetWho(), Why: m.GetWhy()},
	}
}
