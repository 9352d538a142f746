package plugin

import (
	"bufio"
	"bytes"
	"cmp"
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
	// persistentEnv is set for programs that are to serve more than one request.
	persistentEnv = "TKO_PERSISTENT=1"
	requestWord   = "tko-request"
	responseWord  = "tko-response"
	maxHeader     = 64 // bytes of a frame's first line
)

// errGone reports that a process ended before it responded.
var errGone = errors.New("it ended without a response")

// A pool holds the idle processes of persistent plugins.
type pool struct {
	size int           // most idle processes
	idle time.Duration // how long a process stays idle before it is ended
	uses int           // requests that one process serves

	mu      sync.Mutex
	waiting []*worker // idle, the most recently used last
	closed  bool
	ending  sync.WaitGroup // processes that are being ended because they were idle too long
}

// worker is a process of a persistent plugin. It serves one request at a time.
type worker struct {
	id, key string // the plugin's ID and key
	dir     string
	process *supervise.Process
	stdin   *os.File
	stdout  *os.File
	replies *bufio.Reader
	stderr  *tail
	lock    sync.Mutex // guards stderr
	reading sync.WaitGroup
	served  int
	done    func()      // ends what serves the process
	timer   *time.Timer // ends the process when it has been idle too long
}

// Close ends idle processes and waits for their end; a process that
// serves a request ends when it has responded. The runner remains usable, but
// no longer reuses processes.
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

// persistent sends the request to an idle process of the plugin, or to a new
// one.
func (r *Runner) persistent(ctx context.Context, j job) (output []byte, stderr string, err error) {
	timed, cancel := context.WithTimeoutCause(ctx, j.timeout, timeoutError{j.timeout})
	defer cancel()
	key := r.key(j.plugin)
	for _, w := range r.pool.takeStale(j.plugin.ID(), key) {
		w.end()
	}
	for {
		w := r.pool.take(key)
		fresh := w == nil
		if fresh {
			if w, err = r.startWorker(j.plugin, key); err != nil { //nolint:contextcheck // the process outlives the request
				return nil, "", err
			}
		}
		output, err = r.ask(timed, w, j)
		if err == nil && w.served < r.pool.uses {
			stderr = w.stderrText()
			if !r.pool.put(w) {
				w.end()
			}
			return output, stderr, nil
		}
		w.end()
		switch {
		case err == nil:
			return output, w.stderrText(), nil
		case timed.Err() != nil:
			return nil, w.stderrText(), context.Cause(timed)
		case errors.Is(err, errGone) && !fresh:
			continue // the process ended while it was idle: use another one
		case errors.Is(err, errGone):
			if ended := w.process.Wait(); ended != nil {
				err = ended
			}
		}
		return nil, w.stderrText(), err
	}
}

