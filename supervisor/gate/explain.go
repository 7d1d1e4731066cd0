package gate

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"postern/ids"
	"postern/item"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/supervisor/registry"
)

// Reason is one rule's answer with what it read and where that stands.
type Reason struct {
	policy.Answered
	Read string
	From string
}

// Explained is what every rule says of one tool for one task. To find it nothing was
// called, started or recorded.
type Explained struct {
	Connection ids.Connection // "" where the name means no tool of the project's
	Tool       string         // the server's name
	Served     string         // what a runtime of the project calls it
	Verdict    policy.Verdict
	Reasons    []Reason
	Known      registry.Tool
}

// Named is a tool of a project's own connections by all its names.
type Named struct {
	Connection ids.Connection
	Label      string // of the server
	Tool       string
	Served     string
}

// Suppose makes the task that a host would make for a principal, or that a person
// makes by connecting. It is in no registry: its id is empty, and nothing can be
// bound to it.
func (g *Gate) Suppose(p registry.RootProject, principal, mode string) *registry.Task {
	t := &registry.Task{Account: p.Owner, Project: p.ID, Principal: principal, Mode: mode, Created: g.now().UnixMilli()}
	channel, who, _ := strings.Cut(principal, ":")
	local := channel == access.Channel
	if local {
		t.Account, t.Host = ids.Account(who), registry.LocalHost
		if p.PersonBind {
			return t
		}
	}
	hosts := g.reg.Root().Hosts
	for _, id := range slices.Sorted(maps.Keys(hosts)) {
		if hosts[id].Serves(t.Account, p.ID) && (local || slices.Contains(hosts[id].Channels, channel)) {
			t.Host = id
			break
		}
	}
	return t
}

// taskOf is a session's task as it stands now; a supposed one stands nowhere else.
func (g *Gate) taskOf(s *session) *registry.Task {
	if s.task.ID == "" {
		return s.task
	}
	return g.reg.Task(s.task.ID)
}

// asker stands for a session of a task: one of its own where it has any, so that the
// bounds are those it would meet.
func (g *Gate) asker(t *registry.Task) *session {
	for _, id := range slices.Sorted(maps.Keys(g.byTask[t.ID])) {
		return g.byTask[t.ID][id]
	}
	return &session{task: t, set: Set{t.Project, onlySet}}
}

// Tools lists the tools of a task's project, by all their names.
func (g *Gate) Tools(t *registry.Task) []Named {
	var out []Named
	for _, e := range g.entries(g.asker(t)) {
		out = append(out, Named{Connection: e.conn, Label: g.label(t.Project, e.conn), Tool: e.tool, Served: e.name})
	}
	return out
}

// label is that of a connection's server.
func (g *Gate) label(p ids.Project, conn ids.Connection) string {
	if c := g.reg.View(p).Connections[conn]; c != nil {
		return g.reg.Root().Servers[c.Server].Label
	}
	return ""
}

