package searches

import (
	"testing"

	"github.com/tko-orchestrator/tko/test/soak"
)

func TestLong(t *testing.T) { t.Logf("%d rounds", soak.Rounds(t, 2, 7)) }

func TestOther(t *testing.T) { t.Log("has one form") }
