-- +goose Up

-- What a template or a site is for: written by users, for other readers.
ALTER TABLE entity ADD COLUMN description TEXT;
ALTER TABLE change ADD COLUMN description TEXT;
