package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	rowPrepared     = "create to prepared, idle"
	rowTransactions = "idle: SQL transactions"
	rowProcessor    = "idle: processor time of the servers"
)

// numbered returns a number of preparers.
func numbered(preparers int) string {
	if preparers == 1 {
		return "one preparer"
	}
	return fmt.Sprintf("%d preparers", preparers)
}

func rowsPlacement(sites int) []string {
	what := fmt.Sprintf("placement on %d sites: ", sites)
	return []string{what + "children there", what + "all prepared, " + numbered(1), what + "all prepared, " + numbered(2)}
}

// rowsPrepare are the rows of backlogs, of one preparer and of two.
var rowsPrepare = []string{"prepare, one preparer", "prepare, two preparers"}

// twoPreparersNeed is the number of processors from which two preparers can be faster than
// one, next to the data controller, the database and the benchmark.
const twoPreparersNeed = 4

// errNoPreparers is the reason why rows of several preparers are missing.
var errNoPreparers = &notMeasuredError{"the benchmark can't start preparers at a running server"}

// withPreparers starts preparers, or uses the running ones, while do runs. do gets the
// processes that were started.
func (r *run) withPreparers(ctx context.Context, n int, do func(pids []int) error) error {
	if r.Preparers == nil {
		if err := r.probe(ctx); err != nil {
			return err
		}
		return do(nil)
	}
	pids, stop, err := r.Preparers(ctx, n)
	if err != nil {
		return err
	}
	defer stop()
	return do(pids)
}

// probe finds out whether deployments are prepared at a server whose preparers the
// benchmark doesn't start.
func (r *run) probe(ctx context.Context) error {
	if !r.probed {
		r.probed = true
		limited, cancel := context.WithTimeout(ctx, r.PreparerWait)
		defer cancel()
		id, err := r.createPrepared(limited, r.frequent())
		r.prepares = err == nil
		if err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil { // the server may report the deadline first
			return errors.Join(err, ctx.Err())
		}
		if err := r.discard(ctx, id); err != nil {
			return err
		}
	}
	if !r.prepares {
		return &notMeasuredError{"no preparer works for this server: start one"}
	}
	return ctx.Err()
}

// drain waits until no deployment that can be prepared is unprepared, and returns how
// many were.
func (r *run) drain(ctx context.Context) (waited int, took time.Duration, err error) {
	no := false
	unprepared := func(o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
		return r.client.Deployments(ctx, tko.DeploymentSelect{Prepared: &no}, o)
	}
	began := time.Now()
	if waited, err = count(unprepared(tko.ListOptions{})); err != nil || waited == 0 {
		return waited, 0, err
	}
	for last, since := waited, time.Now(); ; {
		err := firstOf(unprepared(upTo(1)))
		if errors.Is(err, errNoRow) {
			return waited, time.Since(began), nil
		}
		if err = errors.Join(err, pause.For(ctx, 50*time.Millisecond)); err != nil {
			return waited, 0, err
		}
		if time.Since(since) < r.PreparerWait {
			continue
		}
		n, err := count(unprepared(tko.ListOptions{}))
		switch {
		case err != nil:
			return waited, 0, err
		case n == last:
			return waited, 0, fmt.Errorf("%d of %d deployments can't be prepared: see their conditions", n, waited)
		}
		last, since = n, time.Now()
	}
}

// createPrepared creates a deployment of the fleet's most frequent function, and waits
// until it is prepared.
func (r *run) createPrepared(ctx context.Context, template tko.TemplateID) (tko.DeploymentID, error) {
	id, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: template})
	for err == nil {
		var d tko.Deployment
		if d, err = r.client.Deployment(ctx, id, 0); err != nil || d.Prepared {
			break
		}
		if waiting, ok := tko.WaitingOf(d.Stamp.Conditions); ok { // a large topology needs consent
			if _, err = r.client.ApproveDeployment(tko.WithConfirmation(ctx, waiting.Count()), id); err != nil && !errors.Is(err, tko.ErrInvalid) {
				break
			}
		}
		err = pause.For(ctx, 500*time.Microsecond)
	}
	return id, err
}

// discard deletes a deployment and its descendants, and confirms their number.
func (r *run) discard(ctx context.Context, id tko.DeploymentID) error {
	would, err := r.client.PurgeDeployments(ctx, tko.DeploymentSelect{Parent: id}, true)
	if err != nil {
		return err
	}
	_, err = r.client.DeleteDeployment(tko.WithConfirmation(ctx, would.Count+1), id)
	return err
}

