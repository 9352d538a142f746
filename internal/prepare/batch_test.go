package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// counted is a data controller of which the calls are counted, and of which batches
// can fail.
type counted struct {
	*client.Client

	reads, commits, batchReads, batchCommits atomic.Int64
	batch                                    func(do func() error) error // calls do or not
}

func (c *counted) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	c.reads.Add(1)
	return c.Client.Deployment(ctx, id, revision)
}

func (c *counted) CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (int64, error) {
	c.commits.Add(1)
	return c.Client.CommitDeployment(ctx, commit)
}

func (c *counted) DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) (all []tko.Deployment, err error) {
	c.batchReads.Add(1)
	err = c.batch(func() (err error) {
		all, err = c.Client.DeploymentsByID(ctx, ids)
		return err
	})
	return all, err
}

func (c *counted) CommitDeployments(ctx context.Context, commits []tko.DeploymentCommit) (revisions []int64, err error) {
	c.batchCommits.Add(1)
	err = c.batch(func() (err error) {
		revisions, err = c.Client.CommitDeployments(ctx, commits)
		return err
	})
	return revisions, err
}

const plainBatch = 300

// backlog creates deployments, and prepares them when all exist.
func backlog(t *testing.T, batch func(do func() error) error) *counted {
	t.Helper()
	data := newSystem(t)
	register(t, data, map[string]string{"leaf": realLeaf}, map[string]string{"s": ""})
	for range plainBatch {
		if _, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Template: "leaf", Site: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	c := &counted{Client: data, batch: batch}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := prepare.New(c, runner{}, prepare.Options{Concurrency: 64}).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	eventually.True(t, "all are prepared", func() bool { return allPrepared(t, data) })
	cancel()
	running.Wait()
	for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Stamp.Revision != 2 {
			t.Errorf("deployment %s is at revision %d: it was committed more than once", d.ID, d.Stamp.Revision)
		}
	}
	return c
}

func works(do func() error) error { return do() }

func TestBacklogIsReadAndCommittedInBatches(t *testing.T) {
	t.Parallel()
	c := backlog(t, works)
	if n := c.batchReads.Load() + c.reads.Load(); n > plainBatch/3 {
		t.Errorf("%d deployments were read by %d calls", plainBatch, n)
	}
	if n := c.batchCommits.Load() + c.commits.Load(); n > plainBatch/3 {
		t.Errorf("%d deployments were committed by %d calls", plainBatch, n)
	}
}

func TestOldDataControllerNeedsNoBatches(t *testing.T) {
	t.Parallel()
	c := backlog(t, func(func() error) error { return fmt.Errorf("unknown method: %w", errors.ErrUnsupported) })
	if n := c.commits.Load(); n < plainBatch {
		t.Errorf("%d commits alone, want %d", n, plainBatch)
	}
	if n := c.batchReads.Load() + c.batchCommits.Load(); n > 8 {
		t.Errorf("%d batches were tried: one of each kind, and those under way, tell that there are none", n)
	}
}

// The data controller is killed in the midst of batches: responses are lost before
// or after the commit.
func TestLostBatchesLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	var lost atomic.Int64
	backlog(t, func(do func() error) error {
		if lost.Load() > 20 {
			return do()
		}
		switch rand.IntN(3) { //nolint:gosec // which are lost is no secret
		case 0:
			lost.Add(1)
			return fmt.Errorf("lost: %w", tko.ErrUnavailable)
		case 1:
			lost.Add(1)
			_ = do()
			return fmt.Errorf("lost after the commit: %w", tko.ErrUnavailable)
		default:
			return do()
		}
	})
	if lost.Load() == 0 {
		t.Error("no batch was lost")
	}
}

func TestSingleDeploymentMakesNoBatch(t *testing.T) {
	t.Parallel()
	data := newSystem(t)
	register(t, data, map[string]string{"leaf": realLeaf}, nil)
	c := &counted{Client: data, batch: works}
	p := prepare.New(c, runner{}, prepare.Options{})
	for range 3 {
		id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Template: "leaf"})
		if err != nil {
			t.Fatal(err)
		}
		p.Prepare(t.Context(), tko.WorkItem{Queue: tko.QueuePrepare, Key: string(id)})
		if d, err := data.Deployment(t.Context(), id, 0); err != nil || !d.Prepared {
			t.Errorf("prepared: %t, %v", d.Prepared, err)
		}
	}
	if r, c := c.reads.Load(), c.commits.Load(); r != 3 || c != 3 {
		t.Errorf("%d reads and %d commits alone, want 3 of each", r, c)
	}
	if n := c.batchReads.Load() + c.batchCommits.Load(); n != 0 {
		t.Errorf("%d batches of one deployment: they take longer than single calls", n)
	}
}
