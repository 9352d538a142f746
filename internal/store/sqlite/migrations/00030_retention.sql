-- +goose Up

-- How often packages and metadata were collected: what is known to be there
-- since before that may be gone.
ALTER TABLE head ADD COLUMN collected INTEGER NOT NULL DEFAULT 0;

-- Who collects what is no longer kept, and how far that is.
CREATE TABLE collector (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    holder TEXT NOT NULL,
    until INTEGER NOT NULL,    -- when the lease ends
    position INTEGER NOT NULL, -- of the newest change that was looked at
    revisions INTEGER NOT NULL, -- how many were kept then
    loose INTEGER NOT NULL     -- changes removed since packages were collected
) STRICT;
INSERT INTO collector (one, holder, until, position, revisions, loose) VALUES (1, '', 0, 0, 0, 0);
