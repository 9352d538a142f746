package ansible

import (
	"strings"
	"testing"
)

// catalog declares one entity of each kind.
const catalog = `
- tko.tko.template:
    name: site/edge:v1
    metadata: {kind: edge, size: 5, own: true}
    package:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: base}, data: {a: b}}
- tko.tko.template:
    name: nf/du:v1
    metadata: {type: du}
    package:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: du}, data: {a: b, c: d}}
      - {apiVersion: metadata.nephio.org/v1alpha1, kind: NetworkFunction, metadata: {name: m}, spec: {type: du, variant: {version: 1}}}
- tko.tko.site:
    name: lagos/1
    template_id: site/edge:v1
    metadata: {region: west}
    package:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {e: f}}
- tko.tko.plugin:
    type: prepare
    name: example
    arguments: [/bin/true]
    properties: {_memory: 64Mi, number: 5}
    triggers: [{group: example.plugin.nephio.org, version: v1, kind: Example}]
- tko.tko.deployment:
    template_id: nf/du:v1
    site_id: lagos/1
    identity: {slice: gold}
    package:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: more}, data: {g: h}}
  register: result
- ansible.builtin.assert:
    that: result.deployment.metadata.slice == 'gold' and result.deployment.metadata['NetworkFunction.variant.version'] == '1'
  when: not ansible_check_mode
`

func TestSecondRunChangesNothing(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	if out, changed := c.play(catalog, "--check", "--diff"); changed != 5 || !strings.Contains(out, "+  name: base") && !strings.Contains(out, "name: base") {
		t.Errorf("check mode reports %d changes:\n%s", changed, out)
	}
	if left := c.stored("template", "list", "-o=yaml") + c.stored("plugin", "list", "-o=yaml"); strings.Contains(left, "edge") || strings.Contains(left, "example") {
		t.Errorf("check mode changed the server: %s", left)
	}
	if out, changed := c.play(catalog); changed != 5 {
		t.Errorf("the first run reports %d changes:\n%s", changed, out)
	}
	before := c.stored("deployment", "list", "-o=yaml") + c.stored("site", "list", "-o=yaml") + c.stored("template", "list", "-o=yaml")
	for _, args := range [][]string{{"--check", "--diff"}, nil} {
		if out, changed := c.play(catalog, args...); changed != 0 {
			t.Errorf("the second run %v reports %d changes:\n%s", args, changed, out)
		}
	}
	if after := c.stored("deployment", "list", "-o=yaml") + c.stored("site", "list", "-o=yaml") + c.stored("template", "list", "-o=yaml"); after != before {
		t.Errorf("the second run changed the server: before\n%safter\n%s", before, after)
	}
}

// Each change is predicted by check mode, with the same result, and the same state
// afterwards.
func TestCheckModePredictsTheRun(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	c.play(catalog)
	var tasks strings.Builder
	for _, change := range []struct{ module, options, key string }{
		{"template", "{name: site/edge:v1}", "template"},
		{"template", "{name: site/edge:v1, metadata: {kind: edge, size: 6}}", "template"},
		{"template", "{name: nf/du:v1, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: du}, data: {a: x}}]}", "template"},
		{"site", "{name: lagos/1}", "site"},
		{"site", "{name: lagos/1, metadata: {region: east}}", "site"},
		{"site", "{name: lagos/1, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: base, annotations: {nephio.org/merge: Override}}, data: {z: y}}]}", "site"},
		{"site", "{name: lagos/1, template_id: '', package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: alone}}], metadata: {}}", "site"},
		{"plugin", "{type: prepare, name: example, arguments: [/bin/false]}", "plugin"},
		{"deployment", "{template_id: nf/du:v1, site_id: lagos/1, identity: {slice: gold}, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: du}, data: {c: e}}]}", "deployment"},
		{"deployment", "{template_id: nf/du:v1, site_id: lagos/1, identity: {slice: gold}}", "deployment"},
		{"site", "{name: lagos/1, state: absent}", ""},
		{"site", "{name: lagos/1, state: absent}", ""},
		{"plugin", "{type: prepare, name: example, state: absent}", ""},
		{"template", "{name: site/edge:v1, state: absent}", ""},
	} {
		same := "predicted.changed == result.changed"
		if change.key != "" {
			for _, field := range []string{"metadata", "package", "template_id"} {
				if change.key != "plugin" {
					same += " and predicted." + change.key + "." + field + "|default('') == result." + change.key + "." + field + "|default('')" //nolint:perfsprint // few fields
				}
			}
		}
		tasks.WriteString(`
- tko.tko.` + change.module + `: ` + change.options + `
  check_mode: true
  register: predicted
- tko.tko.` + change.module + `: ` + change.options + `
  register: result
- ansible.builtin.assert:
    that: "` + same + `"
    fail_msg: "` + change.module + ` ` + strings.ReplaceAll(change.options, `"`, "") + ` {{ predicted }} {{ result }}"
`)
	}
	c.play(tasks.String())
}

