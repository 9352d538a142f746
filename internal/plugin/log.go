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
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxLine  = 16 << 10 // of a log line; the rest of it is left out
	maxLines = 10_000   // of a run or a connection; the rest is counted
)

// logPipe is a FIFO whose lines are logged as a plugin's.
type logPipe struct {
	path    string
	reader  *os.File
	writer  *os.File // ours: as long as it is open, the reader waits
	reading sync.WaitGroup
}

// openLogPipe makes a FIFO. Nobody needs to open its other end.
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
	p.reading.Go(func() { logLines(log, reader) })
	return p, nil
}

// openFIFO opens one end. A plugin that is at work can have put something else
// there: nothing else is opened, and no link followed.
func openFIFO(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, how|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) //nolint:gosec // the path is ours
	if err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	if info, err := file.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		_ = file.Close()
		return nil, errors.New("the log file was replaced by something else")
	}
	return file, nil
}

// close logs what is still in the FIFO, and ends it.
func (p *logPipe) close() {
	_ = p.writer.Close()
	_ = p.reader.SetReadDeadline(time.Now().Add(grace))
	p.reading.Wait()
	_ = p.reader.Close()
}

// logLines logs lines until there are no more.
func logLines(log *slog.Logger, from io.Reader) {
	lines := bufio.NewReaderSize(from, maxLine)
	dropped := 0
	for n := 0; ; n++ {
		line, err := lines.ReadSlice('\n')
		s := strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r\n")
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case s == "":
		case n < maxLines:
			log.Info("plugin log", "line", s)
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

// logWord begins the line by which a connection says whose lines it sends.
const logWord = "tko-log"

// keepTokens is how long lines of a run that has ended are still known as its:
// what it sent last may arrive after it.
const keepTokens = time.Minute

// A LogServer logs the lines that plugins send over TCP. A connection that
// begins with the line "tko-log TOKEN", with the token of a plugin's run, is
// logged as that run's. It is safe for concurrent use.
type LogServer struct {
	Log *slog.Logger // nowhere if nil

	mu   sync.Mutex
	runs map[string]*slog.Logger // by token
}

// expect makes a token for a run, whose lines go to a log from then on. The run
// is over when forget is called.
func (s *LogServer) expect(log *slog.Logger) (token string, forget func()) {
	token = "run-" + rand.Text() // which no YAML takes for a number, or writes in quotes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]*slog.Logger{}
	}
	s.runs[token] = log
	return token, func() {
		time.AfterFunc(keepTokens, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.runs, token)
		})
	}
}

// logOf is the log of the run that a connection's first line names; other for
// lines that name none.
func (s *LogServer) logOf(line string, other *slog.Logger) (log *slog.Logger, named bool) {
	word, token, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	if word != logWord {
		return other, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if log, ok := s.runs[token]; ok {
		return log, true
	}
	return other, true // of a run long ago: the token is for nobody to read
}

// Serve takes connections until the context ends. It closes the listener and
// all connections before it returns.
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
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil { // not the derived context, which may end a moment later
				return nil
			}
			return fmt.Errorf("accepting plugins' log connections: %w", err)
		}
		serving.Go(func() {
			stop := context.AfterFunc(connections, func() { _ = conn.Close() })
			defer stop()
			defer func() { _ = conn.Close() }()
			s.serve(conn, log.With("remote", conn.RemoteAddr().String()))
		})
	}
}

// serve logs the lines of one connection.
func (s *LogServer) serve(conn io.Reader, log *slog.Logger) {
	lines := bufio.NewReaderSize(conn, maxLine)
	first, err := lines.ReadSlice('\n')
	if err == nil {
		var named bool
		if log, named = s.logOf(string(first), log); named {
			first = nil
		}
	}
	logLines(log, io.MultiReader(strings.NewReader(string(first)), lines))
}
