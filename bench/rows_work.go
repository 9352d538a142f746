package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tko-orchestrator/tko"
)

const (
	rowPrepared     = "create to prepared, idle"
	rowTransactions = "idle: SQL transactions"
	rowProcessor    = "idle: processor time of the servers"
)

func rowPrepare(preparers int) string {
	if preparers == 1 {
		return "prepare, one preparer"
	}
	return "prepare, two preparers"
}

// Aims of preparers.
const (
	aimPrepare      = 3000
	aimTwoPreparers = 1.5 // times one, where the processors allow it

	// twoPreparersNeed is the number of processors from which two preparers can be
	// faster than one, next to the data controller, the database and the benchmark.
	twoPreparersNeed = 4
)

func rowPlaced(n int) string { return fmt.Sprintf("placement on %d sites: children there", n) }

func rowAllPrepared(n, preparers int) string {
	if preparers == 1 {
		return fmt.Sprintf("placement on %d sites: all prepared, one preparer", n)
	}
	return fmt.Sprintf("placement on %d sites: all prepared, %d preparers", n, preparers)
}

// preparers starts preparers, or uses the running ones.
func (r *run) preparers(ctx context.Context, n int) (pids []int, stop func(), err error) {
	if r.Preparers == nil {
		return nil, func() {}, r.probe(ctx)
	}
	return r.Preparers(ctx, n)
}

// probe finds out whether deployments are prepared at a server whose preparers the
// benchmark doesn't start.
func (r *run) probe(ctx context.Context) error {
	if r.Preparers != nil {
		return nil
	}
	if !r.probed {
		r.probed = true
		id, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: r.fleet.template("upf", Stable)})
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, r.PreparerWait)
		defer cancel()
		err = r.untilPrepared(limited, id)
		r.prepares = err == nil
		if err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil { // the server may report the deadline first
			return errors.Join(err, ctx.Err())
		}
		if _, err := r.client.DeleteDeployment(ctx, id); err != nil {
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
	count := func() (n int, err error) {
		for _, err := range r.client.Deployments(ctx, tko.DeploymentSelect{Prepared: &no}, tko.ListOptions{}) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	}
	began, one := time.Now(), 1
	if waited, err = count(); err != nil || waited == 0 {
		return waited, 0, err
	}
	for last, since := waited, time.Now(); ; {
		err := first(r.client.Deployments(ctx, tko.DeploymentSelect{Prepared: &no}, tko.ListOptions{Window: tko.Window{Max: &one}}))
		if errors.Is(err, errNoRow) {
			return waited, time.Since(began), nil
		}
		if err = errors.Join(err, pause(ctx, 50*time.Millisecond)); err != nil {
			return waited, 0, err
		}
		if time.Since(since) < r.PreparerWait {
			continue
		}
		n, err := count()
		switch {
		case err != nil:
			return waited, 0, err
		case n == last:
			return waited, 0, fmt.Errorf("%d of %d deployments can't be prepared: see their conditions", n, waited)
		}
		last, since = n, time.Now()
	}
}

