-- +goose Up

-- The request, and its trace, that the work is due for.
ALTER TABLE work ADD COLUMN cause TEXT NOT NULL DEFAULT '';
