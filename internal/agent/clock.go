package agent

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// maxSkew is the difference of two clocks that is not reported.
const maxSkew = time.Minute

// now returns the time by the clock with which certificates are verified.
func (s Server) now() time.Time {
	if s.TLS != nil && s.TLS.Time != nil {
		return s.TLS.Time()
	}
	return time.Now()
}

// A clockError is an error whose cause may be a wrong clock, here or at the server. Connecting again
// helps as soon as the clock is right.
type clockError struct {
	kind, cause error
	why         string // what doesn't fit to which clock, and the remedy
	now         time.Time
}

func (e *clockError) Error() string {
	return fmt.Sprintf("%s; the clock here says %s: %v", e.why, e.now.UTC().Format(time.RFC3339), e.cause)
}

func (e *clockError) Unwrap() error        { return e.cause }
func (e *clockError) Is(target error) bool { return errors.Is(e.kind, target) }

// aboutClock returns the error of a call, with what the clocks have to do with it. cert is the
// certificate of the agent, or nil.
func (s Server) aboutClock(err error, cert *tls.Certificate) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "certificate has expired or is not yet valid"): // of package x509: of the server's
		return &clockError{tko.ErrUnavailable, err, fmt.Sprintf("the certificate of the server %s is not valid by the clock of this machine: set the clock if it is wrong, or renew the server's certificate", s.Address), s.now()}
	case cert != nil && cert.Leaf != nil && strings.Contains(text, "tls: expired certificate"): // the alert for certificates that are not valid yet, too
		return &clockError{tko.ErrUnauthenticated, err, fmt.Sprintf("the certificate of the agent is valid from %s until %s, and isn't by the clock of the server %s: if that clock is wrong, set it, and the agent connects by itself; otherwise enroll the agent with the token of tko site enroll (--token-file)",
			cert.Leaf.NotBefore.UTC().Format(time.RFC3339), cert.Leaf.NotAfter.UTC().Format(time.RFC3339), s.Address), s.now()}
	}
	return err
}

// stable returns the text of an error without the time.
func stable(err error) string {
	if c, ok := errors.AsType[*clockError](err); ok {
		return c.why
	}
	return err.Error()
}
