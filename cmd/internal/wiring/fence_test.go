package wiring

import (
	"context"
	"errors"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/sibling/siblingtest"
)

// The program of the clusters asks the fence of the server's call, before each object, and gets
// the same kind of error; after the call, it may begin nothing.
func TestFenceReachesTheProgramOfTheClusters(t *testing.T) {
	t.Parallel()
	clusters := &Clusters{}
	server := siblingtest.Connect(t, clusters.Methods())
	var stopped error
	name, end := clusters.fenced(fence.With(t.Context(), func(context.Context) error { return stopped }))
	there := Fence(t.Context(), server, name)
	if err := fence.Check(there); err != nil {
		t.Errorf("an open fence: %v", err)
	}
	stopped = fence.NewError(tko.Errorf(tko.ErrStopped, "storm"))
	if err := fence.Check(there); !fence.Is(err) || !errors.Is(err, tko.ErrStopped) || err.Error() != "storm" {
		t.Errorf("a closed fence: %v", err)
	}
	if err := closed(tko.Errorf(tko.ErrStopped, "storm")); !fence.Is(err) {
		t.Errorf("the error of the call isn't one of the fence: %v", err)
	}
	stopped = nil
	end()
	if err := fence.Check(there); !fence.Is(err) {
		t.Errorf("after the call: %v", err)
	}
}
