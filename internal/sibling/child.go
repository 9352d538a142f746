package sibling

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/version"
)

// ErrNotStarted reports that a sibling program was not started by its server.
var ErrNotStarted = errors.New("tko-server starts this program when it needs it: it is not for interactive use")

// A Parent is the server that started this program.
type Parent struct {
	// Peer is the server, to call it.
	Peer *Peer
	// Data is a connection to the data controller; nil if there is none.
	Data net.Conn

	files  map[string][]*os.File
	report *os.File
	serve  net.Conn
}

// Inherit takes over what the server gave to this process, and decodes the settings.
// ctx ends when the program is to stop, or when the server has ended.
func Inherit(settings any) (p *Parent, ctx context.Context, err error) {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return nil, nil, ErrNotStarted
	}
	var s start
	if err := json.Unmarshal(line, &s); err != nil || len(s.Files) == 0 || s.Files[0] != fileReport {
		return nil, nil, ErrNotStarted
	}
	p = &Parent{files: map[string][]*os.File{}}
	for i, name := range s.Files {
		p.files[name] = append(p.files[name], os.NewFile(uintptr(3+i), name))
	}
	p.report = p.files[fileReport][0]
	if err := p.take(s, settings); err != nil {
		p.Failed(err)
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, input)
		stop()
	}()
	return p, ctx, nil
}

func (p *Parent) take(s start, settings any) error {
	if s.Version != version.String() {
		return tko.Errorf(tko.ErrUnavailable, "%s is version %s, and the server is version %s: install both from the same release", own(), version.String(), s.Version)
	}
	if err := json.Unmarshal(s.Settings, settings); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	var err error
	if p.serve, err = p.socket(fileServe); err != nil {
		return err
	}
	call, err := p.socket(fileCall)
	if err != nil {
		return err
	}
	if p.Peer, err = NewPeer("tko-server", call); err != nil {
		return err
	}
	if len(p.files[fileData]) > 0 {
		p.Data, err = p.socket(fileData)
	}
	return err
}

func (p *Parent) socket(name string) (net.Conn, error) {
	if len(p.files[name]) != 1 {
		return nil, fmt.Errorf("the server gave %d sockets %q, and not one", len(p.files[name]), name)
	}
	defer func() { _ = p.files[name][0].Close() }()
	conn, err := net.FileConn(p.files[name][0])
	if err != nil {
		return nil, fmt.Errorf("take over the socket %q: %w", name, err)
	}
	return conn, nil
}

// Listeners returns the inherited listeners of a name.
func (p *Parent) Listeners(name string) ([]net.Listener, error) {
	var all []net.Listener
	for _, f := range p.files[name] {
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("take over the listener %q: %w", name, err)
		}
		_ = f.Close()
		all = append(all, l)
	}
	return all, nil
}

// Serve reports that the program serves, and serves the methods until the context
// ends.
func (p *Parent) Serve(ctx context.Context, methods Endpoint) error {
	if err := p.say(hello{}); err != nil {
		return err
	}
	return methods.Serve(ctx, "tko-server", p.serve)
}

// Failed reports why the program can't serve.
func (p *Parent) Failed(err error) { _ = p.say(hello{Error: NewFailure(err)}) }

func (p *Parent) say(h hello) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if _, err := p.report.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("report to the server: %w", err)
	}
	return p.report.Close()
}
