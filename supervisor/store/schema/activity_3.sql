-- Where older records are, by project and by state. Only records that change no
-- more are in it: meta.past_to is the last of them. It is written in the background,
-- so that an admission still writes one page.
CREATE TABLE past_projects (n INTEGER PRIMARY KEY, project TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE past (
  project INTEGER NOT NULL, state INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (project, state, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX past_state ON past (state, seq);
