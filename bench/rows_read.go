package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	rowStart  = "server start to first row"
	rowStream = "stream all deployments, while a client writes"
	rowMemory = "memory growth of the server meanwhile"
)

// start restarts the server, so that the next rows begin with the least memory.
func (r *run) start(ctx context.Context) error {
	took, err := collect(3, func() (time.Duration, error) {
		err := r.restart(ctx)
		if err == nil {
			err = firstOf(r.client.Deployments(ctx, tko.DeploymentSelect{}, upTo(1)))
		}
		return time.Since(r.started), err
	})
	if err == nil {
		r.add(duration(rowStart, quantile(took, 50), time.Second, fmt.Sprintf("median of %d starts, from the process to the first row of a list", len(took))))
	}
	return err
}

func (r *run) restart(ctx context.Context) (err error) {
	if r.Restart == nil {
		return &notMeasuredError{"the benchmark can't restart a running server"}
	}
	if r.Address, r.PID, r.started, err = r.Restart(ctx); err != nil {
		return err
	}
	return r.dial()
}

// stream lists all deployments while a client creates and deletes some, and checks that
// the list is of one snapshot.
func (r *run) stream(ctx context.Context) error {
	w := &concurrentWriter{run: r}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	raw, err := r.raw.stream(ctx)
	if err != nil {
		return err
	}
	var listed measurement
	growth, err := r.memory(rowMemory, func() (err error) {
		listed, err = w.list(ctx)
		return err
	})
	if err = errors.Join(err, w.clean(ctx)); err != nil {
		return err
	}
	row := rate(rowStream, listed.perSecond(), raw, "raw SELECT", 0).with(fmt.Sprintf("%d rows of one snapshot, %d concurrent writes", listed.n, w.created+w.deleted))
	row.Aim = max(100_000, raw/4)
	r.add(row, growth)
	return nil
}

// A concurrentWriter writes while a list is read.
type concurrentWriter struct {
	*run
	parent, doomedParent tko.DeploymentID
	doomed               []tko.DeploymentID
	created, deleted     int
	failed               error
}

// doomedCount is the number of deployments to delete.
const doomedCount = 100

func (w *concurrentWriter) prepare(ctx context.Context) (err error) {
	if w.parent, err = w.client.CreateDeployment(ctx, tko.NewDeployment{Prepared: true}); err != nil {
		return err
	}
	if w.doomedParent, err = w.client.CreateDeployment(ctx, tko.NewDeployment{Prepared: true}); err != nil {
		return err
	}
	w.doomed = make([]tko.DeploymentID, doomedCount)
	for i := range w.doomed {
		if w.doomed[i], err = w.client.CreateDeployment(ctx, tko.NewDeployment{Parent: w.doomedParent, Prepared: true}); err != nil {
			return err
		}
	}
	return nil
}

// list lists all deployments, and writes from the first one on: the snapshot is older.
func (w *concurrentWriter) list(ctx context.Context) (m measurement, failed error) {
	var writing sync.WaitGroup
	writerContext, stopWriting := context.WithCancel(ctx)
	defer writing.Wait()
	defer stopWriting()
	seen := map[tko.DeploymentID]bool{} // of those that are deleted meanwhile
	began := time.Now()
	for d, err := range w.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return m, err
		}
		if m.n == 0 {
			writing.Go(func() { w.write(writerContext) })
		}
		if d.Parent == w.doomedParent {
			seen[d.ID] = true
		}
		if d.Parent == w.parent {
			failed = fmt.Errorf("the list has the deployment %s, which was created after the list began", d.ID)
		}
		m.n++
	}
	m.took = time.Since(began)
	stopWriting()
	writing.Wait()
	if failed == nil {
		failed = w.failed
	}
	if failed == nil && len(seen) != len(w.doomed) {
		failed = fmt.Errorf("the list has %d of %d deployments that were deleted after the list began", len(seen), len(w.doomed))
	}
	return m, failed
}

// write creates and deletes until the context ends.
func (w *concurrentWriter) write(ctx context.Context) {
	for i := 0; ; i++ {
		// Writes are not cancelled: their outcome must be known.
		if _, err := w.client.CreateDeployment(context.WithoutCancel(ctx), tko.NewDeployment{Parent: w.parent, Prepared: true}); err != nil {
			w.failed = err
			return
		}
		w.created++
		if i < len(w.doomed) {
			if _, err := w.client.DeleteDeployment(tko.WithConfirmation(context.WithoutCancel(ctx), 1), w.doomed[i]); err != nil {
				w.failed = err
				return
			}
			w.deleted++
		}
		if pause.For(ctx, time.Millisecond) != nil {
			return
		}
	}
}

func (w *concurrentWriter) clean(ctx context.Context) error {
	_, err1 := w.client.DeleteDeployment(tko.WithConfirmation(ctx, w.created+1), w.parent)
	_, err2 := w.client.DeleteDeployment(tko.WithConfirmation(ctx, len(w.doomed)-w.deleted+1), w.doomedParent)
	return errors.Join(err1, err2)
}

