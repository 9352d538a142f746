-- +goose Up

-- The deployments whose changes a policy retains longer than the others; changes are those that the general retention would have removed, about.
CREATE TABLE longer (
    id TEXT COLLATE "C" PRIMARY KEY,
    policy TEXT COLLATE "C" NOT NULL,
    changes BIGINT NOT NULL
);
