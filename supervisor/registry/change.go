package registry

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"postern/ids"
	"postern/item"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// Bounds of what one project may hold.
const (
	MaxServed  = 64  // bytes of a served name
	MaxMembers = 256 // members of a project
	MaxLive    = 256 // live tasks of a project
	MaxTools   = 512 // tools, prompts and prefixes of one grant
	MaxPrefix  = 64  // resource prefixes granted of one connection
	MaxReason  = 256 // bytes of why a task ended
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

// Accept accepts a revision, which must be the current one and have been probed,
// and of the granted tools those named: each is pinned as that revision defines
// it. A granted tool that is not named stays callable only if its definition is
// the same.
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
		return Change{}, refuse(refusal.ServerUnavailable, "revision %s has not been probed with success", rev)
	}
	row := c.next()
	row.Accepted = rev
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

// Granting is one request to grant tools, prompts and resources.
type Granting struct {
	Connection ids.Connection
	Tools      []string // the items' keys: a tool's exact name as the server lists it, "prompt:NAME", "resource:PREFIX"
	Tier       class.Tier
	By         string
	At         uint64 // the connection's version it was read at, 0 for any
	IDs        []ids.Grant
	Now        time.Time
}

// Grant grants exactly the named items of one connection, as the accepted
// revision defines them; IDs has one new id for each. Granting again changes the
// mark, and pins the definition as it is now. All items are granted or none.
func (r *Registry) Grant(g Granting) (Change, error) {
	c, err := r.connection(g.Connection, g.At)
	if err != nil {
		return Change{}, err
	}
	if err := r.liveProject(c.Project); err != nil {
		return Change{}, err
	}
	if len(g.Tools) == 0 || len(g.Tools) > MaxTools || len(g.IDs) < len(g.Tools) {
		return Change{}, refuse(refusal.BadRequest, "a grant names between 1 and %d tools, prompts or resource prefixes", MaxTools)
	}
	srv := r.root.Servers[c.Server]
	switch {
	case srv.Deleted:
		return Change{}, refuse(refusal.ServerUnknown, "the registration of %q is deleted", srv.Label)
	case srv.Current != c.Accepted:
		return Change{}, refuse(refusal.ServerRevisionChanged, "server %q", srv.Label)
	}
	out := Change{Put: []store.Row{c.next()}}
	taken := map[string]bool{}
	for i, name := range g.Tools {
		if slices.Contains(g.Tools[:i], name) {
			return Change{}, refuse(refusal.BadRequest, "tool %q is named twice", name)
		}
		if kind, prefix := item.Split(name); kind == item.Resource {
			row, err := r.prefixGrant(c, prefix, g.Tools[:i])
			if err != nil {
				return Change{}, err
			}
			row.By, row.At, row.Tier = g.By, g.Now.UnixMilli(), uint8(g.Tier)
			if row.ID == "" {
				row.ID = g.IDs[i]
			}
			if r.View(c.Project).Names[row.Served] == (Name{}) {
				out.Put = append(out.Put, store.Served{Project: c.Project, Name: row.Served, Connection: c.ID, Tool: name})
			}
			out.Put = append(out.Put, row)
			continue
		}
		t, _ := r.Tool(c.Project, c.ID, name)
		switch {
		case t.Pin == nil:
			return Change{}, refuse(refusal.NotFound, "tool %q is not offered by %q", name, srv.Label)
		case t.Pin.Quarantine != "":
			return Change{}, refuse(refusal.ToolQuarantined, "tool %q: %s", name, t.Pin.Quarantine)
		case !class.MayMark(t.Revision.Tiers[name], g.Tier):
			return Change{}, refuse(refusal.TierLowered, "tool %q is marked %s by the operator", name, t.Revision.Tiers[name])
		}
		row := Grant{ID: g.IDs[i], Project: c.Project, Connection: c.ID, Tool: name, Tier: uint8(g.Tier), By: g.By, At: g.Now.UnixMilli(), Revision: c.Accepted, Pin: t.Pin.Digest}
		served, isNew, err := r.servedName(c, srv.Label, name, taken)
		if err != nil {
			return Change{}, err
		}
		row.Served = served
		if isNew {
			taken[served] = true
			out.Put = append(out.Put, store.Served{Project: c.Project, Name: served, Connection: c.ID, Tool: name})
		}
		if t.Grant != nil {
			row.ID = t.Grant.ID
		}
		out.Put = append(out.Put, row)
		r.keep(&out, t.Pin)
	}
	return out, nil
}

