package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
)

// Options say what to measure.
type Options struct {
	Clients     int   // that write and read at once
	Register    int   // sites registered one by one
	Create      int   // deployments created one by one
	Deployments int   // in all, for lists
	Placements  []int // sites of each placement
	Samples     int   // of latencies
}

// A Row is one line of the result.
type Row struct {
	What  string
	Value string
	Note  string // the ratio to raw PostgreSQL, or the rest of the distribution
}

// A Table is the result for one store.
type Table struct {
	Backend string
	Rows    []Row
}

// Markdown writes tables side by side, which have the same rows.
func Markdown(w io.Writer, tables []Table) error {
	var b strings.Builder
	b.WriteString("| what |")
	for _, t := range tables {
		b.WriteString(" " + t.Backend + " | |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|---|", len(tables)) + "\n")
	for i, row := range tables[0].Rows {
		b.WriteString("| " + row.What + " |")
		for _, t := range tables {
			fmt.Fprintf(&b, " %s | %s |", t.Rows[i].Value, t.Rows[i].Note)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A Target is a server to measure.
type Target struct {
	Address string // of its gRPC API
	PID     int    // to read its memory, or 0
	// Controllers starts a preparer beside the data controller and answers how
	// to stop it.
	Controllers func() (stop func(), err error)
}

type run struct {
	Options
	Target
	raw    Raw
	client *client.Client
	tell   func(string)
	table  Table
	some   []tko.DeploymentID // to be read
}

// Run measures a target, which should be empty at the start, beside what raw
// PostgreSQL did. It tells what it is at.
func Run(ctx context.Context, target Target, raw Raw, o Options, tell func(string)) (Table, error) {
	c, err := client.Dial(client.Options{Address: target.Address, WaitForReady: true, Author: tko.Author{Who: "bench"}})
	if err != nil {
		return Table{}, err
	}
	defer func() { _ = c.Close() }()
	r := &run{Options: o, Target: target, raw: raw, client: c, tell: tell}
	about, err := c.About(ctx)
	if err != nil {
		return Table{}, err
	}
	r.table.Backend = about.Backend
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"register", r.register},
		{"create", r.create},
		{"fill", r.fill},
		{"get", r.get},
		{"list", r.list},
		{"first rows", r.firstRows},
		{"create to prepared", r.latency},
		{"placement", r.placements},
	} {
		tell(about.Backend + ": " + step.what)
		if err := step.do(ctx); err != nil {
			return r.table, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return r.table, nil
}

func (r *run) add(what, value, note string) {
	r.table.Rows = append(r.table.Rows, Row{what, value, note})
	r.tell("  " + what + ": " + value + " " + note)
}

const (
	workload = `
apiVersion: metadata.nephio.org/v1alpha1
kind: NetworkFunction
metadata: {name: nf}
spec: {name: upf, variant: {vendor: example, version: v1}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: plain, level: "3"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: upf}
spec:
  replicas: 2
  selector: {matchLabels: {app: upf}}
  template:
    metadata: {labels: {app: upf}}
    spec: {containers: [{name: upf, image: "registry.example/upf:v1", ports: [{containerPort: 8805}]}]}
`
	topology = `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: workload}
spec: {templateId: "workload/upf:v1"}
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
)

// parallel calls do with 0 … n-1 from so many clients, and answers the rate.
func parallel(ctx context.Context, clients, n int, do func(context.Context, int) error) (perSecond float64, err error) {
	var next atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range clients {
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

func (r *run) register(ctx context.Context) error {
	p, err := krm.Decode(krm.YAML, []byte(workload), krm.Limits{})
	if err != nil {
		return err
	}
	if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: "workload/upf:v1", Metadata: map[string]string{"vendor": "example"}, Package: p}); err != nil {
		return err
	}
	rate, err := parallel(ctx, r.Clients, r.Register, func(ctx context.Context, i int) error {
		_, err := r.client.RegisterSite(ctx, site("bench", i))
		return err
	})
	if err != nil {
		return err
	}
	r.add(fmt.Sprintf("register %d sites, %d clients", r.Register, r.Clients), persec(rate), ratio(rate, r.raw.Insert, "of raw single-row INSERTs"))
	return nil
}

func site(fleet string, i int) tko.Site {
	return tko.Site{
		ID: tko.SiteID(fmt.Sprintf("%s/region-%02d/site-%06d", fleet, i%20, i)),
		Metadata: map[string]string{
			"fleet": fleet, "region": fmt.Sprintf("region-%02d", i%20), "tier": []string{"edge", "edge", "edge", "far-edge", "central"}[i%5],
			"rare": fmt.Sprintf("group-%04d", i%1000),
		},
	}
}

func (r *run) create(ctx context.Context) error {
	var lock sync.Mutex
	rate, err := parallel(ctx, r.Clients, r.Create, func(ctx context.Context, i int) error {
		id, err := r.client.CreateDeployment(ctx, tko.NewDeployment{
			Template: "workload/upf:v1", Site: site("bench", i%r.Register).ID, Metadata: map[string]string{"wave": fmt.Sprintf("wave-%02d", i%10)},
		})
		lock.Lock()
		defer lock.Unlock()
		r.some = append(r.some, id)
		return err
	})
	if err != nil {
		return err
	}
	r.add(fmt.Sprintf("create %d deployments, %d clients", r.Create, r.Clients), persec(rate), ratio(rate, r.raw.Insert, "of raw single-row INSERTs"))
	return nil
}

// fill brings the number of deployments to what lists are measured with.
func (r *run) fill(ctx context.Context) error {
	parent, err := r.client.CreateDeployment(ctx, tko.NewDeployment{})
	if err != nil {
		return err
	}
	const batch = 1000
	n := max(0, r.Deployments-r.Create-1)
	rate, err := parallel(ctx, 2, (n+batch-1)/batch, func(ctx context.Context, b int) error {
		children := tko.NewChildren{Parent: parent}
		for i := b * batch; i < min(n, (b+1)*batch); i++ {
			children.Children = append(children.Children, tko.NewChild{Origin: strconv.Itoa(i), Template: "workload/upf:v1", Site: site("bench", i%r.Register).ID})
		}
		_, _, err := r.client.CreateChildren(ctx, children)
		return err
	})
	if n > 0 {
		r.add(fmt.Sprintf("create %d children, in batches of %d", n, batch), persec(rate*batch), ratio(rate*batch, r.raw.Insert, "of raw single-row INSERTs"))
	}
	return err
}

func (r *run) get(ctx context.Context) error {
	var lock sync.Mutex
	var took []time.Duration
	rate, err := parallel(ctx, r.Clients, max(r.Samples*10, 2000), func(ctx context.Context, i int) error {
		began := time.Now()
		_, err := r.client.Deployment(ctx, r.some[(i*7919)%len(r.some)], 0)
		lock.Lock()
		defer lock.Unlock()
		took = append(took, time.Since(began))
		return err
	})
	r.add(fmt.Sprintf("get a deployment, %d clients", r.Clients), persec(rate), distribution(took))
	return err
}

func (r *run) list(ctx context.Context) error {
	before := resident(r.PID)
	peak, stop := watchResident(r.PID)
	began := time.Now()
	n := 0
	for _, err := range r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return err
		}
		n++
	}
	rate := float64(n) / time.Since(began).Seconds()
	stop()
	r.add(fmt.Sprintf("list %d deployments", n), persec(rate), fmt.Sprintf("%s; server memory +%d MB", ratio(rate, r.raw.Stream, "of raw SELECT"), max(0, peak()-before)>>20))
	return nil
}

func (r *run) firstRows(ctx context.Context) error {
	page := 100
	skip := uint32(r.Deployments * 9 / 10) //nolint:gosec // it fits
	var at string
	n := uint32(0)
	for d, err := range r.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return err
		}
		if n++; n == skip {
			at = string(d.ID)
			break
		}
	}
	deployments := func(s tko.DeploymentSelect, w tko.Window) func(context.Context) error {
		return func(ctx context.Context) error {
			return first(r.client.Deployments(ctx, s, tko.ListOptions{Window: w}))
		}
	}
	for _, q := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"sites by ID prefix", func(ctx context.Context) error {
			return first(r.client.Sites(ctx, tko.SiteSelect{IDs: []string{"bench/region-07/**"}}, tko.ListOptions{Window: tko.Window{Max: &page}}))
		}},
		{"sites by one metadata key (0.1 %)", func(ctx context.Context) error {
			return first(r.client.Sites(ctx, tko.SiteSelect{Metadata: map[string]string{"rare": "group-0123"}}, tko.ListOptions{Window: tko.Window{Max: &page}}))
		}},
		{"deployments by one metadata key (1 %)", deployments(tko.DeploymentSelect{Metadata: map[string]string{"wave": "wave-03"}}, tko.Window{Max: &page})},
		{"deployments by three metadata keys", deployments(tko.DeploymentSelect{Metadata: map[string]string{
			"wave": "wave-0*", "NetworkFunction.name": "upf", "NetworkFunction.variant.version": "v1",
		}}, tko.Window{Max: &page})},
		{"deployments by site metadata (0.1 %)", deployments(tko.DeploymentSelect{SiteMetadata: map[string]string{"rare": "group-0123"}}, tko.Window{Max: &page})},
		{"deployments by site metadata (20 %)", deployments(tko.DeploymentSelect{SiteMetadata: map[string]string{"tier": "central"}}, tko.Window{Max: &page})},
		{"deep page by cursor", deployments(tko.DeploymentSelect{}, tko.Window{Max: &page, After: at})},
		{"deep page by offset", deployments(tko.DeploymentSelect{}, tko.Window{Max: &page, Offset: skip})},
	} {
		took, err := sample(ctx, r.Samples, q.do)
		if err != nil {
			return fmt.Errorf("%s: %w", q.what, err)
		}
		r.add("first row: "+q.what, "p99 "+short(quantile(took, 99)), "p50 "+short(quantile(took, 50)))
	}
	return nil
}

// first reads the first row, and gives up the rest. No row at all is an error:
// then something else would be measured.
func first[T any](rows iter.Seq2[T, error]) error {
	for _, err := range rows {
		return err
	}
	return errors.New("no row")
}

func sample(ctx context.Context, n int, do func(context.Context) error) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		if err := do(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// latency measures an idle system: what the other steps left unprepared is
// removed first.
func (r *run) latency(ctx context.Context) error {
	if _, err := r.client.PurgeDeployments(ctx, tko.DeploymentSelect{}, false); err != nil {
		return err
	}
	stop, err := r.Controllers()
	if err != nil {
		return err
	}
	defer stop()
	one := func(ctx context.Context) error {
		id, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: "workload/upf:v1"})
		if err != nil {
			return err
		}
		return r.prepared(ctx, id)
	}
	if _, err := sample(ctx, 20, one); err != nil { // warm
		return err
	}
	took, err := sample(ctx, r.Samples, one)
	if err != nil {
		return err
	}
	r.add("create to prepared, idle", "p50 "+short(quantile(took, 50)), "p99 "+short(quantile(took, 99)))
	return nil
}

func (r *run) prepared(ctx context.Context, id tko.DeploymentID) error {
	for {
		d, err := r.client.Deployment(ctx, id, 0)
		if err != nil || d.Prepared {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Microsecond):
		}
	}
}

func (r *run) placements(ctx context.Context) error {
	stop, err := r.Controllers()
	if err != nil {
		return err
	}
	defer stop()
	for _, n := range r.Placements {
		fleet := fmt.Sprintf("fleet-%d", n)
		if _, err := parallel(ctx, r.Clients, n, func(ctx context.Context, i int) error {
			_, err := r.client.RegisterSite(ctx, site(fleet, i))
			return err
		}); err != nil {
			return err
		}
		p, err := krm.Decode(krm.YAML, fmt.Appendf(nil, topology, fleet), krm.Limits{})
		if err != nil {
			return err
		}
		id := tko.TemplateID("topology/" + fleet)
		if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: id, Package: p}); err != nil {
			return err
		}
		began := time.Now()
		parent, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: id})
		if err != nil {
			return err
		}
		if err := r.prepared(ctx, parent); err != nil { // which is when all children are there
			return err
		}
		placed := time.Since(began)
		yes, no, zero := true, false, 1
		for {
			err := first(r.client.Deployments(ctx, tko.DeploymentSelect{Parent: parent, Prepared: &no}, tko.ListOptions{Window: tko.Window{Max: &zero}}))
			if err != nil {
				break // no row
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
		took := time.Since(began)
		count := 0
		for _, err := range r.client.Deployments(ctx, tko.DeploymentSelect{Parent: parent, Prepared: &yes}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			count++
		}
		if count != n {
			return fmt.Errorf("%d children are prepared, want %d", count, n)
		}
		r.add(fmt.Sprintf("placement on %d sites: children there", n), short(placed), persec(float64(n)/placed.Seconds()))
		r.add(fmt.Sprintf("placement on %d sites: all prepared", n), short(took), persec(float64(n)/took.Seconds()))
	}
	return nil
}

func persec(rate float64) string { return fmt.Sprintf("%.0f/s", rate) }

func ratio(rate, raw float64, of string) string {
	if raw == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f %s", rate/raw, of)
}

func quantile(took []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

func distribution(took []time.Duration) string {
	return "p50 " + short(quantile(took, 50)) + ", p99 " + short(quantile(took, 99))
}

func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(100 * time.Millisecond).String()
	}
}

// resident is the memory of a process in bytes, 0 if it can't be read.
func resident(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages int
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}

// watchResident watches a process's memory until stopped, and answers the peak.
func watchResident(pid int) (peak func() int, stop func()) {
	var most atomic.Int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			if now := int64(resident(pid)); now > most.Load() {
				most.Store(now)
			}
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() int { return int(most.Load()) }, func() { close(done); watching.Wait() }
}
