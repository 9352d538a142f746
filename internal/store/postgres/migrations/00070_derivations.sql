-- +goose Up

-- What the package of a revision was made from: the digest of a content in blob, followed by
-- the number of the revision in 8 bytes. If it is another number, or NULL: not known.
ALTER TABLE entity ADD COLUMN derivation BYTEA;
ALTER TABLE change ADD COLUMN derivation BYTEA;
