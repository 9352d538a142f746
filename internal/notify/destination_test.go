package notify_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/notify"
)

func TestSlackGetsAnEscapedText(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": map[string]any{"slack": map[string]any{"url": r.URL + "/services/T/B", "channel": "#noc"}}})
	w.run(w.notifier, w.Told())
	w.site("a", "<!channel> & more")
	waitFor(t, "the message", func() bool { return len(r.all()) > 0 })
	var m struct{ Text, Channel string }
	if err := json.Unmarshal(r.all()[0].body, &m); err != nil {
		t.Fatal(err)
	}
	id := w.status("ops").UID + ".1"
	if m.Channel != "#noc" || !strings.HasPrefix(m.Text, "*ops: 1 site created*\n") || !strings.Contains(m.Text, "&lt;!channel&gt; &amp; more") || !strings.HasSuffix(m.Text, "\n_"+id+"_") {
		t.Errorf("Slack gets %s", r.all()[0].body)
	}
}

func TestSecretPathOfSlackIsARefusedOrUsedReference(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "to": map[string]any{"slack": map[string]any{"url": r.URL, "path": "env:NOT_ALLOWED"}}})
	if _, err := w.TestSubscription(w.ctx, "ops"); err == nil || !strings.Contains(err.Error(), "--secret-environment") || len(r.all()) != 0 {
		t.Errorf("a reference that the operator doesn't allow: %v, %d requests", err, len(r.all()))
	}
}

func TestAlertmanagerGetsAnAlertForEachMessage(t *testing.T) {
	t.Parallel()
	var paths []string
	var mu sync.Mutex
	r := newReceiver(t, nil)
	inner := r.Config.Handler
	r.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		mu.Lock()
		paths = append(paths, in.URL.Path)
		mu.Unlock()
		inner.ServeHTTP(out, in)
	})
	w := newWorld(t, catalog.Options{})
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": map[string]any{"alertmanager": map[string]any{"url": r.URL + "/am", "for": "10m", "labels": map[string]any{"team": "noc"}}}})
	w.run(w.notifier, w.Told())
	w.site("a", "")
	waitFor(t, "the alert", func() bool { return len(r.all()) > 0 })
	var alerts []struct {
		Labels, Annotations map[string]string
		StartsAt, EndsAt    time.Time
	}
	if err := json.Unmarshal(r.all()[0].body, &alerts); err != nil || len(alerts) != 1 {
		t.Fatalf("%v: %s", err, r.all()[0].body)
	}
	a := alerts[0]
	if paths[0] != "/am/api/v2/alerts" || a.Labels["alertname"] != "TKOMessage" || a.Labels["team"] != "noc" || a.Labels["subscription"] != "ops" || a.Labels["message"] != w.status("ops").UID+".1" ||
		a.Annotations["summary"] != "ops: 1 site created" || a.EndsAt.Sub(a.StartsAt) != 10*time.Minute {
		t.Errorf("%s gets %s", paths[0], r.all()[0].body)
	}
}

// A mailServer is one of SMTP with STARTTLS and a login, for tests.
type mailServer struct {
	net.Listener
	secure *tls.Config
	plain  bool // it has no STARTTLS

	mu    sync.Mutex
	mails []receivedMail
	fail  int // code of the response to the data; 0 accepts it
}

type receivedMail struct {
	login, from string
	to          []string
	data        []byte
}

func newMailServer(t *testing.T) (s *mailServer, ca string) {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = &mailServer{Listener: listener, secure: &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	return s, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}))
}

func (s *mailServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	text := textproto.NewConn(conn)
	say := func(line string) { _ = text.PrintfLine("%s", line) }
	say("220 mail.example.com ESMTP")
	var m receivedMail
	secure := false
	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			switch {
			case secure:
				say("250-mail.example.com")
				say("250 AUTH PLAIN")
			case s.plain:
				say("250 mail.example.com")
			default:
				say("250-mail.example.com")
				say("250 STARTTLS")
			}
		case "STARTTLS":
			say("220 go ahead")
			encrypted := tls.Server(conn, s.secure)
			if encrypted.Handshake() != nil {
				return
			}
			conn, secure = encrypted, true
			text = &textproto.Conn{Reader: *textproto.NewReader(bufio.NewReader(encrypted)), Writer: *textproto.NewWriter(bufio.NewWriter(encrypted))}
		case "AUTH":
			data, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			m.login = strings.ReplaceAll(string(data), "\x00", "|")
			say("235 welcome")
		case "MAIL":
			m.from = rest
			say("250 ok")
		case "RCPT":
			m.to = append(m.to, rest)
			say("250 ok")
		case "DATA":
			say("354 go ahead")
			if m.data, err = text.ReadDotBytes(); err != nil {
				return
			}
			s.mu.Lock()
			code := s.fail
			if code == 0 {
				s.mails = append(s.mails, m)
			}
			s.mu.Unlock()
			if code != 0 {
				say("451 try later, says the secret server")
				return
			}
			say("250 accepted")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("500 what")
		}
	}
}

