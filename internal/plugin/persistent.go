package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

const (
	// persistentEnv tells a program that it is asked more than once.
	persistentEnv = "TKO_PERSISTENT=1"
	requestWord   = "tko-request"
	responseWord  = "tko-response"
	maxHeader     = 64 // bytes of a frame's first line
)

// errGone is the end of a process that answered nothing.
var errGone = errors.New("it ended without an answer")

// A pool keeps the processes of persistent plugins that wait for requests.
type pool struct {
	most int           // processes that wait
	idle time.Duration // for how long they do
	uses int           // requests that one process serves

	mu      sync.Mutex
	waiting []*worker // those that served last are last
	closed  bool
	ending  sync.WaitGroup // those that waited for too long
}

// worker is a process of a persistent plugin. Only one request is with it at
// a time.
type worker struct {
	id, key string // of its plugin
	dir     string
	process *supervise.Process
	stdin   *os.File
	stdout  *os.File
	answers *bufio.Reader
	stderr  *tail
	lock    sync.Mutex // of stderr
	reading sync.WaitGroup
	served  int
	timer   *time.Timer // ends it when it has waited for too long
}

// Close ends the processes that wait for requests; those that have one end
// with it. Nothing is left of them when it returns. The runner goes on,
// without keeping processes.
func (r *Runner) Close() {
	r.pool.mu.Lock()
	waiting := r.pool.waiting
	r.pool.waiting, r.pool.closed = nil, true
	r.pool.mu.Unlock()
	for _, w := range waiting {
		w.timer.Stop()
		w.end()
	}
	r.pool.ending.Wait()
}

// persistent asks a process of the plugin that is there already, or a new one.
func (r *Runner) persistent(ctx context.Context, j job) (output []byte, stderr string, err error) {
	timed, cancel := context.WithTimeoutCause(ctx, j.timeout, fmt.Errorf("it did not end within %s", j.timeout))
	defer cancel()
	key := r.key(j.plugin)
	for _, w := range r.pool.takeStale(j.plugin.ID(), key) {
		w.end()
	}
	for {
		w := r.pool.take(key)
		fresh := w == nil
		if fresh {
			if w, err = r.startWorker(j.plugin, key); err != nil {
				return nil, "", err
			}
		}
		output, err = r.ask(timed, w, j)
		if err == nil && w.served < r.pool.uses {
			stderr = w.lastWords()
			if !r.pool.put(w) {
				w.end()
			}
			return output, stderr, nil
		}
		w.end()
		switch {
		case err == nil:
			return output, w.lastWords(), nil
		case timed.Err() != nil:
			return nil, w.lastWords(), context.Cause(timed)
		case errors.Is(err, errGone) && !fresh:
			continue // it ended while it waited: nobody's fault
		case errors.Is(err, errGone):
			if ended := w.process.Wait(); ended != nil {
				err = ended
			}
		}
		return nil, w.lastWords(), err
	}
}

// key identifies what a process was started from: it differs when the plugin
// is registered anew, and when its program or a file among its arguments
// changes.
func (r *Runner) key(p tko.Plugin) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %d %q %v", p.ID(), p.Stamp.UID, p.Stamp.Revision, p.Arguments, p.Properties)
	path := os.Getenv("PATH")
	if strings.HasSuffix(p.Arguments[0], ".py") && r.options.PythonEnv != "" {
		path = filepath.Join(r.options.PythonEnv, "bin") + string(filepath.ListSeparator) + path
	}
	for i, argument := range p.Arguments {
		if i == 0 {
			if program, err := find(argument, path); program != "" && (err == nil || errors.Is(err, os.ErrPermission)) {
				argument = program
			}
		}
		if info, err := os.Stat(argument); err == nil && info.Mode().IsRegular() {
			inode := uint64(0)
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				inode = stat.Ino
			}
			fmt.Fprintf(&b, " %s %d %d %d", argument, inode, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// take takes a process that waits, if there is one.
func (p *pool) take(key string) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range slices.Backward(p.waiting) {
		if w.key == key {
			p.remove(i)
			return w
		}
	}
	return nil
}

// takeStale takes the processes of a plugin that was changed since.
func (p *pool) takeStale(id, key string) []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	var stale []*worker
	for i, w := range slices.Backward(p.waiting) {
		if w.id == id && w.key != key {
			stale = append(stale, w)
			p.remove(i)
		}
	}
	return stale
}

func (p *pool) remove(i int) {
	p.waiting[i].timer.Stop()
	p.waiting = slices.Delete(p.waiting, i, i+1)
}

// put has a process wait for its next request.
func (p *pool) put(w *worker) (kept bool) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	var oldest *worker
	if len(p.waiting) >= p.most {
		oldest = p.waiting[0]
		p.remove(0)
	}
	w.timer = time.AfterFunc(p.idle, func() { p.expire(w) })
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	if oldest != nil {
		oldest.end()
	}
	return true
}

func (p *pool) expire(w *worker) {
	p.mu.Lock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.remove(i)
		p.ending.Add(1)
	}
	p.mu.Unlock()
	if i >= 0 {
		w.end()
		p.ending.Done()
	}
}

