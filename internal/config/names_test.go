package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko/internal/config"
)

// Settings that have a new name are read by their earlier one, too: from flags, the
// environment and files.
func TestEarlierNamesOfSettingsAreReadAndReported(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := config.Flags(flags)
	if err := flags.Parse([]string{"--git-cache=/cache"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte("git-local: [/a, /b]\nosm-connections: [/old]\ngitops-osm-connections: [/new]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := func(name string) (string, bool) {
		value, ok := map[string]string{"TKO_KUBERNETES_VERSION": "1.30.0", "TKO_GIT_SECRETS": "/earlier", "TKO_TARGET_GIT_SECRETS": "/present"}[name]
		return value, ok
	}
	if err := config.Load(flags, environment, file); err != nil {
		t.Fatal(err)
	}
	if c.GitCache != "/cache" || strings.Join(c.GitLocal, " ") != "/a /b" || c.KubernetesVersion != "1.30.0" || c.GitSecrets != "/present" || strings.Join(c.GitOps.Connections, " ") != "/new" {
		t.Errorf("%q %q %q %q %q", c.GitCache, c.GitLocal, c.KubernetesVersion, c.GitSecrets, c.GitOps.Connections)
	}
	warnings := strings.Join(c.Warnings(flags, nil), "\n")
	for _, name := range []string{"git-cache has the new name target-git-cache", "git-local has the new name target-git-local", "kubernetes-version has the new name schema-kubernetes-version"} {
		if !strings.Contains(warnings, name) {
			t.Errorf("no warning that %s:\n%s", name, warnings)
		}
	}
	if strings.Contains(config.Usage(flags), "--git-cache ") {
		t.Error("the help has the earlier name")
	}
}

func TestUnknownVariablesOfTheEnvironmentAreReported(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := config.Flags(flags)
	got := c.Warnings(flags, []string{
		"TKO_STROE=x", "TKO_STORE=x", "TKO_GIT_CACHE=x", "PATH=x", "TKO_GRPC_ADDRESS=x", "TKO_TOKEN=x", "TKO_TEST_POSTGRES=x",
		"TKO_SERVICE_HOST=10.0.0.1", "TKO_DATA_SERVICE_PORT_GRPC=50050", "TKO_DATA_PORT=tcp://10.0.0.1:50050", "TKO_DATA_PORT_50050_TCP_ADDR=10.0.0.1",
	})
	if len(got) != 1 || !strings.Contains(got[0], "TKO_STROE is no setting") {
		t.Errorf("%q", got)
	}
}
