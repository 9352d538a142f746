package config_test

import (
	"strings"
	"testing"
)

func TestFluxSettingsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		args []string
		want string // in what is wrong; "" for nothing
	}{
		"in the cluster": {why: "as the manifests do", args: []string{"--flux-in-cluster", "--events-addr=http://notification-controller.flux-system/", "--flux-artifacts=localhost:9090"}},
		"two clusters":   {why: "which of them?", args: []string{"--flux-in-cluster", "--flux-kubeconfig=x"}, want: "two clusters"},
		"no cluster":     {why: "it would do nothing", args: []string{"--no-cross-namespace-refs"}, want: "need --flux-in-cluster"},
		"no URL":         {why: "the events would go nowhere", args: []string{"--flux-in-cluster", "--events-addr=notification-controller"}, want: "--events-addr"},
		"no port":        {why: "nothing would be fetched", args: []string{"--flux-in-cluster", "--flux-artifacts=localhost"}, want: "--flux-artifacts"},
		"another role":   {why: "no role would reconcile the objects", args: []string{"--flux-in-cluster", "--roles=data"}, want: "--roles"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, test.args, nil, "")
			if err == nil {
				err = c.Validate()
			}
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.why, err)
			}
		})
	}
}
