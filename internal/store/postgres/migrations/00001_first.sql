-- +goose Up

-- Packages, each stored once.
CREATE TABLE blob (
    digest BYTEA NOT NULL PRIMARY KEY,
    encoding SMALLINT NOT NULL, -- 0: as it is, 1: zstd
    size BIGINT NOT NULL,     -- without compression
    data BYTEA NOT NULL
);

-- Metadata, equal ones stored once.
CREATE TABLE metaset (
    id BIGINT NOT NULL PRIMARY KEY,
    digest BYTEA NOT NULL UNIQUE,
    doc TEXT NOT NULL
);

-- The records as they are now.
CREATE TABLE entity (
    kind TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    uid TEXT NOT NULL,
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    created BIGINT NOT NULL, -- times are microseconds since 1970
    updated BIGINT NOT NULL,
    parent TEXT COLLATE "C" NOT NULL,
    template TEXT COLLATE "C" NOT NULL,
    site TEXT COLLATE "C" NOT NULL,
    prepared BOOLEAN NOT NULL,
    approved BOOLEAN NOT NULL,
    origin TEXT COLLATE "C",
    digest BYTEA,
    metaset BIGINT NOT NULL,
    plugin BYTEA,
    crds BOOLEAN NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    conditions TEXT,
    PRIMARY KEY (kind, id)
);
CREATE INDEX entity_by_template ON entity (kind, template, id) WHERE template <> '';
CREATE INDEX entity_by_site ON entity (kind, site, id) WHERE site <> '';
CREATE INDEX entity_by_parent ON entity (kind, parent, id) WHERE parent <> '';
CREATE UNIQUE INDEX entity_by_origin ON entity (kind, origin) WHERE origin IS NOT NULL;
CREATE INDEX entity_unprepared ON entity (kind, id) WHERE NOT prepared;
CREATE INDEX entity_unapproved ON entity (kind, id) WHERE NOT approved;
CREATE INDEX entity_crds ON entity (kind, id) WHERE crds;

-- The metadata index: a dictionary of what is there, and who has it.
CREATE TABLE pair (
    id BIGINT NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    start TEXT COLLATE "C" NOT NULL, -- of the value: what fits into an index
    hash BYTEA NOT NULL,  -- of the value
    UNIQUE (kind, key, hash)
);
CREATE INDEX pair_by_start ON pair (kind, key, start);
CREATE TABLE entity_pair (
    pair BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (pair, id)
);

-- The change log, which is also the history of revisions.
CREATE TABLE change (
    position BIGINT NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    op TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision BIGINT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL, -- when it happened
    parent TEXT COLLATE "C" NOT NULL,
    template TEXT COLLATE "C" NOT NULL,
    site TEXT COLLATE "C" NOT NULL,
    prepared BOOLEAN NOT NULL,
    approved BOOLEAN NOT NULL,
    origin TEXT COLLATE "C",
    digest BYTEA,
    metaset BIGINT NOT NULL,
    plugin BYTEA,
    crds BOOLEAN NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL
);
CREATE UNIQUE INDEX change_by_revision ON change (kind, id, revision) WHERE op = 'written';

CREATE TABLE work (
    queue TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL, -- counts the calls for it
    due BIGINT NOT NULL,        -- while it is claimed: when the lease ends
    attempt BIGINT NOT NULL,
    last_error TEXT NOT NULL,
    lease_until BIGINT NOT NULL, -- 0: not claimed
    claim TEXT NOT NULL,
    claimed BIGINT NOT NULL,            -- when
    claimed_generation BIGINT NOT NULL, -- as it was then
    PRIMARY KEY (queue, key)
);
CREATE INDEX work_by_due ON work (queue, due);

-- When the items of a queue were stirred up last.
CREATE TABLE wake (
    queue TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL
);

CREATE TABLE modification (
    token TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    deployment TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE INDEX modification_by_deployment ON modification (deployment, expires);
CREATE INDEX modification_by_expires ON modification (expires);

-- The one row that every commit locks first. Updates stay on its page.
CREATE TABLE head (
    one SMALLINT NOT NULL PRIMARY KEY CHECK (one = 1),
    position BIGINT NOT NULL, -- of the newest change
    epoch BIGINT NOT NULL,    -- of the newest change to what packages are validated against
    gone SMALLINT NOT NULL,     -- of the newest change that is no longer kept
    number BIGINT NOT NULL    -- the last that was given to a metaset or pair
);
INSERT INTO head (one, position, epoch, gone, number) VALUES (1, 0, 0, 0, 0);
