package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// implicitPort is the port of mail servers whose connections begin with TLS.
const implicitPort = "465"

func (m *Mail) send(ctx context.Context, message Message, out outlet) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, fmt.Errorf("the mail server did not respond within %s", sendTimeout))
	defer cancel()
	if err := m.deliver(ctx, message, out); err != nil {
		if refused, ok := errors.AsType[*textproto.Error](err); ok {
			return fmt.Errorf("the mail server responded %d", refused.Code)
		}
		return remote.Cause(ctx, err)
	}
	return nil
}

func (m *Mail) deliver(ctx context.Context, message Message, out outlet) error {
	host, port, err := net.SplitHostPort(m.Server)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "server is no HOST:PORT")
	}
	certificates, err := pool(m.CA)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	password, err := out.read(ctx, m.Password, m.host())
	if err != nil {
		return err
	}
	if err := out.Guard.Host(host); err != nil {
		return err
	}
	conn, err := out.Guard.DialContext(ctx, "tcp", m.Server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	secure := &tls.Config{ServerName: host, RootCAs: certificates, MinVersion: tls.VersionTLS12}
	if port == implicitPort {
		conn = tls.Client(conn, secure)
	}
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if port != implicitPort {
		if ok, _ := client.Extension("STARTTLS"); !ok {
			return errors.New("the mail server has no STARTTLS, and mail is sent over TLS only")
		}
		if err := client.StartTLS(secure); err != nil {
			return err
		}
	}
	if m.Username != "" {
		if err := client.Auth(smtp.PlainAuth("", m.Username, string(password), host)); err != nil {
			return err
		}
	}
	if err := client.Mail(m.From); err != nil {
		return err
	}
	for _, to := range m.To {
		if err := client.Rcpt(to); err != nil {
			return err
		}
	}
	body, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := body.Write(m.text(message)); err != nil {
		return err
	}
	if err := body.Close(); err != nil { // the server has accepted it, if this is nil
		return err
	}
	_ = client.Quit() // whatever it says, it has the mail
	return nil
}

// text returns a mail. Its Message-ID is made from the ID of the message.
func (m *Mail) text(message Message) []byte {
	var b bytes.Buffer
	_, domain, _ := strings.Cut(m.From, "@")
	for _, field := range [][2]string{
		{"From", m.From},
		{"To", strings.Join(m.To, ",\r\n ")},
		{"Subject", mime.QEncoding.Encode("utf-8", strings.Join(strings.Fields(message.Title), " "))},
		{"Date", message.Time.Format(time.RFC1123Z)},
		{"Message-ID", "<" + message.ID + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "base64"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", field[0], field[1])
	}
	b.WriteString("\r\n")
	text := base64.StdEncoding.EncodeToString([]byte(message.Text + "\n" + message.ID + "\n"))
	for len(text) > mailLine {
		b.WriteString(text[:mailLine] + "\r\n")
		text = text[mailLine:]
	}
	b.WriteString(text + "\r\n")
	return b.Bytes()
}

// mailLine is the length of the lines of an encoded text.
const mailLine = 76
