-- +goose Up

-- The version of what follows: each commit that changes it increments it.
ALTER TABLE head ADD COLUMN rollouts INTEGER NOT NULL DEFAULT 0;

-- The states of rollouts, as JSON.
CREATE TABLE rollout (
    id TEXT NOT NULL PRIMARY KEY,
    active INTEGER NOT NULL, -- rows may still be applied, or are in flight
    undoes TEXT NOT NULL,
    started INTEGER NOT NULL, -- order of starts; of an undo that of its family; 0: not started
    doc TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX rollout_active ON rollout (id) WHERE active = 1;

-- Plans: the groups of equal changes, as JSON.
CREATE TABLE rollout_plan (
    rollout TEXT NOT NULL,
    plan INTEGER NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (rollout, plan)
) STRICT, WITHOUT ROWID;

-- Their rows, with the progress of those that are applied.
CREATE TABLE rollout_row (
    rollout TEXT NOT NULL,
    plan INTEGER NOT NULL,
    deployment TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    wave INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    before BLOB,
    after BLOB,
    grp INTEGER NOT NULL,
    parent TEXT NOT NULL,
    site TEXT NOT NULL,
    progress TEXT NOT NULL,
    since INTEGER NOT NULL, -- times are microseconds since 1970; 0: not yet
    evaluated INTEGER NOT NULL,
    credit INTEGER NOT NULL, -- nanoseconds
    counted INTEGER NOT NULL,
    broken INTEGER NOT NULL,
    reason TEXT NOT NULL,
    applied INTEGER NOT NULL, -- the revision that the rollout wrote
    chain INTEGER NOT NULL,   -- the newest revision that preparation made of it
    target INTEGER NOT NULL,  -- the revision that an undo restores
    doc TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 0, -- of head.rollouts with the newest change of the row; 0: as it was planned
    PRIMARY KEY (rollout, plan, deployment)
) STRICT, WITHOUT ROWID;
CREATE INDEX rollout_row_by_deployment ON rollout_row (deployment);
CREATE INDEX rollout_row_changed ON rollout_row (rollout, plan, version) WHERE version > 0;

-- What plans need besides deployments: it isn't collected.
CREATE TABLE rollout_pin (
    rollout TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (rollout, kind, id, revision)
) STRICT, WITHOUT ROWID;
CREATE INDEX rollout_pin_by_entity ON rollout_pin (kind, id, revision);

-- Deployments that are changed and not yet healthy.
CREATE TABLE flight (
    deployment TEXT NOT NULL PRIMARY KEY,
    rollout TEXT NOT NULL,
    site TEXT NOT NULL,
    doc TEXT NOT NULL
) STRICT, WITHOUT ROWID;
