-- +goose Up

-- The deployments that a deployment replaces once it is prepared and approved:
-- their IDs, with spaces between them.
ALTER TABLE entity ADD COLUMN replaces TEXT;
-- The revision of the template that a deployment was made from. 0 for those
-- that were made before this was recorded.
ALTER TABLE entity ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
