//go:build image

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make soak runs these tests with -tags image, because the image takes long to build.

// The image contains the programs, runs as an unprivileged user with a read-only
// root, and has CA certificates.
func TestImageRunsUnprivileged(t *testing.T) {
	engine(t)
	const name = "localhost/tko-server:test"
	run(t, "../../deploy/images/build.sh", name)

	var images []struct{ Config struct{ User string } }
	if err := json.Unmarshal([]byte(run(t, "podman", "image", "inspect", name)), &images); err != nil || images[0].Config.User != "65532:65532" {
		t.Errorf("runs as %+v, %v", images, err)
	}
	files := map[string]bool{}
	container := strings.TrimSpace(run(t, "podman", "create", name))
	list := exec.Command("sh", "-c", `podman export "$1" | tar t`, "sh", container)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(string(out)) {
		files[strings.TrimPrefix(file, "./")] = true
	}
	for _, file := range []string{"bin/tko", "bin/tko-server", "bin/tko-kubernetes", "bin/tko-tosca", "etc/ssl/certs/ca-certificates.crt"} {
		if !files[file] {
			t.Errorf("%s is missing", file)
		}
	}
	hardened := []string{"run", "--rm", "--network=none", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"}
	if version := run(t, "podman", append(hardened, name, "--version")...); !strings.HasPrefix(version, "tko-server version ") {
		t.Errorf("--version is %q", version)
	}
	if out, err := exec.Command("podman", append(hardened, name, "--store=sqlite:tko.db")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "tko.db") {
		t.Errorf("it can write to its root: %v\n%s", err, out)
	}
}

// engine gives the container engine a storage of the test's own.
func engine(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("podman"); err != nil {
		t.Fatal("install podman and runc: the image is tested in a container")
	}
	dir := t.TempDir()
	settings := "[engine]\ncgroup_manager = \"cgroupfs\"\n"
	if _, err := exec.LookPath("runc"); err == nil {
		settings += "runtime = \"runc\"\n" // other runtimes may not support the machine's cgroups
	}
	settings += "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n" // more may not be allowed
	storage := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/root", dir+"/run")
	for file, text := range map[string]string{"containers.conf": settings, "storage.conf": storage} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CONTAINERS_CONF", dir+"/containers.conf")
	t.Setenv("CONTAINERS_STORAGE_CONF", dir+"/storage.conf")
	t.Setenv("ENGINE", "podman")
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}
