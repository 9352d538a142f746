package wire

import (
	"math"

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

// NewRolloutCommand writes a command.
func NewRolloutCommand(c tko.RolloutCommand) *tkopb.RolloutCommand {
	return &tkopb.RolloutCommand{
		RolloutId: string(c.ID), Command: c.Verb, Plan: c.Plan, SkipBlocked: c.SkipBlocked, Force: c.Force, AnyTime: c.AnyTime, DeploymentId: string(c.Deployment), Unstarted: c.Unstarted, Wave: c.Wave,
	}
}

// RolloutCommand reads a command.
func RolloutCommand(m *tkopb.RolloutCommand) tko.RolloutCommand {
	return tko.RolloutCommand{
		ID: tko.RolloutID(m.GetRolloutId()), Verb: m.GetCommand(), Plan: m.GetPlan(), SkipBlocked: m.GetSkipBlocked(), Force: m.GetForce(), AnyTime: m.GetAnyTime(),
		Deployment: tko.DeploymentID(m.GetDeploymentId()), Unstarted: m.GetUnstarted(), Wave: m.GetWave(),
	}
}

func counts(of map[string]int) map[string]int64 {
	out := make(map[string]int64, len(of))
	for key, n := range of {
		out[key] = int64(n)
	}
	return out
}

func countsOf(m map[string]int64) map[string]int {
	out := make(map[string]int, len(m))
	for key, n := range m {
		out[key] = int(n)
	}
	return out
}

func small(n int) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

func newWaves(waves []tko.RolloutWave) []*tkopb.RolloutWave {
	return convert(waves, func(w tko.RolloutWave) *tkopb.RolloutWave {
		return &tkopb.RolloutWave{Name: w.Name, Rows: int64(w.Rows), Approval: w.Approval, Progress: counts(w.Progress)}
	})
}

func waves(ms []*tkopb.RolloutWave) []tko.RolloutWave {
	return convert(ms, func(m *tkopb.RolloutWave) tko.RolloutWave {
		return tko.RolloutWave{Name: m.GetName(), Rows: int(m.GetRows()), Approval: m.GetApproval(), Progress: countsOf(m.GetProgress())}
	})
}

// NewRolloutStatus writes a status.
func NewRolloutStatus(s tko.RolloutStatus) *tkopb.RolloutStatus {
	m := &tkopb.RolloutStatus{
		RolloutId: string(s.ID), State: s.State, Reason: s.Reason, Plan: s.Plan, Position: s.Position, Undoes: string(s.Undoes), UndoneBy: string(s.UndoneBy),
		Started: NewTime(s.Started), Now: NewTime(s.Now), Kinds: counts(s.Kinds), Waves: newWaves(s.Waves), Failures: int64(s.Failures), Blocks: s.Blocks,
		Until: NewTime(s.Until), Commands: s.Commands,
	}
	for _, r := range s.Examples {
		m.Examples = append(m.Examples, NewRolloutRow(r))
	}
	return m
}

// RolloutStatus reads a status.
func RolloutStatus(m *tkopb.RolloutStatus) (tko.RolloutStatus, error) {
	s := tko.RolloutStatus{
		ID: tko.RolloutID(m.GetRolloutId()), State: m.GetState(), Reason: m.GetReason(), Plan: m.GetPlan(), Position: m.GetPosition(), Undoes: tko.RolloutID(m.GetUndoes()), UndoneBy: tko.RolloutID(m.GetUndoneBy()),
		Started: Time(m.GetStarted()), Now: Time(m.GetNow()), Kinds: countsOf(m.GetKinds()), Waves: waves(m.GetWaves()), Failures: int(m.GetFailures()), Blocks: m.GetBlocks(), Until: Time(m.GetUntil()),
		Commands: m.GetCommands(),
	}
	for _, row := range m.GetExamples() {
		r, err := RolloutRow(row)
		if err != nil {
			return s, err
		}
		s.Examples = append(s.Examples, r)
	}
	return s, nil
}

// NewRolloutRow writes a row of a plan.
func NewRolloutRow(r tko.RolloutRow) *tkopb.RolloutRow {
	return &tkopb.RolloutRow{
		Changes:      newRolloutChanges(r.Changes),
		DeploymentId: string(r.Deployment), SiteId: string(r.Site), Kind: r.Kind, Wave: small(r.Wave), Rank: small(r.Rank), Revision: r.Revision, Group: small(r.Group),
		Findings: r.Findings, Unknown: r.Unknown, Progress: r.Progress, Reason: r.Reason, Since: NewTime(r.Since), Applied: r.Applied,
	}
}

// RolloutRow reads a row of a plan.
func RolloutRow(m *tkopb.RolloutRow) (tko.RolloutRow, error) {
	return tko.RolloutRow{
		Changes:    rolloutChanges(m.GetChanges()),
		Deployment: tko.DeploymentID(m.GetDeploymentId()), Site: tko.SiteID(m.GetSiteId()), Kind: m.GetKind(), Wave: int(m.GetWave()), Rank: int(m.GetRank()), Revision: m.GetRevision(), Group: int(m.GetGroup()),
		Findings: m.GetFindings(), Unknown: m.GetUnknown(), Progress: m.GetProgress(), Reason: m.GetReason(), Since: Time(m.GetSince()), Applied: m.GetApplied(),
	}, nil
}

func newRolloutChanges(changes []tko.RolloutChange) []*tkopb.RolloutChange {
	return convert(changes, func(c tko.RolloutChange) *tkopb.RolloutChange {
		return &tkopb.RolloutChange{Resource: c.Resource, Path: c.Path, Before: c.Before, After: c.After}
	})
}

func rolloutChanges(changes []*tkopb.RolloutChange) []tko.RolloutChange {
	return convert(changes, func(c *tkopb.RolloutChange) tko.RolloutChange {
		return tko.RolloutChange{Resource: c.GetResource(), Path: c.GetPath(), Before: c.GetBefore(), After: c.GetAfter()}
	})
}

// NewRolloutPlan writes a summary of a plan.
func NewRolloutPlan(p tko.RolloutPlan) *tkopb.RolloutPlan {
	m := &tkopb.RolloutPlan{RolloutId: string(p.ID), Digest: p.Digest, State: p.State, Kinds: counts(p.Kinds), Waves: newWaves(p.Waves)}
	for _, g := range p.Groups {
		group := &tkopb.RolloutGroup{Kind: g.Kind, Count: int64(g.Count), Examples: stringsOf(g.Examples), More: int64(g.More), Coarse: g.Coarse, Distinct: int64(g.Distinct), Templates: g.Templates}
		group.Changes = newRolloutChanges(g.Changes)
		m.Groups = append(m.Groups, group)
	}
	return m
}

// RolloutPlan reads a summary of a plan.
func RolloutPlan(m *tkopb.RolloutPlan) tko.RolloutPlan {
	p := tko.RolloutPlan{ID: tko.RolloutID(m.GetRolloutId()), Digest: m.GetDigest(), State: m.GetState(), Kinds: countsOf(m.GetKinds()), Waves: waves(m.GetWaves())}
	for _, g := range m.GetGroups() {
		group := tko.RolloutGroup{Kind: g.GetKind(), Count: int(g.GetCount()), Examples: idsOf[tko.DeploymentID](g.GetExamples()), More: int(g.GetMore()), Coarse: g.GetCoarse(), Distinct: int(g.GetDistinct()), Templates: g.GetTemplates()}
		group.Changes = rolloutChanges(g.GetChanges())
		p.Groups = append(p.Groups, group)
	}
	return p
}

// NewRolloutRows writes a select of rows.
func NewRolloutRows(s tko.RolloutRows) *tkopb.ListRolloutRows {
	m := &tkopb.ListRolloutRows{
		RolloutId: string(s.ID), DeploymentId: string(s.Deployment), SiteIdPattern: s.Site, Kinds: s.Kinds, Progress: s.Progress, After: string(s.After), MaxCount: int64(s.Limit), Changes: s.Changes,
	}
	if s.Group != nil {
		group := small(*s.Group)
		m.Group = &group
	}
	return m
}

// RolloutRows reads a select of rows.
func RolloutRows(m *tkopb.ListRolloutRows) tko.RolloutRows {
	s := tko.RolloutRows{
		ID: tko.RolloutID(m.GetRolloutId()), Deployment: tko.DeploymentID(m.GetDeploymentId()), Site: m.GetSiteIdPattern(), Kinds: m.GetKinds(), Progress: m.GetProgress(),
		After: tko.DeploymentID(m.GetAfter()), Limit: int(m.GetMaxCount()), Changes: m.GetChanges(),
	}
	if m.Group != nil {
		group := int(m.GetGroup())
		s.Group = &group
	}
	return s
}

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
