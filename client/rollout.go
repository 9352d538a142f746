package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// RegisterRollout creates or replaces a rollout, and returns its new revision. It is
// planned, and changes nothing until it is started.
func (c *Client) RegisterRollout(ctx context.Context, r tko.Rollout) (revision int64, err error) {
	r.Stamp, r.State, r.Reason = tko.Stamp{}, "", ""
	m, err := wire.NewRollout(r, c.options.PackageFormat)
	if err != nil {
		return 0, err
	}
	response, err := call(ctx, c, c.rollouts.RegisterRollout, m)
	return response.GetRevision(), err
}

// DeleteRollout deletes a rollout that isn't in progress.
func (c *Client) DeleteRollout(ctx context.Context, id tko.RolloutID) error {
	_, err := deleted(call(ctx, c, c.rollouts.DeleteRollout, &tkopb.RolloutID{RolloutId: string(id)}))
	return err
}

// Rollout returns a rollout with its package, as of a revision; 0 is the current one.
func (c *Client) Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error) {
	return wire.ThenRead(wire.Rollout)(call(ctx, c, c.rollouts.GetRollout, &tkopb.GetRollout{RolloutId: string(id), PreferredPackageFormat: string(c.options.PackageFormat), Revision: revision, AsOf: tko.AsOfOf(ctx).String()}))
}

// Rollouts streams the rollouts that match, sorted by ID.
func (c *Client) Rollouts(ctx context.Context, s tko.RolloutSelect, o tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	return rows(ctx, c, c.rollouts.ListRollouts, &tkopb.ListRollouts{
		AsOf:   tko.AsOfOf(ctx).String(),
		Window: wire.NewWindow(o.Window), RolloutIdPatterns: s.IDs, MetadataPatterns: s.Metadata, WithPackages: o.Packages, PreferredPackageFormat: string(c.options.PackageFormat),
	}, wire.Rollout)
}

// RolloutRows streams rows of the current plan, by the IDs of deployments.
func (c *Client) RolloutRows(ctx context.Context, s tko.RolloutRows) iter.Seq2[tko.RolloutRow, error] {
	return rows(ctx, c, c.rollouts.ListRolloutRows, wire.RolloutRows.Write(s), wire.RolloutRow.ReadRow)
}

// maxAdvance limits one step of a rollout: planning a large fleet takes long.
const maxAdvance = 10 * time.Minute

// AdvanceRollout does the next step of a rollout, for the rollout controller. It returns
// the time after which to call it again; negative: only when something changes.
func (c *Client) AdvanceRollout(ctx context.Context, id tko.RolloutID) (time.Duration, error) {
	m, err := callFor(ctx, c, maxAdvance, c.rollouts.AdvanceRollout, &tkopb.RolloutID{RolloutId: string(id)})
	if err != nil {
		return 0, err
	}
	if m.GetAgain() == nil {
		return -1, nil
	}
	return m.GetAgain().AsDuration(), nil
}

// ReservedOrigins returns the origins of the children of a deployment that rollouts
// deleted and can create again, with the rollouts, for the preparer.
func (c *Client) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	return wire.Then(wire.ReservedOrigins)(call(ctx, c, c.rollouts.GetReservedOrigins, &tkopb.GetReservedOrigins{ParentDeploymentId: string(parent)}))
}

// ProposeRollout registers a rollout for a placement, or replaces one that isn't started,
// for the preparer. The ID gets a number if a rollout with it is done.
func (c *Client) ProposeRollout(ctx context.Context, id tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error) {
	m, err := wire.NewProposeRollout(id, pkg, c.options.PackageFormat)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	return wire.Then(wire.RolloutStatus.Read)(call(ctx, c, c.rollouts.ProposeRollout, m))
}

