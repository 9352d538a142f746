package form

import (
	"encoding/json"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A rowDoc holds what only few rows of rollouts have.
type rowDoc struct {
	record.RowDetails

	Findings []string         `json:"findings,omitempty"`
	Unknown  []string         `json:"unknown,omitempty"`
	Edits    []byte           `json:"edits,omitempty"`
	Root     tko.DeploymentID `json:"root,omitempty"`
}

// RolloutRowDoc encodes what only few rows have; "" for the others.
func RolloutRowDoc(r *record.RolloutRow) (string, error) {
	d := rowDoc{r.RowDetails, r.Findings, r.Unknown, r.Edits, r.Root}
	if d.Base == 0 && !d.Force && !d.Approves && d.Stands.IsZero() && d.Origin == "" && d.Stage.State == "" &&
		len(d.Images)+len(d.Replaces)+len(d.Pins)+len(d.Findings)+len(d.Unknown)+len(d.Edits)+len(d.Root) == 0 {
		return "", nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("encode a row of a rollout: %w", err)
	}
	return printable.Storable(string(text)), nil
}

// ReadRolloutRowDoc is the reverse of RolloutRowDoc.
func ReadRolloutRowDoc(doc string, r *record.RolloutRow) error {
	if doc == "" {
		return nil
	}
	var d rowDoc
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		return fmt.Errorf("decode a row of a rollout: %w", err)
	}
	r.RowDetails, r.Findings, r.Unknown, r.Edits, r.Root = d.RowDetails, d.Findings, d.Unknown, d.Edits, d.Root
	return nil
}
