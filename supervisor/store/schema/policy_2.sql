-- What was granted or accepted, so that what a server lists later can be compared with it.
CREATE TABLE definitions (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32), raw BLOB NOT NULL
) STRICT;
