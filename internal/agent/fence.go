package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/wire"
)

const (
	epochFile      = "epoch.json"
	connectionFile = "connection.json"
	// DefaultReturn is the default time after which an agent that is connected to a server asks those
	// that it prefers whether they serve it again; it is spread.
	DefaultReturn = 5 * time.Minute
	// othersEvery is the number of such times after which it also asks those that it doesn't prefer
	// whether they were promoted.
	othersEvery = 6
	// welcomeTimeout is the time in which a server must send its first message.
	welcomeTimeout = 30 * time.Second
	maxServers     = 16
)

type epochJSON struct {
	Epoch int64 `json:"epoch"`
}

// epoch returns the greatest fencing epoch that the agent has seen; 0 if none.
func (f *folder) epoch() (int64, error) {
	text, err := f.read(epochFile)
	if err != nil || text == nil {
		return 0, err
	}
	var e epochJSON
	if err := json.Unmarshal(text, &e); err != nil || e.Epoch <= 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "%s has no fencing epoch, so it is not known which servers may be obeyed: restore it, or write {\"epoch\": N} with that of the condition Connected of a site, or of tko-server promote", f.file(epochFile))
	}
	return e.Epoch, nil
}

// admit returns an error if a server must not be obeyed, because the agent has seen a greater fencing
// epoch than that of its store. One that is new is kept on the disk before it returns.
func (f *folder) admit(server string, epoch int64) error {
	seen, err := f.epoch()
	if err != nil {
		return err
	}
	if epoch < seen {
		return &fencedError{server, epoch, seen}
	}
	if epoch == seen {
		return nil
	}
	text, err := json.Marshal(epochJSON{epoch})
	if err == nil {
		err = f.replace(epochFile, text)
	}
	if err != nil {
		return fmt.Errorf("the fencing epoch of the server %s can't be kept, so nothing is taken over from it: %w", server, err)
	}
	return nil
}

// A fencedError is the error of a server that the agent refuses.
type fencedError struct {
	server      string
	epoch, seen int64
}

func (e *fencedError) Error() string {
	return fmt.Sprintf("the server %s is refused: its store has the fencing epoch %s, and the agent has connected to one with %s. Nothing is taken over from it; if it is the one that shall command, promote it (tko-server promote --after %d)",
		e.server, tko.EpochText(e.epoch), tko.EpochText(e.seen), e.seen)
}

func (e *fencedError) Is(target error) bool { return target == tko.ErrConflict }

// A betterError ends a connection because another server is to be obeyed.
type betterError struct{ index int }

func (e *betterError) Error() string { return "another server is preferred, or was promoted" }

// better waits until one of the servers before that with an index serves the agent, or one of those
// after it has a greater fencing epoch, and returns a betterError.
func (r *runner) better(ctx context.Context, index int) error {
	failing := map[int]string{}
	for round := 1; ; round++ {
		if err := pause.For(ctx, pause.Between(r.options.Return/2, r.options.Return)); err != nil {
			return err
		}
		for i, s := range r.servers {
			if i == index || i > index && round%othersEvery != 0 {
				continue
			}
			promoted, err := r.greet(ctx, s)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil && (i < index || promoted) {
				r.agent.log.InfoContext(ctx, "calling another server, which is preferred, or was promoted", "server", s.Address, "promoted", promoted)
				return &betterError{i}
			}
			if err == nil {
				continue
			}
			r.note(s, err)
			if text := stable(err); i < index && text != failing[i] {
				r.agent.log.WarnContext(ctx, "a preferred server does not serve the agent", "server", s.Address, "err", err)
				failing[i] = text
			}
		}
	}
}

