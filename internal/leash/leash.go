package leash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// The kinds of credentials, which begin their names: KIND:NAME.
const (
	KindGit         = "git"        // files of --target-git-secrets
	KindOSM         = "osm"        // files of --osm-secrets
	KindAWX         = "awx"        // files of --awx-secrets
	KindGitOps      = "gitops"     // files of --gitops-secrets
	KindKubeconfig  = "kubeconfig" // files of --kubeconfigs, and labelled Secrets
	KindSecret      = "secret"     // NAMESPACE/NAME: Secrets with kubeconfigs in the management cluster
	KindEnvironment = "env"        // variables of the server
	KindVault       = "vault"      // PATH#KEY
	KindConnection  = "connection" // files of --gitops-osm-connections, by their whole path
	KindServer      = "server"     // in-cluster or management: the clusters that the server's settings name
	InCluster       = "in-cluster" // name of the service account of the server
	Management      = "management" // name of the kubeconfig of the management cluster
)

// Kinds returns the kinds of credentials.
func Kinds() []string {
	return []string{KindGit, KindOSM, KindAWX, KindGitOps, KindKubeconfig, KindSecret, KindEnvironment, KindVault, KindConnection, KindServer}
}

// namesHost reports whether a credential of a kind names the host that gets it: a kubeconfig
// does. Of others, users name the host.
func namesHost(kind string) bool {
	return kind == KindKubeconfig || kind == KindSecret || kind == KindServer || kind == KindConnection
}

// Name returns the name of a credential in a folder of secrets: the same for each spelling
// of a path.
func Name(kind, file string) string {
	return kind + ":" + path.Clean(filepath.ToSlash(file))
}

// Reference returns the name of the credential that a package names: that of a reference,
// env:NAME or vault:PATH#KEY, or else that of a file in the folder of a kind.
func Reference(kind, text string) string {
	if strings.HasPrefix(text, KindEnvironment+":") || strings.HasPrefix(text, KindVault+":") {
		return text
	}
	return Name(kind, text)
}

// A Use is a use of a credential.
type Use struct {
	Credential string // KIND:NAME
	Host       string // SCHEME://HOST[:PORT] that gets it; "" if the credential names the host
	By         By
}

// By is what names a credential: a site, a plugin, a GitOps source, a rollout or a template.
type By struct {
	Kind tko.Kind
	ID   string
}

// String returns the use for messages.
func (u Use) String() string {
	if u.Host == "" {
		return fmt.Sprintf("%q", u.Credential)
	}
	return fmt.Sprintf("%q at %s", u.Credential, u.Host)
}

// File is the flag of the file of declarations, for messages.
const File = "--credentials"

const (
	maxFile    = 4 << 20 // bytes
	maxEntries = 20_000
	recheck    = time.Second // between looks at the file
)

// A Leash has the declarations of the operator. A nil Leash has none. It is safe for
// concurrent use: it reads the file again after it has changed.
type Leash struct {
	file string

	mu      sync.Mutex
	checked time.Time
	state   string // size and time of the file that was read
	rules   rules
	err     error // why the file can't be used; it permits nothing then
}

// rules are the content of the file.
type rules struct {
	// OnlyDeclared refuses credentials without a declaration, also those that were in use
	// before.
	OnlyDeclared bool          `json:"onlyDeclared"`
	Credentials  []declaration `json:"credentials"`
}

// A declaration says what credentials are for.
type declaration struct {
	Name    string   `json:"name"`  // pattern of KIND:NAME
	Hosts   []string `json:"hosts"` // NAME, *.NAME or address, with an optional port
	Sites   []string `json:"sites"` // patterns
	Sources []string `json:"sources"`
	Plugins []string `json:"plugins"` // patterns of TYPE/NAME
	// Rollouts are patterns of those whose metrics are read, or tickets asked for, with the
	// credential.
	Rollouts []string `json:"rollouts"`
	// Subscriptions are patterns of those whose messages are sent with the credential.
	Subscriptions []string `json:"subscriptions"`

	name tko.Pattern
	by   map[tko.Kind][]tko.Pattern
}

// Open reads the declarations in a file; without a file there are none. The error is an
// ErrInvalid.
func Open(file string) (*Leash, error) {
	l := &Leash{file: file}
	if file == "" {
		return l, nil
	}
	_, err := l.read()
	return l, err
}

