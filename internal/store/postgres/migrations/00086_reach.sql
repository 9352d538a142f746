-- +goose Up

-- What each cause has changed, and may change with consent, within a window of time that began at since.
CREATE TABLE reach (
    cause TEXT COLLATE "C" NOT NULL,
    what TEXT COLLATE "C" NOT NULL,
    n BIGINT NOT NULL,
    consent BIGINT NOT NULL,
    since BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (cause, what)
);
CREATE INDEX reach_updated ON reach (updated);

-- The sites at which a cause has changed running deployments.
CREATE TABLE reach_site (
    cause TEXT COLLATE "C" NOT NULL,
    site TEXT COLLATE "C" NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (cause, site)
);
CREATE INDEX reach_site_updated ON reach_site (updated);