// What fails names the thing and the reason, and changes nothing.
func TestFailuresNameTheReasonAndChangeNothing(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	c.play(catalog + `
- tko.tko.deployment: {template_id: nf/du:v1, site_id: lagos/1, identity: {slice: silver}}
`)
	before := c.stored("deployment", "list", "-o=yaml") + c.stored("site", "list", "-o=yaml") + c.stored("template", "list", "-o=yaml")
	var tasks strings.Builder
	for _, failure := range []struct{ task, message string }{
		{"tko.tko.template: {name: x, host: 'localhost:1', timeout: 2}", "localhost:1"},
		{"tko.tko.template: {name: 'a b', package: []}", "a b"},
		{"tko.tko.template: {name: site/edge:v1, package: [{kind: ConfigMap}]}", "apiVersion"},
		{"tko.tko.template: {name: site/edge:v1, package: 5}", "list of resources"},
		{"tko.tko.template: {name: site/edge:v1, src: /nowhere}", "/nowhere"},
		{"tko.tko.template: {name: site/edge:v1, metadata: {a: [b]}}", "metadata.a"},
		{"tko.tko.site: {name: s, template_id: nowhere}", "nowhere"},
		{"tko.tko.site: {name: lagos/1, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: n}, nothing: 1}]}", "nothing"},
		{"tko.tko.plugin: {type: prepare, name: p, executor: kpt, arguments: [a, b]}", "exactly one"},
		{"tko.tko.deployment: {template_id: nf/du:v1, site_id: lagos/1}", "several deployments match"},
		{"tko.tko.deployment: {template_id: nf/du:v1, site_id: lagos/1, identity: {slice: gold}, metadata: {type: cu}}", "can't change"},
		{"tko.tko.deployment: {deployment_id: 2ZzZzZzZzZzZzZzZzZzZzZzZzZz}", "there is no deployment"},
		{"tko.tko.deployment: {site_id: s}", "template_id"},
		{"tko.tko.deployment_approve: {}", "nothing is selected"},
		{"tko.tko.deployment_modification: {state: ended, modification_token: nothing, package: []}", "nothing"},
		{"tko.tko.tko_start_deployment_modification: {deployment_id: nowhere}", "nowhere"},
		{"tko.tko.about_info: {host: 'tko.example.com:50050', token: secret}", "needs TLS"},
	} {
		tasks.WriteString(`
- ` + failure.task + `
  register: result
  ignore_errors: true
- ansible.builtin.assert:
    that: result is failed and "` + failure.message + `" in result.msg
    fail_msg: "{{ result }} is not the failure"
`)
	}
	c.play(tasks.String())
	if after := c.stored("deployment", "list", "-o=yaml") + c.stored("site", "list", "-o=yaml") + c.stored("template", "list", "-o=yaml"); after != before {
		t.Errorf("a failed task changed the server: before\n%safter\n%s", before, after)
	}
}

// Diffs show what changes, without the values of Secrets.
func TestDiffShowsChangesWithoutSecrets(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	template := func(value, secret string) string {
		return `
- tko.tko.template:
    name: t
    package:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {key: ` + value + `}}
      - {apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: ` + secret + `}}
`
	}
	c.play(template("before", "hunter2"))
	out, changed := c.play(template("after", "hunter3"), "--diff")
	if changed != 1 || !strings.Contains(out, "-    key: before") || !strings.Contains(out, "+    key: after") {
		t.Errorf("the diff doesn't show the change:\n%s", out)
	}
	if strings.Contains(out, "hunter") || strings.Count(out, "password: sha256:") != 2 {
		t.Errorf("the diff doesn't show digests of the Secret:\n%s", out)
	}
}

