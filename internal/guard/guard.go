package guard

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Schemes are those that are allowed unless Options say otherwise.
var Schemes = []string{"https", "http", "ssh"}

// Options are what a Guard allows. The zero value allows remote hosts, and
// neither this machine nor its folders.
type Options struct {
	Schemes   []string // [Schemes] if nil
	Hosts     []string // names, *.NAME, addresses and networks (192.0.2.0/24); all if empty
	Addresses []string // loopback and link-local addresses and networks that are allowed all the same
	Folders   []string // that files and repositories of this machine may be in

	AddressesFlag string // of the server, for errors: --remote-addresses if empty
	FoldersFlag   string // as well: required with what uses folders
}

// A Guard is safe for concurrent use. A nil Guard allows everything.
type Guard struct {
	schemes   []string
	names     []string // in lower case, of the form NAME or *.NAME
	networks  []netip.Prefix
	addresses []netip.Prefix
	folders   []string // absolute
	options   Options
	id        string // names the guard for ssh
	transport http.RoundTripper
}

const dialTimeout = 20 * time.Second

// New makes a Guard. What is wrong with the options is an ErrInvalid.
func New(o Options) (*Guard, error) {
	g := &Guard{schemes: o.Schemes, options: o}
	if o.Schemes == nil {
		g.schemes = Schemes
	}
	for _, text := range o.Hosts {
		if network, err := parseNetwork(text); err == nil {
			g.networks = append(g.networks, network)
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(text, "."))
		if bare := strings.TrimPrefix(name, "*."); bare == "" || strings.ContainsAny(bare, "*/:@ ") {
			return nil, tko.Errorf(tko.ErrInvalid, "%q is no host: use a name, *.NAME, an address or a network such as 192.0.2.0/24", text)
		}
		g.names = append(g.names, name)
	}
	for _, text := range o.Addresses {
		network, err := parseNetwork(text)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%q is neither an address nor a network such as 127.0.0.0/8", text)
		}
		g.addresses = append(g.addresses, network)
	}
	for _, folder := range o.Folders {
		absolute, err := filepath.Abs(folder)
		if err != nil || folder == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "%q is no folder", folder)
		}
		g.folders = append(g.folders, absolute)
	}
	g.id = register(g)
	g.transport = g.Wrap(newTransport())
	return g, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

func newTransport() *http.Transport {
	return &http.Transport{
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second,
	}
}

// URL says whether a URL may be used, as far as it can be told without a
// connection: by its scheme, its host's name, and its address if that is its
// host. The error is an ErrDenied that names neither path nor user.
func (g *Guard) URL(u *url.URL) error {
	if g == nil {
		return nil
	}
	if !slices.Contains(g.schemes, u.Scheme) {
		return tko.Errorf(tko.ErrDenied, "the scheme %q is not allowed on this server, only %s: its operator allows schemes with --remote-schemes", u.Scheme, strings.Join(g.schemes, ", "))
	}
	return g.Host(u.Hostname())
}

// Host is URL for a host alone.
func (g *Guard) Host(host string) error {
	if g == nil {
		return nil
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		host = "127.0.0.1"
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return g.address(a, g.named(host))
	}
	if !g.named(host) && len(g.networks) == 0 {
		return errHost(host)
	}
	return nil
}

func errHost(host string) error {
	return tko.Errorf(tko.ErrDenied, "the host %q is not allowed on this server: its operator allows hosts with --remote-hosts", host)
}

// named says whether a host is allowed by its name.
func (g *Guard) named(host string) bool {
	if len(g.names)+len(g.networks) == 0 {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(g.names, func(name string) bool {
		if suffix, ok := strings.CutPrefix(name, "*"); ok {
			return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
		}
		return host == name
	})
}

// address says whether an address may be connected to.
func (g *Guard) address(a netip.Addr, named bool) error {
	a = embedded(a.Unmap().WithZone(""))
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	if isLocal(a) {
		if slices.ContainsFunc(g.addresses, within) {
			return nil
		}
		return tko.Errorf(tko.ErrDenied, "the address %s is a local one, which is not allowed on this server: its operator allows such addresses with %s", a, cmp.Or(g.options.AddressesFlag, "--remote-addresses"))
	}
	if named || slices.ContainsFunc(g.networks, within) {
		return nil
	}
	return errHost(a.String())
}

var (
	translated = netip.MustParsePrefix("64:ff9b::/96") // addresses of IPv4 as IPv6 has them
	thisOne    = netip.MustParsePrefix("0.0.0.0/8")
	broadcast  = netip.MustParseAddr("255.255.255.255")
	// Clouds keep credentials there, beside the link-local 169.254.169.254.
	metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}
)

