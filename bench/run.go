package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
)

// Options configure what to measure.
type Options struct {
	Clients     int    // number of concurrent clients
	Register    int    // sites registered one by one
	Create      int    // deployments created one by one
	Deployments int    // of the fleet that is filled first
	Sites       int    // of that fleet
	Seed        uint64 // of that fleet
	Placements  []int  // sites of each placement
	Samples     int    // number of samples of a latency
	Watchers    int    // of the change feed
	Dependents  int    // deployments of the template and of the parent that are deleted
	Missed      int    // changes that a watch has missed when it resumes; all if fewer
	Prepared    int    // deployments that a plugin prepares
	Backlog     int    // deployments that preparers prepare without plugins
	Inventory   int    // sites of an inventory
	Catalog     int    // packages of a catalog
	Planned     int    // deployments of a rollout that is planned
	StreamSites int    // sites of a list
	// StreamDeployments is the number of deployments of a list; those of the fleet if
	// fewer.
	StreamDeployments int
	Python            string         // environment of plugins in Python; they aren't measured if empty
	Idle              time.Duration  // how long to measure an idle system
	PreparerWait      time.Duration  // how long to wait for progress of a preparer
	Rows              *regexp.Regexp // which rows to measure; all if nil
}

// A Target is a server to measure. Without the optional fields, some rows are reported
// as not measured.
type Target struct {
	Address string // of its gRPC API

	Web  func() string // returns the address of its HTTP API, which a restart may change
	PID  int           // of the data controller's process on this machine, or 0
	DSN  string        // of its PostgreSQL database, or ""
	File string        // its SQLite database, or ""

	// Preparers starts n preparers, and returns their processes and a function that
	// stops them. If nil, the running preparers are measured.
	Preparers func(ctx context.Context, n int) (pids []int, stop func(), err error)
	// GitOps starts a server of the role gitops with a file of sources, and returns its
	// process and a function that stops it.
	GitOps func(ctx context.Context, sources []byte) (pid int, stop func(), err error)
	// Restart restarts the data controller. started is the start time of the new
	// process.
	Restart func(ctx context.Context) (address string, pid int, started time.Time, err error)
	// Fresh starts another server with an empty database, of the role data alone or of
	// all roles, and returns a function that stops it.
	Fresh func(ctx context.Context, allRoles bool) (address string, pid int, stop func(), err error)
}

// A step measures some rows.
type step struct {
	rows []string // the rows that do adds, in order
	do   func(context.Context) error
}

type run struct {
	Options
	Target
	raw      *Raw
	fleet    Fleet
	client   *client.Client
	database *database
	report   func(string)
	table    Table

	started   time.Time          // start of the server's process
	sampled   []tko.DeploymentID // IDs at equal distances, in order
	probed    bool               // prepares is known
	prepares  bool               // a running preparer prepares deployments
	dependent tko.DeploymentID   // the parent of the deployments that depend on one template
}

// stepTime is the time limit of a step.
const stepTime = 30 * time.Minute

