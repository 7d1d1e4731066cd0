package registry

import (
	"fmt"
	"slices"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/store"
)

// Bounds of what one project may hold.
const (
	MaxServed  = 64   // bytes of a served name
	MaxMembers = 256  // members of a project
	MaxLive    = 256  // live tasks of a project
	MaxOfHost  = 4096 // live tasks of a configured host, in all projects
	MaxUnbound = 1024 // of them, those with a token that could still bind
	MaxTools   = 512  // tools, prompts and prefixes of one grant
	MaxPrefix  = 64   // resource prefixes granted of one connection
	MaxReason  = 256  // bytes of why a task ended
)

// refuse is an error that carries a code of the table and the particulars.
func refuse(c refusal.Code, format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), c)
}

// liveProject checks that a project may still be given anything.
func (r *Registry) liveProject(p ids.Project) error {
	switch r.ProjectStanding(p) {
	case policy.ProjectLive:
		return nil
	case policy.ProjectDeleted:
		return refuse(refusal.ProjectDeleted, "project %s", p)
	}
	return refuse(refusal.ProjectUnknown, "project %q", p)
}

// Suspend suspends or activates an account. at is the version it was read at, 0 for any.
func (r *Registry) Suspend(a ids.Account, on bool, at uint64) (Change, error) {
	switch r.AccountStanding(a) {
	case policy.AccountUnknown:
		return Change{}, refuse(refusal.NotFound, "account %q", a)
	case policy.AccountDeleted:
		return Change{}, refuse(refusal.AccountDeleted, "account %s", a)
	}
	row := r.accounts[a]
	if at != 0 && at != row.Version {
		return Change{}, refuse(refusal.StaleSelector, "account %s is at version %d, not %d", a, row.Version, at)
	}
	if row.Suspended == on {
		return Change{}, nil
	}
	return Change{Put: []store.Row{store.Account{ID: a, Suspended: on, Version: row.Version + 1}}}, nil
}

// AddMember gives an account a role in a project, or another one.
func (r *Registry) AddMember(p ids.Project, a ids.Account, role string) (Change, error) {
	if err := r.liveProject(p); err != nil {
		return Change{}, err
	}
	if role != Owner && role != Member && role != Viewer {
		return Change{}, refuse(refusal.BadRequest, "role %q is not owner, member or viewer", role)
	}
	switch r.AccountStanding(a) {
	case policy.AccountUnknown:
		return Change{}, refuse(refusal.NotFound, "account %q", a)
	case policy.AccountDeleted:
		return Change{}, refuse(refusal.AccountDeleted, "account %s", a)
	}
	if r.root.Projects[p].Owner == a {
		return Change{}, refuse(refusal.AlreadyExists, "account %s owns the project", a)
	}
	members := r.View(p).Members
	if members[a] == "" && len(members) >= MaxMembers {
		return Change{}, refuse(refusal.BadRequest, "a project has at most %d members", MaxMembers)
	}
	if members[a] == role {
		return Change{}, nil
	}
	return Change{Put: []store.Row{store.Member{Project: p, Account: a, Role: role}}}, nil
}

// RemoveMember takes an account's role away and ends its tasks in the project for ever.
func (r *Registry) RemoveMember(p ids.Project, a ids.Account, now time.Time) (Change, error) {
	role := r.View(p).Members[a]
	if role == "" {
		return Change{}, refuse(refusal.NotFound, "account %s is not a member", a)
	}
	c := Change{Delete: []store.Row{store.Member{Project: p, Account: a, Role: role}}}
	for _, t := range r.live[p] {
		if t.Account == a {
			r.endTask(&c, t, "the account left the project", now)
		}
	}
	return c, nil
}

