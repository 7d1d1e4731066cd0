-- The arguments of calls of projects that record them, without secrets. A row goes with
-- its call's. Where missing says why, there is no value.
CREATE TABLE arguments (seq INTEGER PRIMARY KEY, value TEXT NOT NULL, missing TEXT NOT NULL) STRICT;