// read returns the current declarations.
func (l *Leash) read() (rules, error) {
	if l == nil || l.file == "" {
		return rules{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.checked) < recheck {
		return l.rules, l.err
	}
	l.checked = now
	state := "missing"
	if info, err := os.Stat(l.file); err == nil {
		state = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	if state == l.state {
		return l.rules, l.err
	}
	l.state = state
	l.rules, l.err = readRules(l.file)
	if l.err != nil {
		l.err = tko.Errorf(tko.ErrInvalid, "the declarations of credentials (%s) can't be used, so no credential may be: %w", File, l.err)
	}
	return l.rules, l.err
}

func readRules(name string) (r rules, err error) {
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return r, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return r, err
	}
	if len(data) > maxFile {
		return r, fmt.Errorf("%q has more than %d bytes", name, maxFile)
	}
	if err := yaml12.UnmarshalStrict(data, &r); err != nil {
		return r, fmt.Errorf("%q: %w", name, err)
	}
	if len(r.Credentials) > maxEntries {
		return r, fmt.Errorf("%q has %d declarations: use at most %d; a name may be a pattern", name, len(r.Credentials), maxEntries)
	}
	for i := range r.Credentials {
		if err := r.Credentials[i].parse(); err != nil {
			return r, fmt.Errorf("%q: credentials[%d]: %w", name, i, err)
		}
	}
	return r, nil
}

// parse checks and completes a declaration.
func (d *declaration) parse() (err error) {
	kind, _, ok := strings.Cut(d.Name, ":")
	if !ok || !slices.Contains(Kinds(), kind) {
		return fmt.Errorf("the name %q has no kind: use KIND:NAME, with one of %s", d.Name, strings.Join(Kinds(), ", "))
	}
	if d.name, err = tko.ParsePattern(d.Name); err != nil {
		return err
	}
	if len(d.Hosts) == 0 && !namesHost(kind) {
		return fmt.Errorf("%q has no hosts: name those that may get the credential", d.Name)
	}
	for _, host := range d.Hosts {
		if name, port := splitPort(host); name == "" || strings.ContainsAny(strings.TrimPrefix(name, "*."), "*/@ ") || strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
			return fmt.Errorf("%q: %q is not a host: use NAME, *.NAME or an address, with :PORT if only one is meant", d.Name, host)
		}
	}
	if len(d.Sites)+len(d.Sources)+len(d.Plugins)+len(d.Rollouts)+len(d.Subscriptions) == 0 {
		return fmt.Errorf("%q is for nothing: name sites, sources, plugins, rollouts or subscriptions, by patterns", d.Name)
	}
	d.by = map[tko.Kind][]tko.Pattern{}
	for kind, texts := range map[tko.Kind][]string{tko.KindSite: d.Sites, tko.KindSource: d.Sources, tko.KindPlugin: d.Plugins, tko.KindRollout: d.Rollouts, tko.KindSubscription: d.Subscriptions} {
		for _, text := range texts {
			p, err := tko.ParsePattern(text)
			if err != nil {
				return err
			}
			d.by[kind] = append(d.by[kind], p)
		}
	}
	return nil
}

// isFor reports whether a declaration is for what uses a credential. A template is not used
// by itself: its sites are checked again.
func (d *declaration) isFor(by By) bool {
	if by.Kind == tko.KindTemplate {
		return len(d.Sites) > 0
	}
	return slices.ContainsFunc(d.by[by.Kind], func(p tko.Pattern) bool { return p.Match(by.ID) })
}

func (d *declaration) reaches(host string) bool {
	return slices.ContainsFunc(d.Hosts, func(declared string) bool { return sameHost(declared, host) })
}

// of returns the declarations of a credential.
func (r rules) of(credential string) (found []*declaration) {
	for i := range r.Credentials {
		if r.Credentials[i].name.Match(credential) {
			found = append(found, &r.Credentials[i])
		}
	}
	return found
}

// declares reports whether one of some declarations permits a use. The host of a
// credential that names it isn't known before the credential is read.
func declares(all []*declaration, u Use) bool {
	kind, _, _ := strings.Cut(u.Credential, ":")
	return slices.ContainsFunc(all, func(d *declaration) bool {
		anywhere := namesHost(kind) && (u.Host == "" || len(d.Hosts) == 0)
		return d.isFor(u.By) && (anywhere || d.reaches(u.Host))
	})
}

// Declares reports whether the operator declared a use.
func (l *Leash) Declares(u Use) bool {
	r, err := l.read()
	return err == nil && declares(r.of(u.Credential), u)
}

