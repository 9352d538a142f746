package grpcapi

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// A PastBackend implements tko.Past.
type PastBackend interface {
	HistoryOf(ctx context.Context, request tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error]
	DiffPast(ctx context.Context, request tko.DiffRequest) iter.Seq2[tko.PastGroup, error]
	RestorePast(ctx context.Context, request tko.RestoreRequest) (tko.Restored, error)
}

// pastService implements tko.Past on a backend.
type pastService struct {
	tkopb.UnimplementedPastServer

	backend Backend
}

// moments reads two moments.
func moments(from, to string) (first, last tko.AsOf, err error) {
	if first, err = wire.AsOf(from); err == nil {
		last, err = wire.AsOf(to)
	}
	return first, last, err
}

func (p *pastService) ListHistory(m *tkopb.ListHistory, s grpc.ServerStreamingServer[tkopb.HistoryEntry]) error {
	from, to, err := moments(m.GetFrom(), m.GetTo())
	if err != nil {
		return err
	}
	return sendList(s, p.backend.HistoryOf(s.Context(), tko.HistoryRequest{Select: wire.PastSelect.Read(m.GetSelect()), From: from, To: to, Max: int(m.GetMaxCount())}), wire.NewHistoryEntry)
}

func (p *pastService) DiffPast(m *tkopb.DiffPast, s grpc.ServerStreamingServer[tkopb.PastGroup]) error {
	from, to, err := moments(m.GetFrom(), m.GetTo())
	if err != nil {
		return err
	}
	request := tko.DiffRequest{Select: wire.PastSelect.Read(m.GetSelect()), From: from, To: to, FromRevision: m.GetFromRevision(), ToRevision: m.GetToRevision()}
	return sendList(s, p.backend.DiffPast(s.Context(), request), wire.PastGroup.Write)
}

func (p *pastService) RestorePast(ctx context.Context, m *tkopb.RestorePast) (*tkopb.RestorePastResponse, error) {
	asOf, err := wire.AsOf(m.GetAsOf())
	if err != nil {
		return nil, err
	}
	if n := m.GetConfirm(); n > 0 {
		ctx = tko.WithConfirmation(ctx, wire.Count(n))
	}
	r, err := p.backend.RestorePast(ctx, tko.RestoreRequest{Select: wire.PastSelect.Read(m.GetSelect()), AsOf: asOf, DryRun: m.GetDryRun()})
	if err != nil {
		return nil, err
	}
	if _, err := past(ctx, m); err != nil {
		return nil, err
	}
	return wire.Restored.Write(r), nil
}
