package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

func rowStreamSites(n int) string { return fmt.Sprintf("stream %s sites", thousands(n)) }

func rowStreamDeployments(n int) string { return fmt.Sprintf("stream %s deployments", thousands(n)) }

func rowGrowth(row string) string { return row + ": memory growth of the server" }

// aimStream is the part of raw SELECT that a list has to reach.
const aimStream = 0.5

// thousands writes a number with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// streamed is the number of deployments of the fleet that are streamed.
func (o *Options) streamed() int { return min(o.StreamDeployments, o.Deployments) }

// streams lists sites and deployments that nothing else writes, and then deletes the
// sites while clients write.
func (r *run) streams(ctx context.Context) error {
	name, n := r.name("sites"), r.StreamSites
	l, err := newLoad(ctx, r.Address, r.Clients)
	if err != nil {
		return err
	}
	defer l.close()
	template := tko.TemplateID(name + "/template")
	if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: template, Metadata: siteMetadata}); err != nil {
		return err
	}
	if _, err := l.run(ctx, n, func(ctx context.Context, client, i int) error {
		_, err := l.clients[client].RegisterSite(ctx, tko.Site{ID: tko.SiteID(fmt.Sprintf("%s/site-%06d", name, i)), Template: template})
		return err
	}); err != nil {
		return err
	}
	if r.Restart != nil {
		if err := r.restart(ctx); err != nil { // so that memory growth is that of the lists
			return err
		}
	}
	err = r.streamRows(ctx, rowStreamSites(n), n, name+"/site-", string(template), "", siteMetadata,
		func(ctx context.Context, data tkopb.DataClient) (func() error, error) {
			stream, err := data.ListSites(ctx, &tkopb.ListSites{Select: &tkopb.SelectSites{SiteIdPatterns: []string{name + "/site-*"}}, Window: &tkopb.Window{MaxCount: -1}})
			return func() error { _, err := stream.Recv(); return err }, err
		})
	if err == nil {
		err = r.streamFleet(ctx)
	}
	if err == nil {
		err = r.whileWriting(ctx, rowPurge(n), func() error {
			_, err := r.client.PurgeSites(tko.WithConfirmation(ctx, n), tko.SiteSelect{IDs: []string{name + "/**"}}, false)
			return err
		})
	}
	_, deleted := r.client.DeleteTemplate(ctx, template)
	return errors.Join(err, deleted)
}

// streamFleet lists the first deployments of the fleet.
func (r *run) streamFleet(ctx context.Context) error {
	d, err := r.leaf(ctx)
	if err != nil {
		return err
	}
	n := r.streamed()
	return r.streamRows(ctx, rowStreamDeployments(n), n, "deployment-id-of-about-this-length", string(d.Template), string(d.Site), d.Metadata,
		func(ctx context.Context, data tkopb.DataClient) (func() error, error) {
			stream, err := data.ListDeployments(ctx, &tkopb.ListDeployments{Select: &tkopb.SelectDeployments{}, Window: &tkopb.Window{MaxCount: int32(n)}}) //nolint:gosec // it is in bounds
			return func() error { _, err := stream.Recv(); return err }, err
		})
}

// leaf returns a deployment of the fleet that is at a site.
func (r *run) leaf(ctx context.Context) (tko.Deployment, error) {
	for d, err := range r.client.Deployments(ctx, tko.DeploymentSelect{Sites: []string{r.fleet.Name() + "/**"}}, tko.ListOptions{}) {
		return d, err
	}
	return tko.Deployment{}, errNoRow
}

// streamRows measures a list of n rows, next to a SELECT of n rows like them.
func (r *run) streamRows(
	ctx context.Context, what string, n int, id, template, site string, metadata map[string]string,
	open func(context.Context, tkopb.DataClient) (receive func() error, err error),
) error {
	l, err := newLoad(ctx, r.Address, 1)
	if err != nil {
		return err
	}
	defer l.close()
	raw, err := r.raw.streamRows(ctx, n, id, template, site, metadata)
	if err != nil {
		return err
	}
	idle := resident(r.PID)
	stopWatching := watchResident(r.PID)
	before := r.cost(ctx)
	var best float64
	const times = 3
	for range times {
		began, rows := time.Now(), 0
		receive, err := open(ctx, l.data[0])
		for ; err == nil; rows++ {
			err = receive()
		}
		if !errors.Is(err, io.EOF) {
			stopWatching()
			return err
		}
		if rows--; rows != n {
			stopWatching()
			return fmt.Errorf("the list has %d rows, want %d", rows, n)
		}
		best = max(best, float64(n)/time.Since(began).Seconds())
	}
	spent := r.since(ctx, before, n*times)
	peak := stopWatching()
	row := rate(what, best, raw, "raw SELECT")
	row.Aim = aimStream * raw
	row.also(fmt.Sprintf("the best of %d; %s", times, spent))
	r.add(row)
	if r.PID == 0 || idle == 0 {
		r.add(Row{What: rowGrowth(what), Missing: "the server's process is not known: set -pid"})
		return nil
	}
	r.add(Row{What: rowGrowth(what), Value: float64(max(0, peak-idle)), Unit: Bytes, Aim: 64e6, Note: fmt.Sprintf("to %d MB at the most", peak/1e6)})
	return nil
}