// HasDeclaration reports whether there is a declaration of a credential.
func (l *Leash) HasDeclaration(credential string) bool {
	r, err := l.read()
	return err == nil && len(r.of(credential)) > 0
}

// check returns an ErrDenied if a credential may not be used: it has declarations, and
// none is for this; or it has none, and there must be one. What is new without a
// declaration was refused when it was written.
func (l *Leash) check(u Use) error {
	r, err := l.read()
	if err != nil {
		return err
	}
	all := r.of(u.Credential)
	switch {
	case len(all) == 0 && r.OnlyDeclared:
		return tko.Errorf(tko.ErrDenied, "the credential %s has no declaration, and this server uses no other (onlyDeclared): %s", u, Remedy(u))
	case len(all) > 0 && !declares(all, u):
		return tko.Errorf(tko.ErrDenied, "the credential %s is declared, but not for this %s and host: %s", u, u.By.Kind, Remedy(u))
	}
	return nil
}

// Remedy returns what an operator does to permit a use.
func Remedy(u Use) string {
	host, ids, id := "", "sites", u.By.ID
	if u.Host != "" {
		_, host, _ = strings.Cut(u.Host, "://")
		host = fmt.Sprintf(", hosts: [%q]", host)
	}
	switch u.By.Kind {
	case tko.KindSource:
		ids = "sources"
	case tko.KindPlugin:
		ids = "plugins"
	case tko.KindTemplate:
		id = "…"
	case tko.KindRollout:
		ids = "rollouts"
	case tko.KindSubscription:
		ids = "subscriptions"
	case tko.KindSite, tko.KindDeployment:
	}
	return fmt.Sprintf("the operator declares it in the file of %s: {name: %q%s, %s: [%q]}", File, u.Credential, host, ids, id)
}

// A User is what uses credentials. The zero User may use none.
type User struct {
	leash    *Leash
	by       By
	operator bool
}

// Operator returns the user for what the settings of the server name, or the user of a
// command on the own machine: it may use all credentials. Users of the API must not be able
// to choose what this is called for: test/conventions has the list of callers.
func Operator() User { return User{operator: true} }

// Site returns the user for a site.
func (l *Leash) Site(id tko.SiteID) User { return User{leash: l, by: By{tko.KindSite, string(id)}} }

// Source returns the user for a GitOps source in the store.
func (l *Leash) Source(name string) User { return User{leash: l, by: By{tko.KindSource, name}} }

// Rollout returns the user for the metrics and tickets of a rollout.
func (l *Leash) Rollout(id tko.RolloutID) User {
	return User{leash: l, by: By{tko.KindRollout, string(id)}}
}

// Subscription returns the user for the destination of a subscription.
func (l *Leash) Subscription(name string) User {
	return User{leash: l, by: By{tko.KindSubscription, name}}
}

// Plugin returns the user for a plugin, which declarations call TYPE/NAME.
func (l *Leash) Plugin(p tko.Plugin) User { return User{leash: l, by: byPlugin(p)} }

func byPlugin(p tko.Plugin) By { return By{tko.KindPlugin, p.Type + "/" + p.Name} }

// A Grant permits to read one credential. The zero Grant permits nothing.
type Grant struct {
	credential string
	user       User
}

// Grant returns the permission to read a credential and to send it to a host: a URL, or ""
// if the credential names the host. The error is an ErrDenied.
func (u User) Grant(credential, host string) (Grant, error) {
	switch {
	case u.operator:
		return Grant{credential, u}, nil
	case u.by == By{}:
		return Grant{}, tko.Errorf(tko.ErrDenied, "the credential %q: it isn't known what would use it", credential)
	}
	if host != "" {
		host = HostOf(host)
		if host == "" {
			return Grant{}, tko.Errorf(tko.ErrDenied, "the credential %q: it isn't known to which host it would be sent", credential)
		}
	}
	if err := u.leash.check(Use{credential, host, u.by}); err != nil {
		return Grant{}, err
	}
	return Grant{credential, u}, nil
}

// errNotGranted is a fault: a credential was read that was not granted.
var errNotGranted = errors.New("a credential was read without a grant for it")

// Check returns an error unless the grant permits to read a credential.
func (g Grant) Check(credential string) error {
	if g.credential == "" || g.credential != credential {
		return errNotGranted
	}
	return nil
}

// At returns an ErrDenied unless the credential, which names a host, may be used there.
func (g Grant) At(host string) error {
	if g.credential == "" {
		return errNotGranted
	}
	_, err := g.user.Grant(g.credential, host)
	return err
}
