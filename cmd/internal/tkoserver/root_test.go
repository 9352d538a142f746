package tkoserver

import (
	"os"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestRootIsRefusedUnlessAllowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this test's user is not root")
	}
	t.Setenv("TKO_ALLOW_ROOT", "false")
	var out eventually.Buffer
	if code := run(t.Context(), []string{"--store=sqlite::memory:", "--listen-grpc=localhost:0"}, &out, &out); code != 2 || !strings.Contains(out.String(), "--allow-root") {
		t.Errorf("exit code %d, want 2 and the flag that allows it:\n%s", code, &out)
	}
}

func TestProgramFoldersMustExist(t *testing.T) {
	var out eventually.Buffer
	code := run(t.Context(), []string{"--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--plugin-programs=/does/not/exist"}, &out, &out)
	if code != 2 || !strings.Contains(out.String(), "/does/not/exist") {
		t.Errorf("exit code %d, want 2 and the folder:\n%s", code, &out)
	}
}

func TestMissingFilesOfPluginsAreReportedAtTheStart(t *testing.T) {
	for _, flag := range []string{"--plugin-files", "--plugin-files-writable"} {
		var out eventually.Buffer
		code := run(t.Context(), []string{"--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", flag + "=" + t.TempDir() + ",/does/not/exist"}, &out, &out)
		if code != 2 || !strings.Contains(out.String(), "/does/not/exist") {
			t.Errorf("%s: exit code %d, want 2 and the folder:\n%s", flag, code, &out)
		}
	}
}
