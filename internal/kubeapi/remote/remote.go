package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/internal/turn"
)

func init() { sibling.RegisterError[*record.ExistsError]("exists") }

// The names of the methods.
const (
	position      = "catalog.Position"
	positionOf    = "catalog.PositionOf"
	recordNow     = "catalog.Record"
	recordAt      = "catalog.RecordAt"
	records       = "catalog.Records"
	named         = "catalog.Named"
	putRecord     = "catalog.PutRecord"
	putConditions = "catalog.PutConditions"
	removeRecord  = "catalog.RemoveRecord"
	removeRecords = "catalog.RemoveRecords"
	putApproval   = "catalog.PutApproval"
	rolloutDo     = "catalog.RolloutDo"
	checkPosition = "catalog.CheckPosition"
	events        = "catalog.Events"
	before        = "catalog.Before"
	rightsCall    = "rights.Rights"
	sees          = "catalog.Sees"
	reveals       = "catalog.RevealsSecrets"
)

// The requests and responses.
type (
	none     struct{}
	recordOf struct {
		Fields record.Fields
		Key    record.Key
	}
	recordAtOf struct {
		Fields   record.Fields
		Key      record.Key
		Position int64
	}
	recordsOf struct {
		Query    record.Query
		Position int64
	}
	// A put is a catalog.Put without its function.
	put struct {
		catalog.Put

		Permit bool // whether the caller permits
	}
	// A step of PutRecord: a change to permit, or the result.
	step struct {
		Ask           bool
		Before, After record.Record
		Created       bool
		Warnings      []string // with the result
	}
	permission   struct{ Refusal *refusal }
	conditionsOf struct {
		Key        record.Key
		Conditions []tko.Condition
		Without    []string
		Require    record.Requirement
		DryRun     bool
	}
	change struct {
		Key     record.Key
		Require record.Requirement
		DryRun  bool
	}
	changes struct {
		Kind    tko.Kind
		IDs     []string
		Require record.Requirement
		DryRun  bool
	}
	removal struct {
		Record  record.Record
		Deleted tko.Deleted
	}
	// rightsOf are what a caller may see.
	rightsOf struct {
		All bool
		Key string
	}
	eventsOf struct {
		Kind  tko.Kind
		After int64
	}
	eventList struct {
		Events []changelog.Event
		UpTo   int64
	}
)

// A refusal is the error of a permission. It does not leave the caller's process: the
// catalog gets it back as it is.
type refusal struct{ Message string }

// errRefused is the catalog's error if the caller refuses a change.
var errRefused = errors.New("the caller refused the change")

// Methods are the catalog's methods for a [Catalog]. Those that read for a user take turns.
func Methods(service *catalog.Service, turns *turn.Queue) sibling.Endpoint {
	methods := methodsOf(service)
	for name, weight := range turnWeights {
		methods[name] = inTurn(turns, weight, methods[name])
	}
	return methods
}

// turnWeights are the weights of the methods that take turns.
var turnWeights = map[string]int{recordNow: turn.Light, recordAt: turn.Light, named: turn.Light, before: turn.Light, records: turn.Heavy}

// inTurn returns a method whose calls for a user take turns.
func inTurn(turns *turn.Queue, weight int, method sibling.Handler) sibling.Handler {
	return func(ctx context.Context, s *sibling.Stream) error {
		caller, ok := identity.From(ctx)
		if !ok || caller.Role() != "" {
			return method(ctx, s)
		}
		host, _, err := net.SplitHostPort(caller.From)
		if err != nil {
			host = caller.From
		}
		t, err := turns.Begin(ctx, caller.Client(host), weight)
		if errors.Is(err, turn.ErrFull) {
			return tko.Errorf(tko.ErrBusy, "%w", err)
		}
		if err != nil {
			return err
		}
		defer t.Done()
		return method(turn.With(ctx, t), s)
	}
}

