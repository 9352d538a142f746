package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
)

const (
	blamedRevisions = 30
	blamed          = 16 // deployments
	rowBlame        = "blame of a deployment (1.9 kB package, 30 revisions)"
	rowBlameCost    = rowBlame + ": server processor time"
)

// blame explains deployments that were modified many times, one after another.
func (r *run) blame(ctx context.Context) error {
	made, err := r.newDeployments(ctx, 1, blamed)
	if err == nil {
		err = r.blameOf(ctx, made.ids)
	}
	return errors.Join(err, made.purge(ctx))
}

func (r *run) blameOf(ctx context.Context, ids []tko.DeploymentID) error {
	value := func(revision int) string {
		if revision == 1 {
			return marker
		}
		return fmt.Sprintf("%0*d", len(marker), revision)
	}
	if _, err := r.load(ctx, r.Clients, 0, len(ids), func(ctx context.Context, p peer, i int) error {
		for revision := 1; revision < blamedRevisions; revision++ {
			if err := modifyOne(ctx, p.data, ids[i], value(revision), value(revision+1)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	n, end := 0, r.begin(ctx)
	took, err := sample(ctx, r.Samples, func(ctx context.Context) error {
		n++
		b, err := r.client.Blame(ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(ids[n%len(ids)])})
		if err == nil && (len(b.Fields) < 10 || len(b.Origins) < 2) {
			err = fmt.Errorf("the blame has %d fields of %d origins", len(b.Fields), len(b.Origins))
		}
		return err
	})
	if err == nil {
		m := end(len(took))
		r.add(latency(rowBlame, took, 100*time.Millisecond), r.processor(rowBlameCost, m, 0, "for each blame; "+m.String()))
	}
	return err
}
