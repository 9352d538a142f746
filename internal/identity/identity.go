package identity

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tko-orchestrator/tko"
)

// Prefixes of subjects. Each authenticator has its own, so that none can name
// the subjects of another.
const (
	Certificate   = "cert:"     // and the subject alternative name or common name
	SPIFFE        = "spiffe://" // and the trust domain and path
	OIDC          = "oidc:"     // and the issuer's alias, a colon and the sub claim
	Kubernetes    = "k8s:"      // and the user name of a cluster
	Token         = "token:"    // and the name in the token file
	Unix          = "unix:"     // and the user ID of the process
	Own           = "tko:"      // and a role: our own controllers, and plugins that they run
	Delegated     = "delegated" // authenticator of callers about whose verbs a cluster decides: those of the Kubernetes API
	AnonymousName = "anonymous" // the whole subject of a caller without credentials
	pluginSubject = Own + "plugin:"
	maxNameSize   = 512 // bytes
	maxGroups     = 200
)

// Roles of our own controllers: their subjects are [Own] and the role.
const (
	RoleServer    = "server" // the data controller itself: retention, events, migration
	RolePreparer  = "preparer"
	RoleScheduler = "meta-scheduler"
	RoleGitOps    = "gitops"
	RoleRollout   = "rollout"
)

// Roles returns all roles of our own controllers.
func Roles() []string {
	return []string{RoleServer, RolePreparer, RoleScheduler, RoleGitOps, RoleRollout}
}

// An Identity is an authenticated caller. The zero value is no caller: it has
// no rights.
type Identity struct {
	Subject       string    // with the prefix of its authenticator
	Groups        []string  // with the prefix of the authenticator; sorted
	Authenticator string    // the way in which it was authenticated: certificate, oidc, kubernetes, token, unix, plugin, process, setup or none
	Display       string    // a name for humans, such as an e-mail address; not for decisions
	Claimed       string    // who the caller says that it is (metadata tko-who); unverified
	From          string    // remote address, host:port; "unix" for the Unix socket, "process" for the same process
	Expires       time.Time // the end of its credentials; zero if they don't end
	Plugin        *Plugin   // the run of a plugin that the identity is for; nil for others
}

// A Plugin is the run of a plugin. Its identity ends with the run, or with the
// lease of the work item that it is for.
type Plugin struct {
	Type, Name string // of the registered plugin
	Kind       tko.Kind
	ID         string // the deployment or site that the plugin works on
}

// Setup returns the identity of the holder of the one-time token for the first
// administrator, which ends at a time.
func Setup(expires time.Time) Identity {
	return Identity{Subject: Own + "setup", Authenticator: setup, Expires: expires}
}

const setup = "setup"

// IsSetup reports whether the caller holds the one-time token for the first
// administrator.
func (i Identity) IsSetup() bool { return i.Authenticator == setup }

// Anonymous returns the identity of a caller without credentials.
func Anonymous(from string) Identity {
	return Identity{Subject: AnonymousName, Authenticator: "none", From: from}
}

// Process is the authenticator, and the address, of callers in the server's own process.
const Process = "process"

// Controller returns the identity of one of our own controllers in this
// process.
func Controller(role string) Identity {
	return Identity{Subject: Own + role, Authenticator: Process, From: Process}
}

// OfPlugin returns the identity of a plugin's run.
func OfPlugin(p Plugin, expires time.Time, from string) Identity {
	return Identity{Subject: pluginSubject + p.Type + "/" + p.Name, Authenticator: "plugin", From: from, Expires: expires, Plugin: &p}
}

// IsZero returns whether there is no caller.
func (i Identity) IsZero() bool { return i.Subject == "" }

// IsAnonymous returns whether the caller has no credentials.
func (i Identity) IsAnonymous() bool { return i.Subject == AnonymousName }

// Role returns the role of one of our own controllers, "" for other callers.
func (i Identity) Role() string {
	role, ok := strings.CutPrefix(i.Subject, Own)
	if !ok || i.Plugin != nil || !slices.Contains(Roles(), role) {
		return ""
	}
	return role
}

// Client returns the name of the client that limits and turns are for: the identity, or the
// address of clients without credentials. Clients with credentials can't use up the limits of
// others that share an address with them, such as that of a proxy.
func (i Identity) Client(address string) string {
	if i.IsZero() || i.IsAnonymous() {
		return "address " + address
	}
	return "identity " + i.Subject
}

// IsLocal returns whether the caller is on this machine, as far as its address
// shows: a proxy on this machine looks local, too.
func (i Identity) IsLocal() bool {
	if i.From == "unix" || i.From == "process" {
		return true
	}
	address, err := netip.ParseAddrPort(i.From)
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// Expired returns whether the credentials have ended.
func (i Identity) Expired(now time.Time) bool {
	return !i.Expires.IsZero() && !now.Before(i.Expires)
}

type key struct{}

// With returns a context with the identity of the caller.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, key{}, i)
}

// From returns the identity of the caller. Without one in the context it
// returns the zero value, which has no rights, and false.
func From(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(key{}).(Identity)
	return i, ok && !i.IsZero()
}

// Named returns the subject or group that an authenticator with a prefix names.
// The name comes from outside: an empty or very long one, one with spaces at its
// ends or control characters, and one that starts with a reserved prefix are an
// ErrDenied.
func Named(prefix, name string) (string, error) {
	switch {
	case prefix == Own:
		return "", tko.Errorf(tko.ErrDenied, "names that start with %q are for the server's own controllers", Own)
	case name == "":
		return "", tko.Errorf(tko.ErrDenied, "the credentials have no name: the name after %q is empty", prefix)
	case len(prefix)+len(name) > maxNameSize:
		return "", tko.Errorf(tko.ErrDenied, "the name %.40q… has %d bytes: at most %d are allowed", name, len(name), maxNameSize-len(prefix))
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }):
		return "", tko.Errorf(tko.ErrDenied, "the name %q has control characters, invalid characters, or spaces at its ends", name)
	case strings.HasPrefix(strings.ToLower(name), Own):
		return "", tko.Errorf(tko.ErrDenied, "the name %q starts with %q, which is for the server's own controllers", name, Own)
	}
	return prefix + name, nil
}

// IsSubject reports whether a text could be the subject of a client: it has the prefix of
// an authenticator, and a name.
func IsSubject(subject string) bool {
	for _, prefix := range []string{Certificate, SPIFFE, OIDC, Kubernetes, Token, Unix} {
		if name, ok := strings.CutPrefix(subject, prefix); ok {
			_, err := Named(prefix, name)
			return err == nil && (prefix != OIDC || strings.Contains(strings.Trim(name, ":"), ":"))
		}
	}
	return false
}

// Groups returns the groups that an authenticator with a prefix names, sorted
// and without duplicates. It returns ErrDenied for a name that [Named] refuses,
// and for too many.
func Groups(prefix string, names []string) ([]string, error) {
	if len(names) > maxGroups {
		return nil, tko.Errorf(tko.ErrDenied, "the credentials have %d groups: at most %d are allowed; let the issuer filter them", len(names), maxGroups)
	}
	groups := make([]string, 0, len(names))
	for _, name := range names {
		group, err := Named(prefix, name)
		if err != nil {
			return nil, err
		}
		groups = append(groups, group)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}
