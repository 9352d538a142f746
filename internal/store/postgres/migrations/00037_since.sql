-- +goose Up

-- When a deadline was set: one that was set in the future comes from before the
-- database's clock went back, and is moved. 0: not known.
ALTER TABLE work ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
ALTER TABLE modification ADD COLUMN since BIGINT NOT NULL DEFAULT 0;

-- Who has a modification token, and what for.
ALTER TABLE modification ADD COLUMN who TEXT NOT NULL DEFAULT '';
ALTER TABLE modification ADD COLUMN why TEXT NOT NULL DEFAULT '';
