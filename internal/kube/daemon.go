package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A daemon is a program of the cluster, and its process while it runs.
type daemon struct {
	command []string
	output  string // path of its log file

	process *exec.Cmd
	done    chan struct{}
}

func (d *daemon) start() error {
	log, err := os.OpenFile(d.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	d.process = exec.Command(d.command[0], d.command[1:]...)
	d.process.Stdout, d.process.Stderr = log, log
	d.process.Dir = filepath.Dir(d.output)
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C goes to the test only
	if err := d.process.Start(); err != nil {
		return err
	}
	d.done = make(chan struct{})
	go func(process *exec.Cmd, done chan struct{}) {
		_ = process.Wait()
		close(done)
	}(d.process, d.done)
	return nil
}

// await waits until check succeeds. It returns an error if the program ends first, or
// after timeLimit.
func (d *daemon) await(check func(context.Context) error) error {
	deadline := time.Now().Add(timeLimit)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := check(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w", timeLimit, err)
		}
		select {
		case <-d.done:
			return errors.New(filepath.Base(d.command[0]) + " has ended")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop asks the program to end, and kills it after the grace period.
func (d *daemon) stop(grace time.Duration) {
	if d.process == nil {
		return
	}
	_ = d.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(grace):
	}
	d.kill()
}

func (d *daemon) kill() {
	if d == nil || d.process == nil {
		return
	}
	_ = d.process.Process.Kill()
	<-d.done
	d.process = nil
}

// log returns the last 4 KiB that the program wrote.
func (d *daemon) log() string {
	const enough = 4 << 10
	text, err := os.ReadFile(d.output)
	if err != nil {
		return ""
	}
	if len(text) > enough {
		return "..." + string(text[len(text)-enough:])
	}
	return string(text)
}

// A keeper removes a folder when it is closed, or when the test process ends for any
// reason.
type keeper struct {
	shell *exec.Cmd
	life  io.Closer
}

func keep(folder string) (*keeper, error) {
	shell := exec.Command("/bin/sh", "-c", `trap "" INT TERM; read nothing; until rm -rf "$1" 2>/dev/null; do :; done`, "sh", folder)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &keeper{shell, life}, shell.Start()
}

func (k *keeper) close() {
	if k.shell.ProcessState == nil {
		_ = k.life.Close()
		_ = k.shell.Wait()
	}
}

// freePorts returns n TCP ports that are free on loopback, below the range of
// ephemeral ports.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		defer listener.Close() // not before all ports are chosen
		ports = append(ports, port)
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports on loopback")
}