// LocalNetworks are all addresses of this machine, and all link-local ones.
var LocalNetworks = []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10"}

// embedded returns the IPv4 address that an IPv6 address is translated to.
func embedded(a netip.Addr) netip.Addr {
	if !translated.Contains(a) {
		return a
	}
	bytes := a.As16()
	return netip.AddrFrom4([4]byte(bytes[12:]))
}

// isLocal says whether an address leads to this machine, or to what only
// machines next to it should reach.
func isLocal(a netip.Addr) bool {
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() ||
		thisOne.Contains(a) || a == broadcast || slices.Contains(metadata, a)
}

// DialContext connects to what is allowed, after the host's name was resolved.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if g == nil {
		return dialer.DialContext(ctx, network, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !g.named(host) && len(g.networks) == 0 {
		return nil, errHost(host)
	}
	named := g.named(host)
	var denied error // the dialer's own error names the address, and hides the kind
	dialer.Control = func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return tko.Errorf(tko.ErrDenied, "%q is no address", address)
		}
		if err := g.address(at.Addr(), named); err != nil {
			denied = err
			return err
		}
		return nil
	}
	dialer.FallbackDelay = -1 // one after the other
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil && denied != nil {
		return nil, denied
	}
	return conn, err
}

// Transport makes requests to what is allowed. Each redirect is checked, too. A
// request by way of a proxy of the server's environment is checked by the host's
// name, and by its addresses if it can be resolved here.
func (g *Guard) Transport() http.RoundTripper {
	if g == nil {
		return http.DefaultTransport
	}
	return g.transport
}

// Wrap is Transport with the other settings of a transport. How it connects, and
// its proxy, are the Guard's.
func (g *Guard) Wrap(base *http.Transport) http.RoundTripper {
	t := &roundTripper{Guard: g, direct: base.Clone(), proxied: base.Clone()}
	t.direct.DialContext, t.direct.Proxy = g.DialContext, nil
	t.proxied.DialContext, t.proxied.Proxy = (&net.Dialer{Timeout: dialTimeout}).DialContext, http.ProxyFromEnvironment
	if g == nil {
		return t.proxied
	}
	return t
}

// A roundTripper makes guarded requests.
type roundTripper struct {
	*Guard
	direct, proxied *http.Transport
}

func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.URL(r.URL); err != nil {
		return nil, err
	}
	proxy, err := http.ProxyFromEnvironment(r)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return t.direct.RoundTrip(r)
	}
	if err := t.resolve(r.Context(), r.URL.Hostname()); err != nil {
		return nil, err
	}
	return t.proxied.RoundTrip(r)
}

// CloseIdleConnections is for [http.Client].
func (t *roundTripper) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// Resolve says whether a host may be connected to by a program that makes the
// connection itself. If the name can't be resolved here, the name decides.
func (g *Guard) Resolve(ctx context.Context, host string) error {
	if g == nil {
		return nil
	}
	if err := g.Host(host); err != nil {
		return err
	}
	return g.resolve(ctx, host)
}

func (g *Guard) resolve(ctx context.Context, host string) error {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		if g.named(host) {
			return ctx.Err()
		}
		return errHost(host)
	}
	for _, a := range found {
		if err := g.address(a, g.named(host)); err != nil {
			return err
		}
	}
	return nil
}

// Folder says whether a path of this machine may be used: it is in one of the
// folders that are allowed, also when links are followed. What isn't there yet
// may be made. The error, an ErrDenied, is the same whether or not anything is
// there. It names the flag that allows folders.
func (g *Guard) Folder(path string) error {
	if g == nil {
		return nil
	}
	absolute, err := filepath.Abs(path)
	if err == nil {
		for _, folder := range g.folders {
			if within(followed(folder), followed(absolute)) {
				return nil
			}
		}
	}
	if len(g.folders) == 0 {
		return tko.Errorf(tko.ErrDenied, "this server uses no folder of its own machine: its operator allows folders with %s", g.options.FoldersFlag)
	}
	return tko.Errorf(tko.ErrDenied, "this path is not in a folder that this server may use: its operator allows folders with %s", g.options.FoldersFlag)
}

func within(folder, path string) bool {
	relative, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(relative)
}

// followed follows the links in as much of a path as there is.
func followed(path string) string {
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if found, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(found, rest)
		}
		if filepath.Dir(at) == at {
			return path
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// Status is an HTTP status as errors show it, without the words of the server.
func Status(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