func TestModificationAlwaysEndsOrCancels(t *testing.T) {
	t.Parallel()
	c := newControl(t, "--modification-time=1h")
	c.play(catalog)
	c.write("label.yaml", `
- ansible.builtin.set_fact:
    modification_package: "{{ modification.package + [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'added'}}] }}"
`)
	c.write("nothing.yaml", `
- ansible.builtin.debug: {msg: nothing}
`)
	c.write("fail.yaml", `
- name: Break
  ansible.builtin.fail: {msg: broken on purpose}
`)
	c.write("invalid.yaml", `
- ansible.builtin.set_fact:
    modification_package: [{kind: ConfigMap}]
`)
	find := `
- tko.tko.deployment_info: {metadata: {slice: gold}}
  register: found
`
	role := func(file string) string {
		return find + `
- ansible.builtin.include_role: {name: tko.tko.modification}
  vars:
    modification_deployment_id: "{{ found.deployments[0].deployment_id }}"
    modification_tasks: "{{ playbook_dir }}/` + file + `"
`
	}
	for _, file := range []string{"fail.yaml", "invalid.yaml"} {
		if out, code := c.try(role(file)); code == 0 || !strings.Contains(out, "was not modified") {
			t.Errorf("%s: exit code %d\n%s", file, code, out)
		}
	}
	if out, changed := c.play(role("nothing.yaml")); changed != 0 {
		t.Errorf("an unchanged package is a change:\n%s", out)
	}
	if out, changed := c.play(role("label.yaml"), "--check"); changed != 1 {
		t.Errorf("check mode reports %d changes:\n%s", changed, out)
	}
	if out, changed := c.play(role("label.yaml")); changed != 1 { // the failures have given their tokens up
		t.Errorf("%d changes:\n%s", changed, out)
	}
	// the former names
	c.play(find + `
- tko.tko.tko_start_deployment_modification:
    host: "` + c.server.GRPC + `"
    deployment_id: "{{ found.deployments[0].deployment_id }}"
  register: modification
- ansible.builtin.assert:
    that: modification.package | selectattr('metadata.name', 'eq', 'added') | length == 1
- tko.tko.tko_end_deployment_modification:
    host: "` + c.server.GRPC + `"
    modification_token: "{{ modification.modification_token }}"
    package: "{{ modification.package | rejectattr('metadata.name', 'eq', 'added') }}"
- tko.tko.tko_get_deployment:
    host: "` + c.server.GRPC + `"
    deployment_id: "{{ found.deployments[0].deployment_id }}"
  register: got
- tko.tko.tko_list_deployments: {host: "` + c.server.GRPC + `", site_id: lagos/1, offset: 0, max_count: 1}
  register: listed
- ansible.builtin.assert:
    that:
      - got.deployment.package | selectattr('metadata.name', 'eq', 'added') | length == 0
      - listed.deployments | length == 1
      - listed.deployments[0].deployment_id == got.deployment.deployment_id
`)
}

func TestApprovalsAreCounted(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	c.play(catalog + `
- tko.tko.deployment: {template_id: nf/du:v1, site_id: lagos/1, identity: {slice: silver}, prepared: true}
- tko.tko.deployment: {template_id: nf/du:v1, site_id: lagos/1, identity: {slice: bronze}, prepared: true}
- tko.tko.deployment_info: {metadata: {slice: gold}}
  register: found
- tko.tko.deployment_approve: {deployment_id: "{{ found.deployments[0].deployment_id }}"}
  register: result
  ignore_errors: true
- ansible.builtin.assert:
    that: result is failed and "not prepared" in result.msg
- tko.tko.deployment_approve: {site_ids: ["lagos/*"]}
  check_mode: true
  register: predicted
- tko.tko.deployment_approve: {site_ids: ["lagos/*"]}
  register: result
- tko.tko.deployment_approve: {all: true}
  register: again
- ansible.builtin.assert:
    that:
      - predicted.approved == 2 and predicted.changed
      - result.approved == 2 and result.changed
      - again.approved == 0 and not again.changed
- tko.tko.deployment: {template_id: nf/du:v1, identity: {slice: copper}, prepared: true, approved: true}
  register: new
- tko.tko.deployment: {template_id: nf/du:v1, identity: {slice: copper}, prepared: true, approved: true}
  register: again
- ansible.builtin.assert:
    that: new.deployment.approved and not again.changed
- tko.tko.deployment_info: {approved: true}
  register: result
- ansible.builtin.assert:
    that: result.deployments | length == 3
`)
}