// prefixGrant is the grant of the resources beneath a prefix. A URI must lead to one
// connection only, so that it can never be read from another server than was meant:
// a prefix that meets another connection's is refused. The pin is the prefix itself.
func (r *Registry) prefixGrant(c *Connected, prefix string, before []string) (Grant, error) {
	if err := item.CheckURI(prefix); err != nil {
		return Grant{}, refuse(refusal.BadRequest, "resource prefix %q: %v", prefix, err)
	}
	fresh := 1
	for _, key := range before {
		if kind, _ := item.Split(key); kind == item.Resource && c.Grants[key] == nil {
			fresh++
		}
	}
	key := item.Resource.Key(prefix)
	if c.Grants[key] == nil && len(c.Prefixes)+fresh > MaxPrefix {
		return Grant{}, refuse(refusal.BadRequest, "a connection has at most %d resource prefixes", MaxPrefix)
	}
	for _, o := range r.View(c.Project).Connections {
		for _, g := range o.Prefixes {
			if _, had := item.Split(g.Tool); o.ID != c.ID && item.Overlap(prefix, had) {
				return Grant{}, refuse(refusal.AlreadyExists, "resource prefix %q meets %q of %q", prefix, had, r.root.Servers[o.Server].Label)
			}
		}
	}
	row := Grant{Project: c.Project, Connection: c.ID, Tool: key, Revision: c.Accepted, Pin: sha256.Sum256([]byte(prefix)),
		Served: string(c.ID) + " " + key} // shown to nobody: a resource keeps its URI
	if had := c.Grants[key]; had != nil {
		row.ID = had.ID
	}
	return row, nil
}

// servedName returns the name a tool is served under: the one it once got, else
// its own if that is free in the project, else the connection's label, a dot and
// its own. It never shortens a name, for then two would meet.
func (r *Registry) servedName(c *Connected, label, tool string, taken map[string]bool) (string, bool, error) {
	names := r.View(c.Project).Names
	want := Name{c.ID, tool}
	candidates := [2]string{tool, item.Under(label, tool)}
	for _, n := range candidates {
		if names[n] == want {
			return n, false, nil
		}
	}
	// The label may have been another one when the name was given.
	for n, owner := range names {
		if owner == want {
			return n, false, nil
		}
	}
	for _, n := range candidates {
		if _, used := names[n]; used || taken[n] {
			continue
		}
		if _, bare := item.Split(n); !Servable(bare) {
			return "", false, refuse(refusal.RegistrationWrong, "tool %q would be served as %q, which is not a name of at most %d letters, digits, '_', '-' and '.'", tool, n, MaxServed)
		}
		return n, true, nil
	}
	return "", false, refuse(refusal.AlreadyExists, "both %q and %q name other tools of this project", candidates[0], candidates[1])
}

