-- +goose Up

-- Packages, each stored once.
CREATE TABLE blob (
    digest BLOB NOT NULL PRIMARY KEY,
    encoding INTEGER NOT NULL, -- 0: as it is, 1: zstd
    size INTEGER NOT NULL,     -- without compression
    data BLOB NOT NULL
) STRICT;

-- Metadata, equal ones stored once.
CREATE TABLE metaset (
    id INTEGER NOT NULL PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    doc TEXT NOT NULL
) STRICT;

-- The records as they are now.
CREATE TABLE entity (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    position INTEGER NOT NULL,
    created INTEGER NOT NULL, -- times are microseconds since 1970
    updated INTEGER NOT NULL,
    parent TEXT NOT NULL,
    template TEXT NOT NULL,
    site TEXT NOT NULL,
    prepared INTEGER NOT NULL,
    approved INTEGER NOT NULL,
    origin TEXT,
    digest BLOB,
    metaset INTEGER NOT NULL,
    plugin BLOB,
    crds INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    conditions TEXT,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX entity_by_template ON entity (kind, template, id) WHERE template <> '';
CREATE INDEX entity_by_site ON entity (kind, site, id) WHERE site <> '';
CREATE INDEX entity_by_parent ON entity (kind, parent, id) WHERE parent <> '';
CREATE UNIQUE INDEX entity_by_origin ON entity (kind, origin) WHERE origin IS NOT NULL;
CREATE INDEX entity_unprepared ON entity (kind, id) WHERE NOT prepared;
CREATE INDEX entity_unapproved ON entity (kind, id) WHERE NOT approved;
CREATE INDEX entity_crds ON entity (kind, id) WHERE crds;

-- The metadata index: a dictionary of what is there, and who has it.
CREATE TABLE pair (
    id INTEGER NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    start TEXT NOT NULL, -- of the value: what fits into an index
    hash BLOB NOT NULL,  -- of the value
    UNIQUE (kind, key, hash)
) STRICT;
CREATE INDEX pair_by_start ON pair (kind, key, start);
CREATE TABLE entity_pair (
    pair INTEGER NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (pair, id)
) STRICT, WITHOUT ROWID;

-- The change log, which is also the history of revisions.
CREATE TABLE change (
    position INTEGER NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    op TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL, -- when it happened
    parent TEXT NOT NULL,
    template TEXT NOT NULL,
    site TEXT NOT NULL,
    prepared INTEGER NOT NULL,
    approved INTEGER NOT NULL,
    origin TEXT,
    digest BLOB,
    metaset INTEGER NOT NULL,
    plugin BLOB,
    crds INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX change_by_revision ON change (kind, id, revision) WHERE op = 'written';

CREATE TABLE work (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    generation INTEGER NOT NULL, -- counts the calls for it
    due INTEGER NOT NULL,        -- while it is claimed: when the lease ends
    attempt INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    lease_until INTEGER NOT NULL, -- 0: not claimed
    claim TEXT NOT NULL,
    claimed INTEGER NOT NULL,            -- when
    claimed_generation INTEGER NOT NULL, -- as it was then
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX work_by_due ON work (queue, due);

-- When the items of a queue were stirred up last.
CREATE TABLE wake (
    queue TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE modification (
    token TEXT NOT NULL PRIMARY KEY,
    deployment TEXT NOT NULL,
    revision INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX modification_by_deployment ON modification (deployment, expires);
CREATE INDEX modification_by_expires ON modification (expires);

-- The one row that every commit locks first.
CREATE TABLE head (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    position INTEGER NOT NULL, -- of the newest change
    epoch INTEGER NOT NULL,    -- of the newest change to what packages are validated against
    gone INTEGER NOT NULL,     -- of the newest change that is no longer kept
    number INTEGER NOT NULL    -- the last that was given to a metaset or pair
) STRICT;
INSERT INTO head (one, position, epoch, gone, number) VALUES (1, 0, 0, 0, 0);
