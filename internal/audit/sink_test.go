package audit_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
)

// store returns records as the log stores them.
func store(t *testing.T, records ...audit.Record) (stored []audit.Stored) {
	t.Helper()
	last := audit.Head{}
	for i, r := range records {
		r.Seq, r.Time = int64(i+1), time.Date(2026, 11, 22, 12, 0, i, 0, time.UTC)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		s := audit.Stored{Seq: r.Seq, Text: text, Hash: audit.Chain(last.Hash, text)}
		stored, last = append(stored, s), audit.Head{Seq: s.Seq, Hash: s.Hash}
	}
	return stored
}

// parseLine is the inverse of [audit.Stored.Line].
func parseLine(line []byte) (audit.Stored, error) {
	text := strings.TrimSpace(string(line))
	i := strings.LastIndex(text, `,"hash":"`)
	if i < 0 || !strings.HasSuffix(text, `"}`) {
		return audit.Stored{}, fmt.Errorf("%.60q is no exported audit record", text)
	}
	encoded := strings.TrimSuffix(text[i+len(`,"hash":"`):], `"}`)
	hash, err := audit.ParseHash(encoded)
	if err != nil {
		return audit.Stored{}, err
	}
	if encoded == "" {
		return audit.Stored{}, fmt.Errorf("%.60q has no hash", text)
	}
	s := audit.Stored{Text: []byte(text[:i] + "}"), Hash: hash}
	var r audit.Record
	if err := json.Unmarshal(s.Text, &r); err != nil {
		return audit.Stored{}, fmt.Errorf("an exported audit record can't be read: %w", err)
	}
	s.Seq = r.Seq
	return s, nil
}

// TestSyslogMessagesCannotBeForged sends records with the texts of attackers, and reads them as a syslog server does.
func TestSyslogMessagesCannotBeForged(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t, "authority of syslog")
	cert, key, _ := authority.Issue("syslog", certstest.Localhost)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	received := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			received <- err.Error()
			return
		}
		defer conn.Close()
		all, err := io.ReadAll(conn)
		if err != nil {
			all = []byte(err.Error())
		}
		received <- string(all)
	}()
	const forged = "x\n<13>1 2026-01-01T00:00:00Z evil tko 1 audit - {}\r\n\x1b[2J\x00\u2028"
	sent := store(t,
		audit.Record{Caller: audit.Caller{Subject: "cert:ada", Decision: audit.Allow}, Kind: "site", ID: "lagos", Op: "written"},
		audit.Record{Caller: audit.Caller{Subject: "cert:eve", Decision: audit.Refuse, Claimed: forged}, Kind: "site", ID: forged, Detail: forged, Why: forged},
		audit.Record{Caller: audit.Caller{Subject: "unix:0", Decision: audit.Allow}, Op: "broke glass"})
	if err := (&audit.Syslog{Address: l.Addr().String(), Host: "a host\nwith lines", TLS: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}}).Send(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(strings.NewReader(<-received))
	for i, want := range []string{"<110>1 ", "<108>1 ", "<106>1 "} {
		size, err := r.ReadString(' ')
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil {
			t.Fatalf("message %d has the length %q", i, size)
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(r, message); err != nil {
			t.Fatal(err)
		}
		text := string(message)
		if !strings.HasPrefix(text, want) || !strings.Contains(text, " a_host_with_lines tko ") || !strings.Contains(text, " audit - {") {
			t.Errorf("message %d is %q, want the priority %s", i, text, want)
		}
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			t.Errorf("message %d has control characters: %q", i, text)
		}
		_, line, _ := strings.Cut(text, " audit - ")
		back, err := parseLine([]byte(line))
		if err != nil || string(back.Text) != string(sent[i].Text) || back.Hash != sent[i].Hash {
			t.Errorf("message %d is not the record: %v, %s", i, err, line)
		}
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("there is one more message: %q", rest)
	}
}

// A sink that accepts connections and never reads must not hold up the export for ever.
func TestSyslogServerThatNeverReadsIsGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	large := store(t, audit.Record{Detail: strings.Repeat("x", 1<<20)})
	for range 4 {
		large = append(large, large...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- (&audit.Syslog{Address: l.Addr().String(), Host: "h"}).Send(ctx, large) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("records that were never read count as sent")
		}
	case <-time.After(9 * time.Second): // the limit of a delivery is 10 s
		t.Error("the export does not end with its context")
	}
}

func TestExportedLinesAreRead(t *testing.T) {
	t.Parallel()
	for i, s := range store(t, audit.Record{Kind: "site", ID: `a","hash":"b`}, audit.Record{Detail: "<&>"}) {
		back, err := parseLine(s.Line())
		if err != nil || back.Hash != s.Hash || string(back.Text) != string(s.Text) || back.Seq != s.Seq {
			t.Errorf("line %d: %+v, %v", i, back, err)
		}
	}
	for _, bad := range []string{"", "{}", `{"seq":1,"hash":"zz"}`, `{"seq":1,"hash":""}`, fmt.Sprintf(`{"seq":"x","hash":"%064d"}`, 0)} {
		if s, err := parseLine([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, s)
		}
	}
}
