package tko

import (
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// A PreparationStep is one step of the preparation of a deployment. The revision
// that the step led to records it.
type PreparationStep struct {
	Resource  string        // the prepared resource, as krm.Identity writes it
	Plugin    string        // name of the plugin, or "" if TKO prepares the resource itself
	Iteration int           // of its reconciliation, from 1
	Took      time.Duration // of the plugin, or of TKO
	Notes     []string      // messages of the plugin, such as "warning: …"
	// NotesLeftOut is the number of notes that [BoundSteps] left out.
	NotesLeftOut int
}

// The limits of the steps of a revision.
const (
	maxSteps    = 20
	maxStepText = 400  // bytes of the name of a resource or plugin
	maxNotes    = 2000 // bytes of the notes of all steps
)

// BoundSteps returns the steps that a revision records: the first 20 of steps,
// with the first 2,000 bytes of their notes, as valid UTF-8. It doesn't change
// steps; bounding twice equals bounding once.
func BoundSteps(steps []PreparationStep) []PreparationStep {
	if len(steps) == 0 {
		return nil
	}
	bounded := make([]PreparationStep, min(len(steps), maxSteps))
	room := maxNotes
	for i := range bounded {
		s := steps[i]
		s.Resource, s.Plugin = boundText(s.Resource), boundText(s.Plugin)
		s.Iteration, s.Took, s.NotesLeftOut = max(s.Iteration, 0), max(s.Took, 0), max(s.NotesLeftOut, 0)
		var notes []string
		for j, note := range s.Notes {
			note = strings.ToValidUTF8(note, "\uFFFD")
			room -= len(note)
			if room < 0 {
				s.NotesLeftOut += len(s.Notes) - j
				break
			}
			notes = append(notes, note)
		}
		s.Notes = notes
		bounded[i] = s
	}
	return bounded
}

func boundText(text string) string {
	return printable.Within(strings.ToValidUTF8(text, "\uFFFD"), maxStepText)
}

// Text returns the message for display, with the number of the attempt and the time
// of the next try, if the condition has them.
func (c Condition) Text() string {
	switch {
	case c.Attempt == 0:
		return c.Message
	case c.NextTry.IsZero():
		return fmt.Sprintf("%s (attempt %d)", c.Message, c.Attempt)
	default:
		return fmt.Sprintf("%s (attempt %d, next try %s)", c.Message, c.Attempt, c.NextTry.UTC().Format(time.RFC3339))
	}
}
