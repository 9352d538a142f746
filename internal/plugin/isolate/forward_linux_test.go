package isolate

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// A program may end as soon as it has sent its last bytes, before they are accepted.
func TestLastBytesOfAProgramAreForwardedAfterItsEnd(t *testing.T) {
	t.Parallel()
	inside, server := listen(t), listen(t)
	for range 3 {
		c, err := net.Dial("tcp", inside.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("the last line\n")); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_ = inside.(*net.TCPListener).SetDeadline(time.Unix(1, 0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward(ended, inside, server.Addr().String(), time.Hour)
	}()
	for range 3 {
		_ = server.(*net.TCPListener).SetDeadline(time.Now().Add(eventually.Limit))
		c, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); err != nil || string(text) != "the last line\n" {
			t.Errorf("%q, %v", text, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	<-done
}

// A server that neither reads nor closes a connection doesn't delay the end of a run beyond the limit.
func TestForwardingEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	inside, server := listen(t), listen(t)
	c, err := net.Dial("tcp", inside.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	forward(ended, inside, server.Addr().String(), 50*time.Millisecond)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
