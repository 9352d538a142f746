package config

import (
	"net"

	"github.com/spf13/pflag"
)

// Tickets holds the settings of ticket systems, which approve waves of rollouts.
type Tickets struct {
	Systems string // file; "" for none
	Listen  string // host:port of the reports of ticket systems, or "" for none
}

func (t *Tickets) flags(flags *pflag.FlagSet) {
	flags.StringVar(&t.Systems, "rollout-tickets", "", "file of the ticket systems that approve waves of rollouts: see docs/rollouts.md (default: none)")
	flags.StringVar(&t.Listen, "listen-tickets", "", "address of the reports of ticket systems, POST /ticket/NAME (port 50059 by convention); empty for none: they are asked")
}

// check adds the problems of the settings; here is true if this process has the role
// rollout.
func (t *Tickets) check(wrong *problems, here bool) {
	if !here && t.Systems+t.Listen != "" {
		wrong.add("--rollout-tickets and --listen-tickets need the role rollout: add it to --roles")
	}
	if t.Listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(t.Listen); err != nil {
		wrong.add("--listen-tickets is %q: use host:port", t.Listen)
	}
	if t.Systems == "" {
		wrong.add("--listen-tickets needs --rollout-tickets: the secrets of ticket systems verify their reports")
	}
}
