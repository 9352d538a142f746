-- +goose Up

-- The metadata index of deployments that have the metadata of their template
-- and nothing else: by what they share. Such a metaset has a negative number,
-- and those who have it have no entries in entity_pair.
CREATE TABLE metaset_pair (
    pair BIGINT NOT NULL,
    metaset BIGINT NOT NULL,
    PRIMARY KEY (pair, metaset)
);
CREATE INDEX metaset_pair_by_metaset ON metaset_pair (metaset);
CREATE INDEX entity_by_metaset ON entity (metaset, id) WHERE metaset < 0;
