package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
)

// A load is a number of clients of one server. Each has a connection of its own, as
// clients in different processes do.
type load struct {
	conns   []*grpc.ClientConn
	clients []*client.Client
	data    []tkopb.DataClient // of the same connections: without decoding packages and metadata
}

// newLoad connects clients with a server.
func newLoad(ctx context.Context, address string, clients int) (*load, error) {
	l := &load{}
	for range max(1, clients) {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, conn)
		c, err := client.New(conn, client.Options{WaitForReady: true, Author: tko.Author{Who: "tko-bench"}})
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients, l.data = append(l.clients, c), append(l.data, tkopb.NewDataClient(conn))
		if _, err := c.About(ctx); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// run calls do with 0 … n-1 from all clients, and returns the rate. do gets the number
// of the client, too. Failed calls are counted, and reported together at the end.
func (l *load) run(ctx context.Context, n int, do func(ctx context.Context, client, i int) error) (perSecond float64, err error) {
	var next, failed atomic.Int64
	var one atomic.Pointer[error]
	perSecond, err = parallel(ctx, len(l.conns), len(l.conns), func(ctx context.Context, client int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if err := do(ctx, client, i); err != nil {
				failed.Add(1)
				one.CompareAndSwap(nil, &err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	})
	if one.Load() != nil {
		err = errors.Join(err, fmt.Errorf("%d of %d calls failed, one with: %w", failed.Load(), n, *one.Load()))
	}
	return perSecond * float64(n) / float64(len(l.conns)), err
}

// A cost is the processor time of a number of calls, by program. Unknown ones are 0.
type cost struct{ client, server, database time.Duration }

// cost returns the processor time that all programs have used so far.
func (r *run) cost(ctx context.Context) (c cost) {
	c.client = processorTime(os.Getpid())
	if r.PID != 0 {
		c.server = processorTime(r.PID)
	}
	if r.database != nil {
		c.database = r.database.processorTime(ctx)
	}
	return c
}

// since returns the processor time per call since an earlier cost.
func (r *run) since(ctx context.Context, before cost, calls int) cost {
	now, n := r.cost(ctx), time.Duration(max(1, calls))
	return cost{(now.client - before.client) / n, (now.server - before.server) / n, (now.database - before.database) / n}
}

func (c cost) String() string {
	var parts []string
	for _, part := range []struct {
		what string
		took time.Duration
	}{{"server", c.server}, {"database", c.database}, {"clients", c.client}} {
		if part.took > 0 {
			parts = append(parts, part.what+" "+short(part.took))
		}
	}
	if len(parts) == 0 {
		return "processor time unknown"
	}
	return "processor time each: " + strings.Join(parts, ", ")
}

// also adds a fact to a row's note.
func (r *Row) also(fact string) {
	if r.Note != "" {
		r.Note += "; "
	}
	r.Note += fact
}