// AddConnection connects a project to a server at its current revision, with
// nothing granted. Whoever adds it accepts that revision.
func (r *Registry) AddConnection(id ids.Connection, p ids.Project, s ids.Server, credential string, now time.Time) (Change, error) {
	if err := r.liveProject(p); err != nil {
		return Change{}, err
	}
	srv, ok := r.root.Servers[s]
	rev := srv.Revisions[srv.Current]
	if !ok || srv.Deleted || rev == nil {
		return Change{}, refuse(refusal.ServerUnknown, "server %q", s)
	}
	if had := r.View(p).ByServer[s]; had != "" {
		return Change{}, refuse(refusal.AlreadyExists, "the project uses %q already, by %s", srv.Label, had)
	}
	if credential != Keyless && credential != WithCredential {
		return Change{}, refuse(refusal.BadRequest, "credential mode %q is not keyless or credential", credential)
	}
	if rev.Required && credential == Keyless {
		return Change{}, refuse(refusal.CredentialMissing, "server %q needs a credential; a connection to it is never keyless", srv.Label)
	}
	return Change{Put: []store.Row{Connection{ID: id, Project: p, Server: s, Accepted: srv.Current, Enabled: true, Credential: credential, Version: 1, Created: now.UnixMilli()}}}, nil
}

// Mode is the credential mode of a connection to the server as it is registered now.
func (r *Registry) Mode(s ids.Server) string {
	srv := r.root.Servers[s]
	return modeOf(srv.Revisions[srv.Current])
}

func modeOf(rev *RootRevision) string {
	if rev != nil && rev.Required {
		return WithCredential
	}
	return Keyless
}

// connection returns a connection that may be changed at a version, 0 for any.
func (r *Registry) connection(id ids.Connection, at uint64) (*Connected, error) {
	c := r.Connection(id)
	if c == nil {
		return nil, refuse(refusal.ConnectionUnknown, "connection %q", id)
	}
	if at != 0 && at != c.Version {
		return nil, refuse(refusal.StaleSelector, "the connection is at version %d, not %d", c.Version, at)
	}
	return c, nil
}

// next is the connection's row with its next version.
func (c *Connected) next() Connection {
	row := c.Connection
	row.Version++
	return row
}

// Enable switches a connection on or off; its grants stay as they are.
func (r *Registry) Enable(id ids.Connection, on bool, at uint64) (Change, error) {
	c, err := r.connection(id, at)
	if err != nil {
		return Change{}, err
	}
	if on {
		if err := r.liveProject(c.Project); err != nil {
			return Change{}, err
		}
		if srv := r.root.Servers[c.Server]; srv.Deleted {
			return Change{}, refuse(refusal.ServerUnknown, "the registration of %q is deleted", srv.Label)
		}
	}
	if c.Enabled == on {
		return Change{}, nil
	}
	row := c.next()
	row.Enabled = on
	return Change{Put: []store.Row{row}}, nil
}

// Accept accepts a revision, which must be the current one and have been probed, with
// its need of a credential or of none, and of the granted tools those named: each is
// pinned as that revision defines it. A granted tool that is not named stays callable
// only if its definition is the same.
func (r *Registry) Accept(id ids.Connection, rev ids.Revision, tools []string, by string, at uint64, now time.Time) (Change, error) {
	c, err := r.connection(id, at)
	if err != nil {
		return Change{}, err
	}
	if err := r.liveProject(c.Project); err != nil {
		return Change{}, err
	}
	srv := r.root.Servers[c.Server]
	if srv.Deleted || srv.Current != rev {
		return Change{}, refuse(refusal.StaleSelector, "revision %q is not the current one", rev)
	}
	cat := r.probes[rev]
	if cat == nil || cat.Error != "" {
		how := "postern server probe " + srv.Label
		if modeOf(srv.Revisions[rev]) != Keyless {
			how += " --project PROJECT, with a credential of the project's,"
		}
		return Change{}, refuse(refusal.ServerUnavailable, "revision %s has not been probed with success; %s does that", rev, how)
	}
	row := c.next()
	row.Accepted, row.Credential = rev, modeOf(srv.Revisions[rev])
	out := Change{Put: []store.Row{row}}
	for i, tool := range tools {
		g, pin := c.Grants[tool], cat.Tools[tool]
		switch {
		case slices.Contains(tools[:i], tool):
			continue
		case g == nil:
			return Change{}, refuse(refusal.ToolNotGranted, "tool %q", tool)
		case isResource(g):
			continue // its pin is its prefix
		case pin == nil:
			return Change{}, refuse(refusal.NotFound, "tool %q is not offered by revision %s", tool, rev)
		case pin.Quarantine != "":
			return Change{}, refuse(refusal.ToolQuarantined, "tool %q: %s", tool, pin.Quarantine)
		}
		n := *g
		n.Revision, n.Pin, n.By, n.At = rev, pin.Digest, by, now.UnixMilli()
		out.Put = append(out.Put, n)
		r.keep(&out, pin)
	}
	return out, nil
}

