package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/process"
)

// A daemon is a tko-server that is started again whenever it ends, as service managers
// do.
type daemon struct {
	name    string
	program string
	args    []string
	env     []string
	logFile string
	ready   string // file with its addresses
	debug   string // address of its profiles

	mutex   sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	starts  int
	done    chan struct{} // closed when it is stopped
}

func startDaemon(t *testing.T, name, folder string, args ...string) *daemon {
	t.Helper()
	d := &daemon{
		name: name, program: process.Programs(t, args...)[0], done: make(chan struct{}), debug: freeAddress(t),
		logFile: filepath.Join(folder, name+".log"), ready: filepath.Join(folder, name+".ready"),
	}
	d.args = append([]string{"--listen-log=", "--listen-unix=", "--log-format=text", "--ready-file=" + d.ready, "--listen-debug=" + d.debug}, args...)
	d.env = append(append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(folder, "cache-"+name), "GOTRACEBACK=all"), process.Environment()...)
	go d.run()
	t.Cleanup(func() {
		d.stop(t)
		if t.Failed() || os.Getenv("TKO_FAULTS_LOGS") != "" {
			t.Logf("log of %s: %s\n%s", name, strings.Join(d.args, " "), d.tail(20_000))
		}
	})
	return d
}

// run starts the server again and again.
func (d *daemon) run() {
	defer close(d.done)
	for {
		file, err := os.OpenFile(d.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		cmd := exec.Command(d.program, d.args...)
		cmd.Stdout, cmd.Stderr, cmd.Env = file, file, d.env
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		d.mutex.Lock()
		if d.stopped {
			d.mutex.Unlock()
			_ = file.Close()
			return
		}
		err = cmd.Start()
		d.cmd = cmd
		d.starts++
		d.mutex.Unlock()
		if err == nil {
			err = cmd.Wait()
		}
		fmt.Fprintf(file, "--- %s ended: %v\n", d.name, err)
		_ = file.Close()
		time.Sleep(100 * time.Millisecond) // the pause of a service manager
	}
}

func (d *daemon) pid() int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.cmd == nil || d.cmd.Process == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

func (d *daemon) signal(signal syscall.Signal) {
	if pid := d.pid(); pid > 0 {
		_ = syscall.Kill(pid, signal)
	}
}

// stop ends the server for good.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.mutex.Lock()
	again := d.stopped
	d.stopped = true
	d.mutex.Unlock()
	if again {
		return
	}
	d.signal(syscall.SIGCONT)
	d.signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(time.Minute):
		t.Errorf("%s did not stop", d.name)
		d.signal(syscall.SIGKILL)
		<-d.done
	}
}

// tail returns the end of the log.
func (d *daemon) tail(size int) string {
	text, _ := os.ReadFile(d.logFile)
	return string(text[max(0, len(text)-size):])
}

// faultsInLog returns the lines of defects: panics, data races, and errors that the
// operator must act on.
func (d *daemon) faultsInLog() []string {
	text, _ := os.ReadFile(d.logFile)
	var found []string
	for line := range bytes.Lines(text) {
		l := string(line)
		memory := strings.Contains(l, "out of memory") || strings.Contains(l, "cannot allocate memory") || strings.Contains(l, "mustMalloc") // of SQLite
		if (strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:")) && !memory || strings.Contains(l, "WARNING: DATA RACE") {
			found = append(found, d.name+": "+strings.TrimSpace(l))
		}
	}
	return found
}
