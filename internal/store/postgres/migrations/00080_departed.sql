-- +goose NO TRANSACTION
-- +goose Up

-- Which records left an index since a position: they may have been in it then. It is
-- built while servers write; if that was interrupted, it begins again.
DROP INDEX CONCURRENTLY IF EXISTS change_departed;
CREATE INDEX CONCURRENTLY change_departed ON change (kind, id, position) WHERE departed <> 0 AND op <> 'status';
