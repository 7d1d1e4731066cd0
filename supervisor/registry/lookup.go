package registry

import (
	"maps"
	"strings"

	"postern/ids"
	"postern/item"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/supervisor/token"
)

// empty is the view of a project nothing was ever written about.
var empty = &View{}

// View returns a project as it stands, never nil. Reading it needs no lock.
func (r *Registry) View(p ids.Project) *View {
	if v := r.views[p]; v != nil {
		return v
	}
	return empty
}

// Snapshot returns every project's view as it stands, for readers elsewhere.
func (r *Registry) Snapshot() map[ids.Project]*View { return maps.Clone(r.views) }

// Project returns what root says of a project.
func (r *Registry) Project(p ids.Project) (RootProject, bool) {
	rp, ok := r.root.Projects[p]
	return rp, ok
}

// Task returns a task, nil if there is none by that id.
func (r *Registry) Task(t ids.Task) *Task { return r.tasks[t] }

// Tasks returns the live tasks of a project, in no order.
func (r *Registry) Tasks(p ids.Project) []*Task {
	out := make([]*Task, 0, len(r.live[p]))
	for _, t := range r.live[p] {
		out = append(out, t)
	}
	return out
}

// AllTasks returns every task there ever was, in no order.
func (r *Registry) AllTasks() []*Task {
	out := make([]*Task, 0, len(r.tasks))
	for _, t := range r.tasks {
		out = append(out, t)
	}
	return out
}

// LiveOfHost counts the live tasks of a configured host, in all projects.
func (r *Registry) LiveOfHost(host string) int { return r.ofHost[host] }

// LocalTask returns the live task of a person in a project and mode, nil if there is none.
func (r *Registry) LocalTask(a ids.Account, p ids.Project, mode string) *Task {
	for _, t := range r.live[p] {
		if t.Host == LocalHost && t.Account == a && t.Mode == mode {
			return t
		}
	}
	return nil
}

// Token returns what a token may bind, nil for an unknown token.
func (r *Registry) Token(d token.Digest) *token.Binding { return r.tokens[d] }

// TokenUID returns the uid that a task's tokens are for.
func (r *Registry) TokenUID(t ids.Task) (uint32, bool) {
	for _, d := range r.ofTask[t] {
		if b := r.tokens[d]; b != nil {
			return b.UID, true
		}
	}
	return 0, false
}

// TokenLive tells whether a task has a token that could still bind.
func (r *Registry) TokenLive(t ids.Task, now token.Instant) bool {
	for _, d := range r.ofTask[t] {
		if b := r.tokens[d]; b != nil && token.Check(b, b.UID, b.Project, now) == "" {
			return true
		}
	}
	return false
}

// CountBind counts one use of a token, after the session it bound is durable.
func (r *Registry) CountBind(d token.Digest) {
	if b := r.tokens[d]; b != nil {
		b.Used++
	}
}

// Connection returns a connection of any project, nil if there is none.
func (r *Registry) Connection(c ids.Connection) *Connected { return r.View(r.where[c]).Connections[c] }

// Catalogue returns what the last probe of a revision found, nil if there was none.
func (r *Registry) Catalogue(rev ids.Revision) *Catalogue { return r.probes[rev] }

// Served returns the grant a name stands for in a project, nil if there is none.
func (r *Registry) Served(p ids.Project, name string) *Grant { return r.View(p).Served[name] }

// AccountStanding says where an account stands.
func (r *Registry) AccountStanding(a ids.Account) policy.Account {
	ra, ok := r.root.Accounts[a]
	switch {
	case !ok:
		return policy.AccountUnknown
	case ra.Deleted:
		return policy.AccountDeleted
	case r.accounts[a].Suspended:
		return policy.AccountSuspended
	}
	return policy.AccountActive
}

// ProjectStanding says where a project stands, by what root says of it.
func (r *Registry) ProjectStanding(p ids.Project) policy.Project {
	rp := r.root.Projects[p]
	return rp.standing()
}

func (rp *RootProject) standing() policy.Project {
	switch {
	case rp.ID == "":
		return policy.ProjectUnknown
	case rp.Deleted:
		return policy.ProjectDeleted
	}
	return policy.ProjectLive
}

// Role returns an account's role in a project, "" for none.
func (r *Registry) Role(a ids.Account, p ids.Project) string {
	rp := r.root.Projects[p]
	return roleIn(&rp, r.View(p), a)
}

func roleIn(rp *RootProject, v *View, a ids.Account) string {
	if rp.Owner == a && a != "" {
		return Owner
	}
	return v.Members[a]
}

// HostStanding says whether a task's host may act for its account in its project, and
// for people of its channel. People themselves act where person_bind is on.
func (r *Registry) HostStanding(t *Task) policy.Host {
	return r.hostStanding(t, r.root.Projects[t.Project].PersonBind)
}

func (r *Registry) hostStanding(t *Task, personBind bool) policy.Host {
	channel, _, _ := strings.Cut(t.Principal, ":")
	if t.Host == LocalHost {
		if channel == access.Channel && personBind {
			return policy.HostAssigned
		}
		return policy.HostNotAssigned
	}
	h, ok := r.root.Hosts[t.Host]
	switch {
	case !ok:
		return policy.HostUnknown
	case h.Serves(t.Account, t.Project) && h.Speaks(channel):
		return policy.HostAssigned
	}
	return policy.HostNotAssigned
}

