-- +goose Up

-- The keys of encrypted packages, themselves encrypted with a key that is not in
-- the database.
CREATE TABLE sealing_key (
    id INTEGER NOT NULL PRIMARY KEY, -- 1
    version INTEGER NOT NULL, -- counts the changes
    wrapped BLOB NOT NULL
) STRICT;