// Find lists what a name can mean in a task's project: connection.tool, a served
// name, or a tool's own name; prompts and resources by their keys. A name that is served means
// that alone.
func (g *Gate) Find(t *registry.Task, name string) []Named {
	if kind, _ := item.Split(name); kind == item.Resource {
		conn, key := g.resolve(g.asker(t), name)
		if conn == "" {
			return nil
		}
		return []Named{{Connection: conn, Label: g.label(t.Project, conn), Tool: key, Served: key}}
	}
	all := g.Tools(t)
	for _, is := range []func(Named) bool{
		func(n Named) bool { return item.Under(n.Label, n.Tool) == name },
		func(n Named) bool { return n.Served == name && g.reg.Served(t.Project, name) != nil },
		func(n Named) bool { return n.Tool == name || n.Served == name },
	} {
		var found []Named
		for _, n := range all {
			if is(n) {
				found = append(found, n)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// Explain asks every rule about a tool for a task, as a call of it would be asked.
// h is what else is known of it, so that what a start would meet is told too.
func (g *Gate) Explain(t *registry.Task, n Named, h Health) Explained {
	s := g.asker(t)
	k := g.question(s, n.Connection, n.Tool, "")
	f := &g.facts
	f.Session = f.Session || s.id == ""
	f.Recordable = g.trouble == ""
	if h.Replaced && f.Project == policy.ProjectLive {
		f.Project = policy.ProjectReplaced
	}
	if h.Held && f.Limits == policy.WithinLimits {
		f.Limits = policy.TooManyStarts
	}
	out := Explained{Connection: n.Connection, Tool: n.Tool, Served: n.Served, Verdict: policy.Decide(f), Known: k}
	asked := g.taskOf(s)
	for _, a := range policy.Explain(f) {
		r := Reason{Answered: a}
		if a.Asked {
			r.Read, r.From = g.read(a.Rule, s, asked, n, &k)
		}
		out.Reasons = append(out.Reasons, r)
	}
	return out
}

// read tells what a rule looked at and where that is written.
func (g *Gate) read(rule string, s *session, t *registry.Task, n Named, k *registry.Tool) (read, from string) {
	root := g.reg.Root()
	facts := fmt.Sprintf("root facts, version %d", root.Version)
	p := root.Projects[s.set.Project]
	if t == nil {
		t = &registry.Task{}
	}
	switch rule {
	case "account":
		a := root.Accounts[t.Account]
		return named(a.Name, string(t.Account)) + ", " + accountWord(g.reg.AccountStanding(t.Account)), facts
	case "project":
		if g.facts.Project == policy.ProjectReplaced {
			return named(p.Label, string(s.set.Project)) + "; at its path is another directory than the registered one, or none", "the project's path, looked at now"
		}
		return named(p.Label, string(s.set.Project)), facts
	case "task":
		if t.ID == "" {
			return "supposed", "the question"
		}
		if t.Ended != 0 {
			return string(t.ID) + ", ended " + day(t.Ended) + ": " + t.Reason, "task " + string(t.ID)
		}
		return string(t.ID) + ", made " + day(t.Created), "task " + string(t.ID)
	case "session":
		return fmt.Sprintf("%d live sessions; a call needs one", len(g.byTask[t.ID])), "the authority's memory"
	case "host":
		if t.Host == registry.LocalHost {
			return "the person connects; person bind is " + onOff(p.PersonBind), facts + ", project " + p.Label
		}
		if t.Host == "" {
			return "no configured host serves this account, project and channel", "postern.yaml, hosts"
		}
		return "host " + t.Host, "postern.yaml, hosts"
	case "member":
		role := g.reg.Role(t.Account, s.set.Project)
		if role == registry.Owner && p.Owner == t.Account {
			return "owner", facts + ", project " + p.Label
		}
		return cmp.Or(role, "no role"), "members of project " + p.Label
	case "principal":
		return t.Principal, g.policyPlace(t)
	case "access policy":
		return g.ceilingText(t) + classless(g.facts.Ceiling), g.policyPlace(t)
	case "mode":
		return g.modeText(t) + classless(g.facts.Mode), "task " + cmp.Or(string(t.ID), "supposed")
	case "record":
		if g.trouble != "" {
			return "the last record could not be written: " + g.trouble, "activity.db"
		}
		return "records can be written", "activity.db"
	case "connection":
		if k.Connected == nil || g.facts.Connection == policy.NoConnection {
			return "no tool of this project has this name", "project " + p.Label
		}
		c := k.Connected
		word := "enabled"
		if !c.Enabled {
			word = "disabled"
		}
		if k.Server.Deleted {
			word += ", and the server's registration is deleted; one of the same label is another server"
		}
		return fmt.Sprintf("%s, %s, version %d", k.Server.Label, word, c.Version), "connection " + string(c.ID)
	}
	return g.readTool(rule, s, p, n.Tool, k)
}

// readTool is read for the rules about a tool of the project's own.
func (g *Gate) readTool(rule string, s *session, p registry.RootProject, tool string, k *registry.Tool) (read, from string) {
	c := k.Connected
	if c == nil {
		return "", ""
	}
	registration := "server " + k.Server.Label + ", revision " + string(c.Accepted)
	switch rule {
	case "revision":
		if c.Accepted == k.Server.Current {
			return "accepted and registered " + string(c.Accepted), "connection " + string(c.ID)
		}
		return fmt.Sprintf("accepted %s, registered %s", c.Accepted, k.Server.Current), "connection " + string(c.ID) + " and server " + k.Server.Label
	case "grant":
		if k.Grant == nil {
			return "no grant", "connection " + string(c.ID)
		}
		return fmt.Sprintf("granted by %s on %s, of %s", k.Grant.By, day(k.Grant.At), k.Grant.Revision), "grant " + string(k.Grant.ID)
	case "pin":
		return g.pinText(k)
	case "execution profile":
		spawn := "its jail may not start programs"
		if k.Revision != nil && k.Revision.Fork {
			spawn = "its jail may start programs"
		}
		return cmp.Or(p.ExecutionProfile, "none") + "; " + classText(k) + "; " + spawn, "project " + p.Label + "; " + registration
	case "credential":
		need := "none is needed"
		if k.Revision == nil || k.Revision.Required {
			need = "one is needed, and none is assigned"
			if g.reg.Assigned(c.Project, c.Server) != (registry.Credential{}) {
				need = "one is needed, and one is assigned"
			}
		}
		return need + "; the connection is " + c.Credential, registration + "; connection " + string(c.ID)
	case "approval":
		return "tier " + cmp.Or(k.Tier.String(), "unmarked"), tierPlace(k, tool, registration)
	case "shared directory":
		writes := "its jail cannot write into the project's directory"
		switch {
		case k.Revision != nil && k.Revision.PerTask:
			writes = "each task has a directory of its own"
		case k.Revision == nil || k.Revision.Writes:
			writes = "its jail can write into the project's directory, which tasks of channels may not share"
		}
		return writes, registration
	case "path arguments":
		if class.ArgumentsOf(tool).None() {
			return "the tool has no path arguments", "the table of known filesystem operations"
		}
		return "the path arguments of each call must lie beneath the workspace", "the call"
	case "limits":
		return fmt.Sprintf("%d of %d calls of the connection are open, %d of %d of the session; %s", g.perPlace[placeKey{s.set, g.placeOf(s, c.ID)}], callsOf(k.Revision), s.open, MaxPerSession, startsText(g.facts.Limits)), "the authority's memory"
	}
	return "", ""
}

// classless is the reason of a class list that is held against a tool without class.
func classless(a policy.Answer) string {
	if a == policy.RefusedNoClass {
		return "; no_class: it restricts by class, and the tool has none"
	}
	return ""
}

func startsText(l policy.Limits) string {
	if l == policy.TooManyStarts {
		return "its server is kept from starting for a while, after it failed"
	}
	return "its server may start"
}

func (g *Gate) pinText(k *registry.Tool) (read, from string) {
	from = "no probe of " + string(k.Connected.Accepted)
	if cat := g.reg.Catalogue(k.Connected.Accepted); cat != nil {
		from = "probe of " + string(k.Connected.Accepted) + " on " + day(cat.Probed)
	}
	switch {
	case k.Pin == nil:
		return "the accepted revision does not list the tool", from
	case k.Pin.Quarantine != "":
		return "kept out: " + k.Pin.Quarantine, from
	case k.Grant != nil && k.Grant.Pin != k.Pin.Digest:
		return fmt.Sprintf("granted as %s, now %s", short(k.Grant.Pin[:]), short(k.Pin.Digest[:])), from
	case g.facts.Pin == policy.PinChanged:
		return "the running server lists another definition than " + short(k.Pin.Digest[:]), "what the running server lists"
	}
	return "definition " + short(k.Pin.Digest[:]), from
}

// tierPlace says whose mark a tier is.
func tierPlace(k *registry.Tool, tool, registration string) string {
	switch {
	case k.Grant != nil && k.Grant.Tier != 0 && class.Tier(k.Grant.Tier) == k.Tier:
		return "the mark of grant " + string(k.Grant.ID)
	case k.Revision != nil && k.Revision.Tiers[tool] != class.Unmarked:
		return "the operator's mark, " + registration
	case k.Hints.Destructive == class.Yes:
		return "no mark; the server says that it destroys"
	}
	return "no mark; " + classText(k)
}

func classText(k *registry.Tool) string {
	if k.Classes.Empty() {
		return "no class"
	}
	return "classes " + k.Classes.String() + " (" + k.Source.String() + ")"
}

func accountWord(a policy.Account) string {
	switch a {
	case policy.AccountActive:
		return "active"
	case policy.AccountSuspended:
		return "suspended"
	case policy.AccountDeleted:
		return "deleted"
	}
	return "unknown"
}

func named(name, id string) string {
	if name == "" {
		return cmp.Or(id, "none")
	}
	return name + " (" + id + ")"
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func short(digest []byte) string { return "sha256:" + hex.EncodeToString(digest)[:16] }

func day(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateTime) + " UTC" }

// denies names every rule that denies by the facts last gathered, for the record.
func (g *Gate) denies() string {
	var codes []string
	for _, a := range policy.Explain(&g.facts) {
		if a.Code != "" {
			codes = append(codes, string(a.Code))
		}
	}
	text := fmt.Sprintf("facts=%d denies=%s", g.reg.Root().Version, strings.Join(codes, ","))
	if g.facts.Ceiling == policy.RefusedNoClass || g.facts.Mode == policy.RefusedNoClass {
		text += " reason=no_class"
	}
	return text
}