// prepare measures one preparer and two with a backlog, and then one with one deployment
// after the other on an idle system.
func (r *run) prepare(ctx context.Context) error {
	if err := r.prepareBacklogs(ctx); err != nil {
		return err
	}
	_, stop, err := r.preparers(ctx, 1)
	if err != nil {
		return err
	}
	defer stop()
	if _, _, err := r.drain(ctx); err != nil {
		return err
	}
	if !r.wanted([]string{rowPrepared}) {
		return nil
	}
	var made []tko.DeploymentID
	one := func(ctx context.Context) error {
		id, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: r.fleet.template("upf", Stable)})
		if err != nil {
			return err
		}
		made = append(made, id)
		return r.untilPrepared(ctx, id)
	}
	if _, err := sample(ctx, 20, one); err != nil { // warm-up
		return err
	}
	times, err := sample(ctx, r.Samples, one)
	if err != nil {
		return err
	}
	r.add(Row{
		What: rowPrepared, Value: quantile(times, 50).Seconds(), Unit: Seconds, Aim: 0.025,
		Note: fmt.Sprintf("p50; p99 %s, %d samples", short(quantile(times, 99)), len(times)),
	})
	for _, id := range made {
		if _, err := r.client.DeleteDeployment(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// prepareBacklogs measures how long preparers take for deployments that were created
// before the preparers were started.
func (r *run) prepareBacklogs(ctx context.Context) error {
	if !r.wanted([]string{rowPrepare(1), rowPrepare(2)}) {
		return nil
	}
	if r.Preparers == nil {
		for _, preparers := range []int{1, 2} {
			r.add(Row{What: rowPrepare(preparers), Missing: "the benchmark can't start preparers at a running server"})
		}
		return nil
	}
	if err := r.drainFleet(ctx); err != nil {
		return err
	}
	var one float64
	for _, preparers := range []int{1, 2} {
		rate, spent, err := r.prepareBacklog(ctx, preparers)
		if err != nil {
			return err
		}
		row := Row{What: rowPrepare(preparers), Value: rate, Unit: PerSecond}
		switch {
		case preparers == 1:
			one, row.Aim = rate, aimPrepare
		case runtime.NumCPU() >= twoPreparersNeed:
			row.Aim = aimTwoPreparers * one
			row.Note = fmt.Sprintf("%.2f times one", rate/one)
		default:
			row.Note = fmt.Sprintf("%.2f times one; %d processors have no room for more", rate/one, runtime.NumCPU())
		}
		row.also(spent)
		r.add(row)
	}
	return nil
}

// drainFleet prepares what waits already, and waits until the work of deleted
// deployments is done, too: a new deployment is prepared after it.
func (r *run) drainFleet(ctx context.Context) error {
	_, stop, err := r.preparers(ctx, 1)
	if err != nil {
		return err
	}
	defer stop()
	if _, _, err = r.drain(ctx); err != nil {
		return err
	}
	id, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: r.fleet.template("upf", Stable)})
	if err != nil {
		return err
	}
	err = r.untilPrepared(ctx, id)
	_, deleted := r.client.DeleteDeployment(ctx, id)
	return errors.Join(err, deleted)
}

func (r *run) prepareBacklog(ctx context.Context, preparers int) (perSecond float64, spent string, err error) {
	made, err := r.newDeployments(ctx, manyTemplates, r.Backlog)
	defer func() { err = errors.Join(err, made.purge(ctx)) }()
	if err != nil {
		return 0, "", err
	}
	before := r.cost(ctx)
	pids, stop, err := r.preparers(ctx, preparers)
	if err != nil {
		return 0, "", err
	}
	defer stop()
	started := time.Duration(0)
	for _, pid := range pids {
		started += processorTime(pid)
	}
	waited, took, err := r.drain(ctx)
	if err != nil {
		return 0, "", err
	}
	if waited == 0 {
		return 0, "", errors.New("all deployments were prepared before the measurement began: set -backlog to more")
	}
	used := -started
	for _, pid := range pids {
		used += processorTime(pid)
	}
	return float64(waited) / took.Seconds(), fmt.Sprintf("%d in %s; %s, preparers %s", waited, short(took), r.since(ctx, before, r.Backlog), short(used/time.Duration(waited))), nil
}

