-- +goose Up

-- The keys of encrypted packages, themselves encrypted with a key that is not in
-- the database.
CREATE TABLE sealing_key (
    id BIGINT NOT NULL PRIMARY KEY, -- 1
    version BIGINT NOT NULL, -- counts the changes
    wrapped BYTEA NOT NULL
);
