-- +goose Up

-- Deployments that were in flight before the column existed, or that a restore brought
-- from a backup without it: without the mark, sites that a rollout keeps apart are not
-- held back.
UPDATE flight SET apart = 1 WHERE doc LIKE '%"Apart":["%';