// Run measures a target, and raw PostgreSQL if raw is not nil, and reports its progress.
// It fills the fleet first, which stays. A row that can't be measured reports the
// reason. The error is nil if the server only lacks a method, and names the failed rows
// otherwise.
func Run(ctx context.Context, target Target, raw *Raw, o Options, report func(string)) (Table, error) {
	r := &run{Options: o, Target: target, raw: raw, report: report, fleet: Fleet{Seed: o.Seed, Sites: o.Sites, Deployments: o.Deployments}}
	if err := r.dial(); err != nil {
		return Table{}, err
	}
	defer func() { _ = r.client.Close() }()
	about, err := r.client.About(ctx)
	if err != nil {
		return Table{}, err
	}
	r.table.Backend = about.Backend
	if r.table.Backend == "" {
		r.table.Backend = target.Address
	}
	if target.DSN != "" {
		conn, err := pgx.Connect(ctx, target.DSN)
		if err != nil {
			return Table{}, err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		r.database = &database{conn}
	}
	if err := r.fill(ctx); err != nil {
		return r.table, fmt.Errorf("fill: %w", err)
	}
	var failed error
	for _, s := range r.steps() {
		if !r.wanted(s.rows) {
			continue
		}
		report(r.table.Backend + ": " + s.rows[0])
		limited, cancel := context.WithTimeout(ctx, stepTime)
		err := s.do(limited)
		cancel()
		if err != nil {
			r.missing(s.rows, err)
			if known := (*notMeasuredError)(nil); !errors.As(err, &known) && !unimplemented(err) {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", s.rows[0], err))
			}
		}
		if ctx.Err() != nil {
			return r.table, ctx.Err()
		}
	}
	return r.table, failed
}

func (r *run) dial() (err error) {
	if r.client != nil {
		_ = r.client.Close()
	}
	r.client, err = client.Dial(client.Options{Address: r.Address, WaitForReady: true, Author: tko.Author{Who: "tko-bench"}})
	return err
}

func (r *run) steps() []step {
	steps := []step{
		{[]string{rowChildren(r.Dependents), rowDisk}, r.children},
		{[]string{rowStart}, r.start},
		{[]string{rowStream, rowMemory}, r.stream},
	}
	steps = append(steps, r.firstRows()...)
	steps = append(
		steps,
		step{slices.Concat(rowsGet(r.Clients), rowsGet(manyClients)), r.get},
		step{[]string{rowRegister, rowRegisterAll}, r.register},
		step{[]string{rowCreate(1), rowCreate(manyTemplates)}, r.create},
		step{[]string{rowModification(r.Clients)}, r.modify},
		step{[]string{rowBlame, rowBlameCost}, r.blame},
		step{[]string{
			rowStreamSites(r.StreamSites), rowGrowth(rowStreamSites(r.StreamSites)),
			rowStreamDeployments(r.streamed()), rowGrowth(rowStreamDeployments(r.streamed())), rowPurge(r.StreamSites),
		}, r.streams},
		step{[]string{rowPlan(r.Planned), rowGrowth(rowPlan(r.Planned)), rowPlanStatus(r.Planned), rowApply(r.Planned), rowUndo(r.Planned)}, r.plans},
		step{[]string{rowPastFirst, rowPastSites, rowPastList, rowDiff(r.pastChanges()), rowPastDisk, rowPastWrite}, r.past},
		step{[]string{rowWebPage, rowWebOverview, rowWebCount, rowWebCost, rowWebChange}, r.web},
		step{[]string{rowWatch(r.Watchers)}, r.watch},
		step{[]string{rowResume}, r.resume},
		step{[]string{rowDeleteTemplate(r.Dependents), rowDeleteParent(r.Dependents)}, r.deletes},
		step{[]string{rowPrepare(1), rowPrepare(2), rowPrepared}, r.prepare},
		step{[]string{rowWaiting(r.Prepared, 1), rowWaiting(r.Prepared, 2), rowWaiting(r.Prepared, 4)}, r.waiting},
		step{[]string{rowPython(r.Prepared, false), rowPython(r.Prepared, true)}, r.python},
	)
	for _, n := range r.Placements {
		steps = append(steps, step{
			[]string{rowPlaced(n), rowAllPrepared(n, 1), rowAllPrepared(n, 2)},
			func(ctx context.Context) error { return r.placement(ctx, n) },
		})
	}
	return append(
		steps,
		step{[]string{rowTransactions, rowProcessor}, r.idle},
		step{[]string{rowInventory(r.Inventory, false), rowInventory(r.Inventory, true)}, r.inventory},
		step{[]string{rowCatalog(r.Catalog, false), rowCatalog(r.Catalog, true)}, r.catalog},
	)
}

// wanted reports whether one of some rows is selected.
func (r *run) wanted(rows []string) bool {
	for _, row := range rows {
		if r.Rows == nil || r.Rows.MatchString(row) {
			return true
		}
	}
	return false
}

func (r *run) add(row Row) {
	if !r.wanted([]string{row.What}) {
		return
	}
	r.table.Rows = append(r.table.Rows, row)
	text := row.value()
	if row.Missing != "" {
		text += ": " + row.Missing
	}
	r.report(fmt.Sprintf("  %s: %s %s", row.What, text, row.Note))
}

// missing adds those rows of a step that have no value.
func (r *run) missing(rows []string, err error) {
	reason := "failed: " + err.Error()
	if known := (*notMeasuredError)(nil); errors.As(err, &known) {
		reason = known.why
	} else if unimplemented(err) {
		reason = "the server lacks the method: " + err.Error()
	}
	for _, what := range rows {
		if _, ok := r.table.Row(what); !ok {
			r.add(Row{What: what, Missing: reason})
		}
	}
}

// A notMeasuredError is the reason why a row can't be measured at this server.
type notMeasuredError struct{ why string }

func (e *notMeasuredError) Error() string { return e.why }

func (r *run) fill(ctx context.Context) error {
	filled, err := Fill(ctx, r.client, r.fleet, FillOptions{Clients: r.Clients, Report: func(text string) { r.report("  " + text) }})
	if err != nil {
		return err
	}
	if filled.Created > 0 {
		r.report(fmt.Sprintf("  filled in %d deployments in %s", filled.Created, short(filled.Took)))
	}
	return nil
}

// parallel calls do with 0 … n-1 from a number of clients, and returns the rate.
func parallel(ctx context.Context, clients, n int, do func(context.Context, int) error) (perSecond float64, err error) {
	var next atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range max(1, clients) {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	err = group.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

var errNoRow = errors.New("no row matches, want one at least")

// first reads the first row and stops. An empty list is an error: the measurement would
// have another meaning.
func first[T any](rows iter.Seq2[T, error]) error {
	for _, err := range rows {
		return err
	}
	return errNoRow
}

// Limits of a series of samples: it ends early if it takes long.
const (
	minSamples = 10
	sampleTime = 10 * time.Second
)

// sample measures how long do takes, n times, or fewer if that takes too long.
func sample(ctx context.Context, n int, do func(context.Context) error) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	start := time.Now()
	for range n {
		began := time.Now()
		if err := do(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		if len(took) >= minSamples && time.Since(start) > sampleTime {
			break
		}
	}
	return took, nil
}

// latency returns a row with the 99th percentile.
func latency(what string, took []time.Duration, aim time.Duration) Row {
	return Row{
		What: what, Value: quantile(took, 99).Seconds(), Unit: Seconds, Aim: aim.Seconds(),
		Note: fmt.Sprintf("p99; p50 %s, %d samples", short(quantile(took, 50)), len(took)),
	}
}

// rate returns a row with a rate, and its ratio to raw PostgreSQL's.
func rate(what string, perSecond, raw float64, of string) Row {
	row := Row{What: what, Value: perSecond, Unit: PerSecond}
	if raw > 0 {
		row.Note = fmt.Sprintf("%.2f of %s", perSecond/raw, of)
	}
	return row
}

const rawInserts = "raw single-row INSERTs"

// pause waits. It returns an error if the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
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
