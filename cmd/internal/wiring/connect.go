package wiring

import (
	"context"
	"net"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Connect returns the controllers' client of the data controller. They use its API
// also within one process; dial then makes the connection. If it is nil, they connect
// to the address of the settings. What the meta-scheduler reports has its name as the author
// also without rights, as what preparers write has.
func Connect(c *config.Config, role string, dial func(context.Context) (net.Conn, error)) (*client.Client, error) {
	o := client.Options{Address: c.Data, WaitForReady: true, Author: tko.Author{Who: "tko-server"}}
	if role == identity.RoleScheduler {
		o.Author.Who = role
	}
	if dial != nil {
		o.Address = "passthrough:///in-process"
		o.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }
	}
	if i := &c.Identity; dial == nil {
		if i.DataSecure() {
			o.TLS = &client.TLS{CA: i.DataTLSCA, Cert: i.DataTLSCert, Key: i.DataTLSKey, ServerName: i.DataTLSServerName}
		}
		if i.DataTokenFile != "" {
			o.Token = client.TokenFile(i.DataTokenFile)
		}
	}
	return client.Dial(o)
}

// LimitOr returns the limit n; a negative number if it is 0.
func LimitOr[N int | float64](n N) N {
	if n == 0 {
		return -1
	}
	return n
}
