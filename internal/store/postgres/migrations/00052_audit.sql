-- +goose Up

-- The newest audit record: its number and hash.
ALTER TABLE head ADD COLUMN audited BIGINT NOT NULL DEFAULT 0;
ALTER TABLE head ADD COLUMN chain BYTEA NOT NULL DEFAULT '';

-- The audit log. The hash of a record covers its text and the hash before.
CREATE TABLE audit (
    seq BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    doc TEXT COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL
);

-- The last audit record that retention removed.
CREATE TABLE audit_base (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    seq BIGINT NOT NULL,
    hash BYTEA NOT NULL
);
INSERT INTO audit_base (one, seq, hash) VALUES (1, 0, '');
