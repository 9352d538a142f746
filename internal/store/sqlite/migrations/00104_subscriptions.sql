-- +goose Up

-- How far the messages of each subscription are, as JSON.
CREATE TABLE subscription (
    name TEXT NOT NULL PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;

-- Which server sends the messages, until when.
CREATE TABLE notifier (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT;
INSERT INTO notifier (one, holder, until) VALUES (1, '', 0);
