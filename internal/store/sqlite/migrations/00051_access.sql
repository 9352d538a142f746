-- +goose Up

-- The version of the rules of access: each change of a rule increments it.
ALTER TABLE head ADD COLUMN access INTEGER NOT NULL DEFAULT 0;

-- Bindings, policies and pending approvals, as JSON.
CREATE TABLE access_rule (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
