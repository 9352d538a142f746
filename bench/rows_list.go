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
func (r *run) streams(ctx context.Context) (err error) {
	n, own := r.StreamSites, r.scope("sites")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	template, err := own.template(ctx, "template", nil, siteMetadata)
	if err != nil {
		return err
	}
	if _, err := own.registerSites(ctx, n, tko.Site{Template: template}); err != nil {
		return err
	}
	if r.Restart != nil {
		if err := r.restart(ctx); err != nil { // so that memory growth is that of the lists
			return err
		}
	}
	if err := r.streamRows(ctx, rowStreamSites(n), n, own.name+"/site-", tko.Deployment{Template: template, Metadata: siteMetadata},
		func(data tkopb.DataClient) (func() error, error) {
			stream, err := data.ListSites(ctx, &tkopb.ListSites{Select: &tkopb.SelectSites{SiteIdPatterns: []string{own.name + "/site-*"}}, Window: &tkopb.Window{MaxCount: -1}})
			return func() error { _, err := stream.Recv(); return err }, err
		}); err != nil {
		return err
	}
	if err := r.streamFleet(ctx); err != nil {
		return err
	}
	return r.whileWriting(ctx, rowPurge(n), func() error {
		_, err := r.client.PurgeSites(tko.WithConfirmation(ctx, n), tko.SiteSelect{IDs: []string{own.name + "/**"}}, false)
		return err
	})
}

// streamFleet lists the first deployments of the fleet.
func (r *run) streamFleet(ctx context.Context) error {
	leaf, err := first(r.client.Deployments(ctx, tko.DeploymentSelect{Sites: []string{r.fleet.Name() + "/**"}}, tko.ListOptions{}))
	if err != nil {
		return err
	}
	n := r.streamed()
	return r.streamRows(ctx, rowStreamDeployments(n), n, "deployment-id-of-about-this-length", leaf,
		func(data tkopb.DataClient) (func() error, error) {
			stream, err := data.ListDeployments(ctx, &tkopb.ListDeployments{Select: &tkopb.SelectDeployments{}, Window: &tkopb.Window{MaxCount: int32(n)}}) //nolint:gosec // it is in bounds
			return func() error { _, err := stream.Recv(); return err }, err
		})
}

// streamRows measures a list of n rows, next to a SELECT of n rows with the columns of one
// like them.
func (r *run) streamRows(ctx context.Context, what string, n int, id string, like tko.Deployment, open func(tkopb.DataClient) (receive func() error, err error)) error {
	peers, closeAll, err := r.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll()
	raw, err := r.raw.streamRows(ctx, n, id, like)
	if err != nil {
		return err
	}
	const times = 3
	var best float64
	var all measurement
	growth, err := r.memory(rowGrowth(what), func() error {
		end := r.begin(ctx)
		for range times {
			began := time.Now()
			if err := receiveAll(n, peers[0].data, open); err != nil {
				return err
			}
			best = max(best, float64(n)/time.Since(began).Seconds())
		}
		all = end(n * times)
		return nil
	})
	if err != nil {
		return err
	}
	r.add(rate(what, best, raw, "raw SELECT", 0.5).with(fmt.Sprintf("the best of %d", times), all.String()), growth)
	return nil
}

func receiveAll(n int, data tkopb.DataClient, open func(tkopb.DataClient) (receive func() error, err error)) error {
	receive, err := open(data)
	rows := -1 // the last one is the end
	for ; err == nil; rows++ {
		err = receive()
	}
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case rows != n:
		return fmt.Errorf("the list has %d rows, want %d", rows, n)
	}
	return nil
}
