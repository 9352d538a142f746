package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

const (
	rowPastFirst = "as of: first row of a page"
	rowPastSites = "as of: first row of a page by site metadata (1 %)"
	rowPastList  = "as of: list all deployments"
	rowPastDisk  = "as of: size of the index"
	rowPastWrite = "as of: cost of the index on writes, if each has an entry"

	aimPastFirst = 30 * time.Millisecond
	aimDiff      = 2 * time.Second
	// aimPastList is the part of the rate of the same list now that a list as of a moment
	// has to reach.
	aimPastList = 1.0 / 3
	// aimPastDisk is the part of the database that the index of the past may have.
	aimPastDisk = 10
	// aimPastWrite is what the index may add to writes.
	aimPastWrite = 10
)

func rowDiff(n int) string {
	return fmt.Sprintf("difference of the fleet: first group of %s changes", thousands(n))
}

// pastChanges is the number of deployments that change between the two moments.
func (o *Options) pastChanges() int { return max(1, o.Create/2) }

// past reads as of a moment before changes of deployments, and compares with it.
func (r *run) past(ctx context.Context) error {
	if _, err := r.client.Retention(ctx); err != nil {
		return err
	}
	n := r.pastChanges()
	made, err := r.newDeployments(ctx, 1, n)
	if err == nil {
		err = r.pastOf(ctx, made)
	}
	return errors.Join(err, made.purge(ctx))
}

func (r *run) pastOf(ctx context.Context, made deploymentsMade) error {
	about, err := r.client.About(ctx)
	if err != nil {
		return err
	}
	moment := tko.AsOf{Position: about.Position}
	l, err := newLoad(ctx, r.Address, r.Clients)
	if err != nil {
		return err
	}
	defer l.close()
	before := r.cost(ctx)
	if _, err := l.run(ctx, len(made.ids), func(ctx context.Context, client, i int) error {
		return modifyOne(ctx, l.data[client], made.ids[i], marker, fmt.Sprintf("%0*d", len(marker), i))
	}); err != nil {
		return err
	}
	write := r.since(ctx, before, len(made.ids)).database
	then := tko.WithAsOf(ctx, moment)
	if err := r.pastPages(ctx, then); err != nil {
		return err
	}
	if err := r.pastList(ctx, then); err != nil {
		return err
	}
	if err := r.pastDiff(ctx, moment, len(made.ids)); err != nil {
		return err
	}
	if err := r.pastDisk(ctx); err != nil {
		return err
	}
	return r.pastWrite(ctx, write)
}

// pastPages compares first rows of pages with those of now.
func (r *run) pastPages(now, then context.Context) error {
	page := 100
	options := tko.ListOptions{Window: tko.Window{Max: &page}}
	for what, sel := range map[string]tko.DeploymentSelect{rowPastFirst: {}, rowPastSites: {SiteMetadata: map[string]string{"channel": "canary"}}} {
		read := func(ctx context.Context) error { return first(r.client.Deployments(ctx, sel, options)) }
		current, err := sample(now, r.Samples, read)
		if errors.Is(err, errNoRow) && r.Deployments < minFleetForRows {
			r.add(Row{What: what, Missing: "nothing matches: the fleet is too small"})
			continue
		}
		if err != nil {
			return err
		}
		took, err := sample(then, r.Samples, read)
		if err != nil {
			return err
		}
		row := latency(what, took, aimPastFirst)
		row.also("p50 of the same page now: " + short(quantile(current, 50)))
		r.add(row)
	}
	return nil
}

