// Package spannertest starts Spanner's emulator for tests, with a database for each.
package spannertest

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"

	"github.com/tko-orchestrator/tko/internal/pause"
)

// Programs are where the emulator is looked for, after TKO_TEST_SPANNER_EMULATOR and the PATH.
var programs = []string{
	"/usr/lib/google-cloud-sdk/bin/cloud_spanner_emulator/emulator_main",
	"/usr/share/google-cloud-sdk/bin/cloud_spanner_emulator/emulator_main",
}

// parallel is the number of tests that run at once, each in a database of its own.
const parallel = "8"

const instanceName = "projects/test/instances/test"

var (
	host      string // of the emulator; "" if there is none
	databases atomic.Int64
)

// Main runs the tests of a package with an emulator. Without an installed one, tests that need it
// are skipped by [Database], by name. More tests run at once than there are processors.
func Main(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil { // calls wait for the emulator more than they compute
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start Spanner's emulator:", err)
		return 1
	}
	defer stop()
	return m.Run()
}

func program() string {
	if named := os.Getenv("TKO_TEST_SPANNER_EMULATOR"); named != "" {
		return named
	}
	if found, err := exec.LookPath("emulator_main"); err == nil {
		return found
	}
	for _, p := range programs {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

func start() (stop func(), err error) {
	path := program()
	if path == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	emulator := exec.Command(path, "--host_port="+address) //nolint:gosec,noctx // the emulator; it lives as long as the tests
	dieWithParent(emulator)
	if err := emulator.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = emulator.Process.Kill()
		_ = emulator.Wait()
	}
	// Later emulators know multiplexed sessions, this client's newer versions nothing else.
	for name, value := range map[string]string{"SPANNER_EMULATOR_HOST": address, "GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS": "false"} {
		if err := os.Setenv(name, value); err != nil {
			stop()
			return nil, err
		}
	}
	if err := createInstance(ctx, address); err != nil {
		stop()
		return nil, err
	}
	host = address
	return stop, nil
}

func createInstance(ctx context.Context, address string) error {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if ctxErr := pause.For(ctx, 20*time.Millisecond); ctxErr != nil {
			return err
		}
	}
	c, err := instance.NewInstanceAdminClient(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	made, err := c.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent: "projects/test", InstanceId: "test",
		Instance: &instancepb.Instance{Config: "projects/test/instanceConfigs/emulator-config", DisplayName: "test", NodeCount: 1},
	})
	if err != nil {
		return err
	}
	_, err = made.Wait(ctx)
	return err
}

// Database creates an empty database, and returns its name. It is dropped when the test ends: the
// emulator permits 100.
func Database(t testing.TB) string {
	t.Helper()
	if host == "" {
		t.Skip("Spanner's emulator is not installed: install google-cloud-cli-spanner-emulator, or set TKO_TEST_SPANNER_EMULATOR to its emulator_main")
	}
	c, err := admin.NewDatabaseAdminClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("db%d", databases.Add(1))
	made, err := c.CreateDatabase(t.Context(), &databasepb.CreateDatabaseRequest{Parent: instanceName, CreateStatement: "CREATE DATABASE " + id})
	if err == nil {
		_, err = made.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	name := instanceName + "/databases/" + id
	t.Cleanup(func() {
		if err := c.DropDatabase(context.Background(), &databasepb.DropDatabaseRequest{Database: name}); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return name
}
