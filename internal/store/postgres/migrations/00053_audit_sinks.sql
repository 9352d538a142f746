-- +goose Up

-- The last audit record that each sink has received.
CREATE TABLE audit_sink (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL
);
