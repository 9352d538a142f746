package config

import (
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko/internal/guard"
)

// Identity holds the settings of TLS and of the identities of clients.
type Identity struct {
	Insecure   bool   // serve beyond loopback without TLS or identities
	ListenUnix string // path of the Unix socket; UnixAuto, or "" for none

	TLSCert, TLSKey string   // files
	TLSClientCA     string   // file
	TLSClientAuth   string   // none, request, require; "" for the default
	TLSCRL          string   // file
	SPIFFEDomains   []string // trust domains

	OIDCIssuer      string // URL, or "" for none
	OIDCAlias       string
	OIDCAudience    string
	OIDCAlgorithms  []string
	OIDCGroupsClaim string
	OIDCCA          string // file
	OIDCSecretFile  string
	OIDCScopes      []string
	WebURL          string // of the dashboard, or "" for that of each request

	TokenFile           string // or "" for none
	TokenReview         string // kubeconfig, "in-cluster", or "" for none
	TokenReviewAudience string

	Controllers []string // ROLE=SUBJECT

	DataTLS           bool
	DataTLSCA         string // file; the others likewise
	DataTLSCert       string
	DataTLSKey        string
	DataTLSServerName string
	DataTokenFile     string
}

// UnixAuto is the value of ListenUnix for a socket in the default folder, named
// after the port of the gRPC API.
const UnixAuto = "auto"

func (i *Identity) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&i.Insecure, "insecure", false, "serve other machines without TLS and without identities: every client that reaches the server may do everything. Logged at every start")
	flags.StringVar(&i.ListenUnix, "listen-unix", UnixAuto, "Unix socket of the gRPC API, whose clients are known by their user IDs; auto for tko/grpc-PORT.sock in XDG_RUNTIME_DIR or /run, if the gRPC API has a fixed port; empty for none")

	flags.StringVar(&i.TLSCert, "tls-cert", "", "certificate file of all ports, reloaded when it changes; TLS 1.3 only. Clients on this machine may still use plain text, unless --tls-client-auth is require")
	flags.StringVar(&i.TLSKey, "tls-key", "", "key file of that certificate")
	flags.StringVar(&i.TLSClientCA, "tls-client-ca", "", "file of the certificate authorities of clients, reloaded when it changes: their certificates are identities")
	flags.StringVar(&i.TLSClientAuth, "tls-client-auth", "", "whether clients have certificates: none, request (one that is given must be valid) or require (default: request with --tls-client-ca)")
	flags.StringVar(&i.TLSCRL, "tls-crl", "", "file of the revocation lists of those authorities, reloaded when it changes")
	flags.StringSliceVar(&i.SPIFFEDomains, "tls-spiffe-domains", nil, "trust domains whose SPIFFE IDs in client certificates are names (default: none)")

	flags.StringVar(&i.OIDCIssuer, "oidc-issuer", "", "URL of the OpenID Connect issuer whose ID tokens are identities; empty for none")
	flags.StringVar(&i.OIDCAlias, "oidc-alias", "oidc", "short name of that issuer: users are oidc:ALIAS:SUB")
	flags.StringVar(&i.OIDCAudience, "oidc-audience", "tko", "audience that its tokens must have: the client ID of tko login")
	flags.StringSliceVar(&i.OIDCAlgorithms, "oidc-algorithms", []string{"RS256", "ES256"}, "accepted signature algorithms of its tokens")
	flags.StringVar(&i.OIDCGroupsClaim, "oidc-groups-claim", "groups", "claim with the groups of users; empty for none")
	flags.StringVar(&i.OIDCCA, "oidc-ca", "", "file of the certificate authorities of the issuer (default: those of this machine)")

	flags.StringVar(&i.OIDCSecretFile, "oidc-secret-file", "", "file with the secret of the client --oidc-audience, for logins in the web dashboard; empty for a public client")
	flags.StringSliceVar(&i.OIDCScopes, "oidc-scopes", []string{"groups", "email"}, "scopes that the web dashboard requests at logins, in addition to openid")
	flags.StringVar(&i.WebURL, "web-url", "", "URL of the web dashboard in browsers, such as https://tko.example.com: the issuer sends users back to /auth/callback there (default: as in each request)")

	flags.StringVar(&i.TokenFile, "token-file", "", "file of static tokens (their hashes), reloaded when it changes: see tko-server token")
	flags.StringVar(&i.TokenReview, "token-review", "", "kubeconfig of the cluster whose service account tokens are identities, or in-cluster for the one that the server runs in; empty for none")
	flags.StringVar(&i.TokenReviewAudience, "token-review-audience", "tko", "audience that those tokens must have")

	flags.StringSliceVar(&i.Controllers, "controllers", nil, "subjects of the controllers in other processes, as ROLE=SUBJECT: preparer=spiffe://example.org/tko/preparer")

	flags.BoolVar(&i.DataTLS, "data-tls", false, "connect to the data controller (--data) with TLS, trusting the certificate authorities of this machine")
	flags.StringVar(&i.DataTLSCA, "data-tls-ca", "", "connect to it with TLS, trusting the certificate authorities in this file")
	flags.StringVar(&i.DataTLSCert, "data-tls-cert", "", "certificate file for that connection, reloaded when it changes")
	flags.StringVar(&i.DataTLSKey, "data-tls-key", "", "key file of that certificate")
	flags.StringVar(&i.DataTLSServerName, "data-tls-server-name", "", "name in the data controller's certificate (default: the host of --data)")
	flags.StringVar(&i.DataTokenFile, "data-token-file", "", "file with the token for the data controller, reloaded when it changes")
}

