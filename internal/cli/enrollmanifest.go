package cli

import (
	"cmp"
	"crypto/x509"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/deploy/kubernetes/agent"
)

// agentManifest are the flags of the manifest of an agent.
type agentManifest struct {
	on      bool
	options agent.Options
	caFile  string
}

func (m *agentManifest) flags(f *pflag.FlagSet) {
	f.BoolVar(&m.on, "manifest", false, "print a manifest with the agent and its token, for kubectl apply -f - in the cluster of the site")
	f.StringVar(&m.options.Server, "server", "", "`address` of the server for agents, as the site reaches it (--manifest)")
	f.StringVar(&m.options.ServerName, "server-name", "", "`name` in the server's certificate, if it is not that of --server (--manifest)")
	f.StringVar(&m.options.Image, "image", "", "`name` of the image of TKO, from which the cluster of the site pulls it (--manifest)")
	f.StringVar(&m.caFile, "ca", "", "`file` of the authority of the server's certificate (--manifest; default: that of --tls-ca)")
}

// check reads what the manifest needs, before a token is made.
func (m *agentManifest) check(a *app) error {
	if !m.on {
		if m.options.Server != "" || m.options.ServerName != "" || m.options.Image != "" || m.caFile != "" {
			return tko.Errorf(errUsage, "--server, --server-name, --image and --ca are for --manifest: add it, or leave them out")
		}
		return nil
	}
	if f := a.globals.format; f != "" && !isForPeople(f) && f != formatYAML {
		return tko.Errorf(errUsage, "--manifest is printed in YAML: leave out -o %s", f)
	}
	host, port, err := net.SplitHostPort(m.options.Server)
	if err != nil || host == "" || port == "" {
		return tko.Errorf(errUsage, "--server is %q: name the address of the server for agents (its --listen-agents) as HOST:PORT, as the site reaches it", m.options.Server)
	}
	if m.options.Image == "" || strings.ContainsAny(m.options.Image, " \t\r\n") {
		return tko.Errorf(errUsage, "--image is %q: name the image of TKO that the cluster of the site can pull", m.options.Image)
	}
	file := cmp.Or(m.caFile, a.globals.tlsCA)
	if file == "" {
		return tko.Errorf(errUsage, "name the file of the authority of the server's certificate with --ca")
	}
	text, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err != nil {
		return tko.Errorf(errUsage, "--ca: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) || strings.Contains(string(text), "PRIVATE KEY") {
		return tko.Errorf(errUsage, "--ca %s: give certificates in PEM, and nothing else", file)
	}
	m.options.CA = string(text)
	return nil
}

// text returns the manifest with a token.
func (m *agentManifest) text(token string) (string, error) {
	m.options.Token = token
	return agent.Manifest(m.options)
}
