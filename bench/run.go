package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

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
	Missed      int    // positions that a watch has missed when it resumes; all if fewer
	Prepared    int    // deployments that a plugin prepares
	Backlog     int    // deployments that preparers prepare without plugins
	Inventory   int    // sites of an inventory
	Applied     int    // sites whose manifests are applied
	Catalog     int    // packages of a catalog
	Planned     int    // deployments of a rollout that is planned
	Statuses    int    // sites whose status is read
	Network     int    // sites of a network that is placed, prepared and delivered as a whole
	// NetworkTemplates is the number of templates at each of its sites.
	NetworkTemplates int
	StreamSites      int // sites of a list
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

	Web func() string // returns the address of its HTTP API, which a restart may change
	PID int           // of the data controller's process on this machine, or 0
	// Command is the path of the command tko, or "".
	Command string
	DSN     string // of its PostgreSQL database, or ""
	File    string // its SQLite database, or ""

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
	// all roles, with further arguments, and returns a function that stops it.
	Fresh func(ctx context.Context, allRoles bool, args ...string) (address string, pid int, stop func(), err error)
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

	started   time.Time        // start of the server's process
	probed    bool             // prepares is known
	prepares  bool             // a running preparer prepares deployments
	dependent tko.DeploymentID // the parent of the deployments that depend on one template
	shared    tko.TemplateID   // that template
}

// stepTime is the time limit of a step.
const stepTime = 30 * time.Minute

// author is the author of all that the benchmark writes.
var author = tko.Author{Who: "tko-bench"}

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
	r.table.Backend = cmp.Or(about.Backend, target.Address)
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
		if err != nil && !r.missing(s.rows, err) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.rows[0], err))
		}
		if ctx.Err() != nil {
			return r.table, ctx.Err()
		}
	}
	return r.table, failed
}

// withFresh does something with a server that has an empty database, of the role data alone or of all roles, and stops it.
func (r *run) withFresh(ctx context.Context, allRoles bool, do func(fresh *run) error, args ...string) error {
	address, pid, stop, err := r.Fresh(ctx, allRoles, args...)
	if err != nil {
		return err
	}
	defer stop()
	fresh := *r
	fresh.Address, fresh.PID, fresh.client, fresh.database = address, pid, nil, nil
	if err := fresh.dial(); err != nil {
		return err
	}
	defer func() { _ = fresh.client.Close() }()
	return do(&fresh)
}

func (r *run) dial() (err error) {
	if r.client != nil {
		_ = r.client.Close()
	}
	r.client, err = client.Dial(client.Options{Address: r.Address, WaitForReady: true, Author: author})
	return err
}

// steps returns all steps, in order.
func (r *run) steps() []step {
	sites, deployments, plan := rowStreamSites(r.StreamSites), rowStreamDeployments(r.streamed()), rowPlan(r.Planned)
	steps := []step{
		{[]string{rowChildren(r.Dependents), rowDisk}, r.children},
		{[]string{rowStart}, r.start},
		{[]string{rowStream, rowMemory}, r.stream},
	}
	steps = append(steps, r.firstRows()...)
	steps = append(steps, []step{
		{[]string{rowFleet, rowFleetCounted}, r.fleetStatus},
		{slices.Concat(rowsGet(r.Clients), rowsGet(manyClients)), r.get},
		{[]string{rowRegister, rowRegisterAll}, r.register},
		{[]string{rowApplySites(r.Applied), rowApplyAgain(r.Applied)}, r.applySites},
		{[]string{rowCreate(1), rowCreate(manyTemplates)}, r.create},
		{[]string{rowModification(r.Clients)}, r.modify},
		{[]string{rowBlame, rowBlameCost}, r.blame},
		{[]string{sites, rowGrowth(sites), deployments, rowGrowth(deployments), rowPurge(r.StreamSites)}, r.streams},
		{[]string{plan, rowGrowth(plan), rowPlanStatus(r.Planned), rowApply(r.Planned), rowUndo(r.Planned)}, r.plans},
		{[]string{rowPastFirst, rowPastSites, rowPastList, rowDiff(r.pastChanges()), rowPastDisk, rowPastWrite}, r.past},
		{[]string{rowWebPage, rowWebOverview, rowWebCount, rowWebCost, rowWebChange}, r.web},
		{[]string{rowWatch(r.Watchers)}, r.watch},
		{[]string{rowResume}, r.resume},
		{[]string{rowDeleteTemplate(r.Dependents), rowDeleteParent(r.Dependents)}, r.deletes},
		{append(slices.Clone(rowsPrepare), rowPrepared), r.prepare},
		{[]string{rowWaiting(r.Prepared, 1), rowWaiting(r.Prepared, 2), rowWaiting(r.Prepared, 4)}, r.waiting},
		{rowsPython(r.Prepared), r.python},
	}...)
	for _, n := range r.Placements {
		steps = append(steps, step{rowsPlacement(n), func(ctx context.Context) error { return r.placement(ctx, n) }})
	}
	return append(
		steps,
		step{[]string{rowTransactions, rowProcessor}, r.idle},
		step{rowsInventory(r.Inventory), r.inventory},
		step{rowsCatalog(r.Catalog), r.catalog},
		step{rowsStatus(r.Statuses), r.statuses},
		step{rowsNetwork(r.Network, r.NetworkTemplates), r.network},
	)
}

// wanted reports whether one of some rows is selected.
func (r *run) wanted(rows []string) bool {
	return r.Rows == nil || slices.ContainsFunc(rows, r.Rows.MatchString)
}

// add adds those of some rows that are selected.
func (r *run) add(rows ...Row) {
	for _, row := range rows {
		if !r.wanted([]string{row.What}) {
			continue
		}
		r.table.Rows = append(r.table.Rows, row)
		text := row.value()
		if row.Missing != "" {
			text += ": " + row.Missing
		}
		r.report(fmt.Sprintf("  %s: %s %s", row.What, text, row.Note))
	}
}

// missing adds those rows of a step that have no value. It returns false if the step
// failed.
func (r *run) missing(rows []string, err error) (known bool) {
	reason, why := "failed: "+err.Error(), (*notMeasuredError)(nil)
	switch {
	case errors.As(err, &why):
		reason, known = why.why, true
	case unimplemented(err):
		reason, known = "the server lacks the method: "+err.Error(), true
	}
	for _, what := range rows {
		if _, ok := r.table.Row(what); !ok {
			r.add(Row{What: what, Missing: reason})
		}
	}
	return known
}

// A notMeasuredError is the reason why a row can't be measured at this server.
type notMeasuredError struct{ why string }

func (e *notMeasuredError) Error() string { return e.why }

func (r *run) fill(ctx context.Context) error {
	filled, err := Fill(ctx, r.client, r.fleet, FillOptions{Clients: r.Clients, Report: func(text string) { r.report("  " + text) }})
	if err == nil && filled.Created > 0 {
		r.report(fmt.Sprintf("  filled in %d deployments in %s", filled.Created, short(filled.Took)))
	}
	return err
}
