-- Who was paired by a code, and through which host. What they may is the access policy's.
CREATE TABLE paired (
  channel TEXT NOT NULL, identity TEXT NOT NULL, host TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (channel, identity)
) STRICT, WITHOUT ROWID;
