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
	made, err := r.newDeployments(ctx, 1, r.pastChanges())
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
	write, err := r.modifyAll(ctx, made)
	if err != nil {
		return err
	}
	then := tko.WithAsOf(ctx, moment)
	for _, do := range []func() error{
		func() error { return r.pastPages(ctx, then) },
		func() error { return r.pastList(ctx, then) },
		func() error { return r.pastDiff(ctx, moment, len(made.ids)) },
		func() error { return r.pastDisk(ctx) },
		func() error { return r.pastWrite(ctx, write.each().database) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// pastPages compares first rows of pages with those of now.
func (r *run) pastPages(now, then context.Context) error {
	for _, what := range []string{rowPastFirst, rowPastSites} {
		var sel tko.DeploymentSelect
		if what == rowPastSites {
			sel.SiteMetadata = map[string]string{"channel": "canary"}
		}
		read := func(ctx context.Context) error { return firstOf(r.client.Deployments(ctx, sel, upTo(100))) }
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
		r.add(latency(what, took, 30*time.Millisecond).with("p50 of the same page now: " + short(quantile(current, 50))))
	}
	return nil
}

// pastList compares a list of all deployments with that of now.
func (r *run) pastList(now, then context.Context) error {
	list := func(ctx context.Context) (measurement, error) {
		end := r.begin(now)
		n, err := count(r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}))
		return end(n), err
	}
	current, err := list(now)
	if err != nil {
		return err
	}
	var past measurement
	growth, err := r.memory("", func() (err error) {
		past, err = list(then)
		return err
	})
	if err != nil {
		return err
	}
	row := rate(rowPastList, past.perSecond(), current.perSecond(), "the same list now", 1.0/3).with(fmt.Sprintf("%s; now %s", past, current))
	if growth.Missing == "" {
		row = row.with(fmt.Sprintf("the server's memory grew by %d MB", int(growth.Value)/1e6))
	}
	r.add(row)
	return nil
}

// pastDiff compares the fleet with what it was.
func (r *run) pastDiff(ctx context.Context, from tko.AsOf, n int) error {
	end := r.begin(ctx)
	took, err := sample(ctx, min(r.Samples, minSamples), func(ctx context.Context) error {
		return firstOf(r.client.DiffPast(ctx, tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}, From: from}))
	})
	if err == nil {
		r.add(duration(rowDiff(n), quantile(took, 50), 2*time.Second, fmt.Sprintf("median of %d", len(took))).with(end(n * len(took)).String()))
	}
	return err
}

// pastDisk measures the index that lists as of a moment need.
func (r *run) pastDisk(ctx context.Context) error {
	if r.database == nil {
		return &notMeasuredError{"the size of the index is measured in PostgreSQL only: set -dsn"}
	}
	var index, all float64
	if err := r.database.conn.QueryRow(ctx, `SELECT pg_relation_size('change_departed')::float8, pg_database_size(current_database())::float8`).Scan(&index, &all); err != nil {
		return err
	}
	r.add(Row{What: rowPastDisk, Value: 100 * index / all, Unit: Percent, Aim: 10, Note: fmt.Sprintf("%.1f MB of the database's %.1f MB", index/1e6, all/1e6)})
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
	if _, err := tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE tko_bench_change (LIKE change INCLUDING ALL);
		CREATE TEMPORARY TABLE tko_bench_changes ON COMMIT DROP AS SELECT * FROM change WHERE op = 'written' ORDER BY position DESC LIMIT %d`, rows)); err != nil {
		return err
	}
	took := map[int][]time.Duration{}
	n := int64(0)
	for range rounds {
		for _, departed := range []int{0, 31} {
			if _, err := tx.Exec(ctx, fmt.Sprintf("TRUNCATE tko_bench_change; UPDATE tko_bench_changes SET departed = %d", departed)); err != nil {
				return err
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
		What: rowPastWrite, Value: 100 * entry.Seconds() / write.Seconds(), Unit: Percent, Aim: 10,
		Note: fmt.Sprintf("an entry takes %s, a modification %s of the database's processor time; %d times %d changes", short(entry), short(write), rounds, n),
	})
	return nil
}
