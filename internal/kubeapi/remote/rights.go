package remote

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/sibling"
)

// rightsAge is the interval at which the rights of watchers are compared again.
const rightsAge = time.Second

// RevealsSecrets implements kubeapi.Reader. Without a response, it reveals nothing.
func (c *Catalog) RevealsSecrets(ctx context.Context, r record.Record) bool {
	may := false
	return sibling.Call(ctx, c.peer, reveals, withoutPackage(r), &may) == nil && may
}

// Rights implements kubeapi.Follower.
func (c *Catalog) Rights(ctx context.Context) (rights.Rights, error) {
	w := &watcher{catalog: c, ctx: ctx, checked: time.Now()}
	err := sibling.Call(ctx, c.peer, rightsCall, none{}, &w.rightsOf)
	return w, err
}

// A watcher is what the caller of a watch may see. It is for one goroutine.
type watcher struct {
	rightsOf

	catalog *Catalog
	ctx     context.Context //nolint:containedctx // of the watch
	checked time.Time
}

func (w *watcher) All() bool { return w.rightsOf.All }

// Sees asks the server, for watchers that don't see everything. Without a response,
// they see nothing.
func (w *watcher) Sees(r record.Record) bool {
	if w.rightsOf.All {
		return r.Revision != 0
	}
	may := false
	return r.Revision != 0 && sibling.Call(w.ctx, w.catalog.peer, sees, withoutPackage(r), &may) == nil && may
}

// withoutPackage returns what rights depend on.
func withoutPackage(r record.Record) record.Record {
	r.Package, r.Plugin, r.Conditions, r.Deployments = nil, nil, nil, nil
	return r
}

func (w *watcher) Interval() (ticks <-chan time.Time, stop func()) {
	ticker := time.NewTicker(rightsAge)
	return ticker.C, ticker.Stop
}

func (w *watcher) Still(ctx context.Context) error {
	if time.Since(w.checked) < rightsAge {
		return nil
	}
	w.checked = time.Now()
	var now rightsOf
	if err := sibling.Call(ctx, w.catalog.peer, rightsCall, none{}, &now); err != nil {
		return err
	}
	if now != w.rightsOf {
		return tko.Errorf(tko.ErrDenied, "the rights of the caller have changed: list again, and watch from there")
	}
	return nil
}
