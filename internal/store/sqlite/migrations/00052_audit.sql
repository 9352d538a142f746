-- +goose Up

-- The newest audit record: its number and hash.
ALTER TABLE head ADD COLUMN audited INTEGER NOT NULL DEFAULT 0;
ALTER TABLE head ADD COLUMN chain BLOB NOT NULL DEFAULT x'';

-- The audit log. The hash of a record covers its text and the hash before.
CREATE TABLE audit (
    seq INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    doc TEXT NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- The last audit record that retention removed.
CREATE TABLE audit_base (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
INSERT INTO audit_base (one, seq, hash) VALUES (1, 0, x'');
