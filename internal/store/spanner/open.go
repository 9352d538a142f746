package spanner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// Environment variables of Spanner's clients.
const (
	emulatorVariable    = "SPANNER_EMULATOR_HOST"
	multiplexedVariable = "GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS"
)

// UseEmulator prepares the process for the emulator if SPANNER_EMULATOR_HOST names one. Call it at the start of a program.
func UseEmulator() error {
	if os.Getenv(emulatorVariable) == "" || os.Getenv(multiplexedVariable) != "" {
		return nil
	}
	return os.Setenv(multiplexedVariable, "false") // the emulator of the tests doesn't know them
}

// nameOf returns the name of the database of a setting.
func nameOf(setting string) (string, error) {
	database, ok := strings.CutPrefix(setting, prefix)
	if !ok || !databaseName.MatchString(database) {
		return "", tko.Errorf(tko.ErrInvalid, "store %.200q is not spanner:projects/PROJECT/instances/INSTANCE/databases/DATABASE", setting)
	}
	return database, nil
}

// Check returns why the store of a setting can't be opened, and whether opening it would create its schema. It changes nothing.
func Check(ctx context.Context, setting string, options ...option.ClientOption) (creates bool, err error) {
	database, err := nameOf(setting)
	if err != nil {
		return false, err
	}
	client, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{
		SessionPoolConfig: spanner.SessionPoolConfig{MaxOpened: 1}, DisableNativeMetrics: true, Logger: log.New(io.Discard, "", 0),
	}, options...)
	if err != nil {
		return false, unusable(ctx, database, err)
	}
	defer client.Close()
	version, err := readSchemaVersion(ctx, client)
	if err != nil {
		return false, unusable(ctx, database, err)
	}
	return version == 0, checkSchemaVersion(database, version)
}

// checkSchemaVersion returns why this program can't use a schema; 0 is none.
func checkSchemaVersion(database string, version int64) error {
	switch {
	case version == 0 || version == schemaVersion:
		return nil
	case version > schemaVersion:
		return tko.Errorf(tko.ErrInvalid, "database %q has the schema %d of a newer TKO, and this one needs %d: start the newer TKO", database, version, schemaVersion)
	default:
		return tko.Errorf(tko.ErrInvalid, "database %q has the schema %d of an earlier TKO, and this one needs %d: the store on Spanner has no migrations yet: create a new database, and register everything there again", database, version, schemaVersion)
	}
}

// unusable describes why a database can't be used, with the remedy.
func unusable(ctx context.Context, database string, err error) error {
	parts := strings.Split(database, "/") // projects/P/instances/I/databases/D
	project, inst, name := parts[1], parts[3], parts[5]
	switch code := spanner.ErrCode(err); {
	case os.Getenv(emulatorVariable) != "" && (ctx.Err() != nil || code == codes.Unavailable):
		return fmt.Errorf("the emulator at %s (%s) doesn't respond: start it, or unset the variable: %w", os.Getenv(emulatorVariable), emulatorVariable, err)
	case code == codes.NotFound:
		return tko.Errorf(tko.ErrInvalid, "database %q doesn't exist, and is not created, because its regions, keys and costs are yours to choose: run gcloud spanner databases create %s --instance=%s --project=%s: %w", database, name, inst, project, err)
	case code == codes.PermissionDenied:
		return tko.Errorf(tko.ErrInvalid, "database %q can't be used with these credentials: grant them roles/spanner.databaseUser, and for the first start the right to create tables (roles/spanner.databaseAdmin): %w", database, err)
	case code == codes.Unauthenticated || strings.Contains(err.Error(), "could not find default credentials"):
		return tko.Errorf(tko.ErrInvalid, "there are no credentials for Spanner: run the server as a service account of Google Cloud, name a file of credentials in GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login: %w", err)
	case ctx.Err() != nil:
		return fmt.Errorf("database %q doesn't respond: check the network, or allow more time with --store-wait: %w", database, errors.Join(context.Cause(ctx), err))
	}
	return err
}

// CreateInEmulator creates the instance and the database of a setting if the emulator that SPANNER_EMULATOR_HOST names doesn't have
// them: it keeps nothing after its end. It does nothing without an emulator.
func CreateInEmulator(ctx context.Context, setting string) error {
	if os.Getenv(emulatorVariable) == "" {
		return nil
	}
	database, err := nameOf(setting)
	if err != nil {
		return err
	}
	for {
		err := createDatabase(ctx, database)
		if err == nil {
			return nil
		}
		if status.Code(err) != codes.Unavailable || pause.For(ctx, emulatorPause) != nil { // it may be starting
			return unusable(ctx, database, err)
		}
	}
}

// emulatorPause is the time between attempts to reach an emulator.
const emulatorPause = 100 * time.Millisecond

// createDatabase creates an instance and a database in it, unless they exist.
func createDatabase(ctx context.Context, database string) error {
	if err := createInstance(ctx, database); err != nil {
		return err
	}
	c, err := admin.NewDatabaseAdminClient(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	parent, name, _ := strings.Cut(database, "/databases/")
	made, err := c.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{Parent: parent, CreateStatement: "CREATE DATABASE `" + name + "`"})
	if err == nil {
		_, err = made.Wait(ctx)
	}
	return unlessExists(err)
}

func createInstance(ctx context.Context, database string) error {
	parts := strings.Split(database, "/")
	c, err := instance.NewInstanceAdminClient(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	project := "projects/" + parts[1]
	made, err := c.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent: project, InstanceId: parts[3],
		Instance: &instancepb.Instance{Config: project + "/instanceConfigs/emulator-config", DisplayName: parts[3], NodeCount: 1},
	})
	if err == nil {
		_, err = made.Wait(ctx)
	}
	return unlessExists(err)
}

// unlessExists returns an error that isn't that something exists already.
func unlessExists(err error) error {
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

// OpenWithin creates what [CreateInEmulator] does, and opens the store once the database responds, within a time.
func OpenWithin(ctx context.Context, setting string, wait time.Duration) (*Store, error) {
	trying, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no response within %s", wait))
	defer cancel()
	if err := CreateInEmulator(trying, setting); err != nil {
		return nil, err
	}
	if _, err := Check(trying, setting); err != nil {
		return nil, err
	}
	return Open(ctx, setting)
}
