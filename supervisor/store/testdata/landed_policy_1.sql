CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
  id TEXT PRIMARY KEY, suspended INTEGER NOT NULL, version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
  project TEXT NOT NULL, account TEXT NOT NULL, role TEXT NOT NULL CHECK (role IN ('owner', 'member', 'viewer')),
  PRIMARY KEY (project, account)
) STRICT, WITHOUT ROWID;

CREATE TABLE connections (
  id TEXT PRIMARY KEY, project TEXT NOT NULL, server TEXT NOT NULL, accepted TEXT NOT NULL, enabled INTEGER NOT NULL,
  credential TEXT NOT NULL CHECK (credential IN ('keyless', 'credential')), version INTEGER NOT NULL, created INTEGER NOT NULL,
  UNIQUE (project, server)
) STRICT, WITHOUT ROWID;

CREATE TABLE served (
  project TEXT NOT NULL, name TEXT NOT NULL, connection TEXT NOT NULL REFERENCES connections (id), tool TEXT NOT NULL,
  PRIMARY KEY (project, name), UNIQUE (connection, tool)
) STRICT, WITHOUT ROWID;

CREATE TABLE grants (
  id TEXT PRIMARY KEY, project TEXT NOT NULL, connection TEXT NOT NULL REFERENCES connections (id), tool TEXT NOT NULL,
  served TEXT NOT NULL, tier INTEGER NOT NULL CHECK (tier BETWEEN 0 AND 3), granted_by TEXT NOT NULL, at INTEGER NOT NULL,
  revision TEXT NOT NULL, pin BLOB NOT NULL CHECK (length(pin) = 32),
  UNIQUE (connection, tool), FOREIGN KEY (project, served) REFERENCES served (project, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE probes (
  revision TEXT PRIMARY KEY, at INTEGER NOT NULL, error TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pins (
  revision TEXT NOT NULL REFERENCES probes (revision) ON DELETE CASCADE, tool TEXT NOT NULL, raw BLOB NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 32), read_only INTEGER NOT NULL, destructive INTEGER NOT NULL, quarantine TEXT NOT NULL,
  PRIMARY KEY (revision, tool)
) STRICT;

CREATE TABLE tasks (
  id TEXT PRIMARY KEY, account TEXT NOT NULL, host TEXT NOT NULL, project TEXT NOT NULL, principal TEXT NOT NULL, mode TEXT NOT NULL,
  created INTEGER NOT NULL, ended INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A task is immutable, and its end is for ever.
CREATE TRIGGER tasks_immutable BEFORE UPDATE ON tasks
WHEN OLD.ended <> 0 OR NEW.id <> OLD.id OR NEW.account <> OLD.account OR NEW.host <> OLD.host OR NEW.project <> OLD.project
  OR NEW.principal <> OLD.principal OR NEW.mode <> OLD.mode OR NEW.created <> OLD.created
BEGIN SELECT RAISE(ABORT, 'a task is immutable'); END;

CREATE TRIGGER tasks_kept BEFORE DELETE ON tasks
BEGIN SELECT RAISE(ABORT, 'a task is kept'); END;

CREATE TABLE tokens (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32), task TEXT NOT NULL REFERENCES tasks (id), project TEXT NOT NULL, uid INTEGER NOT NULL,
  binds INTEGER NOT NULL, wall INTEGER NOT NULL, boot INTEGER NOT NULL, boot_id TEXT NOT NULL, ttl INTEGER NOT NULL, ended INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
