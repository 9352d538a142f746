-- +goose Up

-- 1: only work that may wait was enqueued since the item was claimed, or since the end of a claim that gathers.
ALTER TABLE work ADD COLUMN gathering BIGINT NOT NULL DEFAULT 0;
