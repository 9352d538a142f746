package deploy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/deploy/kubernetes/agent"
)

// The manifest of tko site enroll has the objects of the kustomization, with the image, and the
// ConfigMap and the Secret that they use.
func TestManifestOfAnAgentEqualsItsKustomization(t *testing.T) {
	t.Parallel()
	text, err := agent.Manifest(agent.Options{Image: "localhost/tko-server:latest", Server: "tko.example.com:50060", CA: "certificates", Token: "tko_agent_x"})
	if err != nil {
		t.Fatal(err)
	}
	got, want := objects(t, text), objects(t, kustomize(t, "../agent"))
	config, token := got["ConfigMap tko-agent/tko-agent"], got["Secret tko-agent/tko-agent-token"]
	if at(config, "data", "server") != "tko.example.com:50060" || at(config, "data", "ca.crt") != "certificates" || at(token, "stringData", "token") != "tko_agent_x" {
		t.Errorf("it has %v and %v", config, token)
	}
	delete(got, "ConfigMap tko-agent/tko-agent")
	delete(got, "Secret tko-agent/tko-agent-token")
	for _, o := range want {
		withoutPart(o)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kustomization (-) and manifest (+):\n%s", diff)
	}
	if text, err = agent.Manifest(agent.Options{Image: "i", ServerName: "tko-data.tko.svc"}); err != nil {
		t.Fatal(err)
	}
	d := objects(t, text)["Deployment tko-agent/tko-agent"]
	containers, _ := at(d, "spec", "template", "spec", "containers").([]any)
	args, _ := at(containers[0], "args").([]any)
	if len(args) < 4 || args[3] != "--server-name=tko-data.tko.svc" || !strings.HasPrefix(args[2].(string), "--server=") {
		t.Errorf("the arguments are %v", args)
	}
}

// withoutPart removes the label that only the kustomization adds.
func withoutPart(o any) {
	m, ok := o.(object)
	if !ok {
		return
	}
	if labels, ok := m["labels"].(object); ok {
		if delete(labels, "app.kubernetes.io/part-of"); len(labels) == 0 {
			delete(m, "labels")
		}
	}
	for _, value := range m {
		withoutPart(value)
	}
}
