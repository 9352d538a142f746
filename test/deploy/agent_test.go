package deploy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// The manifest of the agent passes arguments that tko-agent has, keeps its state, takes what
// docs/agent.md creates, and starts one agent at a time in a hardened pod.
func TestAgentInItsCluster(t *testing.T) {
	t.Parallel()
	all := objects(t, kustomize(t, "../agent"))
	d := all["Deployment tko-agent/tko-agent"]
	if d == nil {
		t.Fatalf("there is no Deployment in %v", all)
	}
	pod, _ := at(d, "spec", "template", "spec").(object)
	containers, _ := pod["containers"].([]any)
	if len(containers) != 1 || at(d, "spec", "strategy", "type") != "Recreate" || at(d, "spec", "replicas") == nil {
		t.Fatalf("the Deployment is %v", d["spec"])
	}
	help, err := exec.Command(process.Build(t, "tko-agent"), "run", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	args, _ := at(containers[0], "args").([]any)
	if len(args) == 0 || args[0] != "run" {
		t.Fatalf("the arguments are %v", args)
	}
	var paths []string
	for _, arg := range args[1:] {
		flag, value, _ := strings.Cut(arg.(string), "=")
		if !strings.Contains(string(help), flag+" ") {
			t.Errorf("tko-agent run has no flag %s", flag)
		}
		if strings.HasPrefix(value, "/") {
			paths = append(paths, value)
		}
	}
	mounts, _ := at(containers[0], "volumeMounts").([]any)
	for _, path := range paths {
		if !slices.ContainsFunc(mounts, func(m any) bool { return strings.HasPrefix(path+"/", at(m, "mountPath").(string)+"/") }) {
			t.Errorf("%s is in no volume", path)
		}
	}
	sources := map[string]any{}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		sources[at(v, "name").(string)] = v
	}
	if at(sources["state"], "persistentVolumeClaim", "claimName") != "tko-agent" || all["PersistentVolumeClaim tko-agent/tko-agent"] == nil {
		t.Errorf("the state is in %v", sources["state"])
	}
	if at(sources["token"], "secret", "secretName") != "tko-agent-token" || at(sources["token"], "secret", "optional") != true || at(sources["server"], "configMap", "name") != "tko-agent" {
		t.Errorf("the volumes are %v", volumes)
	}
	if at(sources["owner"], "configMap", "name") != "tko-agent-owner" || at(sources["owner"], "configMap", "optional") != true {
		t.Errorf("the owner's file is in %v", sources["owner"])
	}
	context := at(containers[0], "securityContext")
	if at(pod, "securityContext", "runAsNonRoot") != true || at(context, "readOnlyRootFilesystem") != true || at(context, "allowPrivilegeEscalation") != false || at(containers[0], "resources", "limits", "memory") == nil {
		t.Errorf("the pod isn't hardened: %v, %v", pod["securityContext"], context)
	}
	subjects, _ := at(all["ClusterRoleBinding /tko-agent"], "subjects").([]any)
	if len(subjects) != 1 || at(subjects[0], "name") != pod["serviceAccountName"] || pod["automountServiceAccountToken"] != true {
		t.Errorf("the rights are of %v", subjects)
	}
}
