package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// checkEmergency checks what an approval without a ticket needs, in addition to the right to
// approve: a right of its own, and a reason.
func (s *RolloutControl) checkEmergency(ctx context.Context, cmd tko.RolloutCommand) error {
	if cmd.Verb != string(execute.CommandApprove) {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: only approve can be an emergency, %.40s can't", cmd.ID, cmd.Verb)
	}
	ctx, _, err := s.rights.Enter(ctx, "", access.Emergency)
	if err != nil {
		return err
	}
	if strings.TrimSpace(rights.Author(ctx).Why) == "" {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: an approval without a ticket needs a reason, which is kept as evidence: add --reason TEXT", cmd.ID)
	}
	return nil
}

// approveEmergency approves a wave that waits for a ticket. It is written into the evidence and
// the audit log with who did so, and why.
func (s *RolloutControl) approveEmergency(ctx context.Context, r record.Record, v record.RolloutView, to execute.Rollout, wave int) error {
	by := rights.Author(ctx)
	e := tko.RolloutEvidence{
		Time: v.Now, Plan: v.State.Digest.String(), Wave: to.Spec.Waves[wave].Name, Outcome: execute.OutcomeEmergency, System: to.Spec.Waves[wave].External, Who: by.Who,
		Text: printable.Kept("approved without a ticket, in an emergency: "+by.Why, maxReason),
	}
	e.Ticket = to.TicketOf(wave)
	by.Why = printable.Kept(fmt.Sprintf("wave %q: %s", e.Wave, e.Text), maxBlocksText)
	return s.saveEvidence(tko.WithAuthor(ctx, by), r, v, to, e)
}
