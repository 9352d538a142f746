package wire

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewPastSelect and PastSelect convert selections of the past.
var NewPastSelect, PastSelect = Pair[tko.PastSelect, tkopb.PastSelect](Names{
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

// NewHistoryEntry writes a change of a history.
var NewHistoryEntry, historyEntry = Pair[tko.HistoryEntry, tkopb.HistoryEntry](Names{"Op": "What", "Who": "Author.Who", "Why": "Author.Why", "What": "Summary"})

// HistoryEntry reads a change of a history.
func HistoryEntry(m *tkopb.HistoryEntry) (tko.HistoryEntry, error) {
	e := historyEntry(m)
	e.Op = tko.OpWritten
	if e.What == tko.PastDeleted {
		e.Op = tko.OpDeleted
	}
	return e, nil
}

// NewPastGroup writes a group of a difference.
var NewPastGroup, pastGroup = Pair[tko.PastGroup, tkopb.PastGroup](Names{"Op": "What"})

// PastGroup reads a group of a difference.
var PastGroup = readable(pastGroup)

// NewRestored and Restored convert the result of a restore.
var NewRestored, Restored = Pair[tko.Restored, tkopb.RestorePastResponse](nil)

// NewRetention and Retention convert which part of the past can be read.
var NewRetention, Retention = Pair[tko.Retention, tkopb.Retention](nil)
