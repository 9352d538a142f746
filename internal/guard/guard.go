package guard

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
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

// Schemes are the URL schemes that are allowed by default.
var Schemes = []string{"https", "http", "ssh"}

// Options define what a Guard allows. The zero value allows all remote hosts,
// but neither this machine's addresses nor its directories.
type Options struct {
	Schemes   []string // allowed URL schemes; [Schemes] if nil
	Hosts     []string // allowed names, *.NAME, addresses and networks (192.0.2.0/24); all if empty
	Addresses []string // loopback and link-local addresses and networks that are also allowed
	Folders   []string // allowed directories for files and repositories on this machine

	AddressesFlag string // flag that sets Addresses, for error messages; --remote-addresses if empty
	FoldersFlag   string // flag that sets Folders, for error messages; required where directories are used
}

// A Guard checks connections and paths. It is safe for concurrent use. A nil
// Guard allows everything.
type Guard struct {
	schemes   []string
	names     []string // in lower case, of the form NAME or *.NAME
	networks  []netip.Prefix
	addresses []netip.Prefix
	folders   []string // absolute
	options   Options
	id        string // identifies the guard in proxy URLs for ssh
	transport http.RoundTripper
}

const dialTimeout = 20 * time.Second

// New returns a Guard, or an ErrInvalid if the options are malformed.
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
			return nil, tko.Errorf(tko.ErrInvalid, "%q is not a host: use a name, *.NAME, an address or a network such as 192.0.2.0/24", text)
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
			return nil, tko.Errorf(tko.ErrInvalid, "%q is not a directory", folder)
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

// URL checks a URL before a connection is made: its scheme, and its host's name
// or address. The error is an ErrDenied that contains neither the path nor the
// user.
func (g *Guard) URL(u *url.URL) error {
	if g == nil {
		return nil
	}
	if !slices.Contains(g.schemes, u.Scheme) {
		return tko.Errorf(tko.ErrDenied, "the scheme %q is not allowed on this server, only %s: its operator allows schemes with --remote-schemes", u.Scheme, strings.Join(g.schemes, ", "))
	}
	return g.Host(u.Hostname())
}

// Host checks a host as URL does.
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

// named reports whether a host is allowed by its name.
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

// address returns an ErrDenied if connections to an address are not allowed.
func (g *Guard) address(a netip.Addr, named bool) error {
	a = embedded(a.Unmap().WithZone(""))
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	if isLocal(a) {
		if slices.ContainsFunc(g.addresses, within) {
			return nil
		}
		return tko.Errorf(tko.ErrDenied, "the address %s is local and not allowed on this server: its operator allows such addresses with %s", a, cmp.Or(g.options.AddressesFlag, "--remote-addresses"))
	}
	if named || slices.ContainsFunc(g.networks, within) {
		return nil
	}
	return errHost(a.String())
}

var (
	translated = netip.MustParsePrefix("64:ff9b::/96") // IPv4 addresses mapped to IPv6 (NAT64)
	thisOne    = netip.MustParsePrefix("0.0.0.0/8")
	broadcast  = netip.MustParseAddr("255.255.255.255")
	// Addresses of cloud metadata services, which hold credentials, in addition
	// to the link-local 169.254.169.254.
	metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}
)

// LocalNetworks are all loopback and link-local networks.
var LocalNetworks = []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10"}

// Networks of IPv6 whose addresses contain an IPv4 address, and its position in
// bytes: routers and translators on the way connect to that one.
var embedding = []struct {
	network netip.Prefix
	at      int
	flipped bool // whether its bits are inverted
}{
	{netip.MustParsePrefix("::/96"), 12, false},           // IPv4-compatible addresses
	{translated, 12, false},                               // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, false},  // NAT64 of a site
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false}, // SIIT
	{netip.MustParsePrefix("2002::/16"), 2, false},        // 6to4
	{netip.MustParsePrefix("2001::/32"), 12, true},        // Teredo
}

// embedded returns the IPv4 address that is embedded in an IPv6 address, if it has
// one; otherwise it returns the address.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a == netip.IPv6Loopback() || a.IsUnspecified() {
		return a
	}
	bytes := a.As16()
	inner := func(at int, flipped bool) netip.Addr {
		four := [4]byte(bytes[at : at+4])
		if flipped {
			for i := range four {
				four[i] = ^four[i]
			}
		}
		return netip.AddrFrom4(four)
	}
	for _, e := range embedding {
		if e.network.Contains(a) {
			return inner(e.at, e.flipped)
		}
	}
	if bytes[8]&^2 == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe { // ISATAP
		return inner(12, false)
	}
	return a
}

// isLocal reports whether an address belongs to this machine, to its link, or
// to a cloud's metadata service.
func isLocal(a netip.Addr) bool {
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() ||
		thisOne.Contains(a) || a == broadcast || slices.Contains(metadata, a)
}

// DialContext connects to an address if it is allowed. It checks the addresses
// that the host's name resolves to.
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
	var denied error // the dialer's own error contains the address and hides the kind
	dialer.Control = func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return tko.Errorf(tko.ErrDenied, "%q is not an address", address)
		}
		if err := g.address(at.Addr(), named); err != nil {
			denied = err
			return err
		}
		return nil
	}
	dialer.FallbackDelay = -1 // try addresses one after the other
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil && denied != nil {
		return nil, denied
	}
	return conn, err
}

// Transport returns a transport for requests to allowed hosts. Each redirect is
// checked, too. A request through a proxy of the server's environment is
// checked by the host's name, and by its addresses if the name can be resolved
// here.
func (g *Guard) Transport() http.RoundTripper {
	if g == nil {
		return http.DefaultTransport
	}
	return g.transport
}

// Wrap is Transport with the other settings of a transport. The Guard sets how
// it connects, and its proxy.
func (g *Guard) Wrap(base *http.Transport) http.RoundTripper {
	t := &roundTripper{Guard: g, direct: base.Clone(), proxied: base.Clone()}
	t.direct.DialContext, t.direct.Proxy = g.DialContext, nil
	t.proxied.DialContext, t.proxied.Proxy = (&net.Dialer{Timeout: dialTimeout}).DialContext, http.ProxyFromEnvironment
	if g == nil {
		return t.proxied
	}
	return t
}

// WithCA is Transport for a server whose certificate one of the CAs in PEM signed. The error is
// an ErrInvalid.
func (g *Guard) WithCA(pem []byte) (http.RoundTripper, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, tko.Errorf(tko.ErrInvalid, "it holds no certificates in PEM")
	}
	return g.Wrap(&http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 10 * time.Second,
	}), nil
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

// CloseIdleConnections is called by [http.Client].
func (t *roundTripper) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// Resolve checks a host that another program will connect to. If the name can't
// be resolved here, only the name is checked.
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

// Folder checks a path on this machine: it must be in an allowed directory,
// also when symbolic links are followed. It may name a file that does not exist
// yet. The error, an ErrDenied, does not depend on whether the file exists. It
// names the flag that allows directories.
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
		return tko.Errorf(tko.ErrDenied, "no directory of this server may be used: its operator allows directories with %s", g.options.FoldersFlag)
	}
	return tko.Errorf(tko.ErrDenied, "this path is not in a directory that this server may use: its operator allows directories with %s", g.options.FoldersFlag)
}

func within(folder, path string) bool {
	relative, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(relative)
}

// followed resolves the symbolic links in the part of a path that exists.
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

// Status returns an HTTP status for error messages, without the server's own
// text.
func Status(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}

// IsLocal reports whether a host, with or without a port, is this machine: what is sent there can't be intercepted.
func IsLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
