package plugin

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxLine     = 16 << 10 // bytes of a log line; the rest of the line is dropped
	maxLines    = 10_000   // lines of a run; further lines are only counted
	maxLogBytes = 16 << 20 // of the lines of a run
)

// A lineBudget bounds what is logged of a run, over all of its connections.
type lineBudget struct {
	mu    sync.Mutex
	lines int
	bytes int
}

// take reports whether a line may be logged.
func (b *lineBudget) take(line string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines >= maxLines || b.bytes+len(line) > maxLogBytes {
		return false
	}
	b.lines++
	b.bytes += len(line)
	return true
}

// logPipe is a FIFO whose lines are logged as lines of a plugin.
type logPipe struct {
	path    string
	reader  *os.File
	writer  *os.File // keeps the FIFO from reaching its end while no plugin has it open
	reading sync.WaitGroup
}

// openLogPipe makes a FIFO and logs its lines until close is called. The plugin
// need not open it.
func openLogPipe(path string, log *slog.Logger) (*logPipe, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("making the log file: %w", err)
	}
	reader, err := openFIFO(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	writer, err := openFIFO(path, os.O_WRONLY)
	if err != nil {
		_ = reader.Close()
		return nil, err
	}
	p := &logPipe{path: path, reader: reader, writer: writer}
	p.reading.Go(func() { logLines(log, reader, new(lineBudget).take) })
	return p, nil
}

// openFIFO opens one end of a FIFO. The plugin may have replaced the file
// meanwhile: symbolic links and files of other types are refused.
func openFIFO(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, how|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) //nolint:gosec // the path is made by the runner
	if err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	if info, err := file.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		_ = file.Close()
		return nil, errors.New("the log file was replaced by something else")
	}
	return file, nil
}

// close logs the remaining lines of the FIFO and closes it.
func (p *logPipe) close() {
	_ = p.writer.Close()
	_ = p.reader.SetReadDeadline(time.Now().Add(grace))
	p.reading.Wait()
	_ = p.reader.Close()
}

// logLines logs the lines that take accepts until the reader ends.
func logLines(log *slog.Logger, from io.Reader, take func(line string) bool) {
	lines := bufio.NewReaderSize(from, maxLine)
	dropped := 0
	for {
		line, err := lines.ReadSlice('\n')
		s := strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r\n")
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case s == "":
		case take(s):
			log.Info(lineMessage, "line", s)
		default:
			dropped++
		}
		if err != nil {
			break
		}
	}
	if dropped > 0 {
		log.Warn("plugin logged too much", "dropped_lines", dropped)
	}
}

// logWord is the first word of the line that identifies the run of a
// connection.
const logWord = "tko-log"

// tokenRetention is the time that a token stays valid after its run has ended,
// because the last lines may arrive after the end.
const tokenRetention = time.Minute

// Limits of connections without the token of a run: no limit of a run bounds
// them, and they may come from any process that reaches the port.
const (
	unnamedPerSecond = 10 // lines, of all such connections
	unnamedBurst     = 100
	maxUnnamedLine   = 1 << 10 // bytes; the rest is dropped
	maxConnections   = 512     // of all kinds; further ones are closed
	firstLineLimit   = time.Minute
)

// A LogServer logs the lines that plugins send over TCP. A connection that
// begins with the line "tko-log TOKEN", with the token of a plugin's run, is
// logged as that run's; with another token, it is closed. Lines of connections
// without a token are logged as such, few of them. It is safe for concurrent
// use.
type LogServer struct {
	Log *slog.Logger // discards if nil

	mu      sync.Mutex
	runs    map[string]loggedRun // by token
	unnamed rateLimit
}

// A loggedRun is a run of a plugin whose lines are expected.
type loggedRun struct {
	log    *slog.Logger
	budget *lineBudget
}

// A rateLimit limits the lines of unnamed connections, and counts those that it
// drops. The mutex of the server guards it.
type rateLimit struct {
	tokens  float64
	filled  time.Time
	dropped int
}

// take reports whether a line may be logged, and how many were dropped before it.
func (r *rateLimit) take(now time.Time) (ok bool, dropped int) {
	if r.filled.IsZero() {
		r.tokens = unnamedBurst
	} else {
		r.tokens = min(unnamedBurst, r.tokens+now.Sub(r.filled).Seconds()*unnamedPerSecond)
	}
	r.filled = now
	if r.tokens < 1 {
		r.dropped++
		return false, 0
	}
	r.tokens--
	dropped, r.dropped = r.dropped, 0
	return true, dropped
}

