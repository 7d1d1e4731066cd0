package store

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// A file that was forged is restored like any other, and what it has in it runs at each
// write: a trigger gives back what a revocation takes, or keeps a task from ending. So
// a file has what the schemas make, and nothing else.
func TestX2_AFileWithAnythingElseInItIsNotOpened(t *testing.T) {
	for name, row := range map[string]struct{ file, sql string }{
		"a trigger that enables again":  {PolicyFile, `CREATE TRIGGER t AFTER UPDATE ON connections BEGIN UPDATE connections SET enabled = 1; END`},
		"a trigger named as SQLite's":   {PolicyFile, `PRAGMA writable_schema = ON; CREATE TRIGGER t AFTER UPDATE ON tasks BEGIN UPDATE tasks SET ended = 0; END; UPDATE sqlite_schema SET name = 'sqlite_stat1' WHERE name = 't'`},
		"a trigger that keeps a task":   {PolicyFile, `CREATE TRIGGER t BEFORE UPDATE ON tasks BEGIN SELECT raise(IGNORE); END`},
		"a trigger that drops records":  {ActivityFile, `CREATE TRIGGER t BEFORE INSERT ON calls BEGIN SELECT raise(IGNORE); END`},
		"a view":                        {PolicyFile, `CREATE VIEW v AS SELECT 1`},
		"a table":                       {ActivityFile, `CREATE TABLE extra (x)`},
		"an index":                      {PolicyFile, `CREATE UNIQUE INDEX i ON connections (enabled, id)`},
		"a column":                      {PolicyFile, `ALTER TABLE connections ADD COLUMN extra TEXT`},
		"a table less":                  {ActivityFile, `PRAGMA foreign_keys = OFF; DROP TABLE calls`},
		"nothing else":                  {PolicyFile, `SELECT 1`},
		"what SQLite keeps for itself":  {ActivityFile, `ANALYZE`},
		"rows that an honest one holds": {PolicyFile, `INSERT INTO meta VALUES ('incarnation', 7) ON CONFLICT (key) DO UPDATE SET value = 7`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			c, err := sqlite3.Open(filepath.Join(dir, row.file))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Exec(row.sql); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			s, err = Open(dir)
			honest := name == "nothing else" || name == "what SQLite keeps for itself" || name == "rows that an honest one holds"
			switch {
			case honest && err != nil:
				t.Fatal(err)
			case honest:
				s.Close()
			case !errors.Is(err, ErrCorrupt):
				t.Errorf("opened: %v", err)
			}
		})
	}
}
