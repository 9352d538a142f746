-- +goose Up

-- How far the messages of each subscription are, as JSON.
CREATE TABLE subscription (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    doc TEXT NOT NULL
);

-- Which server sends the messages, until when.
CREATE TABLE notifier (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    holder TEXT NOT NULL,
    until BIGINT NOT NULL
);
INSERT INTO notifier (one, holder, until) VALUES (1, '', 0);
