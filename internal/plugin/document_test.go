package plugin

import (
	"testing"

	"github.com/tko-orchestrator/tko"
)

// The input of plugins in pods has the host's name in place of "localhost".
func TestInputInPodNamesTheHost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why        string
		properties map[string]string
		address    string
		log        string
		wantGRPC   string
		wantLog    string
	}{
		"here":        {why: "on the server's machine", address: "localhost", log: "localhost:50055", wantGRPC: "localhost", wantLog: "localhost:50055"},
		"in a pod":    {why: "localhost is another machine there", properties: map[string]string{tko.PropertyPod: "tools"}, address: "localhost", log: "localhost:50055", wantGRPC: "2001:db8::1", wantLog: "[2001:db8::1]:50055"},
		"configured":  {why: "a configured address is not replaced", properties: map[string]string{tko.PropertyPod: "tools"}, address: "tko-data", log: "[2001:db8::7]:50055", wantGRPC: "tko-data", wantLog: "[2001:db8::7]:50055"},
		"without one": {why: "no log server", properties: map[string]string{tko.PropertyPod: "tools"}, address: "localhost", wantGRPC: "2001:db8::1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := New(Options{GRPC: GRPCAddress{Address: test.address, Port: 50050}, LogAddressPort: test.log, Host: "2001:db8::1"})
			in := r.input(job{plugin: tko.Plugin{Properties: test.properties}}, "")
			if grpc, log := in.Text("grpc", "address"), in.Text("logAddressPort"); grpc != test.wantGRPC || log != test.wantLog {
				t.Errorf("%s: %q, %q", test.why, grpc, log)
			}
		})
	}
}
