package history

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// NewLonger returns a policy.
func NewLonger(name string, keep time.Duration, sel tko.PastSelect) (record.Longer, error) {
	query, err := QueryOf(sel)
	if err == nil && sel.Kind != tko.KindDeployment {
		err = tko.Errorf(tko.ErrInvalid, "the past of %ss can't be retained longer, only that of deployments", sel.Kind)
	}
	if err != nil {
		return record.Longer{}, tko.Errorf(tko.ErrInvalid, "policy %.40q: %w", name, err)
	}
	query.Scope = access.ScopeAll
	return record.Longer{Name: name, Keep: keep, Select: query}, nil
}
