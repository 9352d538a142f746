package postgres_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A proxy forwards messages between a client and a server, and may change them. The zero
// value changes nothing.
type proxy struct {
	// Rewrite returns the statement that the server receives in place of sql. It
	// must be safe for concurrent use.
	Rewrite func(sql string) string
	// Lose returns whether, and when, to close the connection on which a statement is
	// sent. It must be safe for concurrent use.
	Lose func(sql string) Loss
}

// A Loss is the time at which a connection is lost.
type Loss int

// The times at which a connection is lost.
const (
	Never  Loss = iota
	Before      // before the server receives the statement
	After       // after the server ran the statement, before the client receives the result
)

// Start starts the proxy for the database of a DSN, and returns the DSN to use. The proxy
// ends with the test.
func (p *proxy) Start(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	u.Host = listener.Addr().String()
	var wait sync.WaitGroup
	var mutex sync.Mutex
	open := map[net.Conn]bool{}
	wait.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			mutex.Lock()
			open[client] = true
			mutex.Unlock()
			wait.Go(func() {
				p.serve(client, server)
				mutex.Lock()
				delete(open, client)
				mutex.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mutex.Lock()
		for c := range open {
			_ = c.Close()
		}
		mutex.Unlock()
		wait.Wait()
	})
	return u.String()
}

// serve forwards messages of both sides until one of them closes the connection.
func (p *proxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	if start, err := read(client, 0); err != nil || write(server, start) != nil {
		return
	}
	c := &conversation{proxy: p, client: client, server: server, statements: map[string]string{}}
	var wait sync.WaitGroup
	wait.Go(func() {
		_ = c.responses()
		_ = client.Close()
	})
	_ = c.requests()
	_ = server.Close()
	wait.Wait()
}

// A conversation is one connection.
type conversation struct {
	proxy          *proxy
	client, server net.Conn
	statements     map[string]string // prepared statements, by name

	mutex sync.Mutex
	lose  bool // close the connection after the statement under way
}

var errLost = errors.New("lost")

// requests forwards the client's messages.
func (c *conversation) requests() error {
	for {
		message, err := read(c.client, 1)
		if err != nil {
			return err
		}
		sql := ""
		switch kind, body := message[0], message[5:]; kind {
		case 'Q':
			sql, _ = text(body)
			message = rebuilt(kind, []byte(c.rewritten(sql)+"\x00"))
		case 'P':
			name, rest := text(body)
			query, types := text(rest)
			c.statements[name] = query
			message = rebuilt(kind, append([]byte(name+"\x00"+c.rewritten(query)+"\x00"), types...))
		case 'B':
			_, rest := text(body)
			name, _ := text(rest)
			sql = c.statements[name]
		}
		if sql != "" && c.proxy.Lose != nil {
			switch c.proxy.Lose(sql) {
			case Before:
				return errLost
			case After:
				c.mutex.Lock()
				c.lose = true
				c.mutex.Unlock()
			case Never:
			}
		}
		if err := write(c.server, message); err != nil {
			return err
		}
	}
}

func (c *conversation) rewritten(sql string) string {
	if c.proxy.Rewrite == nil {
		return sql
	}
	return c.proxy.Rewrite(sql)
}

// responses forwards the server's messages.
func (c *conversation) responses() error {
	for {
		message, err := read(c.server, 1)
		if err != nil {
			return err
		}
		c.mutex.Lock()
		lose := c.lose
		c.mutex.Unlock()
		switch {
		case !lose:
			if err := write(c.client, message); err != nil {
				return err
			}
		case message[0] == 'Z': // ready for query: the statements were run
			return errLost
		}
	}
}

// read reads a message: its kind, if it has one, its length and its body.
func read(from io.Reader, kind int) ([]byte, error) {
	header := make([]byte, kind+4)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(header[kind:])) - 4
	if size < 0 || size > 1<<30 {
		return nil, errLost
	}
	message := make([]byte, len(header)+size)
	_, err := io.ReadFull(from, message[copy(message, header):])
	return message, err
}

func write(to io.Writer, message []byte) error {
	_, err := to.Write(message)
	return err
}

func rebuilt(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

// text splits the first text off a message.
func text(body []byte) (found string, rest []byte) {
	before, after, _ := bytes.Cut(body, []byte{0})
	return string(before), after
}