// Servable tells whether a runtime can be shown a name: at most MaxServed ASCII
// letters, digits, '_', '-' and '.', so that no two names look alike.
func Servable(name string) bool {
	if name == "" || len(name) > MaxServed {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// Revoke takes grants back: the named tools, or with none named all of the
// connection's. Their served names stay reserved.
func (r *Registry) Revoke(id ids.Connection, tools []string, at uint64) (Change, error) {
	c, err := r.connection(id, at)
	if err != nil {
		return Change{}, err
	}
	out := Change{}
	if len(tools) == 0 {
		for _, g := range c.Grants {
			out.Delete = append(out.Delete, *g)
		}
	}
	for i, name := range tools {
		g := c.Grants[name]
		if g == nil {
			return Change{}, refuse(refusal.ToolNotGranted, "tool %q", name)
		}
		if !slices.Contains(tools[:i], name) {
			out.Delete = append(out.Delete, *g)
		}
	}
	if len(out.Delete) > 0 {
		out.Put = append(out.Put, c.next())
	}
	return out, nil
}

// NewTask makes a task of an account, by a host, in a project. Everything it
// names is checked as an admission would; the principal is the caller's to check.
func (r *Registry) NewTask(t Task) (Change, error) {
	if err := r.MayHost(&t); err != nil {
		return Change{}, err
	}
	if !r.root.Access.Modes().Known(t.Mode) {
		return Change{}, refuse(refusal.ModeUnknown, "mode %q", t.Mode)
	}
	if r.tasks[t.ID] != nil {
		return Change{}, refuse(refusal.AlreadyExists, "task %s", t.ID)
	}
	if len(r.live[t.Project]) >= MaxLive {
		return Change{}, refuse(refusal.Busy, "a project has at most %d live tasks", MaxLive)
	}
	t.Ended, t.Reason = 0, ""
	return Change{Put: []store.Row{t}}, nil
}

// MayHost tells whether the host may make the task for its account and channel in its
// project, and why not.
func (r *Registry) MayHost(t *Task) error {
	if err := r.liveProject(t.Project); err != nil {
		return err
	}
	switch r.AccountStanding(t.Account) {
	case policy.AccountUnknown:
		return refuse(refusal.AccountUnknown, "account %q", t.Account)
	case policy.AccountDeleted:
		return refuse(refusal.AccountDeleted, "account %s", t.Account)
	case policy.AccountSuspended:
		return refuse(refusal.AccountSuspended, "account %s", t.Account)
	}
	if role := r.Role(t.Account, t.Project); role != Owner && role != Member {
		return refuse(refusal.NotMember, "account %s", t.Account)
	}
	switch r.HostStanding(t) {
	case policy.HostUnknown:
		return refuse(refusal.HostUnknown, "host %q", t.Host)
	case policy.HostNotAssigned:
		if t.Host == LocalHost {
			return refuse(refusal.PersonBindOff, "project %s", t.Project)
		}
		if r.root.Hosts[t.Host].Serves(t.Account, t.Project) {
			channel, _, _ := strings.Cut(t.Principal, ":")
			return refuse(refusal.HostNotAssigned, "host %q may name nobody of channel %.64q; its channels are in postern.yaml", t.Host, channel)
		}
		return refuse(refusal.HostNotAssigned, "host %q; its accounts and projects are in postern.yaml", t.Host)
	}
	return nil
}

// EndTask ends a task for ever. Ending it again changes nothing.
func (r *Registry) EndTask(id ids.Task, reason string, now time.Time) (Change, error) {
	t := r.tasks[id]
	if t == nil {
		return Change{}, refuse(refusal.TaskUnknown, "task %q", id)
	}
	var c Change
	if t.Ended == 0 {
		r.endTask(&c, t, reason, now)
	}
	return c, nil
}

func (r *Registry) endTask(c *Change, t *Task, reason string, now time.Time) {
	row := *t
	row.Ended, row.Reason = max(now.UnixMilli(), 1), strings.ToValidUTF8(reason[:min(len(reason), MaxReason)], "")
	c.Put = append(c.Put, row)
	// A token of an ended task binds nothing, and what was bound stays in the records.
	for _, d := range r.ofTask[t.ID] {
		c.Delete = append(c.Delete, tokenRow(d, r.tokens[d]))
	}
}

// MintToken adds a token for a live task; whatever tokens the task had end.
func (r *Registry) MintToken(d token.Digest, b token.Binding) (Change, error) {
	t := r.tasks[b.Task]
	switch {
	case t == nil || t.Project != b.Project:
		return Change{}, refuse(refusal.TaskUnknown, "task %q", b.Task)
	case t.Ended != 0:
		return Change{}, refuse(refusal.TaskEnded, "task %s", b.Task)
	}
	return r.mint(d, b)
}

// NewTaskWithToken adds a task and its first token, both or neither.
func (r *Registry) NewTaskWithToken(t Task, d token.Digest, b token.Binding) (Change, error) {
	c, err := r.NewTask(t)
	if err != nil {
		return Change{}, err
	}
	b.Task, b.Project = t.ID, t.Project
	first, err := r.mint(d, b)
	c.Put = append(c.Put, first.Put...)
	return c, err
}

func (r *Registry) mint(d token.Digest, b token.Binding) (Change, error) {
	switch {
	case b.Binds < 1 || b.Binds > token.MaxBinds:
		return Change{}, refuse(refusal.BadRequest, "a token is good for 1 to %d binds, not %d", token.MaxBinds, b.Binds)
	case b.TTL <= 0 || b.TTL > token.MaxTTL:
		return Change{}, refuse(refusal.BadRequest, "a token may bind for at most %v, not %v", token.MaxTTL, b.TTL)
	case b.UID == 0:
		return Change{}, refuse(refusal.BadRequest, "a token is for a user, not for root")
	case r.tokens[d] != nil:
		return Change{}, refuse(refusal.Internal, "a token was made twice")
	}
	var c Change
	for _, old := range r.ofTask[b.Task] {
		c.Delete = append(c.Delete, tokenRow(old, r.tokens[old]))
	}
	b.Used, b.Ended = 0, false
	c.Put = append(c.Put, tokenRow(d, &b))
	return c, nil
}

func tokenRow(d token.Digest, b *token.Binding) store.Token {
	return store.Token{Digest: d, Task: b.Task, Project: b.Project, UID: b.UID, Binds: b.Binds, Wall: b.Minted.Wall.UnixNano(),
		Boot: int64(b.Minted.Boot), BootID: b.Minted.ID, TTL: int64(b.TTL), Ended: b.Ended}
}

func bindingOf(t store.Token, used int) *token.Binding {
	return &token.Binding{Task: t.Task, Project: t.Project, UID: t.UID, Binds: t.Binds, Used: used,
		Minted: token.Instant{Wall: time.Unix(0, t.Wall), Boot: time.Duration(t.Boot), ID: t.BootID}, TTL: time.Duration(t.TTL), Ended: t.Ended}
}

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
		for _, t := range tasks {
			standing, role := next.AccountStanding(t.Account), next.Role(t.Account, p)
			switch {
			case standing == policy.AccountUnknown || standing == policy.AccountDeleted:
				r.endTask(&c, t, "the account is gone", now)
			case role != Owner && role != Member:
				r.endTask(&c, t, "the account no longer has the project", now)
			case next.HostStanding(t) != policy.HostAssigned:
				r.endTask(&c, t, "the host is no longer assigned", now)
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

// PutCatalogue records what a probe of a revision found.
func (r *Registry) PutCatalogue(rev ids.Revision, at time.Time, failure string, pins []Pin) (Change, error) {
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
		pins = nil
		if was := r.probes[rev]; was != nil {
			for _, name := range was.Order {
				pins = append(pins, *was.Tools[name])
			}
		}
	}
	return Change{Put: []store.Row{store.Probe{Revision: rev, At: at.UnixMilli(), Error: failure, Pins: pins}}}, nil
}
