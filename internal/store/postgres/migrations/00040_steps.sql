-- +goose Up

-- The steps of the preparation that led to a revision, as JSON; NULL: none.
ALTER TABLE change ADD COLUMN steps TEXT;