// key identifies the code of a process. It changes when the plugin is
// registered again, and when its program or a file among its arguments changes.
func (r *Runner) key(p tko.Plugin) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %d %q %v", p.ID(), p.Stamp.UID, p.Stamp.Revision, p.Arguments, p.Properties)
	for i, argument := range p.Arguments {
		if i == 0 {
			if program, err := r.programs().Open(argument); err == nil {
				argument = cmp.Or(program.Script, program.Path)
				program.Close()
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

// take removes an idle process from the pool and returns it, or nil if there is
// none.
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

// takeStale removes and returns the idle processes of a plugin that has changed
// since they were started.
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

// put returns a process to the pool; pooled is false if the pool is closed.
func (p *pool) put(w *worker) (pooled bool) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	var oldest *worker
	if len(p.waiting) >= p.size {
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
	program, err := r.programs().Open(p.Arguments[0])
	if err != nil {
		return nil, err
	}
	defer program.Close()
	cmd := r.pluginCommand(p.Arguments, program, work)
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
		id: p.ID(), key: key, dir: dir, stdin: files[1], stdout: files[2], replies: bufio.NewReader(files[2]), stderr: &tail{},
	}
	start, err := r.confine(context.Background(), launch{cmd: cmd, program: program, dir: dir, plugin: p, limits: r.limits(p)})
	if err != nil {
		return nil, err
	}
	w.done = start.done
	w.process, err = supervise.Start(start.command, start.limits)
	start.started()
	if err != nil {
		w.done()
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

// Write receives the stderr of the process.
func (w *worker) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.stderr.Write(p)
}

func (w *worker) stderrText() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.stderr.String()
}

// end kills the process and its descendants. None of them, and none of their
// files, remain when it returns.
func (w *worker) end() {
	w.process.Kill()
	w.reading.Wait()
	_, _ = w.stdin.Close(), w.stdout.Close()
	w.done()
	remove(w.dir)
}

// ask sends one request to a process and returns the response.
func (r *Runner) ask(ctx context.Context, w *worker, j job) ([]byte, error) {
	if quiet, err := w.quiet(); err != nil || !quiet {
		if err == nil {
			j.log.WarnContext(ctx, "plugin wrote to stdout without a request, restarting it", "plugin", w.id)
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
	j.alone = !r.networked(j.plugin)
	document, err := encodeJSON(r.input(j, logs.path))
	if err != nil {
		return nil, fmt.Errorf("it was not run: %w", err)
	}

	stop := context.AfterFunc(ctx, w.process.Kill)
	defer stop()
	var writing sync.WaitGroup
	writing.Go(func() {
		// A process that doesn't read is killed at its timeout, which ends the
		// write.
		_, _ = fmt.Fprintf(w.stdin, "%s %d %d\n", requestWord, w.served, len(document))
		_, _ = w.stdin.Write(document)
	})
	output, err := w.response(r.options.MaxOutput)
	if errors.Is(err, errGone) { // wait for the exit code, which explains more
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
		return nil, context.Cause(ctx) // it was killed while it responded
	}
	return output, err
}

// quiet reports whether the process has written nothing since its last
// response. An error means that its stdout was closed.
func (w *worker) quiet() (quiet bool, err error) {
	conn, err := w.stdout.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var readErr error
	if err := conn.Read(func(fd uintptr) bool {
		n, readErr = syscall.Read(int(fd), make([]byte, 1))
		return true // don't wait for data
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

// response reads the frame of a response.
func (w *worker) response(limit int) ([]byte, error) {
	header, err := w.header()
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(header)
	if len(fields) != 3 || fields[0] != responseWord {
		return nil, fmt.Errorf("it wrote %q where the response of a persistent plugin begins with %q, the request's number and the length: "+
			"remove the property %q if it serves one request", bounded(header, maxHeader), responseWord, tko.PropertyPersistent)
	}
	if fields[1] != strconv.Itoa(w.served) {
		return nil, fmt.Errorf("it responded to request %s instead of request %d", fields[1], w.served)
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil || size < 0 {
		return nil, fmt.Errorf("the length %q of its response is not a number of bytes", fields[2])
	}
	if size > limit {
		return nil, fmt.Errorf("it wrote more than %d bytes to stdout", limit)
	}
	var data bytes.Buffer // grows with the data received, not with the declared length
	if n, err := io.CopyN(&data, w.replies, int64(size)); err != nil {
		return nil, fmt.Errorf("it ended after %d of the %d bytes of its response", n, size)
	}
	if w.replies.Buffered() > 0 {
		return nil, fmt.Errorf("it wrote more than the %d bytes of its response", size)
	}
	return data.Bytes(), nil
}

// header reads the first line of a frame, or as much of it as there is.
func (w *worker) header() (string, error) {
	var line []byte
	for len(line) < maxHeader {
		c, err := w.replies.ReadByte()
		switch {
		case err != nil && len(line) == 0:
			return "", errGone
		case err != nil || c == '\n':
			return string(line), nil //nolint:nilerr // the caller reports the incomplete line
		}
		line = append(line, c)
	}
	return string(line), nil
}
