CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- Appended at its end by every admission: no secondary index, so that one
-- admission writes one page.
CREATE TABLE calls (
  seq INTEGER PRIMARY KEY, change INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL,
  account TEXT NOT NULL, host TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL, principal TEXT NOT NULL, mode TEXT NOT NULL,
  session TEXT NOT NULL, connection TEXT NOT NULL, revision TEXT NOT NULL, tool TEXT NOT NULL, classes INTEGER NOT NULL, policy TEXT NOT NULL,
  request_id TEXT NOT NULL, args_digest BLOB NOT NULL, args_size INTEGER NOT NULL,
  state INTEGER NOT NULL, ended INTEGER NOT NULL, size INTEGER NOT NULL, micros INTEGER NOT NULL, code TEXT NOT NULL,
  count INTEGER NOT NULL, incarnation INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
  id TEXT PRIMARY KEY, task TEXT NOT NULL, project TEXT NOT NULL, uid INTEGER NOT NULL, token BLOB,
  opened INTEGER NOT NULL, ended INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_open ON sessions (id) WHERE ended = 0;
CREATE INDEX sessions_token ON sessions (token) WHERE token IS NOT NULL;