// keep adds the definition that is granted or accepted, so that a later one can be
// compared with it.
func (r *Registry) keep(c *Change, pin *Pin) {
	if r.definitions[pin.Digest] == nil {
		c.Put = append(c.Put, store.Definition{Digest: pin.Digest, Raw: pin.Raw})
	}
}

// Definition returns the definition that had a digest when it was granted or accepted;
// nil if it was not kept.
func (r *Registry) Definition(d store.Digest) []byte { return r.definitions[d] }

// RetireProject ends everything a project has: tasks, grants, members; its
// connections are switched off. Root's tombstone follows.
func (r *Registry) RetireProject(p ids.Project, now time.Time) (Change, error) {
	if r.ProjectStanding(p) == policy.ProjectUnknown {
		return Change{}, refuse(refusal.ProjectUnknown, "project %q", p)
	}
	return r.retire(p, now), nil
}

func (r *Registry) retire(p ids.Project, now time.Time) (c Change) {
	v := r.View(p)
	for _, t := range r.live[p] {
		r.endTask(&c, t, "the project was deleted", now)
	}
	for a, role := range v.Members {
		c.Delete = append(c.Delete, store.Member{Project: p, Account: a, Role: role})
	}
	for _, con := range v.Connections {
		for _, g := range con.Grants {
			c.Delete = append(c.Delete, *g)
		}
		if con.Enabled || len(con.Grants) > 0 {
			row := con.next()
			row.Enabled = false
			c.Put = append(c.Put, row)
		}
	}
	return c
}

// Reconcile returns what new root facts end: tasks whose project, account or host
// is gone or no longer theirs, and everything of a deleted project. It is applied
// before SetRoot is called, so that no admission sees one without the other.
func (r *Registry) Reconcile(root *Root, now time.Time) Change {
	// The same questions as at an admission, asked of the new facts.
	next := *r
	next.root = root
	var c Change
	for p, tasks := range r.live {
		if next.ProjectStanding(p) != policy.ProjectLive {
			continue
		}
		rp := root.Projects[p]
		was, known := r.root.Projects[p]
		for _, t := range tasks {
			// Each task tells for which directory it was made, also to an authority that was
			// not there. Of one from before that was written the times have to tell.
			moved := t.Moved != rp.Moved
			if t.Moved < 0 {
				moved = known && was.Moved != rp.Moved || t.Created <= rp.Moved
			}
			standing, role := next.AccountStanding(t.Account), next.Role(t.Account, p)
			switch {
			case standing == policy.AccountUnknown || standing == policy.AccountDeleted:
				r.endTask(&c, t, "the account is gone", now)
			case role != Owner && role != Member:
				r.endTask(&c, t, "the account no longer has the project", now)
			case next.HostStanding(t) != policy.HostAssigned:
				r.endTask(&c, t, "the host is no longer assigned", now)
			case moved:
				r.endTask(&c, t, "the project was moved to another directory", now)
			}
		}
	}
	// A project that root merely does not know is refused everywhere already; only
	// a tombstone says that it will never come back.
	for p, rp := range root.Projects {
		if rp.Deleted {
			retired := r.retire(p, now)
			c.Put, c.Delete = append(c.Put, retired.Put...), append(c.Delete, retired.Delete...)
		}
	}
	return c
}

// PutCatalogue records what a probe of a revision found, and in which era of the protocol.
func (r *Registry) PutCatalogue(rev ids.Revision, at time.Time, failure, era string, pins []Pin) (Change, error) {
	known := false
	for _, s := range r.root.Servers {
		known = known || s.Revisions[rev] != nil
	}
	if !known {
		return Change{}, refuse(refusal.ServerUnknown, "revision %q", rev)
	}
	if failure != "" {
		// What a good probe found stays pinned: a probe that fails says nothing about
		// the tools, and must not take from anybody what was accepted.
		pins, era = nil, ""
		if was := r.probes[rev]; was != nil {
			era = was.Era
			for _, name := range was.Order {
				pins = append(pins, *was.Tools[name])
			}
		}
	}
	return Change{Put: []store.Row{store.Probe{Revision: rev, At: at.UnixMilli(), Error: failure, Era: era, Pins: pins}}}, nil
}
