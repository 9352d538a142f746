-- +goose Up

-- The position was too narrow.
ALTER TABLE head ALTER COLUMN gone TYPE BIGINT;
-- How often packages and metadata were collected: what is known to be there
-- since before that may be gone.
ALTER TABLE head ADD COLUMN collected BIGINT NOT NULL DEFAULT 0;

-- Who collects what is no longer kept, and how far that is.
CREATE TABLE collector (
    one SMALLINT NOT NULL PRIMARY KEY CHECK (one = 1),
    holder TEXT NOT NULL,
    until BIGINT NOT NULL,    -- when the lease ends
    position BIGINT NOT NULL, -- of the newest change that was looked at
    revisions BIGINT NOT NULL, -- how many were kept then
    loose BIGINT NOT NULL     -- changes removed since packages were collected
);
INSERT INTO collector (one, holder, until, position, revisions, loose) VALUES (1, '', 0, 0, 0, 0);
