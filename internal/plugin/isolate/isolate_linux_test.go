package isolate_test

import (
	"os"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
)

func TestDebug(t *testing.T) {
	for name, o := range map[string]isolate.Options{"bwrap": {}, "ns": {NoBubblewrap: true}, "ll": {NoNamespaces: true}, "bwrap-user": {Users: isolate.Users{2000000000, 2000000010}}, "ns-user": {NoBubblewrap: true, Users: isolate.Users{2000000000, 2000000010}}, "ll-user": {NoNamespaces: true, Users: isolate.Users{2000000000, 2000000010}}} {
		i, err := isolate.New(t.Context(), o)
		t.Log(name, os.Geteuid(), err, i.Layers())
		_ = tko.LayerOn
	}
}