// SiteHold returns why changes of a site must not be scheduled now; "" if nothing keeps the
// site from being changed. A data controller that is too old to hold sites returns "".
func (c *Client) SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error) {
	m, err := call(ctx, c, c.rollouts.GetSiteHold, &tkopb.GetSiteHold{SiteId: string(id)})
	if errors.Is(err, errors.ErrUnsupported) {
		return "", nil
	}
	return m.GetReason(), err
}

// BundleHold is SiteHold for a caller that writes what the site shall have into a file: the audit log
// records who does, and why. ErrUnavailable if the server doesn't record it.
func (c *Client) BundleHold(ctx context.Context, id tko.SiteID) (reason string, err error) {
	m, err := call(ctx, c, c.rollouts.GetSiteHold, &tkopb.GetSiteHold{SiteId: string(id), Bundle: true})
	if errors.Is(err, errors.ErrUnsupported) || err == nil && !m.GetRecorded() {
		return "", tko.Errorf(tko.ErrUnavailable, "the server is of an earlier version, which doesn't record in its audit log that a bundle is made: update it")
	}
	return m.GetReason(), err
}

// SiteStagings returns the pulls of images that rollouts want at a site now, for the
// meta-scheduler. A data controller that is too old to stage returns none.
func (c *Client) SiteStagings(ctx context.Context, id tko.SiteID) ([]tko.SiteStaging, error) {
	all, err := wire.Then(wire.SiteStagings)(call(ctx, c, c.rollouts.GetSiteStagings, &tkopb.GetSiteStagings{SiteId: string(id)}))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return all, err
}

// ReportSiteStaging reports how far the pull of images at a site is, for the meta-scheduler.
func (c *Client) ReportSiteStaging(ctx context.Context, p tko.SiteStaging) error {
	_, err := call(ctx, c, c.rollouts.ReportSiteStaging, wire.SiteStaging.Write(p))
	return err
}

// RolloutMeasurements returns the measurements of metrics that are due, for the rollout
// controller. A data controller that is too old to have metrics returns none.
func (c *Client) RolloutMeasurements(ctx context.Context, id tko.RolloutID) ([]tko.RolloutMeasurement, error) {
	all, err := wire.Then(wire.RolloutMeasurements)(call(ctx, c, c.rollouts.GetRolloutMeasurements, &tkopb.RolloutID{RolloutId: string(id)}))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return all, err
}

// ReportRolloutMeasurement reports a measurement with its values, for the rollout controller.
func (c *Client) ReportRolloutMeasurement(ctx context.Context, m tko.RolloutMeasurement) error {
	_, err := call(ctx, c, c.rollouts.ReportRolloutMeasurement, wire.RolloutMeasurement.Write(m))
	return err
}

// RolloutTickets returns what is to be done at ticket systems, for the rollout controller. A
// data controller that is too old to have tickets returns nothing.
func (c *Client) RolloutTickets(ctx context.Context, id tko.RolloutID) ([]tko.RolloutTicket, error) {
	all, err := wire.Then(wire.RolloutTickets)(call(ctx, c, c.rollouts.GetRolloutTickets, &tkopb.RolloutID{RolloutId: string(id)}))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return all, err
}

// ReportRolloutTicket reports what a ticket system responded, for the rollout controller. The
// error is an ErrConflict if it is refused, an ErrNotFound if the ticket isn't known.
func (c *Client) ReportRolloutTicket(ctx context.Context, t tko.RolloutTicket) error {
	_, err := call(ctx, c, c.rollouts.ReportRolloutTicket, wire.RolloutTicket.Write(t))
	return err
}

// RolloutEvidence streams what a rollout was decided by, measurements and tickets, the oldest first.
func (c *Client) RolloutEvidence(ctx context.Context, s tko.RolloutEvidenceSelect) iter.Seq2[tko.RolloutEvidence, error] {
	return rows(ctx, c, c.rollouts.ListRolloutEvidence, wire.RolloutEvidenceSelect.Write(s), wire.RolloutEvidence.ReadRow)
}
