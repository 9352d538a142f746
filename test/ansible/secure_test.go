package ansible

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/process/secure"
)

// Modules and the inventory prove who calls, by options or by the environment, to a server
// that enforces rights.
func TestModulesUseTLSAndTokens(t *testing.T) {
	t.Parallel()
	s := secure.Start(t, []string{"stranger"})
	c := &control{t: t, dir: t.TempDir()}
	c.link()
	address := "localhost:" + s.Port()
	file := c.write("token", s.Tokens[secure.Root]+"\n")
	otherCA := c.write("other.crt", string(certstest.New(t, "another authority").PEM()))
	site := func(options string) string {
		return fmt.Sprintf("- tko.tko.site: {name: lagos, metadata: {region: west}, host: '%s', timeout: 20%s}", address, options)
	}
	for name, test := range map[string]struct{ options, want string }{
		"no token":        {", ca_path: " + s.CA, "anonymous may not"},
		"no rights":       {", ca_path: " + s.CA + ", token: " + s.Tokens["stranger"], "PERMISSION_DENIED"},
		"other authority": {", ca_path: " + otherCA + ", token_file: " + file, "UNAVAILABLE"},
		"no such file":    {", ca_path: " + s.CA + ", token_file: /no/token", "/no/token"},
	} {
		out, code := c.try(site(test.options), "-vvv")
		if code == 0 || !strings.Contains(out, test.want) {
			t.Errorf("%s: exit code %d, want %s:\n%s", name, code, test.want, out)
		}
		if strings.Contains(strings.ReplaceAll(out, c.dir, ""), s.Tokens["stranger"]) {
			t.Errorf("%s: the output has the token", name)
		}
	}
	if out, changed := c.play(site(", ca_path: "+s.CA+", token_file: "+file), "-vvv"); changed != 1 || strings.Contains(out, s.Tokens[secure.Root]) {
		t.Errorf("by options: %d changes:\n%s", changed, out)
	}
	c.env = []string{"TKO_TLS_CA=" + s.CA, "TKO_TOKEN=" + s.Tokens[secure.Root], "TKO_DATA_HOST=" + address}
	if out, changed := c.play(site("")); changed != 0 {
		t.Errorf("by the environment: %d changes:\n%s", changed, out)
	}
	if _, groups, stderr := c.list(c.write("sites.tko.yaml", "plugin: tko.tko.sites\n")); len(groups["region_west"]) != 1 {
		t.Errorf("the inventory by the environment has the groups %v: %s", groups, stderr)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

const withPassword = `
- tko.tko.plugin:
    type: schedule
    name: apply
    executor: ansible
    arguments: [apply]
    properties: {_awx.host: awx, _awx.username: tko, _awx.password: %s, _awx.inventory: sites, db_password: other-canary}
`

func TestCredentialsOfPluginsAreNotShown(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	for i, password := range []string{"first-canary", "second-canary", "env:AWX_PASSWORD"} {
		out, changed := c.play(fmt.Sprintf(withPassword, password), "--diff", "-vvv")
		out = strings.ReplaceAll(out, c.dir, "")
		if changed != 1 || strings.Contains(out, "canary") {
			t.Errorf("%s: %d changes:\n%s", password, changed, out)
		}
		if hidden := strings.Contains(out, "_awx.password: sha256:"); hidden != (i < 2) && i == 0 {
			t.Errorf("%s: the diff has no digest:\n%s", password, out)
		}
		if i == 2 && !strings.Contains(out, "_awx.password: env:AWX_PASSWORD") {
			t.Errorf("the diff hides a reference:\n%s", out)
		}
	}
	if left := c.stored("plugin", "get", "schedule", "apply", "-o=yaml"); !strings.Contains(left, "other-canary") {
		t.Errorf("the plugin is stored as %s", left)
	}
}

func TestDeploymentWaitsForItsState(t *testing.T) {
	t.Parallel()
	c := newControl(t, "--roles=data,preparer")
	c.play("- tko.tko.template: {name: nf/du:v1, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: du}}]}")
	c.play(`
- tko.tko.deployment: {template_id: nf/du:v1, wait: approved}
  register: result
- ansible.builtin.assert:
    that: result.deployment.prepared and result.deployment.approved
`)
	if out, code := c.try("- tko.tko.deployment: {template_id: nf/du:v1, wait: scheduled, wait_timeout: 0.5}"); code == 0 || !strings.Contains(out, "is not scheduled after 0.5 s") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
