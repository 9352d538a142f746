package catalog

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// approvals decide which changes need an approval of their own.
type approvals struct {
	rights *rights.Authorizer
	mode   rights.Mode
}

// policiesFor returns the policies that govern the approval of a deployment. They
// need identities, so they are in force only if rights are enforced.
func (s *approvals) policiesFor(ctx context.Context, r record.Record) ([]access.Policy, error) {
	if s.mode != rights.Enforce || r.Kind != tko.KindDeployment {
		return nil, nil
	}
	book, err := s.rights.RulesOf(ctx, rights.Age)
	if err != nil {
		return nil, err
	}
	var policies []access.Policy
	for _, p := range book.Policies {
		if p.Covers(record.AttributesOf(r)) {
			policies = append(policies, p)
		}
	}
	return policies, nil
}

// waitsForApproval returns the Approved condition of a deployment that a policy
// governs.
func waitsForApproval() *tko.Condition {
	return &tko.Condition{
		Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: reasonNotApproved,
		Message: "a policy asks for an explicit approval, by another person than those who changed the deployment: approve it",
	}
}

// reasonNotApproved is the reason of the Approved condition of a deployment
// that waits for an approval.
const reasonNotApproved = "WaitsForApproval"

// permitApproval decides about a change, other than an explicit approval, that makes
// a deployment approved: under a policy, the deployment stays unapproved; otherwise
// the caller needs the right to approve, or is a controller.
func (s *approvals) permitApproval(ctx context.Context, before record.Record, after *record.Record) error {
	if !after.Approved || before.Approved {
		return nil
	}
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return rights.ErrNotEntered
	}
	policies, err := s.policiesFor(ctx, *after)
	if err != nil {
		return err
	}
	if len(policies) > 0 {
		after.Approved = false
		if before.Revision == 0 {
			after.Conditions = condition.Merge(tko.WithoutCondition(after.Conditions, tko.ConditionApproved), []tko.Condition{*waitsForApproval()}, 1, time.Now())
		}
		return nil
	}
	if c.Grant.IsAll() || c.Grant.May(access.Commit, record.AttributesOf(*after)) {
		return nil
	}
	return s.rights.Permit(ctx, nil, after, access.Approve)
}

// permitBatch checks writes of records that exist.
func (s *approvals) permitBatch(ctx context.Context, writes []record.Write, verb access.Verb) error {
	for i := range writes {
		if err := s.rights.Permit(ctx, &writes[i].Record, nil, verb); err != nil {
			return err
		}
	}
	return nil
}
