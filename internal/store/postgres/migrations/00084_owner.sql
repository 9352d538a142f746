-- +goose Up

-- The owner of a deployment or rollout, for which controllers derive from the revision: the
-- digest of a content in blob. NULL: that of its parent, or tko:unowned.
ALTER TABLE entity ADD COLUMN owner BYTEA;
ALTER TABLE change ADD COLUMN owner BYTEA;
