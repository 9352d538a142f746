package wire_test

import (
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Errors that clients get name a subject once, however many functions named it.
func TestErrorsNameTheirSubjectOnce(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf(`site "a": %w`, fmt.Errorf(`Repository "r": %w`, tko.Errorf(tko.ErrInvalid, `Repository "r": spec.url: it is missing`)))
	if got := wire.Status(err, wire.DefaultErrorSize).Message(); got != `site "a": Repository "r": spec.url: it is missing` {
		t.Errorf("got %q", got)
	}
}
