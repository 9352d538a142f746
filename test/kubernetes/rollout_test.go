package kubernetes_test

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The example of the documentation, with its name.
const smfV2 = `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: smf-v2, labels: {team: core}}
spec:
  edits:
  - upgrade: {to: "nf/smf:v2"}
    select: {templateIdPatterns: ["nf/smf:v1"], siteMetadataPatterns: {region: north}}
  - merge: [{apiVersion: v1, kind: ConfigMap, name: logging}]
    select: {siteMetadataPatterns: {region: north}}
  waves:
  - {name: canary, count: 1, spread: region, approval: Required}
  - {name: rest}
  limits: {concurrent: 200, per: [{key: tac, max: 5}], apart: [redundancy], failures: {count: 5}}
  health: {within: 1h, soak: 1s, none: Accept}
  onFailure: Pause
  package:
    resources:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: logging}, data: {level: debug}}
`

func TestKubectlManagesRollouts(t *testing.T) {
	folder := t.TempDir()
	gittest.Run(t, folder, "init", "--quiet", "--bare", "--initial-branch=main", "sites.git")
	w := newWorld(t, "data,preparer,meta-scheduler,rollout", "--git-local="+folder)
	for id, version := range map[string]string{"nf-002fsmf-003av1": "1", "nf-002fsmf-003av2": "2"} {
		w.with(manifest("Template", id, "}\nspec: {package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: smf}, data: {version: \""+version+"\"}}]}}"), "create", "-f", "-")
	}
	w.with(manifest("Site", "lagos", ", labels: {region: north, tac: '1', redundancy: a}}\nspec: {package: {resources: [{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: sites}, spec: {url: "+folder+"/sites.git}}]}}"),
		"create", "-f", "-")
	name := w.with(manifest("Deployment", "any", "}\nspec: {templateId: 'nf/smf:v1', siteId: lagos}"), "create", "-f", "-", "-o", "name")
	w.with("", "wait", "--for=condition=Approved", name, "--timeout=240s")

	cmd := w.Command(w.Kubeconfig, "get", "rollouts", "--watch", "--output-watch-events", "-o", `jsonpath={.type} {.object.metadata.name} {.object.status.state}{"\n"}`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(timeLimit, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		end.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	watched := func(want string) { // the watch begins with ADDED, if it begins late
		t.Helper()
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), want) || strings.HasPrefix(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the watch ended before %q: %v", want, lines.Err())
	}

	// It is applied under the name that was written, and read by it; the escaped name
	// is the same object.
	w.with(smfV2, "apply", "-f", "-")
	watched(" smf-v2 Planned")
	w.with("", "wait", "--for=condition=Planned", "rollout/smf-v2", "--timeout=240s")
	if out := w.with(smfV2, "apply", "-f", "-"); !strings.HasSuffix(out, "unchanged") {
		t.Errorf("applied again: %s", out)
	}
	w.prints("rollout.tko.nephio.org/smf-v2", "get", "rollouts", "-o", "name")
	w.prints("rollout.tko.nephio.org/smf-v2", "get", "tkor", "-o", "name", "-l", "team=core")
	w.prints("rollout.tko.nephio.org/smf-v2", "get", "rollouts", "-o", "name", "--field-selector", "metadata.name=smf-v2")
	for _, name := range []string{"smf-v2", "smf-002dv2"} {
		w.prints("smf-v2 Planned", "get", "rollout", name, "-o", "jsonpath={.spec.rolloutId} {.status.state}")
	}
	head, row, _ := strings.Cut(w.with("", "get", "rollouts"), "\n")
	if strings.Join(strings.Fields(head), " ") != "NAME ID STATE PROGRESS AGE" || !strings.HasPrefix(strings.Join(strings.Fields(row), " "), "smf-v2 smf-v2 Planned") {
		t.Errorf("the table has\n%s\n%s", head, row)
	}
	if wide := w.with("", "get", "rollouts", "-o", "wide"); !strings.Contains(wide, "PLAN") || !strings.Contains(wide, "1 Change") {
		t.Errorf("the wide table has\n%s", wide)
	}
	if out := w.with("", "get", "tko"); !strings.Contains(out, "rollout.tko.nephio.org/smf-v2") {
		t.Errorf("the category tko lacks it:\n%s", out)
	}
	if out := w.with("", "describe", "rollout", "smf-v2"); !strings.Contains(out, "Planned") || !strings.Contains(out, "logging") {
		t.Errorf("described as\n%s", out)
	}
	var before, after struct{ Spec map[string]any }
	if err := json.Unmarshal([]byte(w.with("", "get", "rollout", "smf-v2", "-o", "json")), &before); err != nil {
		t.Fatal(err)
	}

	// A change is planned anew; a change of nothing isn't a revision.
	w.with("", "patch", "rollout", "smf-v2", "--type=merge", "-p", `{"spec":{"limits":{"concurrent":3}}}`)
	w.prints("3 2", "get", "rollout", "smf-v2", "-o", "jsonpath={.spec.limits.concurrent} {.metadata.generation}")
	w.with("", "patch", "rollout", "smf-v2", "--type=merge", "-p", `{"spec":{"limits":{"concurrent":200}}}`)
	if err := json.Unmarshal([]byte(w.with("", "get", "rollout", "smf-v2", "-o", "json")), &after); err != nil {
		t.Fatal(err)
	}
	if a, b := text(t, before.Spec), text(t, after.Spec); a != b {
		t.Errorf("patched back, its spec is\n%s\nbefore:\n%s", b, a)
	}
	w.with(smfV2, "apply", "--server-side", "--force-conflicts", "-f", "-")

	// What the command refuses, kubectl refuses.
	w.refused(w.Kubeconfig, strings.Replace(smfV2, "name: smf-v2", "name: smf v2", 1), "smf v2", "apply", "-f", "-")
	w.refused(w.Kubeconfig, strings.Replace(strings.Replace(smfV2, "smf-v2", "smf-v3", 1), `templateIdPatterns: ["nf/smf:v1"], siteMetadataPatterns: {region: north}`, "", 1), "select", "create", "-f", "-")
	w.refused(w.Kubeconfig, strings.Replace(strings.Replace(smfV2, "smf-v2", "smf-v3", 1), "concurrent:", "concurent:", 1), "concurent", "create", "-f", "-")
	w.refused(w.Kubeconfig, "", "NotFound", "get", "rollout", "smf-v3")
	w.refused(w.Kubeconfig, smfV2, "AlreadyExists", "create", "-f", "-")

	// It can't be deleted while it runs.
	c := w.dial()
	do := func(verb, body string) (stderr string, code int) { // without any tool of TKO
		_, stderr, code = w.Try(t, w.Kubeconfig, body, "create", "--raw", "/apis/tko.nephio.org/v1alpha1/rollouts/smf-v2/"+verb, "-f", "-")
		return stderr, code
	}
	if stderr, code := do("start", `{"plan":"000000000000"}`); code == 0 || !strings.Contains(stderr, "000000000000") {
		t.Errorf("with another plan, start ends with %d\n%s", code, stderr)
	}
	eventually.True(t, "rollout smf-v2 is planned", func() bool {
		s, err := c.RolloutStatus(t.Context(), "smf-v2")
		if err != nil || s.State != "Planned" {
			return false
		}
		_, code := do("start", `{"plan":"`+s.Plan+`"}`)
		return code == 0
	})
	watched(" smf-v2 Running")
	w.refused(w.Kubeconfig, "", "Running", "delete", "rollout", "smf-v2")
	for _, command := range []string{"pause", "resume", "approve"} {
		if stderr, code := do(command, `{"reason":"a test"}`); code != 0 {
			t.Fatalf("%s: %s", command, stderr)
		}
		if command == "pause" {
			w.prints("Paused", "get", "rollout", "smf-v2", "-o", "jsonpath={.status.state}")
		}
	}
	w.with("", "wait", "--for=jsonpath={.status.state}=Done", "rollout/smf-v2", "--timeout=240s")
	w.prints("nf/smf:v2", "get", name, "-o", "jsonpath={.spec.templateId}")
	if stderr, code := do("undo", "{}"); code != 0 {
		t.Fatal(stderr)
	}
	w.with("", "wait", "--for=jsonpath={.status.state}=Undone", "rollout/smf-v2", "--timeout=240s")
	watched(" smf-v2 Undone")
	w.prints("nf/smf:v1", "get", name, "-o", "jsonpath={.spec.templateId}")
	w.with("", "delete", "rollout", "smf-v2-undo")
	w.with("", "delete", "rollout", "smf-v2")
	watched("DELETED smf-v2 ")
	w.prints("", "get", "rollouts", "-o", "name")
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
