-- What carried bytes in the results of calls. A row comes after its call has ended, so
-- that an admission still writes one page. Where missing says why, there is no blob.
CREATE TABLE artifacts (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, account TEXT NOT NULL, project TEXT NOT NULL, task TEXT NOT NULL,
  call TEXT NOT NULL, seq INTEGER NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL, missing TEXT NOT NULL
) STRICT;
CREATE INDEX artifacts_call ON artifacts (seq);
CREATE INDEX artifacts_project ON artifacts (project, n);