// prepare measures one preparer and two with a backlog, and then one with one deployment
// after the other on an idle system.
func (r *run) prepare(ctx context.Context) error {
	if err := r.prepareBacklogs(ctx); err != nil {
		return err
	}
	return r.withPreparers(ctx, 1, func([]int) error {
		if _, _, err := r.drain(ctx); err != nil || !r.wanted([]string{rowPrepared}) {
			return err
		}
		var made []tko.DeploymentID
		one := func(ctx context.Context) error {
			id, err := r.createPrepared(ctx, r.frequent())
			made = append(made, id)
			return err
		}
		if _, err := sample(ctx, 20, one); err != nil { // warm-up
			return err
		}
		times, err := sample(ctx, r.Samples, one)
		if err != nil {
			return err
		}
		r.add(duration(rowPrepared, quantile(times, 50), 25*time.Millisecond, fmt.Sprintf("p50; p99 %s, %d samples", short(quantile(times, 99)), len(times))))
		for _, id := range made {
			if err := r.discard(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// frequent returns the template of the fleet's most frequent function.
func (r *run) frequent() tko.TemplateID { return r.fleet.template("upf", Stable) }

// prepareBacklogs measures how long preparers take for deployments that were created
// before the preparers were started.
func (r *run) prepareBacklogs(ctx context.Context) error {
	if !r.wanted(rowsPrepare) {
		return nil
	}
	if r.Preparers == nil {
		r.missing(rowsPrepare, errNoPreparers)
		return nil
	}
	if err := r.drainFleet(ctx); err != nil {
		return err
	}
	var one float64
	for i, what := range rowsPrepare {
		rate, spent, err := r.prepareBacklog(ctx, i+1)
		if err != nil {
			return err
		}
		row := Row{What: what, Value: rate, Unit: PerSecond}
		switch {
		case i == 0:
			one, row.Aim = rate, 3000
		case runtime.NumCPU() >= twoPreparersNeed:
			row.Aim = 1.5 * one
			row.Note = fmt.Sprintf("%.2f times one", rate/one)
		default:
			row.Note = fmt.Sprintf("%.2f times one; %d processors have no room for more", rate/one, runtime.NumCPU())
		}
		r.add(row.with(spent))
	}
	return nil
}

// drainFleet prepares what waits already, and waits until the work of deleted
// deployments is done, too: a new deployment is prepared after it.
func (r *run) drainFleet(ctx context.Context) error {
	return r.withPreparers(ctx, 1, func([]int) error {
		if _, _, err := r.drain(ctx); err != nil {
			return err
		}
		id, err := r.createPrepared(ctx, r.frequent())
		if id != "" {
			err = errors.Join(err, r.discard(ctx, id))
		}
		return err
	})
}

func (r *run) prepareBacklog(ctx context.Context, preparers int) (perSecond float64, spent string, err error) {
	made, err := r.newDeployments(ctx, manyTemplates, r.Backlog)
	defer func() { err = errors.Join(err, made.purge(ctx)) }()
	if err != nil {
		return 0, "", err
	}
	end := r.begin(ctx)
	err = r.withPreparers(ctx, preparers, func(pids []int) error {
		started := processorTimes(pids)
		waited, took, err := r.drain(ctx)
		if err == nil && waited == 0 {
			err = errors.New("all deployments were prepared before the measurement began: set -backlog to more")
		}
		if err != nil {
			return err
		}
		used := processorTimes(pids) - started
		perSecond = float64(waited) / took.Seconds()
		spent = fmt.Sprintf("%d in %s; %s, preparers %s", waited, short(took), end(r.Backlog), short(used/time.Duration(waited)))
		return nil
	})
	return perSecond, spent, err
}

const placementTopology = `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: workload}
spec: {templateId: %q}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: sites}
spec: {select: {metadata: {fleet: %q}}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: workload, sites: [sites]}]}
`

// placement places a template on its own sites, with one preparer and then with two.
func (r *run) placement(ctx context.Context, n int) (err error) {
	if r.Preparers == nil {
		if err := r.probe(ctx); err != nil {
			return err
		}
	}
	rows, own := rowsPlacement(n), r.scope("placed")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	if _, err := own.registerSites(ctx, n, tko.Site{Metadata: map[string]string{"fleet": own.name}}); err != nil {
		return err
	}
	p, err := decode(fmt.Sprintf(placementTopology, r.frequent(), own.name))
	if err != nil {
		return err
	}
	template, err := own.template(ctx, "topology", p, nil)
	if err != nil {
		return err
	}
	note := func(took time.Duration) string { return fmt.Sprintf("%.0f/s", float64(n)/took.Seconds()) }
	var one time.Duration
	for _, preparers := range []int{1, 2} {
		if preparers == 2 && r.Preparers == nil {
			return errNoPreparers
		}
		placed, prepared, err := r.place(ctx, template, n, preparers)
		if err != nil {
			return err
		}
		row := duration(rows[preparers], prepared, time.Duration(n)*2*time.Millisecond, note(prepared))
		if preparers == 1 {
			one = prepared
			r.add(duration(rows[0], placed, time.Duration(n)*time.Millisecond/2, note(placed)))
		} else {
			row.Note += fmt.Sprintf(", %.2f times one", one.Seconds()/prepared.Seconds())
		}
		r.add(row)
	}
	return nil
}

// place measures one placement, checks the number of its children, and removes them.
func (r *run) place(ctx context.Context, template tko.TemplateID, n, preparers int) (placed, prepared time.Duration, err error) {
	err = r.withPreparers(ctx, preparers, func([]int) error {
		began := time.Now()
		parent, err := r.createPrepared(ctx, template) // the placement is prepared when all children exist
		if err != nil {
			return err
		}
		placed = time.Since(began)
		children := func(prepared bool, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
			return r.client.Deployments(ctx, tko.DeploymentSelect{Parent: parent, Prepared: &prepared}, o)
		}
		for {
			err := firstOf(children(false, upTo(1)))
			if errors.Is(err, errNoRow) {
				break
			}
			if err = errors.Join(err, pause.For(ctx, 20*time.Millisecond)); err != nil {
				return err
			}
		}
		prepared = time.Since(began)
		if have, err := count(children(true, tko.ListOptions{})); err != nil || have != n {
			return errors.Join(err, fmt.Errorf("%d children are prepared, want %d", have, n))
		}
		_, err = r.client.DeleteDeployment(tko.WithConfirmation(ctx, n+1), parent)
		return err
	})
	return placed, prepared, err
}

// An idle system has settled when it has at most about a transaction per second, or
// after settleRounds.
const (
	settleTime   = 12 * time.Second
	settleRounds = 5
)

// idle measures a system without work.
func (r *run) idle(ctx context.Context) error {
	if r.database == nil && r.PID == 0 {
		return &notMeasuredError{"neither the server's database nor its process is known: set -dsn and -pid"}
	}
	return r.withPreparers(ctx, 1, func(pids []int) error {
		if _, _, err := r.drain(ctx); err != nil {
			return err
		}
		if r.PID != 0 {
			pids = append(pids, r.PID)
		}
		return r.idleProcesses(ctx, pids)
	})
}

func (r *run) idleProcesses(ctx context.Context, pids []int) error {
	transactions := func() (int64, error) {
		if r.database == nil {
			return 0, nil
		}
		return r.database.transactions(ctx)
	}
	before, err := transactions()
	if err != nil {
		return err
	}
	for range settleRounds { // PostgreSQL's statistics are delayed
		wait := min(r.Idle, settleTime)
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		last := before
		if before, err = transactions(); err != nil {
			return err
		}
		if before-last-1 < int64(wait/time.Second)+1 {
			break
		}
	}
	processor, began := processorTimes(pids), time.Now()
	if err := pause.For(ctx, r.Idle); err != nil {
		return err
	}
	processor = processorTimes(pids) - processor
	took := time.Since(began)
	after, err := transactions()
	if err != nil {
		return err
	}
	note := fmt.Sprintf("over %s, %d deployments", short(took), r.Deployments)
	if r.database == nil {
		r.add(Row{What: rowTransactions, Missing: "the server's PostgreSQL database is not known: set -dsn"})
	} else {
		// The first query of the statistics is among them.
		r.add(Row{What: rowTransactions, Value: float64(max(0, after-before-1)) / took.Seconds(), Unit: Frequency, Aim: 1, Note: note})
	}
	if r.PID == 0 {
		return errNoProcess
	}
	r.add(Row{What: rowProcessor, Value: 100 * processor.Seconds() / took.Seconds(), Unit: Percent, Aim: 1, Note: note})
	return nil
}