// expect returns a token for a run; lines that are sent with the token go to
// log. The caller calls forget when the run has ended.
func (s *LogServer) expect(log *slog.Logger) (token string, forget func()) {
	token = "run-" + rand.Text() // with a prefix, so that YAML neither reads a number nor needs quotes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]loggedRun{}
	}
	s.runs[token] = loggedRun{log, new(lineBudget)}
	return token, func() {
		time.AfterFunc(tokenRetention, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.runs, token)
		})
	}
}

// runOf returns the run whose token a connection's first line has. named reports
// whether the line has a token; run is zero if no run has it.
func (s *LogServer) runOf(line string) (run loggedRun, named bool) {
	word, token, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	if word != logWord {
		return loggedRun{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[token], true
}

// mayLog limits the lines about unnamed connections.
func (s *LogServer) mayLog(log *slog.Logger) bool {
	s.mu.Lock()
	ok, dropped := s.unnamed.take(time.Now())
	s.mu.Unlock()
	if dropped > 0 {
		log.Warn("lines of log connections without the token of a plugin's run were dropped", "dropped_lines", dropped)
	}
	return ok
}

// Serve accepts connections until ctx is done. It closes the listener and all
// connections before it returns.
func (s *LogServer) Serve(ctx context.Context, listener net.Listener) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	connections, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil { // not the derived context, which may be done slightly later
				return nil
			}
			return fmt.Errorf("accepting plugins' log connections: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			if s.mayLog(log) {
				log.WarnContext(ctx, "a log connection was closed: there are too many", "limit", maxConnections, "remote", conn.RemoteAddr().String())
			}
			continue
		}
		serving.Go(func() {
			defer func() { <-slots }()
			stop := context.AfterFunc(connections, func() { _ = conn.Close() })
			defer stop()
			defer func() { _ = conn.Close() }()
			s.serve(conn, log.With("remote", conn.RemoteAddr().String()))
		})
	}
}

// serve logs the lines of one connection.
func (s *LogServer) serve(conn net.Conn, log *slog.Logger) {
	_ = conn.SetReadDeadline(time.Now().Add(firstLineLimit))
	lines := bufio.NewReaderSize(conn, maxLine)
	first, err := lines.ReadSlice('\n')
	_ = conn.SetReadDeadline(time.Time{})
	if err == nil {
		if run, named := s.runOf(string(first)); named && run.log != nil {
			logLines(run.log, lines, run.budget.take)
			return
		} else if named { // the run ended long ago, or never was; don't log the token
			if s.mayLog(log) {
				log.Warn("a log connection was closed: no run of a plugin has its token")
			}
			return
		}
	}
	unnamed := &unnamedLog{s, log}
	logLines(slog.New(slog.DiscardHandler), io.MultiReader(strings.NewReader(string(first)), lines), unnamed.line)
}

// An unnamedLog logs the lines of a connection without a token.
type unnamedLog struct {
	server *LogServer
	log    *slog.Logger
}

func (u *unnamedLog) line(line string) bool {
	if u.server.mayLog(u.log) {
		u.log.Info("line of a log connection without the token of a plugin's run", "line", bounded(line, maxUnnamedLine), "attributed", false)
	}
	return true
}

// lineMessage is the message of the records that have a line of a plugin.
const lineMessage = "plugin log"

// Limits of the lines of a run that [Run] has.
const (
	maxLastLines = 20
	maxLastLine  = 500 // bytes
)

// lastLines holds the last lines that a run has logged.
type lastLines struct {
	mu    sync.Mutex
	lines []string
	more  int
}

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == maxLastLines {
		l.lines, l.more = l.lines[1:], l.more+1
	}
	l.lines = append(l.lines, bounded(line, maxLastLine))
}

func (l *lastLines) take() (lines []string, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines), l.more
}

// A lineKeeper passes records on, and holds the last lines of the plugin among them.
type lineKeeper struct {
	slog.Handler

	lines *lastLines
}

// Enabled implements [slog.Handler]: lines are held also if the log has none.
func (k lineKeeper) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || k.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (k lineKeeper) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == lineMessage {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "line" {
				k.lines.add(a.Value.String())
			}
			return true
		})
	}
	if !k.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return k.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (k lineKeeper) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lineKeeper{k.Handler.WithAttrs(attrs), k.lines}
}

// WithGroup implements [slog.Handler].
func (k lineKeeper) WithGroup(name string) slog.Handler {
	return lineKeeper{k.Handler.WithGroup(name), k.lines}
}
