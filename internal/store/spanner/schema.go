package spanner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/internal/pause"
)

// schemaVersion is the version of the schema. There is no migration yet.
const schemaVersion = 5

// schema creates the tables. Each key that grows with records begins with a shard. Columns that
// no statement compares are in doc. References and origins are tables, not columns with an index, so that their
// keys spread by the ID of the record, and the mutations of a commit can be counted.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS state (
		name STRING(64) NOT NULL,
		value INT64,
		committed TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		slot INT64,
		n INT64,
		data BYTES(MAX),
	) PRIMARY KEY (name)`,
	`CREATE TABLE IF NOT EXISTS entity (
		shard INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		id STRING(MAX) NOT NULL,
		revision INT64 NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		slot INT64 NOT NULL,
		n INT64 NOT NULL,
		created TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		updated TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (shard, kind, id)`,
	`CREATE TABLE IF NOT EXISTS revision (
		shard INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		id STRING(MAX) NOT NULL,
		revision INT64 NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		slot INT64 NOT NULL,
		n INT64 NOT NULL,
		created TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		updated TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		doc BYTES(MAX) NOT NULL,
		ended TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		ended_slot INT64,
		ended_n INT64,
		ended_who STRING(MAX),
		ended_why STRING(MAX),
		ended_at TIMESTAMP,
	) PRIMARY KEY (shard, kind, id, revision DESC)`,
	`CREATE TABLE IF NOT EXISTS change (
		shard INT64 NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		n INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		id STRING(MAX) NOT NULL,
		op STRING(16) NOT NULL,
		revision INT64 NOT NULL,
		who STRING(MAX) NOT NULL,
		why STRING(MAX) NOT NULL,
		happened TIMESTAMP,
		doc BYTES(MAX),
	) PRIMARY KEY (shard, committed, n)`,
	`CREATE TABLE IF NOT EXISTS reference (
		shard INT64 NOT NULL,
		role STRING(16) NOT NULL,
		target STRING(MAX) NOT NULL,
		kind STRING(32) NOT NULL,
		id STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, role, target, kind, id)`,
	`CREATE TABLE IF NOT EXISTS pair (
		shard INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		part STRING(1) NOT NULL,
		name STRING(MAX) NOT NULL,
		value STRING(MAX) NOT NULL,
		id STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, kind, part, name, value, id)`,
	`CREATE TABLE IF NOT EXISTS origin (
		shard INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		origin STRING(MAX) NOT NULL,
		id STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, kind, origin)`,
	`CREATE TABLE IF NOT EXISTS modification (
		shard INT64 NOT NULL,
		deployment STRING(MAX) NOT NULL,
		token STRING(MAX) NOT NULL,
		revision INT64 NOT NULL,
		since TIMESTAMP NOT NULL,
		expires TIMESTAMP NOT NULL,
		who STRING(MAX) NOT NULL,
		why STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, deployment, token)`,
	`CREATE TABLE IF NOT EXISTS token (
		shard INT64 NOT NULL,
		token STRING(MAX) NOT NULL,
		deployment STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, token)`,
	`CREATE TABLE IF NOT EXISTS work (
		shard INT64 NOT NULL,
		queue STRING(64) NOT NULL,
		key STRING(MAX) NOT NULL,
		generation INT64 NOT NULL,
		seen INT64 NOT NULL,
		due TIMESTAMP NOT NULL,
		since TIMESTAMP NOT NULL,
		attempt INT64 NOT NULL,
		last_error STRING(MAX) NOT NULL,
		cause STRING(MAX) NOT NULL,
		claim STRING(MAX) NOT NULL,
		claimed TIMESTAMP NOT NULL,
		lease_until TIMESTAMP NOT NULL,
		gathering BOOL NOT NULL,
	) PRIMARY KEY (shard, queue, key)`,
	`CREATE INDEX IF NOT EXISTS work_due ON work (shard, queue, due)`,
	`CREATE TABLE IF NOT EXISTS wake (
		queue STRING(64) NOT NULL,
		slot INT64 NOT NULL,
		woken TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
	) PRIMARY KEY (queue, slot)`,
	`CREATE TABLE IF NOT EXISTS news (
		slot INT64 NOT NULL,
		noted TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
	) PRIMARY KEY (slot)`,
	`CREATE TABLE IF NOT EXISTS source (
		name STRING(MAX) NOT NULL,
		version INT64 NOT NULL,
		updated TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		status BYTES(MAX) NOT NULL,
		state BYTES(MAX) NOT NULL,
		approved STRING(MAX) NOT NULL,
	) PRIMARY KEY (name)`,
	`CREATE TABLE IF NOT EXISTS target_state (
		shard INT64 NOT NULL,
		site STRING(MAX) NOT NULL,
		name STRING(MAX) NOT NULL,
		version INT64 NOT NULL,
		updated TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		state BYTES(MAX) NOT NULL,
	) PRIMARY KEY (shard, site, name)`,
	`CREATE TABLE IF NOT EXISTS access_rule (
		kind STRING(64) NOT NULL,
		id STRING(MAX) NOT NULL,
		doc STRING(MAX) NOT NULL,
	) PRIMARY KEY (kind, id)`,
	`CREATE TABLE IF NOT EXISTS audit_pending (
		shard INT64 NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		n INT64 NOT NULL,
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (shard, committed, n)`,
	`CREATE TABLE IF NOT EXISTS audit (
		shard INT64 NOT NULL,
		seq INT64 NOT NULL,
		happened TIMESTAMP NOT NULL,
		doc BYTES(MAX) NOT NULL,
		chain BYTES(32) NOT NULL,
	) PRIMARY KEY (shard, seq)`,
	`CREATE TABLE IF NOT EXISTS audit_sink (
		name STRING(MAX) NOT NULL,
		seq INT64 NOT NULL,
	) PRIMARY KEY (name)`,
	`CREATE TABLE IF NOT EXISTS lease (
		name STRING(64) NOT NULL,
		holder STRING(MAX) NOT NULL,
		until TIMESTAMP NOT NULL,
	) PRIMARY KEY (name)`,
	`CREATE TABLE IF NOT EXISTS subscription (
		name STRING(MAX) NOT NULL,
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (name)`,
	`CREATE TABLE IF NOT EXISTS reach (
		shard INT64 NOT NULL,
		cause STRING(MAX) NOT NULL,
		what STRING(MAX) NOT NULL,
		used INT64 NOT NULL,
		granted INT64 NOT NULL,
		since INT64 NOT NULL,
		updated INT64 NOT NULL,
	) PRIMARY KEY (shard, cause, what)`,
	`CREATE TABLE IF NOT EXISTS reach_part (
		shard INT64 NOT NULL,
		cause STRING(MAX) NOT NULL,
		what STRING(MAX) NOT NULL,
		part INT64 NOT NULL,
		n INT64 NOT NULL,
		consent INT64 NOT NULL,
		updated INT64 NOT NULL,
	) PRIMARY KEY (shard, cause, what, part)`,
	`CREATE TABLE IF NOT EXISTS reach_site (
		shard INT64 NOT NULL,
		cause STRING(MAX) NOT NULL,
		site STRING(MAX) NOT NULL,
		updated INT64 NOT NULL,
	) PRIMARY KEY (shard, cause, site)`,
	`CREATE TABLE IF NOT EXISTS rollout (
		id STRING(MAX) NOT NULL,
		active BOOL NOT NULL,
		undoes STRING(MAX) NOT NULL,
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (id)`,
	`CREATE TABLE IF NOT EXISTS rollout_plan (
		rollout STRING(MAX) NOT NULL,
		plan INT64 NOT NULL,
		chunk INT64 NOT NULL,
		data BYTES(MAX) NOT NULL,
	) PRIMARY KEY (rollout, plan, chunk)`,
	`CREATE TABLE IF NOT EXISTS rollout_row (
		shard INT64 NOT NULL,
		rollout STRING(MAX) NOT NULL,
		deployment STRING(MAX) NOT NULL,
		plan INT64 NOT NULL,
		version INT64 NOT NULL,
		kind INT64 NOT NULL,
		wave INT64 NOT NULL,
		rank INT64 NOT NULL,
		site STRING(MAX) NOT NULL,
		progress STRING(32) NOT NULL,
		counted BOOL NOT NULL,
		since INT64 NOT NULL,
		reason STRING(MAX) NOT NULL,
		doc BYTES(MAX) NOT NULL,
		removed_shard INT64,
		removed_from STRING(MAX),
	) PRIMARY KEY (shard, rollout, deployment, plan)`,
	`CREATE NULL_FILTERED INDEX IF NOT EXISTS rollout_row_removed ON rollout_row (removed_shard, removed_from)`,
	`CREATE TABLE IF NOT EXISTS rollout_pin (
		shard INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		id STRING(MAX) NOT NULL,
		revision INT64 NOT NULL,
		rollout STRING(MAX) NOT NULL,
		noted TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		planned BOOL,
	) PRIMARY KEY (shard, kind, id, revision, rollout)`,
	`CREATE TABLE IF NOT EXISTS rollout_evidence (
		shard INT64 NOT NULL,
		rollout STRING(MAX) NOT NULL,
		n INT64 NOT NULL,
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (shard, rollout, n)`,
	`CREATE TABLE IF NOT EXISTS flight (
		shard INT64 NOT NULL,
		deployment STRING(MAX) NOT NULL,
		rollout STRING(MAX) NOT NULL,
		apart BOOL NOT NULL,
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (shard, deployment)`,
	`CREATE TABLE IF NOT EXISTS tally (
		class STRING(MAX) NOT NULL,
		n INT64 NOT NULL,
	) PRIMARY KEY (class)`,
	`CREATE TABLE IF NOT EXISTS tally_pending (
		shard INT64 NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		class STRING(MAX) NOT NULL,
		n INT64 NOT NULL,
	) PRIMARY KEY (shard, committed, class)`,
	`CREATE TABLE IF NOT EXISTS failure (
		shard INT64 NOT NULL,
		kind STRING(32) NOT NULL,
		what STRING(MAX) NOT NULL,
		since TIMESTAMP NOT NULL,
		id STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, kind, what, since, id)`,
	`CREATE TABLE IF NOT EXISTS longer (
		shard INT64 NOT NULL,
		id STRING(MAX) NOT NULL,
		policy STRING(MAX) NOT NULL,
		changes INT64,
	) PRIMARY KEY (shard, id)`,
	`CREATE TABLE IF NOT EXISTS content_use (
		shard INT64 NOT NULL,
		digest BYTES(32) NOT NULL,
		kind STRING(32) NOT NULL,
		id STRING(MAX) NOT NULL,
		revision INT64 NOT NULL,
	) PRIMARY KEY (shard, digest, kind, id, revision)`,
	`CREATE TABLE IF NOT EXISTS content_loose (
		digest BYTES(32) NOT NULL,
	) PRIMARY KEY (digest)`,
	`CREATE TABLE IF NOT EXISTS content (
		digest BYTES(32) NOT NULL,
		chunk INT64 NOT NULL,
		encoding INT64 NOT NULL,
		size INT64 NOT NULL,
		data BYTES(MAX) NOT NULL,
	) PRIMARY KEY (digest, chunk)`,
	`CREATE TABLE IF NOT EXISTS sealing_key (
		id INT64 NOT NULL,
		version INT64 NOT NULL,
		wrapped BYTES(MAX) NOT NULL,
	) PRIMARY KEY (id)`,
	`CREATE TABLE IF NOT EXISTS hold (
		queue STRING(64) NOT NULL,
		key STRING(MAX) NOT NULL,
		mode STRING(16) NOT NULL,
	) PRIMARY KEY (queue, key)`,
	`CREATE TABLE IF NOT EXISTS restored_metadata (
		shard INT64 NOT NULL,
		id INT64 NOT NULL,
		doc BYTES(MAX) NOT NULL,
	) PRIMARY KEY (shard, id)`,
}

// The number of times that a store tries to create the schema while another one does, and the pause between them.
const (
	schemaTries = 100
	schemaPause = 100 * time.Millisecond
)

// prepareSchema creates the schema in an empty database, and refuses one of another version. Several
// stores may do so at once.
func prepareSchema(ctx context.Context, client *spanner.Client, database string, options ...option.ClientOption) error {
	version, err := readSchemaVersion(ctx, client)
	if err != nil {
		return err
	}
	for try := 1; version == 0; try++ {
		err := createSchema(ctx, client, database, options...)
		busy := status.Code(err) == codes.FailedPrecondition && try < schemaTries // another store is creating it
		if err != nil && !busy {
			return err
		}
		if err != nil {
			if err := pause.For(ctx, schemaPause); err != nil {
				return err
			}
		}
		if version, err = readSchemaVersion(ctx, client); err != nil {
			return err
		}
	}
	return checkSchemaVersion(database, version)
}

// readSchemaVersion returns 0 if there is no complete schema.
func readSchemaVersion(ctx context.Context, client *spanner.Client) (version int64, err error) {
	tables := client.Single().Query(ctx, spanner.Statement{SQL: "SELECT 1 FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_NAME = 'state'"})
	_, err = tables.Next()
	tables.Stop() // it holds a session, and a client may have only one
	switch {
	case errors.Is(err, iterator.Done):
		return 0, nil
	case err != nil:
		return 0, fault("read the tables", err)
	}
	row, err := client.Single().ReadRow(ctx, "state", spanner.Key{"schema"}, []string{"value"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fault("read the version of the schema", err)
	}
	return version, fault("read the version of the schema", row.Column(0, &version))
}

func createSchema(ctx context.Context, client *spanner.Client, database string, options ...option.ClientOption) error {
	c, err := admin.NewDatabaseAdminClient(ctx, options...)
	if err != nil {
		return fault("connect to change the schema", err)
	}
	defer func() { _ = c.Close() }()
	change, err := c.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: database, Statements: schema})
	if err == nil {
		err = change.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("create the tables in %q: %w", database, err)
	}
	_, err = client.Apply(ctx, []*spanner.Mutation{spanner.InsertOrUpdate("state", []string{"name", "value"}, []any{"schema", int64(schemaVersion)})})
	return fault("write the version of the schema", err)
}
