package config

import (
	"net"
	"time"

	"github.com/spf13/pflag"
)

// Agents holds the settings of sites that call home.
type Agents struct {
	Listen      string // host:port, or "" for none
	CA, CAKey   string // files
	Certificate time.Duration
	Silence     time.Duration
}

// The limits of settings of agents.
const (
	minAgentCertificate = 10 * time.Second
	maxAgentCertificate = 366 * 24 * time.Hour
	minAgentSilence     = 4 * time.Second
	maxAgentSilence     = 24 * time.Hour
)

func (a *Agents) flags(flags *pflag.FlagSet) {
	flags.StringVar(&a.Listen, "listen-agents", "", "address of the agents of sites that call home (port 50060 by convention), over TLS only, with the certificate of --tls-cert; empty for none: see docs/agent.md")
	flags.StringVar(&a.CA, "agents-ca", "", "file of the authority of agents, which tko-server agents-ca makes; certificates after the first one are of authorities whose agents are accepted, too")
	flags.StringVar(&a.CAKey, "agents-ca-key", "", "file of the key of that authority")
	flags.DurationVar(&a.Certificate, "agents-certificate-time", 30*24*time.Hour, "validity of the certificates of agents, which renew them after two thirds of it")
	flags.DurationVar(&a.Silence, "agents-silence", 10*time.Minute, "time after which it is unknown what a site has whose agent was not heard")
}

// check adds the problems of the settings; here is true if this process has the role data, and
// secure if it has a certificate.
func (a *Agents) check(wrong *problems, here, secure bool) {
	if a.Listen == "" {
		if a.CA+a.CAKey != "" {
			wrong.add("--agents-ca and --agents-ca-key have no effect without --listen-agents: add it, or remove them")
		}
		return
	}
	if !here {
		wrong.add("--listen-agents needs the role data: add it to --roles")
	}
	if _, _, err := net.SplitHostPort(a.Listen); err != nil {
		wrong.add("--listen-agents is %q: use host:port", a.Listen)
	}
	if !secure {
		wrong.add("--listen-agents needs --tls-cert and --tls-key: agents call over TLS only")
	}
	if a.CA == "" || a.CAKey == "" {
		wrong.add("--listen-agents needs --agents-ca and --agents-ca-key: make them with tko-server agents-ca")
	}
	if a.Certificate < minAgentCertificate || a.Certificate > maxAgentCertificate {
		wrong.add("--agents-certificate-time is %s: use %s to %s", a.Certificate, minAgentCertificate, maxAgentCertificate)
	}
	if a.Silence < minAgentSilence || a.Silence > maxAgentSilence {
		wrong.add("--agents-silence is %s: use %s to %s", a.Silence, minAgentSilence, maxAgentSilence)
	}
}
