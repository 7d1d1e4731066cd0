package store

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

//go:embed schema/policy_1.sql
var policy1 string

//go:embed schema/policy_2.sql
var policy2 string

//go:embed schema/policy_3.sql
var policy3 string

//go:embed schema/policy_4.sql
var policy4 string

//go:embed schema/activity_1.sql
var activity1 string

//go:embed schema/activity_2.sql
var activity2 string

//go:embed schema/activity_3.sql
var activity3 string

//go:embed schema/activity_4.sql
var activity4 string

//go:embed schema/activity_5.sql
var activity5 string

//go:embed schema/activity_6.sql
var activity6 string

// The schemas of each file, oldest first: the n-th leads from version n-1 to n.
// What has landed is never edited; a change is one more entry.
var (
	policySchemas   = []string{policy1, policy2, policy3, policy4}
	activitySchemas = []string{activity1, activity2, activity3, activity4, activity5, activity6}
)

// Schemas tells which schema each file has: an open store has the newest.
func Schemas() (policy, activity int) { return len(policySchemas), len(activitySchemas) }

// migrate brings the file to the newest schema, in one transaction, after
// copying a file that holds an older one beside it.
func (f *file) migrate(schemas []string) error {
	var version int
	if err := each(f.writer, `PRAGMA user_version`, func(r *sqlite3.Stmt) { version = r.ColumnInt(0) }); err != nil {
		return classify(err)
	}
	switch {
	case version == len(schemas):
		return f.sameSchema(schemas)
	case version > len(schemas) || version < 0:
		return fmt.Errorf("schema %d, this program knows %d: %w", version, len(schemas), ErrNewer)
	case version == 0:
		tables := 0
		if err := each(f.writer, `SELECT count(*) FROM sqlite_schema`, func(r *sqlite3.Stmt) { tables = r.ColumnInt(0) }); err != nil {
			return classify(err)
		}
		if tables > 0 {
			return fmt.Errorf("a database of another program: %w", ErrCorrupt)
		}
	default:
		// The copy is complete only when the migration begins: an interrupted one is made again.
		to := fmt.Sprintf("%s.schema-%d", f.path, version)
		if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := f.copyTo(to); err != nil {
			return err
		}
	}
	err := f.transaction(func(c *sqlite3.Conn) error {
		for _, sql := range schemas[version:] {
			if err := c.Exec(sql); err != nil {
				return err
			}
		}
		return c.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, len(schemas)))
	})
	if err != nil {
		return err
	}
	return f.sameSchema(schemas)
}

// sameSchema refuses a file that has anything else in it than the schemas make. A trigger
// in a file that somebody made, and that was restored, could undo what is written: a
// revocation, or the end of a task.
func (f *file) sameSchema(schemas []string) error {
	fresh, err := sqlite3.Open(":memory:")
	if err != nil {
		return classify(err)
	}
	defer fresh.Close()
	for _, sql := range schemas {
		if err := fresh.Exec(sql); err != nil {
			return err
		}
	}
	want, err := madeOf(fresh)
	if err != nil {
		return err
	}
	got, err := madeOf(f.writer)
	if err != nil {
		return err
	}
	for what := range got {
		if !want[what] {
			return fmt.Errorf("%q has in it what Postern did not make, %.200q: %w", f.path, what, ErrCorrupt)
		}
		delete(want, what)
	}
	for what := range want {
		return fmt.Errorf("%q lacks %.200q: %w", f.path, what, ErrCorrupt)
	}
	return nil
}

// madeOf lists the definitions of a file, but for the tables that SQLite keeps for itself.
func madeOf(c *sqlite3.Conn) (map[string]bool, error) {
	out := map[string]bool{}
	err := each(c, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema`, func(r *sqlite3.Stmt) {
		if kind, name := r.ColumnText(0), r.ColumnText(1); kind != "table" || !strings.HasPrefix(name, "sqlite_stat") {
			out[fmt.Sprintf("%s %s on %s: %s", kind, name, r.ColumnText(2), r.ColumnText(3))] = true
		}
	})
	return out, classify(err)
}
