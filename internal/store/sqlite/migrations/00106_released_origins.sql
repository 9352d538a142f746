-- +goose Up

-- The children that a rollout deletes, by their parents: at its end, these are prepared again.
CREATE INDEX rollout_row_released ON rollout_row (rollout, parent) WHERE kind = 3;
