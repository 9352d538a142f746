-- +goose Up

-- The deployments whose changes a policy retains longer than the others; changes are those that the general retention would have removed, about.
CREATE TABLE longer (
    id TEXT PRIMARY KEY NOT NULL,
    policy TEXT NOT NULL,
    changes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
