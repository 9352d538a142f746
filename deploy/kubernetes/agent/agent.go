// Package agent has the manifest of the agent of a site in the cluster that it is for, which tko site
// enroll completes. The folder is also a kustomization. Start at [Manifest].
package agent

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// namespace is the namespace of all objects of the agent.
const namespace = "tko-agent"

//go:embed agent.yaml
var base string

// Options are what a manifest has in addition to the folder. All but ServerName are required.
type Options struct {
	Image  string // of TKO, which has tko-agent
	Server string // address of the server for agents
	// ServerName is the name in the server's certificate; that of the address if empty.
	ServerName string
	CA         string // certificates of the authorities of the server's certificate, in PEM
	Token      string // one-time token of the site
}

// Manifest returns the objects of an agent in YAML: those of the folder, with the image, and the
// ConfigMap and the Secret that they use.
func Manifest(o Options) (string, error) {
	own, err := krm.Encode(krm.YAML, krm.Package{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": named("tko-agent"), "data": map[string]any{"server": o.Server, "ca.crt": o.CA}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": named("tko-agent-token"), "stringData": map[string]any{"token": o.Token}},
	})
	if err != nil {
		return "", err
	}
	text := strings.Replace(base, "image: tko-server", "image: "+strconv.Quote(o.Image), 1)
	if o.ServerName != "" {
		const address = "        - --server=$(TKO_AGENT_SERVER)\n"
		text = strings.Replace(text, address, address+"        - "+strconv.Quote("--server-name="+o.ServerName)+"\n", 1)
	}
	return text + "---\n" + strings.TrimPrefix(string(own), "---\n"), nil
}

func named(name string) map[string]any {
	return map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{"app.kubernetes.io/name": "tko", "app.kubernetes.io/component": "agent"}}
}