// DataSecure returns whether the connection to the data controller uses TLS.
func (i *Identity) DataSecure() bool {
	return i.DataTLS || i.DataTLSCA != "" || i.DataTLSCert != "" || i.DataTLSServerName != ""
}

// HasIdentities returns whether clients on other machines can have identities.
func (i *Identity) HasIdentities() bool {
	return i.TLSClientCA != "" || i.OIDCIssuer != "" || i.TokenFile != "" || i.TokenReview != ""
}

// IsLoopback returns whether an address, host:port, is only reachable on this
// machine.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && guard.IsLocal(host)
}

// isRemote returns whether an address, host:port, is reachable on other machines. Other
// texts are no addresses, and are refused as such.
func isRemote(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil && !IsLoopback(address)
}

// Exposed returns the flags of the addresses that other machines can reach, with
// their values, sorted.
func (c *Config) Exposed() []string {
	var exposed []string
	for _, at := range []struct{ role, flag, address string }{
		{"", "listen-debug", c.ListenDebug},
		{RoleData, "listen-grpc", c.ListenGRPC},
		{"", "listen-health", c.ListenHealth},
		{"", "listen-log", c.ListenLog},
		{"", "listen-metrics", c.ListenMetrics},
		{RoleRollout, "listen-tickets", c.Tickets.Listen},
		{RoleData, "listen-web", c.ListenWeb},
		{RoleGitOps, "listen-webhook", c.GitOps.Webhook},
	} {
		if isRemote(at.address) && (at.role == "" || c.Has(at.role)) {
			exposed = append(exposed, "--"+at.flag+"="+at.address)
		}
	}
	return exposed
}

// checkIdentity adds the problems of the settings of TLS and identities.
func (c *Config) checkIdentity(wrong *problems) {
	add := wrong.add
	i := &c.Identity
	if u, err := url.Parse(i.WebURL); i.WebURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
		add("--web-url is %q: use the URL of the dashboard without a path, such as https://tko.example.com", i.WebURL)
	}
	wrong.pair("tls", i.TLSCert, i.TLSKey)
	wrong.pair("data-tls", i.DataTLSCert, i.DataTLSKey)
	switch {
	case i.TLSClientCA != "" && i.TLSCert == "":
		add("--tls-client-ca needs --tls-cert and --tls-key: clients give certificates over TLS only")
	case i.TLSClientCA != "" && i.TLSClientAuth == "none":
		add("--tls-client-ca with --tls-client-auth=none has no effect: remove one of them")
	case i.TLSClientCA == "" && (i.TLSClientAuth == "request" || i.TLSClientAuth == "require"):
		add("--tls-client-auth=%s needs --tls-client-ca: the authorities that certificates are verified with", i.TLSClientAuth)
	case i.TLSClientCA == "" && i.TLSCRL != "":
		add("--tls-crl needs --tls-client-ca")
	}
	if i.TLSClientAuth != "" {
		wrong.word("tls-client-auth", i.TLSClientAuth, "none", "request", "require")
	}
	for _, domain := range i.SPIFFEDomains {
		if domain == "" || domain != strings.ToLower(domain) || strings.ContainsAny(domain, "/: *") {
			add("--tls-spiffe-domains has %q: use trust domains such as example.org", domain)
		}
	}
	if exposed := c.Exposed(); len(exposed) > 0 && !i.Insecure {
		const remedy = "; or --insecure, where every client of the network may do everything"
		switch {
		case i.TLSCert == "":
			add("%s: other machines are served with TLS only: give --tls-cert and --tls-key, and identities (--tls-client-ca, --oidc-issuer, --token-file or --token-review)%s", strings.Join(exposed, " "), remedy)
		case c.Has(RoleData) && !i.HasIdentities():
			add("%s: other machines are served only if clients have identities: give --tls-client-ca, --oidc-issuer, --token-file or --token-review%s", strings.Join(exposed, " "), remedy)
		}
	}
	if !c.Has(RoleData) && isRemote(c.Data) && !i.DataSecure() && !i.Insecure {
		add("--data=%s is on another machine: give --data-tls-ca (or --data-tls) and credentials (--data-tls-cert and --data-tls-key, or --data-token-file); or --insecure for plain text", c.Data)
	}
}
