package wire

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// PastSelect converts selections of the past.
var PastSelect = NewPair[tko.PastSelect, tkopb.PastSelect](Names{
	"IdPatterns": "IDs", "MetadataPatterns": "Metadata", "TemplateIdPatterns": "Templates", "TemplateMetadataPatterns": "TemplateMetadata",
	"SiteIdPatterns": "Sites", "SiteMetadataPatterns": "SiteMetadata", "ParentDeploymentId": "Parent",
})

// AsOf reads a moment; an empty text is now.
func AsOf(text string) (tko.AsOf, error) {
	if text == "" {
		return tko.AsOf{}, nil
	}
	return tko.ParseAsOf(text, time.Now().UTC())
}

var historyEntry = NewPair[tko.HistoryEntry, tkopb.HistoryEntry](Names{"Op": "What", "Who": "Author.Who", "Why": "Author.Why", "What": "Summary"})

// NewHistoryEntry writes a change of a history.
func NewHistoryEntry(e tko.HistoryEntry) *tkopb.HistoryEntry { return historyEntry.Write(e) }

// HistoryEntry reads a change of a history.
func HistoryEntry(m *tkopb.HistoryEntry) (tko.HistoryEntry, error) {
	e := historyEntry.Read(m)
	e.Op = tko.OpWritten
	if e.What == tko.PastDeleted {
		e.Op = tko.OpDeleted
	}
	return e, nil
}

// PastGroup converts groups of a difference.
var PastGroup = NewPair[tko.PastGroup, tkopb.PastGroup](Names{"Op": "What"})

// Restored converts the result of a restore.
var Restored = NewPair[tko.Restored, tkopb.RestorePastResponse](nil)

// Retention converts which part of the past can be read.
var Retention = NewPair[tko.Retention, tkopb.Retention](nil)
