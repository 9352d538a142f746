package ansible

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

// A control is an Ansible control node: a folder with the collection, and the
// address of a server.
type control struct {
	t      testing.TB
	dir    string
	server *process.Server
	env    []string
}

// newControl returns a control node with a server of its own.
func newControl(t testing.TB, args ...string) *control {
	t.Helper()
	c := &control{t: t, dir: t.TempDir()}
	c.server = process.StartServer(t, append([]string{"--roles=data", "--store=sqlite::memory:"}, args...)...)
	c.link()
	return c
}

func (c *control) link() {
	c.t.Helper()
	collection, err := filepath.Abs("../../ansible")
	if err != nil {
		c.t.Fatal(err)
	}
	parent := filepath.Join(c.dir, "collections", "ansible_collections", "tko")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(collection, filepath.Join(parent, "tko")); err != nil {
		c.t.Fatal(err)
	}
}

// write writes a file of the control node and returns its path.
func (c *control) write(name, content string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// run runs a program of ansible-core, and returns its output.
func (c *control) run(program string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	var out, errs bytes.Buffer
	process.Reads(c.t, "ansible", "sdk/python")
	bin := filepath.Join(process.Ansible(c.t), "bin")
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(bin, program), args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(),
		"PATH="+bin+":"+os.Getenv("PATH"), "PYTHONPATH="+process.PythonSDK(), "PYTHONDONTWRITEBYTECODE=1",
		"ANSIBLE_COLLECTIONS_PATH="+filepath.Join(c.dir, "collections"), "ANSIBLE_HOME="+filepath.Join(c.dir, "home"),
		"ANSIBLE_LOCALHOST_WARNING=false", "ANSIBLE_INVENTORY_UNPARSED_WARNING=false", "ANSIBLE_NOCOLOR=true", "ANSIBLE_RETRY_FILES_ENABLED=false",
		"ANSIBLE_PYTHON_INTERPRETER="+filepath.Join(bin, "python3"))
	if c.server != nil {
		cmd.Env = append(cmd.Env, "TKO_DATA_HOST="+c.server.GRPC)
	}
	cmd.Env = append(cmd.Env, c.env...)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

var recap = regexp.MustCompile(`(?m)^localhost\s.*changed=(\d+)`)

// play runs tasks on this machine. It returns the output, and the number of changed
// tasks; it fails the test if the playbook fails.
func (c *control) play(tasks string, args ...string) (out string, changed int) {
	c.t.Helper()
	out, code := c.try(tasks, args...)
	m := recap.FindStringSubmatch(out)
	if code != 0 || m == nil {
		c.t.Fatalf("ansible-playbook %v: exit code %d\n%s", args, code, out)
	}
	changed, err := strconv.Atoi(m[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return out, changed
}

// try runs tasks on this machine, which may fail.
func (c *control) try(tasks string, args ...string) (out string, code int) {
	c.t.Helper()
	var b strings.Builder
	b.WriteString("- hosts: localhost\n  gather_facts: false\n  connection: local\n  tasks:\n")
	for line := range strings.Lines(strings.Trim(tasks, "\n")) {
		b.WriteString("    " + line)
	}
	stdout, stderr, code := c.run("ansible-playbook", append(args, c.write("playbook.yaml", b.String()+"\n"))...)
	return stdout + stderr, code
}

// client returns a client of the server.
func (c *control) client() *client.Client {
	c.t.Helper()
	cl, err := client.Dial(client.Options{Address: c.server.GRPC})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// stored returns what the server stores about an entity, as the tko command prints it.
func (c *control) stored(args ...string) string {
	c.t.Helper()
	out, stderr, code := c.server.CLI(args...)
	if code != 0 {
		c.t.Fatalf("tko %v: exit code %d: %s", args, code, stderr)
	}
	return out
}
