package wire

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewPastSelect writes a selection of the past.
func NewPastSelect(s tko.PastSelect) *tkopb.PastSelect {
	return &tkopb.PastSelect{
		Kind: string(s.Kind), Id: s.ID, IdPatterns: s.IDs, MetadataPatterns: s.Metadata, TemplateIdPatterns: s.Templates, TemplateMetadataPatterns: s.TemplateMetadata,
		SiteIdPatterns: s.Sites, SiteMetadataPatterns: s.SiteMetadata, ParentDeploymentId: string(s.Parent),
	}
}

// PastSelect reads a selection of the past.
func PastSelect(m *tkopb.PastSelect) tko.PastSelect {
	return tko.PastSelect{
		Kind: tko.Kind(m.GetKind()), ID: m.GetId(), IDs: m.GetIdPatterns(), Metadata: m.GetMetadataPatterns(), Templates: m.GetTemplateIdPatterns(), TemplateMetadata: m.GetTemplateMetadataPatterns(),
		Sites: m.GetSiteIdPatterns(), SiteMetadata: m.GetSiteMetadataPatterns(), Parent: tko.DeploymentID(m.GetParentDeploymentId()),
	}
}

// AsOf reads a moment; an empty text is now.
func AsOf(text string) (tko.AsOf, error) {
	if text == "" {
		return tko.AsOf{}, nil
	}
	return tko.ParseAsOf(text, time.Now().UTC())
}

// NewHistoryEntry writes a change of a history.
func NewHistoryEntry(e tko.HistoryEntry) *tkopb.HistoryEntry {
	return &tkopb.HistoryEntry{
		Position: e.Position, Kind: string(e.Kind), Id: e.ID, Op: e.What, Revision: e.Revision, Time: NewTime(e.Time), Who: e.Author.Who, Why: e.Author.Why, What: e.Summary,
	}
}

// HistoryEntry reads a change of a history.
func HistoryEntry(m *tkopb.HistoryEntry) (tko.HistoryEntry, error) {
	op := tko.OpWritten
	if m.GetOp() == tko.PastDeleted {
		op = tko.OpDeleted
	}
	return tko.HistoryEntry{
		Change: tko.Change{
			Position: m.GetPosition(), Kind: tko.Kind(m.GetKind()), ID: m.GetId(), Op: op, Revision: m.GetRevision(), Time: Time(m.GetTime()),
			Author: tko.Author{Who: m.GetWho(), Why: m.GetWhy()},
		},
		What: m.GetOp(), Summary: m.GetWhat(),
	}, nil
}

// NewPastGroup writes a group of a difference.
func NewPastGroup(g tko.PastGroup) *tkopb.PastGroup {
	return &tkopb.PastGroup{Op: g.What, Count: int64(g.Count), Examples: g.Examples, Changes: newRolloutChanges(g.Changes), More: int64(g.More), Coarse: g.Coarse}
}

// PastGroup reads a group of a difference.
func PastGroup(m *tkopb.PastGroup) (tko.PastGroup, error) {
	return tko.PastGroup{What: m.GetOp(), Count: int(m.GetCount()), Examples: m.GetExamples(), Changes: rolloutChanges(m.GetChanges()), More: int(m.GetMore()), Coarse: m.GetCoarse()}, nil
}
