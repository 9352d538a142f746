-- +goose Up

-- Facts about the store as a whole, by name.
CREATE TABLE state (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- Work that waits after a restore, until an administrator releases it.
CREATE TABLE hold (
    queue TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL, -- '': the whole queue
    mode TEXT NOT NULL, -- held: no worker gets the item, keep: workers remove nothing
    PRIMARY KEY (queue, key)
);
