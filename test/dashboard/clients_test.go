package dashboard

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/test/process"
)

// output is what both clients print. A deletion of three sites affects four entities: one deployment would lose its site.
const output = `sites north/1 unknown north, north/2 unknown north, north/3 unknown north
deployment web/hello:v1 north/1 1 true true
count unknown north 3, unknown south 1
would delete 4
missing 404 site "nowhere": not found
`

// TestGeneratedClientsCallTheServer generates clients in TypeScript and Python from the description
// that the server has, compiles the first one with all checks, and calls the server with both.
func TestGeneratedClientsCallTheServer(t *testing.T) {
	process.Reads(t, "web/package-lock.json", "test/setup", "test/dashboard/testdata")
	s := process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, id := range []string{"north/1", "north/2", "north/3", "south/1"} {
		region, _, _ := strings.Cut(id, "/")
		if _, err := c.RegisterSite(t.Context(), tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"region": region}, Package: config("site", id)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: "web/hello:v1", Package: config("hello", "1")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "web/hello:v1", Site: "north/1"}); err != nil {
		t.Fatal(err)
	}
	url := "http://" + s.Web
	sources, err := filepath.Abs(filepath.Join("testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("TypeScript", func(t *testing.T) {
		run(t, filepath.Join("..", "setup", "web.sh"))
		web, err := filepath.Abs(filepath.Join("..", "..", "web"))
		if err != nil {
			t.Fatal(err)
		}
		modules := filepath.Join(web, "node_modules")
		dir, err := os.MkdirTemp(modules, ".client-") //nolint:usetesting // where imports find the packages
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		write(t, filepath.Join(dir, "package.json"), `{"type": "module"}`)
		write(t, filepath.Join(dir, "env.d.ts"), "declare const process: { env: Record<string, string> }\n")
		source, err := os.ReadFile(filepath.Join(sources, "client.ts"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "client.ts"), string(source))
		bin := filepath.Join(modules, ".bin")
		run(t, filepath.Join(bin, "openapi-typescript"), url+"/api/v1/openapi.json", "-o", filepath.Join(dir, "schema.d.ts"))
		run(t, filepath.Join(bin, "tsc"), "--strict", "--target", "ES2022", "--module", "ESNext", "--moduleResolution", "bundler", "--lib", "ES2023,DOM", "--skipLibCheck", "--outDir", dir, filepath.Join(dir, "env.d.ts"), filepath.Join(dir, "client.ts"))
		compare(t, call(t, url, "", "node", filepath.Join(dir, "client.js")), output+"no such field\nwrong 400\n")
	})
	t.Run("Python", func(t *testing.T) {
		env := run(t, filepath.Join("..", "setup", "python.sh"), "clients")
		env = env[strings.LastIndex(env, "\n")+1:]
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), filepath.Join(env, "bin", "openapi-python-client"), "generate", "--url", url+"/api/v1/openapi.json", "--output-path", filepath.Join(dir, "generated"), "--meta", "none", "--fail-on-warning")
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(env, "bin")+string(os.PathListSeparator)+os.Getenv("PATH")) // it formats with ruff
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openapi-python-client: %v\n%s", err, out)
		}
		compare(t, call(t, url, dir, filepath.Join(env, "bin", "python3"), filepath.Join(sources, "client.py")), output)
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// call runs a client, and returns what it prints.
func call(t *testing.T, url, pythonPath, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "URL="+url, "PYTHONPATH="+pythonPath, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client has printed (-want +got):\n%s", diff)
	}
}
