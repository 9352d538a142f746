package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// A progress is what a process of agents has counted.
type progress struct {
	enrolled  int
	connected int // agents that have connected, since the last mark
	marks     int // requests to count connections anew
	ended     int // agents that have ended
}

const progressFormat = "%d %d %d %d\n"

// An agentsProcess is a process of agents.
type agentsProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mutex sync.Mutex
	now   progress
	err   error // why it has ended
	done  chan struct{}
}

// mark makes the process count connections anew.
func (p *agentsProcess) mark() error {
	_, err := io.WriteString(p.in, "mark\n")
	return err
}

// follow reads what a process counts until it ends.
func (p *agentsProcess) follow(out io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var now progress
		if _, err := fmt.Sscanf(lines.Text()+"\n", progressFormat, &now.enrolled, &now.connected, &now.marks, &now.ended); err == nil {
			p.mutex.Lock()
			p.now = now
			p.mutex.Unlock()
		}
	}
	err := p.cmd.Wait()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.err = fmt.Errorf("a process of agents has ended: %w", errors.Join(err, lines.Err()))
}

// startProcesses starts the processes of the agents. Each has a part of the sites.
func (b *agentsBench) startProcesses(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range b.processes {
		from, to := i*b.n/b.processes, (i+1)*b.n/b.processes
		if from == to {
			continue
		}
		cmd := exec.CommandContext(ctx, program, "agents", "-child", "-agents", b.agents, "-ca", b.ca, "-dir", b.dir, "-first", strconv.Itoa(b.first+from), "-n", strconv.Itoa(to-from), "-clients", strconv.Itoa(b.clients)) //nolint:gosec // itself
		cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		p := &agentsProcess{cmd: cmd, in: in, done: make(chan struct{})}
		b.fleet = append(b.fleet, p)
		go p.follow(out)
	}
	return nil
}

// endProcesses ends the processes, and returns an error if agents have ended before.
func (b *agentsBench) endProcesses(stop context.CancelFunc) error {
	ended := b.sum(func(p progress) int { return p.ended })
	stop()
	for _, p := range b.fleet {
		_ = p.in.Close()
		<-p.done
	}
	if ended > 0 {
		return fmt.Errorf("%d agents have ended", ended)
	}
	return nil
}

// sum returns the sum of what the processes have counted.
func (b *agentsBench) sum(count func(progress) int) (n int) {
	for _, p := range b.fleet {
		p.mutex.Lock()
		n += count(p.now)
		p.mutex.Unlock()
	}
	return n
}

// failed returns why a process has ended; nil if none has.
func (b *agentsBench) failed() error {
	for _, p := range b.fleet {
		p.mutex.Lock()
		err := p.err
		p.mutex.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// A childRun counts the agents of this process.
type childRun struct {
	enrolled, ended atomic.Int64

	mutex     sync.Mutex
	connected map[int]struct{} // since the last mark
	marks     int
}

// A counting handler of an agent's log counts that it is connected.
type counting struct {
	slog.Handler

	run *childRun
	i   int
}

// Enabled implements [slog.Handler].
func (counting) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (c counting) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "connected" {
		c.run.mutex.Lock()
		c.run.connected[c.i] = struct{}{}
		c.run.mutex.Unlock()
	}
	return nil
}

// runChild enrolls and runs agents until the input ends, and writes how far they are. A line of the
// input makes it count connections anew.
func (b *agentsBench) runChild(ctx context.Context, in io.Reader, out io.Writer) error {
	secure, err := certs.Client(certs.ClientOptions{CA: b.ca})
	if err != nil {
		return err
	}
	r := &childRun{connected: map[int]struct{}{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			r.mutex.Lock()
			clear(r.connected)
			r.marks++
			r.mutex.Unlock()
		}
		stop()
		return nil
	})
	group.Go(func() error { return r.write(ctx, out) })
	group.Go(func() error {
		enrolling, each := errgroup.WithContext(ctx)
		enrolling.SetLimit(b.clients)
		for i := range b.n {
			enrolling.Go(func() error {
				s := agent.Server{Address: b.agents, TLS: secure, TokenFile: b.token(i)}
				if err := enrollAgain(each, b.folder(i), s); err != nil {
					return fmt.Errorf("enrolling the agent of %s: %w", b.site(i), err)
				}
				r.enrolled.Add(1)
				a, err := agent.Open(b.folder(i), slog.New(counting{slog.DiscardHandler, r, i}))
				if err != nil {
					return err
				}
				group.Go(func() error {
					defer a.Close()
					err := a.Run(ctx, agent.Place{Repository: filepath.Join(b.folder(i), "site.git")}, agent.RunOptions{Server: s, Interval: 24 * time.Hour})
					if ctx.Err() == nil {
						r.ended.Add(1)
					}
					return err
				})
				return nil
			})
		}
		return enrolling.Wait()
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// write writes how far the agents are, every 200 ms.
func (r *childRun) write(ctx context.Context, out io.Writer) error {
	for {
		r.mutex.Lock()
		connected, marks := len(r.connected), r.marks
		r.mutex.Unlock()
		if _, err := fmt.Fprintf(out, progressFormat, r.enrolled.Load(), connected, marks, r.ended.Load()); err != nil {
			return err
		}
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return nil //nolint:nilerr // the agents end
		}
	}
}

// enrollAgain enrolls an agent, and repeats it if the server takes no more for the moment.
func enrollAgain(ctx context.Context, folder string, s agent.Server) error {
	for {
		err := agent.Enroll(ctx, folder, s, false)
		if !errors.Is(err, tko.ErrUnavailable) {
			return err
		}
		if err := pause.For(ctx, pause.Between(100*time.Millisecond, time.Second)); err != nil {
			return err
		}
	}
}
