package callhome_test

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A proxy forwards connections, and can swallow what they send.
type proxy struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mutex  sync.Mutex
	target string // in place of to, if not empty
	open   []net.Conn
	deaf   chan struct{} // closed: the connections until now forward nothing any more
	opened int
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, deaf: make(chan struct{})}
	p.all.Go(p.serve)
	t.Cleanup(func() {
		_ = l.Close()
		p.mutex.Lock()
		for _, c := range p.open {
			_ = c.Close()
		}
		p.mutex.Unlock()
		p.all.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mutex.Lock()
		target := cmp.Or(p.target, p.to)
		p.mutex.Unlock()
		to, err := net.Dial("tcp", target)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mutex.Lock()
		p.open, p.opened = append(p.open, from, to), p.opened+1
		deaf := p.deaf
		p.mutex.Unlock()
		p.all.Go(func() { forward(from, to, deaf) })
		p.all.Go(func() { forward(to, from, deaf) })
	}
}

// forward copies until it is deaf: then it reads on, and forwards neither bytes nor the end.
func forward(from, to net.Conn, deaf chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-deaf:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// swallow makes the connections until now half open: both ends see no error.
func (p *proxy) swallow() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	close(p.deaf)
	p.deaf = make(chan struct{})
}

// forward ends the connections until now, and forwards new ones to another address.
func (p *proxy) forward(to string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.target = to
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}

func (p *proxy) count() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.opened
}

// A network that swallows packets ends no connection: the agent notices, connects again, and takes
// over from the dead connection.
func halfOpenConnectionIsReplaced(w *world) {
	t := w.t
	w.site(w.home)
	id := w.deploy(w.home, "one", "v0")
	between := newProxy(t, w.agents)
	w.agents = between.listener.Addr().String()
	a := w.agent()
	a.has([]string{"value: v0"}, nil)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	before := between.count()

	between.swallow()
	w.change(id, "v1")
	w.condition(tko.KindSite, w.home, tko.ConditionConnected, tko.ConditionFalse, tko.ReasonNotHeard)
	a.has([]string{"value: v1"}, nil)
	w.condition(tko.KindSite, w.home, tko.ConditionConnected, tko.ConditionTrue, tko.ReasonHeard)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	if between.count() == before {
		t.Error("the agent did not connect again")
	}
}

// An agent whose folder is on a full disk changes nothing at the site, stays connected or connects
// again, and goes on by itself when there is space.
func fullDiskOfAnAgent(w *world) {
	t := w.t
	w.site(w.home)
	id := w.deploy(w.home, "one", "v0")
	small := w.state(w.home)
	w.check(os.Mkdir(small, 0o700))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatalf("this test mounts a small disk, which needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	a := w.agent()
	a.has([]string{"value: v0"}, nil)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)

	filler := filepath.Join(small, "filler")
	f, err := os.Create(filler)
	w.check(err)
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	w.check(f.Close())
	n := len(a.commits())
	w.change(id, "v1")
	eventually.Within(t, timeLimit, "the agent says that its disk is full", func() error { return compare(a.output.String(), []string{"no space left on device"}, nil) })
	time.Sleep(3 * time.Second) // nothing happens, which has no end
	if got := len(a.commits()); got != n {
		t.Errorf("the site has %d commits, and had %d", got, n)
	}
	a.kill() // it also starts with a full disk
	a.start()
	time.Sleep(2 * time.Second) // nothing happens
	w.check(os.Remove(filler))
	a.has([]string{"value: v1"}, nil)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
}

// An agent that was restored from an old snapshot of its folder gets what differs, and removes
// nothing that the site shall have.
func oldSnapshotOfAnAgent(w *world) {
	t := w.t
	w.site(w.home)
	id := w.deploy(w.home, "one", "v0")
	gone := w.deploy(w.home, "gone", "short-lived")
	a := w.agent()
	a.has([]string{"value: v0", "value: short-lived"}, nil)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	a.kill()
	snapshot := a.state + ".snapshot"
	if out, err := exec.Command("cp", "-a", a.state, snapshot).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.start()
	w.change(id, "v1")
	added := w.deploy(w.home, "added", "later")
	if _, err := w.client.DeleteDeployment(tko.WithConfirmation(w.patient(), 1), gone); err != nil {
		t.Fatal(err)
	}
	a.has([]string{"value: v1", "value: later"}, []string{"short-lived", "value: v0"})
	a.kill()
	n := len(a.commits())

	w.check(os.RemoveAll(a.state))
	w.check(os.Rename(snapshot, a.state))
	a.start()
	w.change(id, "v2")
	a.has([]string{"value: v2", "value: later"}, []string{"short-lived"})
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	w.reported(added, tko.ConditionScheduled, tko.ConditionTrue)
	for _, commit := range a.commits()[n:] { // the server is asked before the snapshot is applied
		text, err := a.text(commit)
		w.check(err)
		if err := compare(text, []string{"value: v", "value: later"}, []string{"short-lived", "value: v0"}); err != nil {
			t.Errorf("the commit %s: %v", commit, err)
		}
	}
}
