package tkoserver

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
)

// Sockets of the service manager replace settings, so that the rules about
// addresses apply to them.
func TestPassedSocketsFollowTheRulesOfAddresses(t *testing.T) {
	t.Parallel()
	open := func(network, address string) net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	loopback, everywhere := open("tcp", "localhost:0"), open("tcp", ":0")
	local := open("unix", filepath.Join(t.TempDir(), "s"))
	tests := map[string]struct {
		why    string
		passed map[string][]net.Listener
		flags  []string
		fails  string // in the error; "" for none
	}{
		"loopback":        {why: "only this machine is served", passed: map[string][]net.Listener{"grpc": {loopback}, "unix": {local}}},
		"everywhere":      {why: "other machines would have all rights", passed: map[string][]net.Listener{"grpc": {everywhere}}, fails: "other machines are served with TLS only"},
		"one of several":  {why: "the most exposed one counts", passed: map[string][]net.Listener{"web": {everywhere, loopback}}, fails: "--listen-web="},
		"several, last":   {why: "their order doesn't matter", passed: map[string][]net.Listener{"health": {loopback, everywhere}}, fails: "--listen-health="},
		"insecure":        {why: "as for flags", passed: map[string][]net.Listener{"grpc": {everywhere}}, flags: []string{"--insecure"}},
		"unknown name":    {why: "the unit lacks FileDescriptorName=", passed: map[string][]net.Listener{"tko.socket": {loopback}}, fails: "FileDescriptorName="},
		"other role":      {why: "no role would serve it", passed: map[string][]net.Listener{"grpc": {loopback}}, flags: []string{"--roles=preparer"}, fails: "--roles lacks it"},
		"TCP as unix":     {why: "its clients have no user IDs", passed: map[string][]net.Listener{"unix": {loopback}}, fails: "Unix socket"},
		"Unix socket web": {why: "HTTP has no user IDs", passed: map[string][]net.Listener{"web": {local}}, fails: "Unix socket"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			c := config.Flags(flags)
			if err := flags.Parse(test.flags); err != nil {
				t.Fatal(err)
			}
			err := inherit(c, test.passed)
			if err == nil {
				err = c.Validate()
			}
			switch {
			case test.fails == "" && err != nil:
				t.Errorf("%v: %s", err, test.why)
			case test.fails != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.fails)):
				t.Errorf("the error is %v, want %q: %s", err, test.fails, test.why)
			}
		})
	}
}
