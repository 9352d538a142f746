package grpcapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// errStopping is the error of calls that would delay a graceful stop.
var errStopping = tko.Errorf(wire.ErrUnavailable, "the server is stopping")

func (d *data) SetConditions(ctx context.Context, m *tkopb.SetConditions) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, d.backend.SetConditions(ctx, tko.Kind(m.GetKind()), m.GetId(), wire.Conditions(m.GetConditions()))
}

func (d *data) ClaimWork(ctx context.Context, m *tkopb.ClaimWork) (*tkopb.ClaimWorkResponse, error) {
	claim, err := wire.ClaimWork(m)
	if err != nil {
		return nil, err
	}
	if claim.Wait > 0 {
		caller, _ := identity.From(ctx)
		slot, err := d.limiter.take(ctx, caller)
		if err != nil {
			return nil, err
		}
		defer slot.release()
	}
	ctx, stop := d.untilStopping(ctx)
	defer stop()
	items, err := d.backend.ClaimWork(ctx, claim)
	if err != nil {
		return nil, stopped(ctx, err)
	}
	return &tkopb.ClaimWorkResponse{Items: wire.NewWorkItems(items)}, nil
}

func (d *data) RenewWork(ctx context.Context, m *tkopb.RenewWork) (*tkopb.RenewWorkResponse, error) {
	lease, err := wire.Duration("lease", m.GetLease())
	if err != nil {
		return nil, err
	}
	items, err := d.backend.RenewWork(ctx, wire.WorkItems(m.GetItems()), lease)
	return &tkopb.RenewWorkResponse{Items: wire.NewWorkItems(items)}, err
}

func (d *data) FinishWork(ctx context.Context, m *tkopb.FinishWork) (*emptypb.Empty, error) {
	items, err := wire.FinishWork(m)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, d.backend.FinishWork(ctx, items)
}

// untilStopping returns a context that ends with errStopping as its cause when
// the server begins to stop.
func (d *data) untilStopping(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-d.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}

// stopped returns errStopping if that is the cause of the end of the context,
// otherwise err.
func stopped(ctx context.Context, err error) error {
	if context.Cause(ctx) == errStopping { //nolint:errorlint // the cause is that very variable, never wrapped
		return errStopping
	}
	return err
}
