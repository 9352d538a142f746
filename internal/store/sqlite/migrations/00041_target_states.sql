-- +goose Up

-- The states that targets of the meta-scheduler save for sites.
CREATE TABLE target_state (
    site TEXT NOT NULL,
    name TEXT NOT NULL, -- of the resource of the site's package
    version INTEGER NOT NULL, -- counts the saves
    updated INTEGER NOT NULL,
    state BLOB NOT NULL, -- the target's own
    PRIMARY KEY (site, name)
) STRICT, WITHOUT ROWID;

-- They were sources with the names "site:SITE:NAME". A site's ID may contain
-- colons, a name may not: rtrim leaves what ends with the last colon.
INSERT INTO target_state (site, name, version, updated, state)
SELECT substr(prefix, 6, length(prefix) - 6), substr(name, length(prefix) + 1), version, updated, state
FROM (SELECT rtrim(name, replace(name, ':', '')) AS prefix, name, version, updated, state FROM source WHERE substr(name, 1, 5) = 'site:' AND name LIKE 'site:_%:_%') s;
DELETE FROM source WHERE substr(name, 1, 5) = 'site:' AND name LIKE 'site:_%:_%';
