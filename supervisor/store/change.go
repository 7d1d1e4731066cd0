package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
)

// Apply writes c to policy.db, durable and as a whole. It returns ErrFull,
// ErrBusy or ErrIO; after any error nothing of c is in the file.
func (s *Store) Apply(c Change) error {
	if c.Empty() {
		return nil
	}
	err := s.policy.transaction(func(*sqlite3.Conn) error {
		for _, r := range c.Delete {
			if err := s.remove(r); err != nil {
				return fmt.Errorf("remove %T: %w", r, err)
			}
		}
		for _, r := range c.Put {
			if err := s.put(r); err != nil {
				return fmt.Errorf("write %T: %w", r, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("change the policy: %w", err)
	}
	return nil
}

func (s *Store) put(r Row) error {
	switch r := r.(type) {
	case Account:
		return s.run(`INSERT INTO accounts VALUES (?,?,?) ON CONFLICT DO UPDATE SET suspended = excluded.suspended, version = excluded.version`,
			string(r.ID), r.Suspended, int64(r.Version))
	case Member:
		return s.run(`INSERT INTO members VALUES (?,?,?) ON CONFLICT DO UPDATE SET role = excluded.role`, string(r.Project), string(r.Account), r.Role)
	case Connection:
		// The project and the server of a connection never change.
		return s.run(`INSERT INTO connections VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET accepted = excluded.accepted,
			enabled = excluded.enabled, credential = excluded.credential, version = excluded.version`,
			string(r.ID), string(r.Project), string(r.Server), string(r.Accepted), r.Enabled, r.Credential, int64(r.Version), r.Created)
	case Served:
		return s.run(`INSERT INTO served VALUES (?,?,?,?)`, string(r.Project), r.Name, string(r.Connection), r.Tool)
	case Grant:
		return s.run(`INSERT INTO grants VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET tier = excluded.tier,
			granted_by = excluded.granted_by, at = excluded.at, revision = excluded.revision, pin = excluded.pin`,
			string(r.ID), string(r.Project), string(r.Connection), r.Tool, r.Served, int64(r.Tier), r.By, r.At, string(r.Revision), r.Pin[:])
	case Definition:
		return s.run(`INSERT INTO definitions VALUES (?,?) ON CONFLICT DO NOTHING`, r.Digest[:], r.Raw)
	case Probe:
		return s.putProbe(r)
	case Task:
		return s.run(`INSERT INTO tasks VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET account = excluded.account, host = excluded.host,
			project = excluded.project, principal = excluded.principal, mode = excluded.mode, created = excluded.created,
			ended = excluded.ended, reason = excluded.reason, moved = excluded.moved`,
			string(r.ID), string(r.Account), r.Host, string(r.Project), r.Principal, r.Mode, r.Created, r.Ended, r.Reason, r.Moved)
	case Token:
		return s.run(`INSERT INTO tokens VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (digest) DO UPDATE SET ended = excluded.ended`,
			r.Digest[:], string(r.Task), string(r.Project), int64(r.UID), int64(r.Binds), r.Wall, r.Boot, r.BootID, r.TTL, r.Ended)
	case Paired:
		return s.run(`INSERT INTO paired VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET host = excluded.host, at = excluded.at`, r.Channel, r.Identity, r.Host, r.At)
	}
	return fmt.Errorf("no table holds %T", r)
}

// eraOf begins the key in meta of what a revision speaks.
const eraOf = "era:"

func (s *Store) putProbe(p Probe) error {
	if err := s.run(`DELETE FROM pins WHERE revision = ?`, string(p.Revision)); err != nil {
		return err
	}
	if err := s.run(`INSERT INTO probes VALUES (?,?,?) ON CONFLICT DO UPDATE SET at = excluded.at, error = excluded.error`,
		string(p.Revision), p.At, p.Error); err != nil {
		return err
	}
	if err := s.run(`INSERT INTO meta VALUES (?,?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
		eraOf+string(p.Revision), int64(max(0, slices.Index(eras[:], p.Era)))); err != nil {
		return err
	}
	for _, t := range p.Pins {
		if err := s.run(`INSERT INTO pins VALUES (?,?,?,?,?,?,?)`,
			string(p.Revision), t.Tool, t.Raw, t.Digest[:], int64(t.ReadOnly), int64(t.Destructive), t.Quarantine); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) remove(r Row) error {
	switch r := r.(type) {
	case Member:
		return s.run(`DELETE FROM members WHERE project = ? AND account = ?`, string(r.Project), string(r.Account))
	case Grant:
		return s.run(`DELETE FROM grants WHERE id = ?`, string(r.ID))
	case Token:
		return s.run(`DELETE FROM tokens WHERE digest = ?`, r.Digest[:])
	case Paired:
		return s.run(`DELETE FROM paired WHERE channel = ? AND identity = ?`, r.Channel, r.Identity)
	}
	return fmt.Errorf("%T is never removed", r)
}

// run executes one prepared statement of policy.db.
func (s *Store) run(sql string, args ...any) error {
	st := s.rows[sql]
	if st == nil {
		var err error
		if st, _, err = s.policy.writer.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return err
		}
		s.rows[sql] = st
	}
	var errs []error
	for i, a := range args {
		switch a := a.(type) {
		case string:
			errs = append(errs, st.BindText(i+1, a))
		case int64:
			errs = append(errs, st.BindInt64(i+1, a))
		case bool:
			errs = append(errs, st.BindBool(i+1, a))
		case []byte:
			if a == nil {
				a = []byte{} // an empty blob; nil would be NULL
			}
			errs = append(errs, st.BindBlob(i+1, a))
		default:
			return fmt.Errorf("no column holds %T", a)
		}
	}
	return errors.Join(append(errs, st.Exec())...)
}

// Policy reads everything policy.db holds. Words that stand in many rows, such as the id
// of a project, are in memory once.
func (s *Store) Policy() (Policy, error) {
	var p Policy
	probes := map[ids.Revision]int{}
	once := map[string]string{}
	word := func(r *sqlite3.Stmt, col int) string {
		raw := r.ColumnRawText(col)
		text, known := once[string(raw)]
		if !known {
			text = string(raw)
			once[text] = text
		}
		return text
	}
	for _, q := range []struct {
		sql string
		row func(*sqlite3.Stmt)
	}{
		{`SELECT id, suspended, version FROM accounts ORDER BY id`, func(r *sqlite3.Stmt) {
			p.Accounts = append(p.Accounts, Account{ids.Account(r.ColumnText(0)), r.ColumnBool(1), uint64(r.ColumnInt64(2))})
		}},
		{`SELECT project, account, role FROM members ORDER BY project, account`, func(r *sqlite3.Stmt) {
			p.Members = append(p.Members, Member{ids.Project(word(r, 0)), ids.Account(word(r, 1)), word(r, 2)})
		}},
		{`SELECT id, project, server, accepted, enabled, credential, version, created FROM connections ORDER BY id`, func(r *sqlite3.Stmt) {
			p.Connections = append(p.Connections, Connection{ids.Connection(word(r, 0)), ids.Project(word(r, 1)), ids.Server(word(r, 2)),
				ids.Revision(word(r, 3)), r.ColumnBool(4), word(r, 5), uint64(r.ColumnInt64(6)), r.ColumnInt64(7)})
		}},
		{`SELECT project, name, connection, tool FROM served ORDER BY project, name`, func(r *sqlite3.Stmt) {
			p.Served = append(p.Served, Served{ids.Project(word(r, 0)), word(r, 1), ids.Connection(word(r, 2)), word(r, 3)})
		}},
		{`SELECT id, project, connection, tool, served, tier, granted_by, at, revision, pin FROM grants ORDER BY id`, func(r *sqlite3.Stmt) {
			g := Grant{ID: ids.Grant(r.ColumnText(0)), Project: ids.Project(word(r, 1)), Connection: ids.Connection(word(r, 2)),
				Tool: word(r, 3), Served: word(r, 4), Tier: uint8(r.ColumnInt(5)), By: word(r, 6), At: r.ColumnInt64(7),
				Revision: ids.Revision(word(r, 8))}
			copy(g.Pin[:], r.ColumnRawBlob(9))
			p.Grants = append(p.Grants, g)
		}},
		{`SELECT digest, raw FROM definitions ORDER BY digest`, func(r *sqlite3.Stmt) {
			d := Definition{Raw: r.ColumnBlob(1, nil)}
			copy(d.Digest[:], r.ColumnRawBlob(0))
			p.Definitions = append(p.Definitions, d)
		}},
		{`SELECT revision, at, error, coalesce((SELECT value FROM meta WHERE key = '` + eraOf + `' || revision), 0) FROM probes ORDER BY revision`, func(r *sqlite3.Stmt) {
			b := Probe{Revision: ids.Revision(r.ColumnText(0)), At: r.ColumnInt64(1), Error: r.ColumnText(2)}
			if n := r.ColumnInt64(3); n > 0 && n < int64(len(eras)) {
				b.Era = eras[n]
			}
			probes[b.Revision] = len(p.Probes)
			p.Probes = append(p.Probes, b)
		}},
		// In the order of the server's own list, as it was probed.
		{`SELECT revision, tool, raw, digest, read_only, destructive, quarantine FROM pins ORDER BY rowid`, func(r *sqlite3.Stmt) {
			t := Pin{Tool: r.ColumnText(1), Raw: r.ColumnBlob(2, nil), ReadOnly: uint8(r.ColumnInt(4)), Destructive: uint8(r.ColumnInt(5)), Quarantine: r.ColumnText(6)}
			copy(t.Digest[:], r.ColumnRawBlob(3))
			i := probes[ids.Revision(r.ColumnText(0))]
			p.Probes[i].Pins = append(p.Probes[i].Pins, t)
		}},
		{`SELECT id, account, host, project, principal, mode, created, ended, reason, moved FROM tasks ORDER BY id`, func(r *sqlite3.Stmt) {
			p.Tasks = append(p.Tasks, Task{ids.Task(r.ColumnText(0)), ids.Account(word(r, 1)), word(r, 2), ids.Project(word(r, 3)),
				word(r, 4), word(r, 5), r.ColumnInt64(6), r.ColumnInt64(7), word(r, 8), r.ColumnInt64(9)})
		}},
		{`SELECT digest, task, project, uid, binds, wall, boot, boot_id, ttl, ended FROM tokens ORDER BY digest`, func(r *sqlite3.Stmt) {
			t := Token{Task: ids.Task(r.ColumnText(1)), Project: ids.Project(r.ColumnText(2)), UID: uint32(r.ColumnInt64(3)), Binds: r.ColumnInt(4),
				Wall: r.ColumnInt64(5), Boot: r.ColumnInt64(6), BootID: r.ColumnText(7), TTL: r.ColumnInt64(8), Ended: r.ColumnBool(9)}
			copy(t.Digest[:], r.ColumnRawBlob(0))
			p.Tokens = append(p.Tokens, t)
		}},
		{`SELECT channel, identity, host, at FROM paired ORDER BY channel, identity`, func(r *sqlite3.Stmt) {
			p.Paired = append(p.Paired, Paired{r.ColumnText(0), r.ColumnText(1), r.ColumnText(2), r.ColumnInt64(3)})
		}},
	} {
		if err := each(s.policy.writer, q.sql, q.row); err != nil {
			return Policy{}, fmt.Errorf("read the policy: %w", classify(err))
		}
	}
	return p, nil
}
