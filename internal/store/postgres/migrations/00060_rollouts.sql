-- +goose Up

-- The version of what follows: each commit that changes it increments it.
ALTER TABLE head ADD COLUMN rollouts BIGINT NOT NULL DEFAULT 0;

-- The states of rollouts, as JSON.
CREATE TABLE rollout (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    active BOOLEAN NOT NULL, -- rows may still be applied, or are in flight
    undoes TEXT COLLATE "C" NOT NULL,
    started BIGINT NOT NULL, -- order of starts; of an undo that of its family; 0: not started
    doc TEXT NOT NULL
);
CREATE INDEX rollout_active ON rollout (id) WHERE active;

-- Plans: the groups of equal changes, as JSON.
CREATE TABLE rollout_plan (
    rollout TEXT COLLATE "C" NOT NULL,
    plan BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (rollout, plan)
);

-- Their rows, with the progress of those that are applied.
CREATE TABLE rollout_row (
    rollout TEXT COLLATE "C" NOT NULL,
    plan BIGINT NOT NULL,
    deployment TEXT COLLATE "C" NOT NULL,
    uid TEXT NOT NULL,
    revision BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    wave BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    before BYTEA,
    after BYTEA,
    grp BIGINT NOT NULL,
    parent TEXT COLLATE "C" NOT NULL,
    site TEXT COLLATE "C" NOT NULL,
    progress TEXT NOT NULL,
    since BIGINT NOT NULL, -- times are microseconds since 1970; 0: not yet
    evaluated BIGINT NOT NULL,
    credit BIGINT NOT NULL, -- nanoseconds
    counted BOOLEAN NOT NULL,
    broken BOOLEAN NOT NULL,
    reason TEXT NOT NULL,
    applied BIGINT NOT NULL, -- the revision that the rollout wrote
    chain BIGINT NOT NULL,   -- the newest revision that preparation made of it
    target BIGINT NOT NULL,  -- the revision that an undo restores
    doc TEXT NOT NULL,
    version BIGINT NOT NULL DEFAULT 0, -- of head.rollouts with the newest change of the row; 0: as it was planned
    PRIMARY KEY (rollout, plan, deployment)
);
CREATE INDEX rollout_row_by_deployment ON rollout_row (deployment);
CREATE INDEX rollout_row_changed ON rollout_row (rollout, plan, version) WHERE version > 0;

-- What plans need besides deployments: it isn't collected.
CREATE TABLE rollout_pin (
    rollout TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    PRIMARY KEY (rollout, kind, id, revision)
);
CREATE INDEX rollout_pin_by_entity ON rollout_pin (kind, id, revision);

-- Deployments that are changed and not yet healthy.
CREATE TABLE flight (
    deployment TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    rollout TEXT COLLATE "C" NOT NULL,
    site TEXT COLLATE "C" NOT NULL,
    doc TEXT NOT NULL
);
