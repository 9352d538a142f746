package record

import (
	"fmt"

	"github.com/tko-orchestrator/tko"
)

// An ExceededError reports that deletions would exceed their DeleteLimit.
// Nothing was written.
type ExceededError struct{ Limit int }

func (e *ExceededError) Error() string {
	return fmt.Sprintf("more than %d records would be deleted", e.Limit)
}

// Is reports true for ErrInvalid.
func (e *ExceededError) Is(target error) bool { return target == tko.ErrInvalid }
