package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// namespaceVariable is set in the test process that has a mount namespace of its own.
const namespaceVariable = "TKO_FAULTS_NAMESPACE"

func TestMain(m *testing.M) {
	runPlugin()
	if os.Getenv(namespaceVariable) == "" {
		os.Exit(inNamespace())
	}
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// inNamespace runs this test program in a mount namespace of its own, and returns its
// exit code. The disks that tests mount there are not seen by other processes, and
// disappear with the last process of the test, however it ends.
func inNamespace() int {
	runtime.LockOSThread() // the program ends with this thread
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		// Other users may mount in a user namespace.
		const capSysAdmin = 21
		cmd.SysProcAttr.Unshareflags = 0
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{capSysAdmin}
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "run the tests in a mount namespace:", err)
		return 1
	}
	return 0
}

// mountDisk returns the folder of a small disk of the test.
func mountDisk(t *testing.T, size string) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "tko-faults-disk-") //nolint:usetesting // PostgreSQL's user can't enter folders of TempDir
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Fatalf("mount a disk for the test: %v", err)
	}
	t.Cleanup(func() {
		_ = syscall.Unmount(folder, syscall.MNT_DETACH)
		_ = os.Remove(folder)
	})
	return folder
}
