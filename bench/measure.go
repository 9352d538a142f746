package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
)

// A cost is processor time by program. Unknown ones are 0.
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

// A measurement is what n operations took together.
type measurement struct {
	n    int
	took time.Duration
	used cost
}

// begin begins a measurement. end ends it after n operations.
func (r *run) begin(ctx context.Context) (end func(n int) measurement) {
	before, began := r.cost(ctx), time.Now()
	return func(n int) measurement {
		m, now := measurement{n: n, took: time.Since(began)}, r.cost(ctx)
		m.used = cost{now.client - before.client, now.server - before.server, now.database - before.database}
		return m
	}
}

func (m measurement) perSecond() float64 { return float64(m.n) / m.took.Seconds() }

// each returns the processor time of one operation.
func (m measurement) each() cost {
	n := time.Duration(max(1, m.n))
	return cost{m.used.client / n, m.used.server / n, m.used.database / n}
}

// String returns the processor time of one operation.
func (m measurement) String() string { return m.each().String() }

// A peer is a client of the server.
type peer struct {
	*client.Client
	data tkopb.DataClient // of the same connection: without decoding packages and metadata
}

// connect returns clients. Each has a connection of its own, as clients in different
// processes do.
func (r *run) connect(ctx context.Context, clients int) (peers []peer, closeAll func(), err error) {
	var conns []*grpc.ClientConn
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for range max(1, clients) {
		conn, err := grpc.NewClient("passthrough:///"+r.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, conn)
		c, err := client.New(conn, client.Options{WaitForReady: true, Author: author})
		if err == nil {
			_, err = c.About(ctx)
		}
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		peers = append(peers, peer{c, tkopb.NewDataClient(conn)})
	}
	return peers, closeAll, nil
}

// load measures calls of do with 0 … n-1 from a number of new clients, after some calls to
// warm up. Failed calls are counted, and reported together at the end.
func (r *run) load(ctx context.Context, clients, warmUp, n int, do func(ctx context.Context, p peer, i int) error) (m measurement, err error) {
	peers, closeAll, err := r.connect(ctx, clients)
	if err != nil {
		return m, err
	}
	defer closeAll()
	if err := callAll(ctx, peers, warmUp, do); err != nil {
		return m, err
	}
	end := r.begin(ctx)
	err = callAll(ctx, peers, n, do)
	return end(n), err
}

func callAll(ctx context.Context, peers []peer, n int, do func(ctx context.Context, p peer, i int) error) error {
	var next, failed atomic.Int64
	var one atomic.Pointer[error]
	_, err := parallel(ctx, len(peers), len(peers), func(ctx context.Context, p int) error {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := do(ctx, peers[p], i); err != nil {
				failed.Add(1)
				one.CompareAndSwap(nil, &err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if one.Load() != nil {
		err = errors.Join(err, fmt.Errorf("%d of %d calls failed, one with: %w", failed.Load(), n, *one.Load()))
	}
	return err
}

// parallel calls do with 0 … n-1 from a number of clients, and returns the rate.
func parallel(ctx context.Context, clients, n int, do func(context.Context, int) error) (perSecond float64, err error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, clients))
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(ctx, i)
		})
	}
	err = group.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

var errNoRow = errors.New("no row matches, want one at least")

// first reads the first row and stops. An empty list is an error: the measurement would
// have another meaning.
func first[T any](rows iter.Seq2[T, error]) (T, error) {
	for row, err := range rows {
		return row, err
	}
	return *new(T), errNoRow
}

// firstOf returns the error of [first].
func firstOf[T any](rows iter.Seq2[T, error]) error {
	_, err := first(rows)
	return err
}

// count reads all rows.
func count[T any](rows iter.Seq2[T, error]) (n int, err error) {
	for _, err := range rows {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// upTo returns the options of a list of at most n rows.
func upTo(n int) tko.ListOptions { return tko.ListOptions{Window: tko.Window{Max: &n}} }

// Limits of a series of samples: it ends early if it takes long.
const (
	minSamples = 10
	sampleTime = 10 * time.Second
)

// sample measures how long do takes, n times, or fewer if that takes too long.
func sample(ctx context.Context, n int, do func(context.Context) error) ([]time.Duration, error) {
	return collect(n, func() (time.Duration, error) {
		began := time.Now()
		err := do(ctx)
		return time.Since(began), err
	})
}

// collect collects n durations, or fewer if that takes too long.
func collect(n int, one func() (time.Duration, error)) ([]time.Duration, error) {
	all := make([]time.Duration, 0, n)
	for start := time.Now(); len(all) < n && (len(all) < minSamples || time.Since(start) <= sampleTime); {
		took, err := one()
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// A stopwatch collects durations. It is safe for concurrent use.
type stopwatch struct {
	lock sync.Mutex
	took []time.Duration
}

func (s *stopwatch) add(d time.Duration) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.took = append(s.took, d)
}

// latency returns a row with the 99th percentile.
func latency(what string, took []time.Duration, aim time.Duration) Row {
	return Row{
		What: what, Value: quantile(took, 99).Seconds(), Unit: Seconds, Aim: aim.Seconds(),
		Note: fmt.Sprintf("p99; p50 %s, %d samples", short(quantile(took, 50)), len(took)),
	}
}

// duration returns a row with a duration.
func duration(what string, took, aim time.Duration, note string) Row {
	return Row{What: what, Value: took.Seconds(), Unit: Seconds, Aim: aim.Seconds(), Note: note}
}

// rate returns a row with a rate, and its ratio to that of something else, of which a part
// is the aim.
func rate(what string, perSecond, other float64, of string, aim float64) Row {
	row := Row{What: what, Value: perSecond, Unit: PerSecond, Aim: aim * other}
	if other > 0 {
		row.Note = fmt.Sprintf("%.2f of %s", perSecond/other, of)
	}
	return row
}

const rawInserts = "raw single-row INSERTs"

// with returns the row with further facts in its note.
func (r Row) with(facts ...string) Row {
	r.Note = strings.Join(slices.DeleteFunc(append([]string{r.Note}, facts...), func(fact string) bool { return fact == "" }), "; ")
	return r
}

// errNoProcess is the reason why rows of the server's process are missing.
var errNoProcess = &notMeasuredError{"the server's process is not known: set -pid"}

// processor returns a row with the server's processor time of one operation.
func (r *run) processor(what string, m measurement, aim time.Duration, note string) Row {
	if r.PID == 0 {
		return Row{What: what, Missing: errNoProcess.why}
	}
	return duration(what, m.each().server, aim, note)
}

// memory returns a row with the growth of the server's memory while do runs.
func (r *run) memory(what string, do func() error) (Row, error) {
	idle := resident(r.PID)
	stop := watchResident(r.PID)
	err := do()
	peak := stop()
	if r.PID == 0 || idle == 0 {
		return Row{What: what, Missing: errNoProcess.why}, err
	}
	return Row{What: what, Value: float64(max(0, peak-idle)), Unit: Bytes, Aim: 64e6, Note: fmt.Sprintf("to %d MB at the most", peak/1e6)}, err
}
