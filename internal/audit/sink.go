package audit

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Line returns the record as one line of JSON, with its hash last. Removing the hash
// gives the text that the chain covers.
func (s Stored) Line() []byte {
	if len(s.Text) < 2 || s.Text[len(s.Text)-1] != '}' {
		return s.Text
	}
	line := append([]byte{}, s.Text[:len(s.Text)-1]...)
	return append(line, (`,"hash":"` + s.Hash.String() + `"}`)...)
}

// syslogTimeout limits a delivery.
const syslogTimeout = 10 * time.Second

// The priorities of records: facility audit (13), severities critical, warning and
// informational.
const (
	facility      = 13 * 8
	critical      = facility + 2
	warning       = facility + 4
	informational = facility + 6
)

// Syslog sends records to a syslog server, as RFC 5424 over TCP with octet counting
// (RFC 6587).
type Syslog struct {
	Address string      // host:port
	Host    string      // of this machine
	TLS     *tls.Config // of the connection (RFC 5425); nil for plain text
}

// Send sends records over a connection of its own. The server may have received some of
// them if it fails.
func (s *Syslog) Send(ctx context.Context, records []Stored) error {
	dial := (&net.Dialer{Timeout: syslogTimeout}).DialContext
	if s.TLS != nil {
		dial = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: syslogTimeout}, Config: s.TLS}).DialContext
	}
	conn, err := dial(ctx, "tcp", s.Address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if err := conn.SetDeadline(time.Now().Add(syslogTimeout)); err != nil {
		return err
	}
	var text []byte
	for _, r := range records {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		message := s.format(r)
		text = append(strconv.AppendInt(text, int64(len(message)), 10), ' ')
		text = append(text, message...)
	}
	if _, err := conn.Write(text); err != nil {
		return err
	}
	return conn.Close()
}

// format returns a record as a message. The text is JSON, in which control characters
// are escaped, so it can't contain another message.
func (s *Syslog) format(stored Stored) string {
	priority, at := informational, "-"
	if r, err := stored.Record(); err == nil {
		at = r.Time.UTC().Format("2006-01-02T15:04:05.000000Z")
		switch {
		case r.Op == "broke glass":
			priority = critical
		case r.Decision != Allow:
			priority = warning
		}
	}
	return fmt.Sprintf("<%d>1 %s %s tko %d audit - %s", priority, at, headerText(s.Host), os.Getpid(), stored.Line())
}

// headerText returns a name for the header of a message.
func headerText(name string) string {
	name = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return '_'
		}
		return c
	}, name)
	if name == "" {
		return "-"
	}
	return name[:min(len(name), 255)]
}
