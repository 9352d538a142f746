package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// NewRollout writes a rollout, with its package unless the format is empty.
func NewRollout(r tko.Rollout, format krm.Format) (*tkopb.Rollout, error) {
	name, data, err := encode(format, r.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.Rollout{RolloutId: string(r.ID), Metadata: r.Metadata, PackageFormat: name, Package: data, Stamp: newStamp(r.Stamp), State: r.State, Reason: r.Reason}, nil
}

// Rollout reads a rollout.
func Rollout(m *tkopb.Rollout) (tko.Rollout, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.Rollout{}, err
	}
	return tko.Rollout{ID: tko.RolloutID(m.GetRolloutId()), Metadata: m.GetMetadata(), Package: p, State: m.GetState(), Reason: m.GetReason(), Stamp: stamp(m.GetStamp(), nil, nil)}, nil
}

// RolloutCommand converts commands.
var RolloutCommand = NewPair[tko.RolloutCommand, tkopb.RolloutCommand](Names{"RolloutId": "ID", "Command": "Verb"})

// RolloutStatus converts statuses.
var RolloutStatus = NewPair[tko.RolloutStatus, tkopb.RolloutStatus](Names{"RolloutId": "ID"})

// RolloutRow converts rows of a plan.
var RolloutRow = NewPair[tko.RolloutRow, tkopb.RolloutRow](nil)

// RolloutPlan converts summaries of a plan.
var RolloutPlan = NewPair[tko.RolloutPlan, tkopb.RolloutPlan](Names{"RolloutId": "ID"})

// RolloutRows converts selects of rows.
var RolloutRows = NewPair[tko.RolloutRows, tkopb.ListRolloutRows](Names{"RolloutId": "ID", "SiteIdPattern": "Site", "MaxCount": "Limit"})

// NewReservedOrigins writes reserved origins.
func NewReservedOrigins(reserved map[string]tko.RolloutID) *tkopb.ReservedOrigins {
	m := &tkopb.ReservedOrigins{RolloutIds: make(map[string]string, len(reserved))}
	for origin, id := range reserved {
		m.RolloutIds[origin] = string(id)
	}
	return m
}

// ReservedOrigins reads reserved origins.
func ReservedOrigins(m *tkopb.ReservedOrigins) map[string]tko.RolloutID {
	reserved := make(map[string]tko.RolloutID, len(m.GetRolloutIds()))
	for origin, id := range m.GetRolloutIds() {
		reserved[origin] = tko.RolloutID(id)
	}
	return reserved
}

// NewProposeRollout writes the rollout of a placement.
func NewProposeRollout(id tko.RolloutID, pkg krm.Package, format krm.Format) (*tkopb.ProposeRollout, error) {
	name, data, err := encodeSome(format, pkg)
	return &tkopb.ProposeRollout{RolloutId: string(id), PackageFormat: name, Package: data}, err
}

// RolloutMeasurement converts measurements.
var RolloutMeasurement = NewPair[tko.RolloutMeasurement, tkopb.RolloutMeasurement](nil)

// RolloutMeasurements reads measurements.
func RolloutMeasurements(m *tkopb.RolloutMeasurements) []tko.RolloutMeasurement {
	all := make([]tko.RolloutMeasurement, 0, len(m.GetMeasurements()))
	for _, one := range m.GetMeasurements() {
		all = append(all, RolloutMeasurement.Read(one))
	}
	return all
}

// NewRolloutMeasurements writes measurements.
func NewRolloutMeasurements(all []tko.RolloutMeasurement) *tkopb.RolloutMeasurements {
	m := &tkopb.RolloutMeasurements{}
	for _, one := range all {
		m.Measurements = append(m.Measurements, RolloutMeasurement.Write(one))
	}
	return m
}

// RolloutEvidence converts evidence of rollouts.
var RolloutEvidence = NewPair[tko.RolloutEvidence, tkopb.RolloutEvidence](nil)

// RolloutEvidenceSelect converts selects of evidence.
var RolloutEvidenceSelect = NewPair[tko.RolloutEvidenceSelect, tkopb.ListRolloutEvidence](Names{"RolloutId": "ID", "MaxCount": "Limit"})

// RolloutTicket converts what is done at ticket systems.
var RolloutTicket = NewPair[tko.RolloutTicket, tkopb.RolloutTicket](nil)

// RolloutTickets reads what is to be done at ticket systems.
func RolloutTickets(m *tkopb.RolloutTickets) []tko.RolloutTicket {
	return Each(m.GetTickets(), RolloutTicket.Read)
}

// NewRolloutTickets writes what is to be done at ticket systems.
func NewRolloutTickets(all []tko.RolloutTicket) *tkopb.RolloutTickets {
	return &tkopb.RolloutTickets{Tickets: Each(all, RolloutTicket.Write)}
}

// SiteStaging converts pulls of images.
var SiteStaging = NewPair[tko.SiteStaging, tkopb.SiteStaging](nil)

// SiteStagings reads pulls of images.
func SiteStagings(m *tkopb.SiteStagings) []tko.SiteStaging {
	return Each(m.GetStagings(), SiteStaging.Read)
}

// NewSiteStagings writes pulls of images.
func NewSiteStagings(all []tko.SiteStaging) *tkopb.SiteStagings {
	return &tkopb.SiteStagings{Stagings: Each(all, SiteStaging.Write)}
}
