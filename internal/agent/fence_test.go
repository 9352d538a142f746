package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// errDown is the error of a home that serves nothing.
var errDown = grpcstatus.Error(codes.Unavailable, "down for the test")

// A region is a home with a fencing epoch, which says that the site is held by it.
func newRegion(t *testing.T, authority *certstest.Authority, name string, epoch int64) *home {
	t.Helper()
	h := newHomeOf(t, authority)
	h.epoch.Store(epoch)
	h.hold = name
	return h
}

// obeys waits until the agent of a folder obeys a region.
func obeys(t *testing.T, dir string, h *home) {
	t.Helper()
	eventually.True(t, "the agent obeys "+h.hold, func() bool {
		s, err := agent.ReadStatus(dir)
		return err == nil && s.Hold == h.hold && s.Connection != nil && s.Connection.Server == h.server.Address && s.Running
	})
}

func statusOf(t *testing.T, dir string) agent.Status {
	t.Helper()
	s, err := agent.ReadStatus(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// enrolled enrolls an agent at a region.
func enrolled(t *testing.T, h *home) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	if err := agent.Enroll(t.Context(), dir, h.server, false); err != nil {
		t.Fatal(err)
	}
	return dir
}

// refuses waits until the agent of a folder says that it refuses a region.
func refuses(t *testing.T, dir string, h *home) {
	t.Helper()
	eventually.True(t, "the agent refuses "+h.hold, func() bool {
		s := statusOf(t, dir)
		return s.Connection != nil && len(s.Connection.Refused) == 1 && s.Connection.Refused[0].Server == h.server.Address && s.Connection.Refused[0].Epoch == h.epoch.Load()
	})
}

// An agent calls the next server if the preferred one doesn't serve it, and returns when it does.
func TestAgentReturnsToThePreferredServer(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t, "authority")
	a, b := newRegion(t, authority, "a", 0), newRegion(t, authority, "b", 0)
	dir := enrolled(t, a)
	var log eventually.Buffer
	a.down.Store(true)
	a.startWith(dir, &log, agent.RunOptions{Others: []agent.Server{b.server}, Return: time.Second})
	obeys(t, dir, b)
	a.down.Store(false)
	obeys(t, dir, a)
	if n, _ := a.counts(); n != 1 {
		t.Errorf("the agent has connected %d times to the preferred server, want once it serves it", n)
	}
}

// An agent that its preferred server serves follows the promotion of another one.
func TestAgentFollowsAPromotion(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t, "authority")
	a, b := newRegion(t, authority, "a", 0), newRegion(t, authority, "b", 0)
	dir := enrolled(t, a)
	var log eventually.Buffer
	a.startWith(dir, &log, agent.RunOptions{Others: []agent.Server{b.server}, Return: 50 * time.Millisecond})
	obeys(t, dir, a)
	time.Sleep(time.Second) // it is asked, and not obeyed, which has no end
	if n, _ := b.counts(); n != 0 {
		t.Errorf("the agent has connected %d times to a server that was not promoted", n)
	}
	b.epoch.Store(9)
	obeys(t, dir, b)
	refuses(t, dir, a)
}

// A server with a lower epoch is refused: nothing is taken over from it, and it learns why. That
// survives the agent.
func TestServerWithALowerEpochIsRefused(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t, "authority")
	stale, promoted := newRegion(t, authority, "stale", 5), newRegion(t, authority, "promoted", 7)
	dir := enrolled(t, stale)
	if s := statusOf(t, dir); s.Epoch != 5 || s.Connection != nil || s.Running {
		t.Errorf("the status after the enrollment is %+v, want its epoch", s)
	}
	var log eventually.Buffer
	stop := stale.startWith(dir, &log, agent.RunOptions{})
	obeys(t, dir, stale)
	stop()
	stale.down.Store(true)
	stop = stale.startWith(dir, &log, agent.RunOptions{Others: []agent.Server{promoted.server}, Return: time.Second})
	obeys(t, dir, promoted)
	stale.down.Store(false)
	refuses(t, dir, stale)
	if s := statusOf(t, dir); s.Epoch != 7 || s.Connection.Server != promoted.server.Address {
		t.Errorf("the status is %+v, want a connection to the promoted server", s)
	}
	stop()
	connects, _ := stale.counts()
	stop = stale.startWith(dir, &log, agent.RunOptions{}) // it alone is there
	stale.says(&log, "is refused: its store has the fencing epoch 5 ", "tko-server promote --after 7")
	eventually.True(t, "the agent has told the server which epoch it has seen", func() bool {
		n, _ := stale.counts()
		return n > connects+1 && stale.seen.Load() == 7
	})
	if s := statusOf(t, dir); s.Hold != "promoted" || s.Epoch != 7 || s.Connection.Server != "" {
		t.Errorf("the status is %+v, want that of the promoted server", s)
	}
	stop()
	if err := agent.Enroll(t.Context(), dir, stale.server, true); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("enrolling again at the server that is refused: %v, want ErrConflict", err)
	}
	stale.epoch.Store(8)
	stale.startWith(dir, &log, agent.RunOptions{})
	obeys(t, dir, stale)
	if s := statusOf(t, dir); s.Epoch != 8 || len(s.Connection.Refused) != 0 {
		t.Errorf("the status is %+v, want no refusal", s)
	}
}

// Nothing is taken over from a server whose epoch can't be kept: after a crash, the agent would obey
// the former one.
func TestEpochIsKeptBeforeTheServerIsObeyed(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t, "authority")
	h := newRegion(t, authority, "a", 0)
	dir := enrolled(t, h)
	blocked := filepath.Join(dir, "epoch.json.new") // of its draft
	if err := os.MkdirAll(filepath.Join(blocked, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.epoch.Store(3)
	var log eventually.Buffer
	h.startWith(dir, &log, agent.RunOptions{})
	h.says(&log, "can't be kept, so nothing is taken over from it")
	if s := statusOf(t, dir); s.Hold != "" || s.Epoch != 0 {
		t.Errorf("the status is %+v, want nothing of the server", s)
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	obeys(t, dir, h)
}

// A file that can't be read stops the agent: it doesn't know whom to obey.
func TestUnreadableEpochStopsTheAgent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"epoch":0}`, `{"epoch":-1}`} {
		h := newHome(t)
		dir := enrolled(t, h)
		if err := os.WriteFile(filepath.Join(dir, "epoch.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := agent.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = a.Run(t.Context(), agent.Place{Repository: filepath.Join(dir, "site.git")}, agent.RunOptions{Server: h.server})
		a.Close()
		if !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("an agent with the epoch %q runs until %v, want ErrInvalid", text, err)
		}
	}
}