// firstRows returns the steps for lists with all sorts of queries.
func (r *run) firstRows() (steps []step) {
	const page = 100
	add := func(what string, do func(context.Context) error) {
		what = "first row: " + what
		steps = append(steps, step{[]string{what}, func(ctx context.Context) error {
			took, err := sample(ctx, r.Samples, do)
			switch {
			case errors.Is(err, errNoRow) && r.Deployments < minFleetForRows:
				return &notMeasuredError{"nothing matches in a fleet this small"}
			case err == nil:
				r.add(latency(what, took, aimFirstRow))
			}
			return err
		}})
	}
	sites := func(by string, s tko.SiteSelect) {
		add("sites by "+by, func(ctx context.Context) error { return firstOf(r.client.Sites(ctx, s, upTo(page))) })
	}
	deployments := func(by string, s tko.DeploymentSelect) {
		add("deployments "+by, func(ctx context.Context) error { return firstOf(r.client.Deployments(ctx, s, upTo(page))) })
	}
	metadata := func(channel, function, key, value string) tko.DeploymentSelect {
		return tko.DeploymentSelect{Metadata: map[string]string{"channel": channel, "NetworkFunction.name": function, "NetworkFunction.variant." + key: value}}
	}
	site := string(r.fleet.Site(0).ID)
	sites("ID prefix", tko.SiteSelect{IDs: []string{site[:len(site)-len("site-000000")] + "**"}})
	sites("one metadata key (1 %)", tko.SiteSelect{Metadata: map[string]string{"channel": "canary"}})
	deployments("by site ID prefix", tko.DeploymentSelect{Sites: []string{site[:len(site)-2] + "*"}})
	deployments("by template ID prefix", tko.DeploymentSelect{Templates: []string{r.fleet.Name() + "/nef/**"}})
	for _, s := range Shares {
		deployments(fmt.Sprintf("by one metadata key (%s)", s), tko.DeploymentSelect{Metadata: map[string]string{"channel": s.Channel}})
	}
	deployments("by three metadata keys (10 %, 30 % and 45 %)", metadata("early", "upf", "vendor", "acme"))
	deployments("by three metadata keys (10 %, 1 % and 1 %)", metadata("early", "nef", "vendor", "umbrella"))
	deployments("by three metadata patterns", metadata("ca*", "u*", "version", "v3.*"))
	for _, s := range Shares {
		deployments(fmt.Sprintf("by site metadata (%s)", s), tko.DeploymentSelect{SiteMetadata: map[string]string{"channel": s.Channel}})
	}
	yes, no := true, false
	deployments("by site metadata (90 %)", tko.DeploymentSelect{SiteMetadata: map[string]string{"tier": "edge"}})
	deployments("by template metadata (1 %)", tko.DeploymentSelect{TemplateMetadata: map[string]string{"channel": "canary"}})
	deployments("that wait for approval", tko.DeploymentSelect{Prepared: &yes, Approved: &no})
	return append(
		steps,
		step{[]string{rowDeepCursor}, r.deepByCursor},
		step{[]string{rowDeepSingleOffset}, r.deepBySingleOffset},
		step{[]string{rowDeepOffset}, r.deepByOffset},
	)
}

// minFleetForRows is the size of fleets in which every query certainly has matches.
const minFleetForRows = 20_000

const (
	rowDeepCursor       = "first row: page at 90 % by cursor"
	rowDeepOffset       = "first row: pages from 90 % on by growing offset"
	rowDeepSingleOffset = "first row: page at 90 % by a single offset"

	aimFirstRow = 10 * time.Millisecond
)

// at lists a page of deployments at an offset.
func (r *run) at(ctx context.Context, offset, page int) iter.Seq2[tko.Deployment, error] {
	return r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Window: tko.Window{Max: &page, Offset: uint32(offset)}}) //nolint:gosec // it isn't negative
}

func (r *run) deepByCursor(ctx context.Context) error {
	d, err := first(r.at(ctx, r.Deployments*9/10, 1))
	if err != nil || d.Stamp.Position == 0 {
		return errors.Join(err, &notMeasuredError{"the server has no cursors"})
	}
	page := upTo(100)
	page.Window.After = string(d.ID)
	took, err := sample(ctx, r.Samples, func(ctx context.Context) error {
		return firstOf(r.client.Deployments(ctx, tko.DeploymentSelect{}, page))
	})
	if err == nil {
		r.add(latency(rowDeepCursor, took, aimFirstRow))
	}
	return err
}

// deepByOffset reads page after page, as clients without cursors do.
func (r *run) deepByOffset(ctx context.Context) error {
	size := min(100, max(1, r.Deployments/50))
	offset := r.Deployments * 9 / 10
	next := func() (took time.Duration, err error) {
		began, n := time.Now(), 0
		for _, err := range r.at(ctx, offset, size) {
			if err != nil {
				return 0, err
			}
			if n == 0 {
				took = time.Since(began)
			}
			n++
		}
		if n == 0 {
			return 0, errNoRow
		}
		offset += size
		return took, nil
	}
	if _, err := next(); err != nil { // the first page has no page before it
		return err
	}
	pages := (r.Deployments - offset - 1) / size // all but the last one
	if pages < 1 {
		return &notMeasuredError{"the fleet has too few deployments"}
	}
	took, err := collect(min(r.Samples, pages), next)
	if err == nil {
		r.add(latency(rowDeepOffset, took, aimFirstRow))
	}
	return err
}

func (r *run) deepBySingleOffset(ctx context.Context) error {
	offset := r.Deployments * 9 / 10
	took, err := sample(ctx, min(r.Samples, 50), func(ctx context.Context) error {
		offset = max(0, offset-997)
		return firstOf(r.at(ctx, offset, 100))
	})
	if err == nil {
		r.add(latency(rowDeepSingleOffset, took, aimFirstRow))
	}
	return err
}