func (r *run) untilPrepared(ctx context.Context, id tko.DeploymentID) error {
	for {
		d, err := r.client.Deployment(ctx, id, 0)
		if err != nil || d.Prepared {
			return err
		}
		if err := pause(ctx, 500*time.Microsecond); err != nil {
			return err
		}
	}
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
func (r *run) placement(ctx context.Context, n int) error {
	if err := r.probe(ctx); err != nil {
		return err
	}
	name := r.name("placed")
	if _, err := parallel(ctx, r.Clients, n, func(ctx context.Context, i int) error {
		_, err := r.client.RegisterSite(ctx, tko.Site{ID: tko.SiteID(fmt.Sprintf("%s/site-%06d", name, i)), Metadata: map[string]string{"fleet": name}})
		return err
	}); err != nil {
		return err
	}
	p, err := decode(fmt.Sprintf(placementTopology, r.fleet.template("upf", Stable), name))
	if err != nil {
		return err
	}
	template := tko.TemplateID(name + "/topology")
	if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: template, Package: p}); err != nil {
		return err
	}
	var one time.Duration
	for _, preparers := range []int{1, 2} {
		if preparers == 2 && r.Preparers == nil {
			return &notMeasuredError{"the benchmark can't start preparers at a running server"}
		}
		placed, prepared, err := r.place(ctx, template, n, preparers)
		if err != nil {
			return err
		}
		aim := time.Duration(n) * 2 * time.Millisecond
		note := fmt.Sprintf("%.0f/s", float64(n)/prepared.Seconds())
		if preparers == 1 {
			one = prepared
			r.add(Row{
				What: rowPlaced(n), Value: placed.Seconds(), Unit: Seconds, Aim: (time.Duration(n) * time.Millisecond / 2).Seconds(),
				Note: fmt.Sprintf("%.0f/s", float64(n)/placed.Seconds()),
			})
		} else {
			note += fmt.Sprintf(", %.2f times one", one.Seconds()/prepared.Seconds())
		}
		r.add(Row{What: rowAllPrepared(n, preparers), Value: prepared.Seconds(), Unit: Seconds, Aim: aim.Seconds(), Note: note})
	}
	if err := purge(ctx, r.client.PurgeSites, tko.SiteSelect{IDs: []string{name + "/**"}}); err != nil {
		return err
	}
	_, err = r.client.DeleteTemplate(ctx, template)
	return err
}

// place measures one placement, checks the number of its children, and removes them.
func (r *run) place(ctx context.Context, template tko.TemplateID, n, preparers int) (placed, prepared time.Duration, err error) {
	_, stop, err := r.preparers(ctx, preparers)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	began := time.Now()
	parent, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: template})
	if err != nil {
		return 0, 0, err
	}
	if err := r.untilPrepared(ctx, parent); err != nil { // the placement is prepared when all children exist
		return 0, 0, err
	}
	placed = time.Since(began)
	yes, no, row := true, false, 1
	for {
		err := first(r.client.Deployments(ctx, tko.DeploymentSelect{Parent: parent, Prepared: &no}, tko.ListOptions{Window: tko.Window{Max: &row}}))
		if errors.Is(err, errNoRow) {
			break
		}
		if err = errors.Join(err, pause(ctx, 20*time.Millisecond)); err != nil {
			return 0, 0, err
		}
	}
	prepared = time.Since(began)
	count := 0
	for _, err := range r.client.Deployments(ctx, tko.DeploymentSelect{Parent: parent, Prepared: &yes}, tko.ListOptions{}) {
		if err != nil {
			return 0, 0, err
		}
		count++
	}
	if count != n {
		return 0, 0, fmt.Errorf("%d children are prepared, want %d", count, n)
	}
	_, err = r.client.DeleteDeployment(tko.WithConfirmation(ctx, n+1), parent)
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
	pids, stop, err := r.preparers(ctx, 1)
	if err != nil {
		return err
	}
	defer stop()
	if _, _, err := r.drain(ctx); err != nil {
		return err
	}
	if r.PID != 0 {
		pids = append(pids, r.PID)
	}
	used := func() (sum time.Duration) {
		for _, pid := range pids {
			sum += processorTime(pid)
		}
		return sum
	}
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
		if err := pause(ctx, wait); err != nil {
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
	processor, began := used(), time.Now()
	if err := pause(ctx, r.Idle); err != nil {
		return err
	}
	processor = used() - processor
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
		return &notMeasuredError{"the server's process is not known: set -pid"}
	}
	r.add(Row{What: rowProcessor, Value: 100 * processor.Seconds() / took.Seconds(), Unit: Percent, Aim: 1, Note: note})
	return nil
}
