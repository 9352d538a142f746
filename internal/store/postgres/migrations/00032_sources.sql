-- +goose Up

-- What is known of sources of GitOps, and of what they own.
CREATE TABLE source (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL, -- counts the saves
    updated BIGINT NOT NULL,
    status BYTEA NOT NULL,   -- JSON, for all
    state BYTEA NOT NULL,    -- the controller's own
    approved TEXT NOT NULL   -- what somebody approved last
);
