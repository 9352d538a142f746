-- +goose Up

-- The last audit record that each sink has received.
CREATE TABLE audit_sink (
    name TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT;
