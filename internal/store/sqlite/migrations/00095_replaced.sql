-- +goose Up

-- The deployments that a deployment has replaced, the newest first: their IDs, with spaces
-- between them. Their objects stay at the site until those of the deployment are healthy.
ALTER TABLE entity ADD COLUMN replaced TEXT;
