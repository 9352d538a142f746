-- +goose Up

-- What each cause has changed, in parts of its window of time that begin at part: windows slide. The table reach has
-- what it may change with consent, and how much of that is used.
CREATE TABLE reach_part (
    cause TEXT NOT NULL,
    what TEXT NOT NULL,
    part INTEGER NOT NULL,
    n INTEGER NOT NULL,
    consent INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (cause, what, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX reach_part_updated ON reach_part (updated);
INSERT INTO reach_part (cause, what, part, n, consent, updated)
SELECT cause, what, since, n, CASE WHEN consent < n THEN consent ELSE n END, updated FROM reach WHERE n > 0;