func (s *mailServer) received() []receivedMail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mails
}

func TestMailIsSentOverTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	s, ca := newMailServer(t)
	mails := func(ca string) map[string]any {
		return map[string]any{"about": []any{map[string]any{"of": "changes"}}, "group": quick, "to": map[string]any{"mail": map[string]any{
			"server": s.Addr().String(), "username": "tko", "password": "env:" + hookVariable, "from": "tko@example.com", "to": []any{"noc@example.com", "ops@example.com"}, "ca": ca,
		}}}
	}
	w.subscribe("untrusted", mails(""))
	if _, err := w.TestSubscription(w.ctx, "untrusted"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server whose certificate isn't trusted: %v", err)
	}
	if err := w.DeleteSubscription(w.ctx, "untrusted"); err != nil {
		t.Fatal(err)
	}
	w.subscribe("ops", mails(ca))
	w.run(w.notifier, w.Told())
	s.mu.Lock()
	s.fail = 451
	s.mu.Unlock()
	w.site("a", "grüße")
	waitFor(t, "the refusal", func() bool {
		return strings.Contains(w.condition("ops", tko.ConditionAccepted), "the mail server responded 451")
	})
	if got := w.condition("ops", tko.ConditionAccepted); strings.Contains(got, "secret server") {
		t.Errorf("the condition has the server's text: %q", got)
	}
	s.mu.Lock()
	s.fail = 0
	s.mu.Unlock()
	waitFor(t, "the mail", func() bool { return len(s.received()) == 1 })
	one := s.received()[0]
	if one.login != "|tko|"+hookKey || one.from != "FROM:<tko@example.com>" || strings.Join(one.to, " ") != "TO:<noc@example.com> TO:<ops@example.com>" {
		t.Errorf("the envelope is %q, from %q to %q", one.login, one.from, one.to)
	}
	m, err := mail.ReadMessage(strings.NewReader(string(one.data)))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	body, bodyErr := io.ReadAll(base64.NewDecoder(base64.StdEncoding, m.Body))
	if err := errors.Join(err, bodyErr); err != nil {
		t.Fatal(err)
	}
	id := w.status("ops").UID + ".1"
	if subject != "ops: 1 site created" || m.Header.Get("Message-Id") != "<"+id+"@example.com>" || m.Header.Get("Auto-Submitted") != "auto-generated" || !strings.Contains(string(body), "site a created by ada: grüße") || !strings.Contains(string(body), id) {
		t.Errorf("the mail is %q, %v:\n%s", subject, m.Header, body)
	}
}

func TestMailIsNotSentWithoutTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	s, ca := newMailServer(t)
	s.plain = true
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "to": map[string]any{"mail": map[string]any{"server": s.Addr().String(), "from": "tko@example.com", "to": []any{"noc@example.com"}, "ca": ca}}})
	if _, err := w.TestSubscription(w.ctx, "ops"); err == nil || !strings.Contains(err.Error(), "no STARTTLS") || len(s.received()) != 0 {
		t.Errorf("a server without TLS: %v", err)
	}
}

func TestKeyOfSignaturesIsNeverShown(t *testing.T) {
	t.Parallel()
	if os.Getenv(hookVariable) != hookKey {
		t.Fatal("the tests have no key")
	}
	w := newWorld(t, catalog.Options{})
	r := newReceiver(t, func(int, notify.Message) int { return http.StatusBadGateway })
	w.subscribe("ops", map[string]any{"about": []any{map[string]any{"of": "changes"}}, "to": webhook(r)})
	_, err := w.TestSubscription(w.ctx, "ops")
	if err == nil || strings.Contains(err.Error(), hookKey) || strings.Contains(err.Error(), r.URL) {
		t.Errorf("the error is %v", err)
	}
	if text, err := json.Marshal(w.status("ops")); err != nil || strings.Contains(string(text), hookKey) {
		t.Errorf("the subscription shows the key: %s %v", text, err)
	}
}