// Tool gathers what is known of an item of a project's connection, by its key: a tool,
// a prompt, or a resource, which has the grant whose prefix covers it. It tells false
// when the connection is not this project's.
func (r *Registry) Tool(p ids.Project, c ids.Connection, tool string) (Tool, bool) {
	return r.toolOf(r.View(p).Connections[c], tool)
}

func (r *Registry) toolOf(con *Connected, tool string) (Tool, bool) {
	if con == nil {
		return Tool{}, false
	}
	t := Tool{Connected: con, Server: r.root.Servers[con.Server], Grant: con.Grants[tool]}
	kind, name := item.Split(tool)
	if kind == item.Resource {
		t.Grant = con.Covering(name)
	}
	t.Revision = t.Server.Revisions[con.Accepted]
	var declared class.Set
	var operator, owner class.Tier
	if t.Revision != nil {
		declared, operator = t.Revision.Classes[tool], t.Revision.Tiers[tool]
	}
	if t.Grant != nil {
		owner = class.Tier(t.Grant.Tier)
	}
	if cat := r.probes[con.Accepted]; cat != nil {
		if t.Pin = cat.Tools[tool]; t.Pin != nil {
			t.Hints = class.Hints{ReadOnly: class.Claim(t.Pin.ReadOnly), Destructive: class.Claim(t.Pin.Destructive)}
		}
	}
	if kind != item.Tool {
		// To get a prompt and to read a resource is reading, as the protocol has it.
		t.Hints = class.Hints{ReadOnly: class.Yes}
	}
	t.Classes, t.Source = class.Of(declared, tool, t.Hints)
	t.Tier = class.TierOf(operator, owner, t.Classes, t.Hints)
	return t, true
}

// Covering returns the grant of the longest prefix that covers a URI, nil if none does
// or the URI has another spelling.
func (c *Connected) Covering(uri string) *Grant {
	if len(c.Prefixes) == 0 || item.CheckURI(uri) != nil {
		return nil
	}
	var best *Grant
	for _, g := range c.Prefixes {
		if _, prefix := item.Split(g.Tool); item.Covers(prefix, uri) && (best == nil || len(best.Tool) < len(g.Tool)) {
			best = g
		}
	}
	return best
}

// Covering returns the grant that covers a URI in a project, nil if none does. No two
// connections have prefixes that meet.
func (r *Registry) Covering(p ids.Project, uri string) *Grant {
	for _, c := range r.View(p).Connections {
		if g := c.Covering(uri); g != nil {
			return g
		}
	}
	return nil
}

// Standing says how the tool's pin compares with its grant's.
func (t *Tool) Standing() policy.Pin {
	switch {
	case t.Grant != nil && isResource(t.Grant):
		// What a resource holds is the server's to change; the prefix is what is pinned.
		return policy.PinMatches
	case t.Pin == nil:
		return policy.PinUnknown
	case t.Pin.Quarantine != "":
		return policy.PinQuarantined
	case t.Grant == nil || t.Grant.Pin != t.Pin.Digest:
		return policy.PinChanged
	}
	return policy.PinMatches
}

// CredentialOK tells whether the connection has the credential its accepted
// revision needs: none where none is needed, an assigned one where one is.
func (r *Registry) CredentialOK(t *Tool) bool {
	if t.Revision == nil {
		return false
	}
	if t.Revision.Required || t.Connected.Credential != Keyless {
		return t.Connected.Credential == WithCredential && r.Assigned(t.Connected.Project, t.Connected.Server) != Credential{}
	}
	return true
}

// Assigned is the credential that a project has for a server, the zero one if none.
func (r *Registry) Assigned(p ids.Project, s ids.Server) Credential {
	return r.root.Assigned[Assignment{p, s}]
}

// Facts fills in every factor that the registry knows of a call by a task: who,
// where, which tool and which grant. It returns what it knows of the tool. The
// session, the running revision, the principal's ceiling, the approval, the
// limits and the store are the gate's. tool is the server's own name.
func (r *Registry) Facts(f *policy.Facts, t *Task, p ids.Project, c ids.Connection, tool string) (Tool, bool) {
	// Each of these is looked up once: half of a decision's time is looking up.
	rp, v := r.root.Projects[p], r.View(p)
	f.Project = rp.standing()
	if t != nil {
		f.Task = policy.TaskLive
		if t.Ended != 0 {
			f.Task = policy.TaskEnded
		}
		f.Bound = t.Project == p
		f.Account = r.AccountStanding(t.Account)
		if f.Bound { // and so rp is the task's project
			f.Host = r.hostStanding(t, rp.PersonBind)
		} else {
			f.Host = r.HostStanding(t)
		}
		role := roleIn(&rp, v, t.Account)
		f.Member = role == Owner || role == Member
	}
	k, ok := r.toolOf(v.Connections[c], tool)
	if !ok {
		return k, false
	}
	switch {
	case k.Server.Deleted:
		f.Connection = policy.ConnectionOrphaned
	case k.Connected.Enabled:
		f.Connection = policy.ConnectionEnabled
	default:
		f.Connection = policy.ConnectionDisabled
	}
	f.Accepted, f.Current = k.Connected.Accepted, k.Server.Current
	f.Granted = k.Grant != nil
	f.Pin = k.Standing()
	f.Profile = policy.ProfileAnswer(rp.ExecutionProfile, k.Classes, k.Revision != nil && k.Revision.Fork)
	f.Credential = r.CredentialOK(&k)
	f.Tier = k.Tier
	return k, true
}
