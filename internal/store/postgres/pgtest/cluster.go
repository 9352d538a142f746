package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Cluster is a server of one test, with default durability, which the test may stop
// and start.
type Cluster struct {
	t testing.TB
	c *cluster
}

// NewCluster starts a server. It is removed when the test ends.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	return NewClusterIn(t, "")
}

// NewFastCluster starts a server that is fast rather than durable, with further settings
// (NAME=VALUE). It is removed when the test ends.
func NewFastCluster(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c, err := newCluster(memory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.remove)
	c.settings = slices.Concat(fast, settings)
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	return &Cluster{t, c}
}

// NewClusterIn is NewCluster with its data in a new folder below the given one, such as a
// disk of its own, which other users must be able to enter.
func NewClusterIn(t testing.TB, folder string) *Cluster {
	t.Helper()
	c, err := newCluster(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.remove)
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	return &Cluster{t, c}
}

// DSN returns the DSN of an empty database of the server, even if it is stopped.
func (c *Cluster) DSN() string { return c.c.dsn() }

// Stop stops the server. If fast is true, it writes a last checkpoint and closes its
// connections; otherwise it ends at once, as in a crash.
func (c *Cluster) Stop(fast bool) {
	c.t.Helper()
	signal := syscall.SIGQUIT
	if fast {
		signal = syscall.SIGINT
	}
	if err := c.c.end(signal); err != nil {
		c.t.Fatal(err)
	}
}

// Kill ends all processes of the server with SIGKILL.
func (c *Cluster) Kill() {
	c.t.Helper()
	if err := c.c.kill(); err != nil {
		c.t.Fatal(err)
	}
}

// Processes returns the process IDs of the server: that of its first process, and those
// of the others. It returns 0 and nil if the server doesn't run.
func (c *Cluster) Processes() (first int, others []int) { return c.c.processes() }

// Start starts the server again, and waits until it accepts connections.
func (c *Cluster) Start() {
	c.t.Helper()
	if err := c.c.start(); err != nil {
		c.t.Fatal(err)
	}
}

// A cluster is the folder and port of a server, and its process while it runs.
type cluster struct {
	binaries, folder string
	port             int
	settings         []string // NAME=VALUE
	attributes       *syscall.SysProcAttr

	command *exec.Cmd
	life    io.WriteCloser
}

// script runs the server until its standard input ends, which it does when the test
// process ends.
const script = `
binaries=$1 folder=$2 port=$3 address=$4
shift 4
"$binaries/postgres" -D "$folder/data" -k "$folder" -p "$port" -c listen_addresses="$address" -c max_connections=200 "$@" >>"$folder/log" 2>&1 &
server=$!
read keep
kill -INT $server 2>/dev/null
wait $server
[ "$keep" ] || { cd / && rm -rf "$folder"; }
`

func newCluster(parent string) (*cluster, error) {
	binaries, err := find()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(parent, "tko-postgres-")
	if err != nil {
		return nil, err
	}
	attributes, err := ordinary(folder)
	if err != nil {
		return nil, err
	}
	initdb := exec.Command(filepath.Join(binaries, "initdb"), "-D", filepath.Join(folder, "data"), //nolint:noctx,gosec // bounded by the test; our own paths
		"-U", "tko", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attributes, folder
	if output, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w\n%s", err, output), os.RemoveAll(folder))
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &cluster{binaries: binaries, folder: folder, port: port, attributes: attributes}, nil
}

func (c *cluster) dsn() string {
	return fmt.Sprintf("postgres://tko@%s/postgres?sslmode=disable", net.JoinHostPort(address(), strconv.Itoa(c.port)))
}

func (c *cluster) start() error {
	c.forget()
	args := []string{"-c", script, "sh", c.binaries, c.folder, strconv.Itoa(c.port), address()}
	for _, setting := range c.settings {
		args = append(args, "-c", setting)
	}
	command := exec.Command("/bin/sh", args...) //nolint:noctx,gosec // ends with the test process; our own script and paths
	command.SysProcAttr, command.Dir = c.attributes, c.folder
	life, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	c.command, c.life = command, life
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := c.ping()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(c.folder, "log"))
			c.remove()
			return fmt.Errorf("PostgreSQL doesn't start: %w\n%s", err, log)
		}
	}
}

func (c *cluster) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.dsn())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// end stops the server with a signal. Its data stays.
func (c *cluster) end(signal syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(c.folder, "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return err
	}
	c.forget()
	return nil
}

// forget waits for the end of the server's processes, if it was started. Its data stays.
func (c *cluster) forget() {
	if c.command == nil {
		return
	}
	_, _ = io.WriteString(c.life, "keep\n")
	_ = c.life.Close()
	_ = c.command.Wait()
	c.command = nil
}

// kill ends all processes of the server at once, and waits for their end: a new server
// refuses to start while one of them has the shared memory. Its data stays.
func (c *cluster) kill() error {
	first, _ := c.processes()
	if first == 0 {
		return errors.New("PostgreSQL does not run")
	}
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil { // it starts no further processes
		return err
	}
	_, others := c.processes()
	for _, pid := range append([]int{first}, others...) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	c.forget()
	for deadline := time.Now().Add(time.Minute); slices.ContainsFunc(others, runs); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of PostgreSQL don't end: %v", others)
		}
	}
	return nil
}

// runs reports whether a process of PostgreSQL has not ended; one that has, and wasn't
// reaped, is a zombie.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), " (postgres) ") && !strings.Contains(string(stat), ") Z ")
}

func (c *cluster) processes() (first int, others []int) {
	text, err := os.ReadFile(filepath.Join(c.folder, "data", "postmaster.pid"))
	if err != nil {
		return 0, nil
	}
	line, _, _ := strings.Cut(string(text), "\n")
	first, err = strconv.Atoi(line)
	if err != nil {
		return 0, nil
	}
	// After a crash the file is left, and another process may have the number.
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first))
	if err != nil || !strings.Contains(string(command), c.folder) {
		return 0, nil
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first))
	if err != nil {
		return first, nil
	}
	for field := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(field); err == nil {
			others = append(others, pid)
		}
	}
	return first, others
}

// remove stops the server, if it runs, and removes its data.
func (c *cluster) remove() {
	if c.command != nil {
		_ = c.life.Close()
		_ = c.command.Wait()
		c.command = nil
	}
	_ = os.RemoveAll(c.folder)
}
