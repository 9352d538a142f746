-- +goose Up

-- The index entity_key has replaced it.
ALTER TABLE entity DROP CONSTRAINT IF EXISTS entity_pkey;