func methodsOf(service *catalog.Service) sibling.Endpoint {
	return sibling.Endpoint{
		position:   sibling.Unary(func(ctx context.Context, _ none) (int64, error) { return service.Position(ctx) }),
		positionOf: sibling.Unary(service.PositionOf),
		recordAt: sibling.Unary(func(ctx context.Context, in recordAtOf) (record.Record, error) {
			return service.RecordAt(ctx, in.Fields, in.Key, in.Position)
		}),
		recordNow: sibling.Unary(func(ctx context.Context, in recordOf) (record.Record, error) {
			return service.Record(ctx, in.Fields, in.Key)
		}),
		records: func(ctx context.Context, s *sibling.Stream) error {
			var in recordsOf
			if err := s.Receive(&in); err != nil {
				return err
			}
			for r, err := range service.Records(ctx, in.Query, in.Position) {
				if err != nil {
					return err
				}
				if err := turn.Send(ctx, func() error { return s.Send(r) }); err != nil {
					return err
				}
			}
			return nil
		},
		named:     sibling.Unary(service.Named),
		putRecord: func(ctx context.Context, s *sibling.Stream) error { return servePut(ctx, service, s) },
		putConditions: sibling.Unary(func(ctx context.Context, in conditionsOf) (record.Record, error) {
			return service.PutConditions(ctx, in.Key, in.Conditions, in.Without, in.Require, in.DryRun)
		}),
		removeRecord: sibling.Unary(func(ctx context.Context, in change) (out removal, err error) {
			out.Record, out.Deleted, err = service.RemoveRecord(ctx, in.Key, in.Require, in.DryRun)
			return out, err
		}),
		removeRecords: sibling.Unary(func(ctx context.Context, in changes) (tko.Deleted, error) {
			return service.RemoveRecords(ctx, in.Kind, in.IDs, in.Require, in.DryRun)
		}),
		putApproval: sibling.Unary(func(ctx context.Context, in change) (record.Record, error) {
			return service.PutApproval(ctx, in.Key, in.Require, in.DryRun)
		}),
		rolloutDo:     sibling.Unary(service.RolloutDo),
		checkPosition: sibling.Unary(func(ctx context.Context, at int64) (none, error) { return none{}, service.CheckPosition(ctx, at) }),
		events:        func(ctx context.Context, s *sibling.Stream) error { return serveEvents(ctx, service, s) },
		before:        sibling.Unary(service.Before),
		rightsCall: sibling.Unary(func(ctx context.Context, _ none) (out rightsOf, err error) {
			w, err := service.Watcher(ctx)
			if err != nil {
				return out, err
			}
			return rightsOf{All: w.All(), Key: w.Key()}, nil
		}),
		sees: sibling.Unary(func(ctx context.Context, r record.Record) (bool, error) {
			w, err := service.Watcher(ctx)
			return err == nil && w.Sees(r), err
		}),
		reveals: sibling.Unary(func(ctx context.Context, r record.Record) (bool, error) { return service.RevealsSecrets(ctx, r), nil }),
	}
}

// servePut asks the caller whether it permits the change, each time that the store
// derives it.
func servePut(ctx context.Context, service *catalog.Service, s *sibling.Stream) error {
	var in put
	if err := s.Receive(&in); err != nil {
		return err
	}
	p := in.Put
	if in.Permit {
		p.Permit = func(before, after record.Record) error {
			if err := s.Send(step{Ask: true, Before: before, After: after}); err != nil {
				return err
			}
			var permitted permission
			if err := s.Receive(&permitted); err != nil {
				return err
			}
			if permitted.Refusal != nil {
				return errRefused
			}
			return nil
		}
	}
	ctx, warnings := tko.CollectWarnings(ctx)
	r, created, err := service.PutRecord(ctx, p)
	if err != nil {
		return err
	}
	return s.Send(step{After: r, Created: created, Warnings: warnings()})
}

