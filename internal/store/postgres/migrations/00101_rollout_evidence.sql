-- +goose Up

-- The measurements that rollouts were decided by, numbered from 1, as JSON.
CREATE TABLE rollout_evidence (
    rollout TEXT COLLATE "C" NOT NULL,
    n BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (rollout, n)
);