// startWorker starts a process.
func (r *Runner) startWorker(p tko.Plugin, key string) (w *worker, err error) {
	dir, err := os.MkdirTemp(r.options.Dir, "tko-plugin-")
	if err != nil {
		return nil, fmt.Errorf("it was not run: %w", err)
	}
	var files []*os.File
	defer func() {
		if err != nil {
			remove(dir)
			for _, f := range files {
				_ = f.Close()
			}
		}
	}()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, fmt.Errorf("it was not run: %w", err)
	}
	cmd, err := r.program(p.Arguments, work)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, persistentEnv)
	for range 3 {
		from, to, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("it was not run: %w", err)
		}
		files = append(files, from, to)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
	w = &worker{
		id: p.ID(), key: key, dir: dir, stdin: files[1], stdout: files[2], answers: bufio.NewReader(files[2]), stderr: &tail{},
	}
	if w.process, err = supervise.Start(cmd, r.limits(p)); err != nil {
		return nil, fmt.Errorf("it could not be run: %w", err)
	}
	_, _, _ = files[0].Close(), files[3].Close(), files[5].Close()
	stderr := files[4]
	w.reading.Go(func() {
		defer func() { _ = stderr.Close() }()
		_, _ = io.Copy(w, stderr)
	})
	w.reading.Go(func() {
		<-w.process.Exited()
		deadline := time.Now().Add(grace)
		_ = w.stdin.SetDeadline(time.Now())
		_, _ = w.stdout.SetReadDeadline(deadline), stderr.SetReadDeadline(deadline)
	})
	return w, nil
}

// Write takes what the process writes to stderr.
func (w *worker) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.stderr.Write(p)
}

func (w *worker) lastWords() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.stderr.String()
}

// end ends the process, and what it started. Nothing of it is left when it
// returns.
func (w *worker) end() {
	w.process.Kill()
	w.reading.Wait()
	_, _ = w.stdin.Close(), w.stdout.Close()
	remove(w.dir)
}

// ask has a process answer one request.
func (r *Runner) ask(ctx context.Context, w *worker, j job) ([]byte, error) {
	if quiet, err := w.quiet(); err != nil || !quiet {
		if err == nil {
			j.log.WarnContext(ctx, "plugin wrote to stdout without being asked: it is started anew", "plugin", w.id)
		}
		return nil, errGone
	}
	w.served++
	w.lock.Lock()
	*w.stderr = tail{}
	w.lock.Unlock()
	logs, err := openLogPipe(filepath.Join(w.dir, "log-"+strconv.Itoa(w.served)), j.log.With("plugin", j.plugin.ID(), "resource", j.target.String()))
	if err != nil {
		return nil, fmt.Errorf("it was not run: %w", err)
	}
	defer func() {
		logs.close()
		_ = os.Remove(logs.path)
	}()
	document, err := encodeJSON(r.input(j, logs.path))
	if err != nil {
		return nil, fmt.Errorf("it was not run: %w", err)
	}

	stop := context.AfterFunc(ctx, w.process.Kill)
	defer stop()
	var writing sync.WaitGroup
	writing.Go(func() {
		// A process that doesn't read is killed when its time is over, which ends this.
		_, _ = fmt.Fprintf(w.stdin, "%s %d %d\n", requestWord, w.served, len(document))
		_, _ = w.stdin.Write(document)
	})
	output, err := w.answer(r.options.MaxOutput)
	if errors.Is(err, errGone) { // how it ended says more
		select {
		case <-w.process.Exited():
		case <-ctx.Done():
		case <-time.After(grace):
		}
	}
	if err != nil {
		w.process.Kill()
		<-w.process.Exited()
	}
	writing.Wait()
	if err == nil && !stop() {
		return nil, context.Cause(ctx) // it was killed as it answered
	}
	return output, err
}

// quiet says whether the process has written nothing since its last answer.
// An error is the end of it.
func (w *worker) quiet() (is bool, err error) {
	conn, err := w.stdout.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var readErr error
	if err := conn.Read(func(fd uintptr) bool {
		n, readErr = syscall.Read(int(fd), make([]byte, 1))
		return true // whatever it is, don't wait
	}); err != nil {
		return false, err
	}
	switch {
	case errors.Is(readErr, syscall.EAGAIN):
		return true, nil
	case readErr != nil:
		return false, readErr
	case n == 0:
		return false, io.EOF
	default:
		return false, nil
	}
}

// answer reads the frame of an answer.
func (w *worker) answer(limit int) ([]byte, error) {
	header, err := w.header()
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(header)
	if len(fields) != 3 || fields[0] != responseWord {
		return nil, fmt.Errorf("it wrote %q where the answer of a persistent plugin begins with %q, the request's number and the length: "+
			"remove the property %q if it serves one request", bounded(header, maxHeader), responseWord, tko.PropertyPersistent)
	}
	if fields[1] != strconv.Itoa(w.served) {
		return nil, fmt.Errorf("it answered request %s where it was asked request %d", fields[1], w.served)
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil || size < 0 {
		return nil, fmt.Errorf("it answered with the length %q, which is none", fields[2])
	}
	if size > limit {
		return nil, fmt.Errorf("it wrote more than %d bytes to stdout", limit)
	}
	var data bytes.Buffer // grows with what comes, not with what was said
	if n, err := io.CopyN(&data, w.answers, int64(size)); err != nil {
		return nil, fmt.Errorf("it ended after %d of the %d bytes of its answer", n, size)
	}
	if w.answers.Buffered() > 0 {
		return nil, fmt.Errorf("it wrote more than the %d bytes of its answer", size)
	}
	return data.Bytes(), nil
}

// header reads the first line of a frame, or as much of it as there is.
func (w *worker) header() (string, error) {
	var line []byte
	for len(line) < maxHeader {
		c, err := w.answers.ReadByte()
		switch {
		case err != nil && len(line) == 0:
			return "", errGone
		case err != nil || c == '\n':
			return string(line), nil //nolint:nilerr // what there is says more
		}
		line = append(line, c)
	}
	return string(line), nil
}