// serveEvents sends the events after a position. If there are none, it sends a value
// once there may be some.
func serveEvents(ctx context.Context, service *catalog.Service, s *sibling.Stream) error {
	var in eventsOf
	if err := s.Receive(&in); err != nil {
		return err
	}
	list, upTo, wait, err := service.Events(ctx, in.Kind, in.After)
	if err != nil {
		return err
	}
	if err := s.Send(eventList{Events: list, UpTo: upTo}); err != nil || len(list) > 0 {
		return err
	}
	select {
	case <-wait:
		return s.Send(none{})
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Catalog is the catalog of the server that this process belongs to. It implements
// kubeapi.Catalog.
type Catalog struct {
	peer *sibling.Peer
	ctx  context.Context //nolint:containedctx // of waiting for changes, which callers share

	mu    sync.Mutex
	waits map[tko.Kind]wait
}

// A wait is for changes of a kind after a position. All callers share it, so that the
// server has one call per kind and not one per watcher.
type wait struct {
	after int64
	done  chan struct{}
}

// New returns the catalog of a server. ctx ends waiting for changes.
func New(ctx context.Context, server *sibling.Peer) *Catalog {
	return &Catalog{peer: server, ctx: ctx, waits: map[tko.Kind]wait{}}
}

// Position returns the position of the newest change.
func (c *Catalog) Position(ctx context.Context) (at int64, err error) {
	err = sibling.Call(ctx, c.peer, position, none{}, &at)
	return at, err
}

// Record implements kubeapi.Reader.
func (c *Catalog) Record(ctx context.Context, fields record.Fields, key record.Key) (r record.Record, err error) {
	err = sibling.Call(ctx, c.peer, recordNow, recordOf{fields, key}, &r)
	return r, err
}

// PositionOf implements kubeapi.Past.
func (c *Catalog) PositionOf(ctx context.Context, asOf tko.AsOf) (at int64, err error) {
	err = sibling.Call(ctx, c.peer, positionOf, asOf, &at)
	return at, err
}

// RecordAt implements kubeapi.Past.
func (c *Catalog) RecordAt(ctx context.Context, fields record.Fields, key record.Key, at int64) (r record.Record, err error) {
	err = sibling.Call(ctx, c.peer, recordAt, recordAtOf{fields, key, at}, &r)
	return r, err
}

// Records implements kubeapi.Reader.
func (c *Catalog) Records(ctx context.Context, query record.Query, at int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, _, err := sibling.Open(ctx, c.peer, records)
		if err == nil {
			err = s.Send(recordsOf{query, at})
		}
		if err != nil && !errors.Is(err, io.EOF) {
			yield(record.Record{}, err)
			return
		}
		for {
			var r record.Record
			err := s.Receive(&r)
			if errors.Is(err, io.EOF) || !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Named implements kubeapi.Reader.
func (c *Catalog) Named(ctx context.Context, name string) (key record.Key, err error) {
	err = sibling.Call(ctx, c.peer, named, name, &key)
	return key, err
}

// PutRecord implements kubeapi.Writer.
func (c *Catalog) PutRecord(ctx context.Context, p catalog.Put) (r record.Record, created bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, _, err := sibling.Open(ctx, c.peer, putRecord)
	if err != nil {
		return r, false, err
	}
	permit := p.Permit
	p.Permit = nil
	if err := s.Send(put{Put: p, Permit: permit != nil}); err != nil && !errors.Is(err, io.EOF) {
		return r, false, err
	}
	var refused error // the caller's own error, with its type
	for {
		var next step
		if err := s.Receive(&next); err != nil {
			if refused != nil {
				err = refused
			}
			return r, false, err
		}
		for _, text := range next.Warnings {
			tko.Warn(ctx, text)
		}
		if !next.Ask {
			return next.After, next.Created, nil
		}
		var response permission
		refused = permit(next.Before, next.After)
		if refused != nil {
			response.Refusal = &refusal{refused.Error()}
		}
		if err := s.Send(response); err != nil && !errors.Is(err, io.EOF) {
			return r, false, err
		}
	}
}

// PutConditions implements kubeapi.Writer.
func (c *Catalog) PutConditions(ctx context.Context, key record.Key, conditions []tko.Condition, without []string, require record.Requirement, dryRun bool) (r record.Record, err error) {
	err = sibling.Call(ctx, c.peer, putConditions, conditionsOf{key, conditions, without, require, dryRun}, &r)
	return r, err
}

// RemoveRecord implements kubeapi.Writer.
func (c *Catalog) RemoveRecord(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, tko.Deleted, error) {
	var out removal
	err := sibling.Call(ctx, c.peer, removeRecord, change{key, require, dryRun}, &out)
	return out.Record, out.Deleted, err
}

// RemoveRecords implements kubeapi.Writer.
func (c *Catalog) RemoveRecords(ctx context.Context, kind tko.Kind, ids []string, require record.Requirement, dryRun bool) (d tko.Deleted, err error) {
	err = sibling.Call(ctx, c.peer, removeRecords, changes{kind, ids, require, dryRun}, &d)
	return d, err
}

// PutApproval implements kubeapi.Writer.
func (c *Catalog) PutApproval(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (r record.Record, err error) {
	err = sibling.Call(ctx, c.peer, putApproval, change{key, require, dryRun}, &r)
	return r, err
}

// RolloutDo implements kubeapi.Commander.
func (c *Catalog) RolloutDo(ctx context.Context, cmd tko.RolloutCommand) (status tko.RolloutStatus, err error) {
	err = sibling.Call(ctx, c.peer, rolloutDo, cmd, &status)
	return status, err
}

// CheckPosition implements kubeapi.Follower.
func (c *Catalog) CheckPosition(ctx context.Context, at int64) error {
	return sibling.Call(ctx, c.peer, checkPosition, at, nil)
}

// Before implements kubeapi.Follower.
func (c *Catalog) Before(ctx context.Context, e changelog.Event) (r record.Record, err error) {
	err = sibling.Call(ctx, c.peer, before, e, &r)
	return r, err
}

// Events implements kubeapi.Follower.
func (c *Catalog) Events(ctx context.Context, kind tko.Kind, after int64) (list []changelog.Event, upTo int64, changed <-chan struct{}, err error) {
	c.mu.Lock()
	w, ok := c.waits[kind]
	c.mu.Unlock()
	if ok && w.after == after && !isClosed(w.done) {
		return nil, after, w.done, nil
	}
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the wait outlives this caller
	unbind := context.AfterFunc(ctx, cancel)
	s, _, err := sibling.Open(waiting, c.peer, events)
	if err == nil {
		err = s.Send(eventsOf{kind, after})
	}
	var first eventList
	if err == nil || errors.Is(err, io.EOF) {
		err = s.Receive(&first)
	}
	if !unbind() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil || len(first.Events) > 0 {
		cancel()
		return first.Events, first.UpTo, nil, err
	}
	done := make(chan struct{})
	c.mu.Lock()
	c.waits[kind] = wait{first.UpTo, done}
	c.mu.Unlock()
	unbindAll := context.AfterFunc(c.ctx, cancel) //nolint:contextcheck // the wait is for all callers
	go func() {
		defer cancel()
		defer unbindAll()
		_ = s.Receive(nil) // an error ends the wait as well: the next call returns it
		close(done)
	}()
	return nil, first.UpTo, done, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
