package registry

import (
	"crypto/sha256"
	"slices"
	"time"

	"postern/ids"
	"postern/item"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/store"
)

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
