package spanner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	code := spannertest.Main(m)
	process.Clean()
	os.Exit(code)
}

// dial connects a client that retries until its server is available.
func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{Address: address, WaitForReady: true, Author: tko.Author{Who: "test", Why: t.Name()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	t.Cleanup(cancel)
	return ctx
}

// freeAddress returns an address for a server that is started again. No outgoing connection gets its port meanwhile: those have ports
// from 32768 on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 16_000+rand.IntN(16_000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

func parse(t *testing.T, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