// pastList compares a list of all deployments with that of now.
func (r *run) pastList(now, then context.Context) error {
	list := func(ctx context.Context) (perSecond float64, c cost, err error) {
		before, began, n := r.cost(now), time.Now(), 0
		for _, err := range r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				return 0, c, err
			}
			n++
		}
		return float64(n) / time.Since(began).Seconds(), r.since(now, before, n), nil
	}
	idle := resident(r.PID)
	current, costNow, err := list(now)
	if err != nil {
		return err
	}
	stopWatching := watchResident(r.PID)
	past, costThen, err := list(then)
	peak := stopWatching()
	if err != nil {
		return err
	}
	row := Row{What: rowPastList, Value: past, Unit: PerSecond, Aim: current * aimPastList}
	row.also(fmt.Sprintf("%.2f of the same list now", past/current))
	row.also(fmt.Sprintf("%s; now %s", costThen, costNow))
	if idle > 0 {
		row.also(fmt.Sprintf("the server's memory grew by %d MB", max(0, peak-idle)/1e6))
	}
	r.add(row)
	return nil
}

// pastDiff compares the fleet with what it was.
func (r *run) pastDiff(ctx context.Context, from tko.AsOf, n int) error {
	before := r.cost(ctx)
	took, err := sample(ctx, min(r.Samples, minSamples), func(ctx context.Context) error {
		return first(r.client.DiffPast(ctx, tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}, From: from}))
	})
	if err != nil {
		return err
	}
	row := Row{What: rowDiff(n), Value: quantile(took, 50).Seconds(), Unit: Seconds, Aim: aimDiff.Seconds(), Note: fmt.Sprintf("median of %d", len(took))}
	row.also(r.since(ctx, before, n*len(took)).String())
	r.add(row)
	return nil
}

// pastDisk measures the index that lists as of a moment need.
func (r *run) pastDisk(ctx context.Context) error {
	if r.database == nil {
		return &notMeasuredError{"the size of the index is measured in PostgreSQL only: set -dsn"}
	}
	var index, all int64
	if err := r.database.conn.QueryRow(ctx, `SELECT pg_relation_size('change_departed'), pg_database_size(current_database())`).Scan(&index, &all); err != nil {
		return err
	}
	r.add(Row{What: rowPastDisk, Value: 100 * float64(index) / float64(all), Unit: Percent, Aim: aimPastDisk, Note: fmt.Sprintf("%.1f MB of the database's %.1f MB", float64(index)/1e6, float64(all)/1e6)})
	return nil
}

// pastWrite measures what an entry in the index costs, of the database's processor time for
// a write. It inserts the newest changes into a copy of the log's table, in turn with and
// without an entry for each, in a transaction that it rolls back. That is an upper limit,
// because few changes have an entry.
func (r *run) pastWrite(ctx context.Context, write time.Duration) error {
	const rounds, rows = 7, 20_000
	tx, err := r.database.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{
		"CREATE TABLE tko_bench_change (LIKE change INCLUDING ALL)",
		fmt.Sprintf("CREATE TEMPORARY TABLE tko_bench_changes ON COMMIT DROP AS SELECT * FROM change WHERE op = 'written' ORDER BY position DESC LIMIT %d", rows),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	took := map[int][]time.Duration{}
	n := int64(0)
	for range rounds {
		for _, departed := range []int{0, 31} {
			for _, sql := range []string{"TRUNCATE tko_bench_change", fmt.Sprintf("UPDATE tko_bench_changes SET departed = %d", departed)} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			began := time.Now()
			done, err := tx.Exec(ctx, "INSERT INTO tko_bench_change SELECT * FROM tko_bench_changes")
			if err != nil {
				return err
			}
			took[departed] = append(took[departed], time.Since(began))
			n = done.RowsAffected()
		}
	}
	entry := max(0, slices.Min(took[31])-slices.Min(took[0])) / time.Duration(max(n, 1)) // the least disturbed ones
	if write <= 0 {                                                                      // the clock of processor time has ticks of 10 ms
		r.add(Row{What: rowPastWrite, Missing: fmt.Sprintf("an entry takes %s, but the modifications were too few to measure the database's processor time", short(entry))})
		return nil
	}
	r.add(Row{
		What: rowPastWrite, Value: 100 * entry.Seconds() / write.Seconds(), Unit: Percent, Aim: aimPastWrite,
		Note: fmt.Sprintf("an entry takes %s, a modification %s of the database's processor time; %d times %d changes", short(entry), short(write), rounds, n),
	})
	return nil
}
