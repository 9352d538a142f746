-- +goose Up

-- What a change took from its record, as bits: 1 the record itself, 2 its site, 4 its template, 8 its parent, 16 metadata.
-- Changes whose writer didn't record it count as having taken everything.
ALTER TABLE change ADD COLUMN departed INTEGER NOT NULL DEFAULT 31;
-- The revision of the template that the deployment was made from; 0: not recorded.
ALTER TABLE change ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
-- The oldest position as of which all records can be read, and its time (0: not recorded).
ALTER TABLE collector ADD COLUMN past INTEGER NOT NULL DEFAULT 0;
ALTER TABLE collector ADD COLUMN past_at INTEGER NOT NULL DEFAULT 0;
UPDATE collector SET past = (SELECT gone FROM head WHERE one = 1) WHERE one = 1;
-- Which records left an index since a position: they may have been in it then.
CREATE INDEX change_departed ON change (kind, id, position) WHERE departed <> 0 AND op <> 'status';
