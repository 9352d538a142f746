-- +goose Up

-- What each cause has changed, in parts of its window of time that begin at part: windows slide. The table reach has
-- what it may change with consent, and how much of that is used.
CREATE TABLE reach_part (
    cause TEXT COLLATE "C" NOT NULL,
    what TEXT COLLATE "C" NOT NULL,
    part BIGINT NOT NULL,
    n BIGINT NOT NULL,
    consent BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (cause, what, part)
);
CREATE INDEX reach_part_updated ON reach_part (updated);
INSERT INTO reach_part (cause, what, part, n, consent, updated)
SELECT cause, what, since, n, CASE WHEN consent < n THEN consent ELSE n END, updated FROM reach WHERE n > 0;
