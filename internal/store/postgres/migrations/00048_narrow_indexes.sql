-- +goose NO TRANSACTION
-- +goose Up

-- Narrower indexes, each built beside the old one while servers write. If this was
-- interrupted, it begins again: an index whose build was interrupted is invalid.

-- Deployments come last, because new ones come last of all: pages that only grow at
-- their end are filled, others are split into halves. It replaces the primary key.
DROP INDEX CONCURRENTLY IF EXISTS entity_key;
CREATE UNIQUE INDEX CONCURRENTLY entity_key ON entity (kind DESC, id);

-- Only the lock of the head guards that an origin is unique, and a revision.
DROP INDEX CONCURRENTLY IF EXISTS entity_origin;
CREATE INDEX CONCURRENTLY entity_origin ON entity USING hash (origin) WHERE origin IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS entity_by_origin;
DROP INDEX CONCURRENTLY IF EXISTS change_id;
CREATE INDEX CONCURRENTLY change_id ON change USING hash (id) WHERE op = 'written';
DROP INDEX CONCURRENTLY IF EXISTS change_by_revision;

-- Deployments that are created together have IDs that differ only in the last
-- characters. Without the last one, neighbours with the same template, parent or
-- metadata have equal entries, which the database stores once with a list of rows.
DROP INDEX CONCURRENTLY IF EXISTS entity_template;
CREATE INDEX CONCURRENTLY entity_template ON entity (kind, template, (CASE WHEN kind = 'deployment' THEN substr(id, 1, 26) ELSE id END)) WHERE template <> '';
DROP INDEX CONCURRENTLY IF EXISTS entity_by_template;
DROP INDEX CONCURRENTLY IF EXISTS entity_parent;
CREATE INDEX CONCURRENTLY entity_parent ON entity (kind, parent, (CASE WHEN kind = 'deployment' THEN substr(id, 1, 26) ELSE id END)) WHERE parent <> '';
DROP INDEX CONCURRENTLY IF EXISTS entity_by_parent;
DROP INDEX CONCURRENTLY IF EXISTS entity_metaset;
CREATE INDEX CONCURRENTLY entity_metaset ON entity (metaset, (CASE WHEN kind = 'deployment' THEN substr(id, 1, 26) ELSE id END)) WHERE metaset < 0;
DROP INDEX CONCURRENTLY IF EXISTS entity_by_metaset;
