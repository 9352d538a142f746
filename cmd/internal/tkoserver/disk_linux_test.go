package tkoserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const smallDisk = "TKO_TEST_SMALL_DISK" // folder on which the child mounts a disk

// A full disk of the database makes changes fail and reads go on; /readyz fails and
// says why. When there is space again, the server is ready again by itself. Before, it
// warns that there is little space.
func TestFullDiskShowsInReadyzAndEndsByItself(t *testing.T) {
	dir := os.Getenv(smallDisk)
	if dir == "" {
		inNamespace(t, t.Name())
		return
	}
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	served, _ := start(t, "--allow-root", "--roles=data", "--store=sqlite:"+filepath.Join(dir, "tko.db"), "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--listen-health=localhost:0", "--listen-metrics=localhost:0", "--disk-low=30")
	c, err := client.Dial(client.Options{Address: served.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	register := func(ctx context.Context, id string) error {
		_, err := c.RegisterSite(ctx, tko.Site{ID: tko.SiteID(id), Package: krm.Package{
			{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"a": id}},
		}})
		return err
	}
	if err := register(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, served.Health[0], http.StatusOK, "")

	filler := filepath.Join(dir, "filler")
	fill(t, filler, 18<<20)
	awaitReady(t, served.Health[0], http.StatusOK, "the disk of the folder database")

	fill(t, filler, 1<<30)
	awaitReady(t, served.Health[0], http.StatusServiceUnavailable, "changes fail: free space on it")
	short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i := 0; ; i++ { // the file of the log has some room
		if err = register(short, fmt.Sprint("full-", i)); err != nil {
			break
		}
	}
	if !errors.Is(err, tko.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a change on the full disk: %v", err)
	}
	if _, err := c.Site(t.Context(), "before", 0); err != nil {
		t.Errorf("a read with a full disk: %v", err)
	}
	awaitReady(t, served.Health[0], http.StatusServiceUnavailable, "is full since")
	eventually.NoError(t, "the metric", func() error {
		families, err := scrape(t, served.Metrics[0])
		if err == nil && families["tko_store_errors_total"].GetMetric()[0].GetCounter().GetValue() == 0 { // reasons are sorted: full is the first
			err = fmt.Errorf("%v", families["tko_store_errors_total"])
		}
		return err
	})

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, served.Health[0], http.StatusOK, "")
	if err := register(t.Context(), "after"); err != nil {
		t.Errorf("a change after there is space again: %v", err)
	}
}

// inNamespace runs a test again in a process with mounts of its own.
func inNamespace(t *testing.T, name string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.v")
	dir := t.TempDir()
	command.Env = append(os.Environ(), smallDisk+"="+dir, "TMPDIR="+dir) // the disks of this machine may be nearly full
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := command.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+name)) {
		t.Errorf("%v\n%s", err, out)
	}
}

// fill makes a file larger until it has a size or the disk is full.
func fill(t *testing.T, path string, size int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	chunk := make([]byte, 4096)
	for written := 0; written < size; written += len(chunk) {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitReady waits until /readyz has a status and a text; no text at all if it is "".
func awaitReady(t *testing.T, address string, status int, text string) {
	t.Helper()
	eventually.NoError(t, fmt.Sprintf("/readyz with %d %q", status, text), func() error {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode != status || !strings.Contains(string(body), text) || text == "" && len(body) > 0) {
			err = fmt.Errorf("it is %d %q", response.StatusCode, body)
		}
		return err
	})
}
