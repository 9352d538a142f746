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
	maxLine  = 16 << 10 // bytes of a log line; the rest of the line is dropped
	maxLines = 10_000   // lines of a run or a connection; further lines are only counted
)

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
	p.reading.Go(func() { logLines(log, reader) })
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

// logLines logs lines until the reader ends.
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

// logWord is the first word of the line that identifies the run of a
// connection.
const logWord = "tko-log"

// tokenRetention is the time that a token stays valid after its run has ended,
// because the last lines may arrive after the end.
const tokenRetention = time.Minute

// A LogServer logs the lines that plugins send over TCP. A connection that
// begins with the line "tko-log TOKEN", with the token of a plugin's run, is
// logged as that run's. It is safe for concurrent use.
type LogServer struct {
	Log *slog.Logger // discards if nil

	mu   sync.Mutex
	runs map[string]*slog.Logger // by token
}

// expect returns a token for a run; lines that are sent with the token go to
// log. The caller calls forget when the run has ended.
func (s *LogServer) expect(log *slog.Logger) (token string, forget func()) {
	token = "run-" + rand.Text() // with a prefix, so that YAML neither reads a number nor needs quotes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]*slog.Logger{}
	}
	s.runs[token] = log
	return token, func() {
		time.AfterFunc(tokenRetention, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.runs, token)
		})
	}
}

// logOf returns the log of the run whose token a connection's first line
// contains, and other if it contains none. named reports whether the line is a
// token line, which is not to be logged.
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
	return other, true // the run ended long ago; don't log the token
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
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil { // not the derived context, which may be done slightly later
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