// greet asks a server whether it would serve the agent. promoted reports that its store has a greater
// fencing epoch than the agent has seen.
func (r *runner) greet(ctx context.Context, s Server) (promoted bool, err error) {
	cert, err := r.agent.folder.certificate()
	if err != nil {
		return false, err
	}
	seen, err := r.agent.folder.epoch()
	if err != nil {
		return false, err
	}
	conn, err := s.dial(cert)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, welcomeTimeout)
	defer cancel()
	m, err := agentpb.NewAgentsClient(conn).Greet(ctx, &agentpb.GreetRequest{Epoch: seen})
	if status.Code(err) == codes.Unimplemented { // an earlier version, whose store was never promoted
		m, err = &agentpb.Welcome{}, nil
	}
	if err != nil {
		return false, s.aboutClock(wire.Error(err), cert)
	}
	if m.GetEpoch() < seen {
		return false, &fencedError{s.Address, m.GetEpoch(), seen}
	}
	return m.GetEpoch() > seen, nil
}

// A Connection is how the agent is connected.
type Connection struct {
	Server  string    `json:"server,omitempty"` // "": to none
	Since   time.Time `json:"since"`
	Refused []Refusal `json:"refused,omitempty"` // servers that the agent refuses
}

// A Refusal is of a server whose store has a lower fencing epoch than the agent has seen.
type Refusal struct {
	Server string    `json:"server"`
	Epoch  int64     `json:"epoch"`
	Since  time.Time `json:"since"`
}

// note keeps for users whether a server is refused, as the error of a connection with it says, and
// that it isn't if the error is nil: it is connected then.
func (r *runner) note(s Server, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	c := &r.connection
	before := Connection{c.Server, c.Since, slices.Clone(c.Refused)}
	at := slices.IndexFunc(c.Refused, func(one Refusal) bool { return one.Server == s.Address })
	fenced, isFenced := errors.AsType[*fencedError](err)
	switch {
	case isFenced && at < 0:
		c.Refused = append(c.Refused, Refusal{s.Address, fenced.epoch, time.Now().UTC().Truncate(time.Second)})
	case isFenced:
		c.Refused[at].Epoch = fenced.epoch
	case err == nil && at >= 0:
		c.Refused = slices.Delete(c.Refused, at, at+1)
	}
	switch {
	case err == nil && c.Server != s.Address:
		c.Server, c.Since = s.Address, time.Now().UTC().Truncate(time.Second)
	case err != nil && c.Server == s.Address:
		c.Server, c.Since = "", time.Now().UTC().Truncate(time.Second)
	}
	if c.Server == before.Server && slices.Equal(c.Refused, before.Refused) && c.written {
		return
	}
	text, err := json.Marshal(c.Connection)
	if err == nil {
		err = r.agent.folder.replace(connectionFile, text)
	}
	c.written = err == nil // such as on a full disk: written later
}

// A Status is what an agent's folder says.
type Status struct {
	Site  tko.SiteID
	Epoch int64  // the greatest fencing epoch that the agent has seen; 0: none
	Hold  string // why nothing may change at the site, as the server says; "" if it may
	// Connection is nil if the agent never ran, or is not one that calls home. It is as of the last
	// change: an agent that was killed doesn't say so.
	Connection *Connection
	// Running reports that a process works with the folder.
	Running bool
}

// ReadStatus reads the status of the agent with a folder, also while it runs.
func ReadStatus(path string) (Status, error) {
	f := &folder{path: path}
	text, err := f.read(setupFile)
	if err != nil {
		return Status{}, err
	}
	if text == nil {
		return Status{}, tko.Errorf(tko.ErrNotFound, "the folder %s: it is of no agent: enroll one with tko-agent run, or make one with tko-agent init", path)
	}
	var setup setupJSON
	if err := json.Unmarshal(text, &setup); err != nil {
		return Status{}, fmt.Errorf("reading %s: %w", f.file(setupFile), err)
	}
	s := Status{Site: setup.Site}
	if s.Epoch, err = f.epoch(); err != nil {
		return s, err
	}
	var hold holdJSON
	var c Connection
	for name, to := range map[string]any{holdFile: &hold, connectionFile: &c} {
		text, err := f.read(name)
		if err == nil && text != nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			return s, fmt.Errorf("reading %s: %w", f.file(name), err)
		}
	}
	s.Hold = hold.Reason
	if !c.Since.IsZero() || len(c.Refused) > 0 {
		s.Connection = &c
	}
	other, err := openFolder(path)
	if err == nil {
		other.close()
	}
	s.Running = errors.Is(err, tko.ErrBusy)
	return s, nil
}
