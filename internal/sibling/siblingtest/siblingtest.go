// Package siblingtest connects the two sides of a sibling program inside one test.
package siblingtest

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko/internal/sibling"
)

// Connect serves methods and returns a peer that calls them, until the test ends.
func Connect(t testing.TB, methods sibling.Endpoint) *sibling.Peer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := new(net.Dialer).DialContext(t.Context(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	peer, err := sibling.NewPeer("the other side", near)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = methods.Serve(t.Context(), "this side", far) })
	t.Cleanup(func() {
		peer.Close()
		_ = far.Close()
		serving.Wait()
	})
	return peer
}
