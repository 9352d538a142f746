-- +goose Up

-- The numbers of sites and deployments by their classes: what counts of the fleet depend on. A
-- number is never less than 0 once all are counted.
CREATE TABLE tally (
    class TEXT NOT NULL PRIMARY KEY,
    n INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- All conditions that are False, but for approvals and freezes: the oldest of each group is the
-- first.
CREATE TABLE failure (
    kind TEXT NOT NULL,
    what TEXT NOT NULL,     -- type and reason
    since INTEGER NOT NULL, -- nanoseconds since 1970; 0: not known
    id TEXT NOT NULL,
    PRIMARY KEY (kind, what, since, id)
) STRICT, WITHOUT ROWID;

-- The position up to which both follow the log. Programs of older schemas leave it as it is: if it
-- differs from the position of the head, both are out of date, and are counted again.
ALTER TABLE head ADD COLUMN tallied INTEGER NOT NULL DEFAULT -1;
UPDATE head SET tallied = position WHERE NOT EXISTS (SELECT 1 FROM entity);
