-- +goose Up

-- Whether the rollout of a deployment in flight keeps sites apart: schedulers read these.
ALTER TABLE flight ADD COLUMN apart INTEGER NOT NULL DEFAULT 0;
CREATE INDEX flight_apart ON flight (deployment) WHERE apart;
