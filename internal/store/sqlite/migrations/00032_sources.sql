-- +goose Up

-- What is known of sources of GitOps, and of what they own.
CREATE TABLE source (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL, -- counts the saves
    updated INTEGER NOT NULL,
    status BLOB NOT NULL,   -- JSON, for all
    state BLOB NOT NULL,    -- the controller's own
    approved TEXT NOT NULL  -- what somebody approved last
) STRICT, WITHOUT ROWID;
