package prepare

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// Batches reads and commits several deployments by one call. A [Client] that has
// these methods is used so when several deployments are prepared concurrently.
type Batches interface {
	// DeploymentsByID returns deployments, in no particular order. It leaves out
	// those that don't exist, and may leave out others. It returns
	// errors.ErrUnsupported if the data controller is too old.
	DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, error)
	// CommitDeployments commits different deployments independently of each other.
	// The revision of one that wasn't committed is 0. After an error, some of them
	// may have been committed.
	CommitDeployments(ctx context.Context, commits []tko.DeploymentCommit) (revisions []int64, err error)
}

// Limits of batches.
const (
	maxBatch      = 64
	maxCalls      = 2           // concurrent calls: one is decided while the other is written
	batchLimit    = time.Minute // of one call
	unbatchedTime = time.Minute // how long batches pause after a data controller lacked them
)

// A batcher is a [Client] that combines concurrent reads and commits: those that
// are requested while a call is under way share the next one. It delays no request
// for that. What a batch leaves out or doesn't commit is read or committed alone,
// which returns the reason.
type batcher struct {
	Client

	reads   batch[tko.DeploymentID, tko.Deployment]
	commits batch[tko.DeploymentCommit, int64]
}

// batched returns a client that batches, if it can.
func batched(c Client) Client {
	batches, ok := c.(Batches)
	if !ok {
		return c
	}
	b := &batcher{Client: c}
	b.reads.do = func(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, []bool, error) {
		found, err := batches.DeploymentsByID(ctx, ids)
		if err != nil {
			return nil, nil, err
		}
		byID := make(map[tko.DeploymentID]tko.Deployment, len(found))
		for _, d := range found {
			byID[d.ID] = d
		}
		all, done := make([]tko.Deployment, len(ids)), make([]bool, len(ids))
		for i, id := range ids {
			all[i], done[i] = byID[id]
			delete(byID, id) // each caller owns its deployment
		}
		return all, done, nil
	}
	b.commits.do = func(ctx context.Context, commits []tko.DeploymentCommit) ([]int64, []bool, error) {
		revisions, err := batches.CommitDeployments(ctx, commits)
		if err != nil {
			return nil, nil, err
		}
		done := make([]bool, len(commits))
		for i := range done {
			done[i] = i < len(revisions) && revisions[i] != 0
		}
		return revisions, done, nil
	}
	return b
}

// Deployment returns a deployment as it was at a revision, or as it is.
func (b *batcher) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	if revision == 0 {
		if d, ok, err := b.reads.run(ctx, id); ok || err != nil {
			return d, err
		}
	}
	return b.Client.Deployment(ctx, id, revision)
}

// CommitDeployment commits a deployment.
func (b *batcher) CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (int64, error) {
	_, claimed := tko.ClaimOf(ctx)
	acting, named := tko.ActingOf(ctx)
	named = named && !acting.Is(tko.Acting{Kind: tko.KindDeployment, ID: string(commit.ID)})
	if author := tko.AuthorOf(ctx); !claimed && !named && author.Who == topology.Author { // each commit of a batch is for its deployment
		c := commit
		c.Why, c.Cause = author.Why, trail.Cause(ctx)
		if revision, ok, err := b.commits.run(ctx, c); ok || err != nil {
			return revision, err
		}
	}
	return b.Client.CommitDeployment(ctx, commit)
}

// A batch combines concurrent requests.
type batch[Q, A any] struct {
	// do makes a call. done reports for each request whether it has a result.
	do func(ctx context.Context, requests []Q) (results []A, done []bool, err error)

	mutex   sync.Mutex
	waiting []*request[Q, A]
	calls   int       // under way
	single  time.Time // until then, requests are not batched
}

type request[Q, A any] struct {
	caller context.Context //nolint:containedctx // ends when the caller stops waiting
	q      Q
	result A
	ok     bool
	err    error
	leads  bool
	done   chan bool // false: it has its result; true: the caller makes the next call
}

// run makes a request together with others. It returns false if the caller must
// make the request alone.
func (b *batch[Q, A]) run(ctx context.Context, q Q) (result A, ok bool, err error) {
	r := &request[Q, A]{caller: ctx, q: q, done: make(chan bool, 2)}
	b.mutex.Lock()
	if time.Now().Before(b.single) {
		b.mutex.Unlock()
		return result, false, nil
	}
	b.waiting = append(b.waiting, r)
	if b.calls < maxCalls {
		b.calls++
		r.lead()
	}
	b.mutex.Unlock()
	if leads := <-r.done; leads { // also if the context ends: the request may be executed
		runtime.Gosched() // requests that are about to be made join this call
		b.call()
		<-r.done
	}
	return r.result, r.ok, r.err
}

// call makes a call with the requests that wait, and lets one of those that have
// come meanwhile make the next.
func (b *batch[Q, A]) call() {
	b.mutex.Lock()
	n := min(len(b.waiting), maxBatch)
	requests := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.mutex.Unlock()
	b.execute(requests)
	for _, r := range requests {
		r.done <- false
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, r := range b.waiting {
		if !r.leads {
			r.lead()
			return
		}
	}
	b.calls--
}

// lead lets the caller of a request make the next call, with whichever requests wait
// then. The batch's mutex is held.
func (r *request[Q, A]) lead() {
	r.leads = true
	r.done <- true
}

// execute fills in the results. A request without others is made alone.
func (b *batch[Q, A]) execute(requests []*request[Q, A]) {
	if len(requests) < 2 {
		return
	}
	questions := make([]Q, len(requests))
	for i, r := range requests {
		questions[i] = r.q
	}
	// A caller that stops waiting must not end the requests of the others. Commits
	// have reasons of their own.
	// Nor is the call of one of their requests: each commit has its cause.
	ctx := trail.Detach(context.WithoutCancel(requests[0].caller))
	ctx = tko.WithAuthor(ctx, tko.Author{Who: topology.Author})
	ctx = tko.WithActing(ctx, tko.Acting{}) // nor for the deployment of one of them
	ctx, cancel := context.WithTimeout(ctx, batchLimit)
	defer cancel()
	results, done, err := b.do(ctx, questions)
	if errors.Is(err, errors.ErrUnsupported) {
		b.mutex.Lock()
		b.single = time.Now().Add(unbatchedTime)
		b.mutex.Unlock()
		return
	}
	for i, r := range requests {
		switch {
		case errors.Is(err, tko.ErrInvalid): // of the batch as a whole, such as its size
		case err != nil:
			r.err = err
		case done[i]:
			r.result, r.ok = results[i], true
		}
	}
}
