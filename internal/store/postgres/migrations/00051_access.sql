-- +goose Up

-- The version of the rules of access: each change of a rule increments it.
ALTER TABLE head ADD COLUMN access BIGINT NOT NULL DEFAULT 0;

-- Bindings, policies and pending approvals, as JSON.
CREATE TABLE access_rule (
    kind TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    doc TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, id)
);
