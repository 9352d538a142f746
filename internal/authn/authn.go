package authn

import (
	"context"
	"crypto/x509"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// A Connection is what a transport knows about the connection of a call.
type Connection struct {
	From     string              // remote address, as in [identity.Identity]
	Loopback bool                // from this machine over the loopback interface, or in the same process
	Role     string              // of one of our own controllers in the same process
	User     *User               // of the Unix socket
	Peer     []*x509.Certificate // of the client, verified at the handshake; empty without one
}

// A User is the owner of a process at the other end of a Unix socket.
type User struct{ UID, GID uint32 }

// overflow is the user ID that a process of another user namespace seems to have:
// it is the same for all of them.
const overflow = 65534

// A TokenReader authenticates one kind of token.
type TokenReader interface {
	// Read returns the identity that a token proves, without From. ok is false
	// if the token is of another kind. An invalid token is an ErrUnauthenticated
	// or an ErrDenied; if it can't be checked now, that is an ErrUnavailable.
	Read(ctx context.Context, token string) (i identity.Identity, ok bool, err error)
}

// Certificates verify the certificates of clients.
type Certificates interface {
	Verify(peer []*x509.Certificate) error
}

// Options are the settings of an [Authenticator].
type Options struct {
	Certificates  Certificates      // nil without client certificates
	SPIFFEDomains []string          // trust domains whose SPIFFE IDs are names; none if empty
	Tokens        []TokenReader     // the first that knows a token decides
	Controllers   map[string]string // subjects of our own controllers in other processes, and their roles
	Insecure      bool              // anonymous callers from other machines are accepted
}

// An Authenticator identifies callers. It may be used concurrently.
type Authenticator struct{ options Options }

// New makes an authenticator.
func New(o Options) *Authenticator { return &Authenticator{options: o} }

// ParseControllers reads ROLE=SUBJECT texts: subjects of our own controllers in
// other processes. An unknown role, and a subject that no authenticator returns,
// is an ErrInvalid.
func ParseControllers(texts []string) (map[string]string, error) {
	controllers := map[string]string{}
	for _, text := range texts {
		role, subject, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(identity.Roles(), role) {
			return nil, tko.Errorf(tko.ErrInvalid, "controller %q: use ROLE=SUBJECT, with a role of %s", text, strings.Join(identity.Roles(), ", "))
		}
		if !identity.IsSubject(subject) {
			return nil, tko.Errorf(tko.ErrInvalid, "controller %q: the subject %q has no prefix of an authenticator, such as spiffe:// or token:", text, subject)
		}
		if other, ok := controllers[subject]; ok && other != role {
			return nil, tko.Errorf(tko.ErrInvalid, "controller %q: the subject already has the role %s", text, other)
		}
		controllers[subject] = role
	}
	return controllers, nil
}

// Identify returns the caller. A token decides, if there is one; else the
// certificate, or the user of the Unix socket. Callers without any are anonymous,
// which is an ErrUnauthenticated for those on other machines.
func (a *Authenticator) Identify(ctx context.Context, c Connection, token string) (identity.Identity, error) {
	if c.Role != "" {
		return identity.Controller(c.Role), nil
	}
	var i identity.Identity
	var err error
	switch {
	case token != "":
		i, err = a.token(ctx, token)
	case len(c.Peer) > 0 && a.options.Certificates != nil:
		if err = a.options.Certificates.Verify(c.Peer); err == nil {
			i, err = a.certificate(c.Peer[0])
		}
	case c.User != nil:
		i, err = ofUser(*c.User)
	case c.Loopback || a.options.Insecure:
		return identity.Anonymous(c.From), nil
	default:
		err = tko.Errorf(tko.ErrUnauthenticated, "there are no credentials: this server needs a client certificate or a token from other machines")
	}
	if err != nil {
		return identity.Identity{}, err
	}
	i.From = c.From
	if i.Expired(time.Now()) {
		return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "the credentials of %q have expired: get new ones", i.Subject)
	}
	if role := a.options.Controllers[i.Subject]; role != "" {
		i.Display, i.Subject, i.Groups = i.Subject, identity.Own+role, nil
	}
	return i, nil
}

