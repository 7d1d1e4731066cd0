package gate

import (
	"cmp"
	"maps"
	"slices"

	"postern/bridge/wire"
	"postern/ids"
	"postern/item"
	"postern/policy"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// entry is one item of a project's own connections, under the name a runtime
// would use for it.
type entry struct {
	name string
	conn ids.Connection
	tool string
	pin  *registry.Pin
	made int64
}

// entries lists the tools of the session's project: granted ones by the name they
// are served under, the others by their own name where no other tool has it, else
// by connection and name. Connections come in the order they were made, tools and
// prompts in the server's, and then the resource prefixes that are granted.
func (g *Gate) entries(s *session) []entry {
	v := g.reg.View(s.set.Project)
	conns := make([]*registry.Connected, 0, len(v.Connections))
	for _, c := range v.Connections {
		conns = append(conns, c)
	}
	slices.SortFunc(conns, func(a, b *registry.Connected) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	})
	var out []entry
	taken := map[string]bool{}
	for name := range v.Names {
		taken[name] = true
	}
	for _, c := range conns {
		cat := g.reg.Catalogue(c.Accepted)
		if cat == nil {
			continue
		}
		label := g.reg.Root().Servers[c.Server].Label
		for _, tool := range cat.Order {
			e := entry{conn: c.ID, tool: tool, pin: cat.Tools[tool]}
			if gr := c.Grants[tool]; gr != nil {
				e.name = gr.Served
			} else if e.name = tool; taken[tool] && v.Names[tool] != (registry.Name{Connection: c.ID, Tool: tool}) {
				e.name = item.Under(label, tool)
			} else {
				taken[tool] = true
			}
			out = append(out, e)
		}
		for _, gr := range c.Prefixes {
			out = append(out, entry{name: gr.Tool, conn: c.ID, tool: gr.Tool})
		}
	}
	return out
}

// View lists the project's own tools for a session: those that may be called now
// with their definitions, the others only so that the bridge can ask about them
// by the right name. What a name outside the list means is asked by Admit.
func (g *Gate) View(set Set, id ids.Session) []wire.Tool {
	s := g.session(set, id)
	if s == nil {
		return nil
	}
	var out []wire.Tool
	for _, e := range g.entries(s) {
		g.question(s, e.conn, e.tool, "")
		g.facts.Limits = policy.WithinLimits // a busy moment hides no tool
		t := wire.Tool{Name: e.name, Connection: e.conn, Slot: g.Slot(g.placeOf(s, e.conn)), Tool: e.tool}
		if kind, _ := item.Split(e.tool); policy.Decide(&g.facts).Allow && (e.pin != nil || kind == item.Resource) {
			t.Callable, t.Paths, t.Args = true, pathArgs(e.tool), g.recordsArguments(set.Project, e.tool)
			if e.pin != nil {
				t.Definition = e.pin.Raw
			}
		}
		out = append(out, t)
	}
	return out
}

// Listed compares what a running instance lists with the pins of its revision. A
// tool that differs or is missing is kept from being called while that instance
// runs and says so; nothing else follows from a bridge's catalogue. It tells
// whether anything changed.
func (g *Gate) Listed(set Set, at Place, rev ids.Revision, data []byte) (bool, error) {
	pins, err := registry.ReadCatalogue(data)
	if err != nil {
		return false, err
	}
	said := make(map[string]store.Digest, len(pins))
	for _, p := range pins {
		if p.Quarantine == "" {
			said[p.Tool] = p.Digest
		}
	}
	is := drift{rev: rev, said: map[string]store.Digest{}}
	if cat := g.reg.Catalogue(rev); cat != nil {
		for tool, pin := range cat.Tools {
			if pin.Quarantine == "" && said[tool] != pin.Digest {
				is.said[tool] = said[tool]
			}
		}
	}
	key := placeKey{set, at}
	was := g.drift[key]
	if g.drift[key] = is; len(is.said) == 0 {
		delete(g.drift, key)
	}
	return !maps.Equal(was.said, is.said), nil
}

// Unlisted forgets what an instance listed, for it is gone: the next one is heard
// anew before it is called. It tells whether anything changed.
func (g *Gate) Unlisted(set Set, at Place) bool {
	key := placeKey{set, at}
	_, was := g.drift[key]
	delete(g.drift, key)
	return was
}

// drift is what the running instance of a place lists otherwise than pinned,
// by digest; the zero digest is a tool that it does not list.
type drift struct {
	rev  ids.Revision
	said map[string]store.Digest
}

// drifted denies the pin in g.facts where the place's instance lists the tool
// otherwise than it is pinned now. What one of another revision says does not count.
func (g *Gate) drifted(k *registry.Tool, at placeKey, tool string) {
	if k.Connected == nil || k.Pin == nil {
		return
	}
	d := g.drift[at]
	if said, ok := d.said[tool]; ok && d.rev == k.Connected.Accepted && said != k.Pin.Digest {
		g.facts.Pin = policy.PinChanged
	}
}

// Pins makes the pins of a probe's catalogue: what it holds, and what the bridge
// kept out of it.
func Pins(data []byte, kept []wire.Quarantined) ([]registry.Pin, error) {
	pins, err := registry.ReadCatalogue(data)
	if err != nil {
		return nil, err
	}
	for _, q := range kept {
		if q.Tool != "" && !slices.ContainsFunc(pins, func(p registry.Pin) bool { return p.Tool == q.Tool }) {
			pins = append(pins, registry.Pin{Tool: q.Tool, Quarantine: q.Reason})
		}
	}
	return pins, nil
}

// Describe reads the title and the description of a pinned definition, bounded.
func Describe(raw []byte) (title, description string) { return wire.Describe(raw) }

// Standing asks the rules about a tool as a live task of the project without a
// ceiling would, for people who look at a connection.
func (g *Gate) Standing(p ids.Project, conn ids.Connection, tool string) policy.Verdict {
	f := policy.Facts{Account: policy.AccountActive, Task: policy.TaskLive, Bound: true, Session: true, Host: policy.HostAssigned, Member: true,
		Principal: policy.PrincipalAdmitted, Ceiling: policy.Allowed, Mode: policy.Allowed, Paths: policy.PathsInside, Apart: true, Limits: policy.WithinLimits, Recordable: true}
	k, _ := g.reg.Facts(&f, nil, p, conn, tool)
	f.Running = f.Accepted
	g.facts = f
	for at := range g.drift {
		if at.place.Conn == conn {
			g.drifted(&k, at, tool)
		}
	}
	return policy.Decide(&g.facts)
}
