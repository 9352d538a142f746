-- +goose Up

-- The children that rollouts delete: their origins are reserved while they can be
-- created again.
CREATE INDEX rollout_row_deleted ON rollout_row (parent) WHERE kind = 3 AND parent <> '';
