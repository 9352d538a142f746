package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

const (
	rowStart  = "server start to first row"
	rowStream = "stream all deployments, while a client writes"
	rowMemory = "memory growth of the server meanwhile"

	aimFirstRow = 10 * time.Millisecond
)

// start restarts the server, so that the next rows begin with the least memory.
func (r *run) start(ctx context.Context) error {
	var took []time.Duration
	for range 3 {
		if err := r.restart(ctx); err != nil {
			return err
		}
		one := 1
		if err := first(r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Window: tko.Window{Max: &one}})); err != nil {
			return err
		}
		took = append(took, time.Since(r.started))
	}
	r.add(Row{
		What: rowStart, Value: quantile(took, 50).Seconds(), Unit: Seconds, Aim: 1,
		Note: fmt.Sprintf("median of %d starts, from the process to the first row of a list", len(took)),
	})
	return nil
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

// minSampled is the minimum number of sampled IDs of deployments, if there are as many.
const minSampled = 5000

// ids returns IDs of deployments, evenly spread over all.
func (r *run) ids(ctx context.Context) ([]tko.DeploymentID, error) {
	if len(r.sampled) > 0 {
		return r.sampled, nil
	}
	every, n := max(1, r.Deployments/minSampled), 0
	for d, err := range r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		if n%every == 0 {
			r.sampled = append(r.sampled, d.ID)
		}
		n++
	}
	if len(r.sampled) == 0 {
		return nil, errNoRow
	}
	return r.sampled, nil
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
	before := resident(r.PID)
	stopWatching := watchResident(r.PID)
	var writing sync.WaitGroup
	writerContext, stopWriting := context.WithCancel(ctx)
	every, n := max(1, r.Deployments/minSampled), 0
	var sampled []tko.DeploymentID
	seen := map[tko.DeploymentID]bool{}
	began := time.Now()
	var failed error
	for d, err := range r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			failed = err
			break
		}
		if n == 0 { // the snapshot is older than the writes
			writing.Go(func() { w.write(writerContext) })
		}
		switch d.Parent {
		case w.doomedParent:
			seen[d.ID] = true
		case w.parent:
			failed = fmt.Errorf("the list has the deployment %s, which was created after the list began", d.ID)
		default:
			if n%every == 0 && d.ID != w.parent && d.ID != w.doomedParent {
				sampled = append(sampled, d.ID)
			}
		}
		n++
	}
	took := time.Since(began)
	stopWriting()
	writing.Wait()
	peak := stopWatching()
	if failed == nil {
		failed = w.failed
	}
	if failed == nil && len(seen) != len(w.doomed) {
		failed = fmt.Errorf("the list has %d of %d deployments that were deleted after the list began", len(seen), len(w.doomed))
	}
	if failed = errors.Join(failed, w.clean(ctx)); failed != nil {
		return failed
	}
	r.sampled = sampled
	row := rate(rowStream, float64(n)/took.Seconds(), raw, "raw SELECT")
	row.Aim = max(100_000, raw/4)
	if row.Note != "" {
		row.Note += "; "
	}
	row.Note += fmt.Sprintf("%d rows of one snapshot, %d concurrent writes", n, w.created+w.deleted)
	r.add(row)
	if r.PID == 0 || before == 0 {
		return &notMeasuredError{"the server's process is not known: set -pid"}
	}
	r.add(Row{
		What: rowMemory, Value: float64(max(0, peak-before)), Unit: Bytes, Aim: 64e6,
		Note: fmt.Sprintf("to %d MB at the most", peak/1e6),
	})
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
	for range doomedCount {
		id, err := w.client.CreateDeployment(ctx, tko.NewDeployment{Parent: w.doomedParent, Prepared: true})
		if err != nil {
			return err
		}
		w.doomed = append(w.doomed, id)
	}
	return nil
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
			if _, err := w.client.DeleteDeployment(context.WithoutCancel(ctx), w.doomed[i]); err != nil {
				w.failed = err
				return
			}
			w.deleted++
		}
		if pause(ctx, time.Millisecond) != nil {
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
func (r *run) firstRows() []step {
	page := 100
	window := tko.Window{Max: &page}
	f := r.fleet
	site := f.Site(0)
	deployments := func(s tko.DeploymentSelect, w tko.Window) func(context.Context) error {
		return func(ctx context.Context) error {
			return first(r.client.Deployments(ctx, s, tko.ListOptions{Window: w}))
		}
	}
	sites := func(s tko.SiteSelect) func(context.Context) error {
		return func(ctx context.Context) error {
			return first(r.client.Sites(ctx, s, tko.ListOptions{Window: window}))
		}
	}
	type query struct {
		what string
		do   func(context.Context) error
	}
	queries := []query{
		{"sites by ID prefix", sites(tko.SiteSelect{IDs: []string{string(site.ID[:len(site.ID)-len("site-000000")]) + "**"}})},
		{"sites by one metadata key (1 %)", sites(tko.SiteSelect{Metadata: map[string]string{"channel": "canary"}})},
		{"deployments by site ID prefix", deployments(tko.DeploymentSelect{Sites: []string{string(site.ID[:len(site.ID)-2]) + "*"}}, window)},
		{"deployments by template ID prefix", deployments(tko.DeploymentSelect{Templates: []string{f.Name() + "/nef/**"}}, window)},
	}
	for _, s := range Shares {
		queries = append(queries, query{
			fmt.Sprintf("deployments by one metadata key (%s)", s),
			deployments(tko.DeploymentSelect{Metadata: map[string]string{"channel": s.Channel}}, window),
		})
	}
	queries = append(queries, []query{
		{"deployments by three metadata keys (10 %, 30 % and 45 %)", deployments(tko.DeploymentSelect{Metadata: map[string]string{
			"channel": "early", "NetworkFunction.name": "upf", "NetworkFunction.variant.vendor": "acme",
		}}, window)},
		{"deployments by three metadata keys (10 %, 1 % and 1 %)", deployments(tko.DeploymentSelect{Metadata: map[string]string{
			"channel": "early", "NetworkFunction.name": "nef", "NetworkFunction.variant.vendor": "umbrella",
		}}, window)},
		{"deployments by three metadata patterns", deployments(tko.DeploymentSelect{Metadata: map[string]string{
			"channel": "ca*", "NetworkFunction.name": "u*", "NetworkFunction.variant.version": "v3.*",
		}}, window)},
	}...)
	for _, s := range Shares {
		queries = append(queries, query{
			fmt.Sprintf("deployments by site metadata (%s)", s),
			deployments(tko.DeploymentSelect{SiteMetadata: map[string]string{"channel": s.Channel}}, window),
		})
	}
	yes, no := true, false
	queries = append(queries, []query{
		{"deployments by site metadata (90 %)", deployments(tko.DeploymentSelect{SiteMetadata: map[string]string{"tier": "edge"}}, window)},
		{"deployments by template metadata (1 %)", deployments(tko.DeploymentSelect{TemplateMetadata: map[string]string{"channel": "canary"}}, window)},
		{"deployments that wait for approval", deployments(tko.DeploymentSelect{Prepared: &yes, Approved: &no}, window)},
	}...)
	var steps []step
	for _, s := range queries {
		what := "first row: " + s.what
		steps = append(steps, step{[]string{what}, func(ctx context.Context) error {
			took, err := sample(ctx, r.Samples, s.do)
			switch {
			case errors.Is(err, errNoRow) && r.Deployments < minFleetForRows:
				return &notMeasuredError{"nothing matches in a fleet this small"}
			case err == nil:
				r.add(latency(what, took, aimFirstRow))
			}
			return err
		}})
	}
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
)

func (r *run) deepByCursor(ctx context.Context) error {
	ids, err := r.ids(ctx)
	if err != nil {
		return err
	}
	page := 100
	at := ids[len(ids)*9/10]
	if d, err := r.client.Deployment(ctx, at, 0); err != nil || d.Stamp.Position == 0 {
		return errors.Join(err, &notMeasuredError{"the server has no cursors"})
	}
	took, err := sample(ctx, r.Samples, func(ctx context.Context) error {
		return first(r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Window: tko.Window{Max: &page, After: string(at)}}))
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
	end := r.Deployments - size
	next := func() ([]time.Duration, error) {
		began, n := time.Now(), 0
		var took time.Duration
		for _, err := range r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Window: tko.Window{Max: &size, Offset: uint32(offset)}}) { //nolint:gosec // it isn't negative
			if err != nil {
				return nil, err
			}
			if n == 0 {
				took = time.Since(began)
			}
			n++
		}
		if n == 0 {
			return nil, errNoRow
		}
		offset += size
		return []time.Duration{took}, nil
	}
	if _, err := next(); err != nil { // the first page has no page before it
		return err
	}
	var took []time.Duration
	for start := time.Now(); len(took) < r.Samples && offset < end; {
		one, err := next()
		if err != nil {
			return err
		}
		took = append(took, one...)
		if len(took) >= minSamples && time.Since(start) > sampleTime {
			break
		}
	}
	if len(took) == 0 {
		return &notMeasuredError{"the fleet has too few deployments"}
	}
	r.add(latency(rowDeepOffset, took, aimFirstRow))
	return nil
}

func (r *run) deepBySingleOffset(ctx context.Context) error {
	page := 100
	offset := r.Deployments * 9 / 10
	took, err := sample(ctx, min(r.Samples, 50), func(ctx context.Context) error {
		offset = max(0, offset-997)
		return first(r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Window: tko.Window{Max: &page, Offset: uint32(offset)}})) //nolint:gosec // it isn't negative
	})
	if err == nil {
		r.add(latency(rowDeepSingleOffset, took, aimFirstRow))
	}
	return err
}
