-- +goose Up

-- What each cause has changed, and may change with consent, within a window of time that began at since.
CREATE TABLE reach (
    cause TEXT NOT NULL,
    what TEXT NOT NULL,
    n INTEGER NOT NULL,
    consent INTEGER NOT NULL,
    since INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (cause, what)
) STRICT, WITHOUT ROWID;
CREATE INDEX reach_updated ON reach (updated);

-- The sites at which a cause has changed running deployments.
CREATE TABLE reach_site (
    cause TEXT NOT NULL,
    site TEXT NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (cause, site)
) STRICT, WITHOUT ROWID;
CREATE INDEX reach_site_updated ON reach_site (updated);
