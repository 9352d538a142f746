package form

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A stepDoc is the stored form of a step.
type stepDoc struct {
	Resource  string   `json:"r"`
	Plugin    string   `json:"p,omitempty"`
	Iteration int      `json:"i,omitempty"`
	Took      int64    `json:"t,omitempty"` // nanoseconds
	Notes     []string `json:"n,omitempty"`
	LeftOut   int      `json:"l,omitempty"` // number of notes
}

// FormatSteps writes steps as JSON, and no steps as "".
func FormatSteps(steps []tko.PreparationStep) (string, error) {
	if len(steps) == 0 {
		return "", nil
	}
	docs := make([]stepDoc, len(steps))
	for i, s := range steps {
		docs[i] = stepDoc{s.Resource, s.Plugin, s.Iteration, int64(s.Took), s.Notes, s.NotesLeftOut}
	}
	text, err := json.Marshal(docs)
	if err != nil {
		return "", fmt.Errorf("encode steps: %w", err)
	}
	return string(text), nil
}

// ParseSteps reads what FormatSteps wrote.
func ParseSteps(text string) ([]tko.PreparationStep, error) {
	if text == "" {
		return nil, nil
	}
	var docs []stepDoc
	if err := json.Unmarshal([]byte(text), &docs); err != nil {
		return nil, err
	}
	steps := make([]tko.PreparationStep, len(docs))
	for i, d := range docs {
		steps[i] = tko.PreparationStep{
			Resource: d.Resource, Plugin: d.Plugin, Iteration: d.Iteration, Took: time.Duration(d.Took), Notes: d.Notes, NotesLeftOut: d.LeftOut,
		}
	}
	return steps, nil
}