// maxToken is the maximum size of a token in bytes.
const maxToken = 16 << 10

func (a *Authenticator) token(ctx context.Context, token string) (identity.Identity, error) {
	if len(token) > maxToken {
		return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "the token has %d bytes: at most %d are accepted", len(token), maxToken)
	}
	for _, reader := range a.options.Tokens {
		if i, ok, err := reader.Read(ctx, token); ok || err != nil {
			return i, err
		}
	}
	return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "the token is unknown to this server, or has been revoked")
}

// certificate returns the holder of a verified certificate: its SPIFFE ID, else
// its first DNS name or e-mail address, else its common name.
func (a *Authenticator) certificate(cert *x509.Certificate) (identity.Identity, error) {
	i := identity.Identity{Authenticator: "certificate", Expires: cert.NotAfter}
	var err error
	switch {
	case len(cert.URIs) > 1:
		err = tko.Errorf(tko.ErrDenied, "the client certificate has %d URIs as names: it may have one", len(cert.URIs))
	case len(cert.URIs) == 1:
		i.Subject, err = a.spiffe(cert.URIs[0])
	case len(cert.DNSNames) > 0:
		i.Subject, err = identity.Named(identity.Certificate, cert.DNSNames[0])
	case len(cert.EmailAddresses) > 0:
		i.Subject, err = identity.Named(identity.Certificate, cert.EmailAddresses[0])
	default:
		i.Subject, err = identity.Named(identity.Certificate, cert.Subject.CommonName)
	}
	if err == nil && len(cert.URIs) == 0 {
		i.Groups, err = identity.Groups(identity.Certificate, cert.Subject.Organization)
	}
	return i, err
}

func (a *Authenticator) spiffe(id *url.URL) (string, error) {
	text := id.String()
	bad := id.Scheme != "spiffe" || id.Host == "" || id.Host != strings.ToLower(id.Host) || id.Port() != "" || id.User != nil || id.RawQuery != "" || id.Fragment != "" || id.RawPath != "" ||
		!strings.HasPrefix(id.Path, "/") || strings.HasSuffix(id.Path, "/") || slices.ContainsFunc(strings.Split(id.Path[1:], "/"), func(part string) bool { return part == "" || part == "." || part == ".." })
	if bad {
		return "", tko.Errorf(tko.ErrDenied, "the URI %.100q of the client certificate is not a SPIFFE ID of the form spiffe://DOMAIN/PATH", text)
	}
	if !slices.Contains(a.options.SPIFFEDomains, id.Host) {
		return "", tko.Errorf(tko.ErrDenied, "the trust domain %q of the client certificate is not accepted: allow it with --tls-spiffe-domains", id.Host)
	}
	return identity.Named(identity.SPIFFE, strings.TrimPrefix(text, identity.SPIFFE))
}

// ofUser returns the identity of a user of this machine.
func ofUser(u User) (identity.Identity, error) {
	if u.UID == overflow {
		return identity.Identity{}, tko.Errorf(tko.ErrDenied, "the user %d is the same for all users of other user namespaces: run the command outside the container, or use a token", u.UID)
	}
	uid := strconv.FormatUint(uint64(u.UID), 10)
	name, groups := userOf(uid)
	groups, err := identity.Groups(identity.Unix, append(groups, strconv.FormatUint(uint64(u.GID), 10)))
	return identity.Identity{Subject: identity.Unix + uid, Authenticator: "unix", Display: name, Groups: groups}, err
}

// Bearer returns the token of an Authorization header: "Bearer TOKEN". Another
// scheme is an ErrUnauthenticated.
func Bearer(header string) (string, error) {
	if header == "" {
		return "", nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", tko.Errorf(tko.ErrUnauthenticated, "the authorization is not of the form Bearer TOKEN")
	}
	return token, nil
}

func unauthenticated(format string, args ...any) error {
	return tko.Errorf(tko.ErrUnauthenticated, format, args...)
}
