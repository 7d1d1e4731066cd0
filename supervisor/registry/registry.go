// Package registry knows the authority's facts: accounts' standing, members,
// connections, grants, pins, tasks and tokens, beside the root facts it was told.
//
// It runs inside the authority. The one writer owns the Registry: it alone calls
// its methods, except on a View, which never changes and may be read by anyone.
// Labels, tool names, definitions and selectors are written by people and tool
// servers and are hostile.
//
// A mutation is three steps: a method checks it against memory and returns a
// store.Change, the writer makes that durable, then Apply puts the same rows into
// memory. No method but Apply, SetRoot and CountBind changes the registry.
//
// Invariants:
//   - registry-1: what Apply leaves in memory is what Load reads from the file.
//   - registry-2: nothing is granted but one named tool or prompt, or the resources beneath one prefix, of one connection of one project.
//   - registry-3: a served name, once given, never names another connection's tool.
//   - registry-4: a task is never changed, moved or made live again.
//   - registry-5: a change that names an old version is refused, and nothing is written.
//   - registry-6: looking up what an admission needs allocates nothing.
//
// It is not the gate: it gathers facts and decides no call.
package registry

import (
	"maps"
	"slices"
	"strings"

	"postern/ids"
	"postern/item"
	"postern/policy/class"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// The rows, by the names this package uses.
type (
	Change     = store.Change
	Connection = store.Connection
	Grant      = store.Grant
	Pin        = store.Pin
	Task       = store.Task
	Paired     = store.Paired
)

// LocalHost is the host of tasks that people make by connecting themselves.
const LocalHost = "local"

// Roles of an account in a project.
const (
	Owner  = "owner"
	Member = "member"
	Viewer = "viewer"
)

// Credential modes of a connection.
const (
	Keyless        = "keyless"
	WithCredential = "credential"
)

// Registry is everything in memory.
type Registry struct {
	root     *Root
	accounts map[ids.Account]store.Account
	views    map[ids.Project]*View
	where    map[ids.Connection]ids.Project
	probes   map[ids.Revision]*Catalogue
	tasks    map[ids.Task]*Task
	live     map[ids.Project]map[ids.Task]*Task // the tasks that have not ended
	ofHost   map[string]int                     // how many of them each host has
	tokens   map[token.Digest]*token.Binding
	ofTask   map[ids.Task][]token.Digest
	paired   map[person]Paired

	definitions map[store.Digest][]byte // what was granted or accepted, by digest
}

// View is one project as it stood at one moment. It is never changed: a mutation
// makes another one.
type View struct {
	ID          ids.Project
	Members     map[ids.Account]string // role
	Connections map[ids.Connection]*Connected
	ByServer    map[ids.Server]ids.Connection
	Served      map[string]*Grant // what is granted, by the name it is served under
	Names       map[string]Name   // every name ever given
}

// Connected is a connection with its grants.
type Connected struct {
	Connection
	Grants   map[string]*Grant // by the item's key: a tool's own name, "prompt:NAME", "resource:PREFIX"
	Prefixes []*Grant          // those of resources
}

// Name says which tool a served name belongs to for ever.
type Name struct {
	Connection ids.Connection
	Tool       string
}

// Catalogue is what the last probe of a revision found. It is never changed.
type Catalogue struct {
	Revision ids.Revision
	Probed   int64 // milliseconds since the epoch
	Error    string
	Era      string   // what the server speaks: a hint
	Order    []string // the server's own order
	Tools    map[string]*Pin
}

// Tool is all that is known of one tool of a project's connection.
type Tool struct {
	Connected *Connected
	Server    RootServer
	Revision  *RootRevision // the accepted one; nil if root does not know it
	Pin       *Pin          // of the accepted revision; nil if it was not found there
	Grant     *Grant        // nil if it is not granted
	Hints     class.Hints
	Classes   class.Set
	Source    class.Source
	Tier      class.Tier
}

// Load reads the registry from the store. It knows no root facts before SetRoot,
// and then decides nothing in anyone's favour.
func Load(s *store.Store) (*Registry, error) {
	p, err := s.Policy()
	if err != nil {
		return nil, err
	}
	used, err := s.Binds()
	if err != nil {
		return nil, err
	}
	r := &Registry{
		root: &Root{}, accounts: map[ids.Account]store.Account{}, views: map[ids.Project]*View{}, where: map[ids.Connection]ids.Project{},
		probes: map[ids.Revision]*Catalogue{}, tasks: map[ids.Task]*Task{}, live: map[ids.Project]map[ids.Task]*Task{}, ofHost: map[string]int{},
		tokens: map[token.Digest]*token.Binding{}, ofTask: map[ids.Task][]token.Digest{}, paired: map[person]Paired{},
		definitions: map[store.Digest][]byte{},
	}
	fresh := map[ids.Project]bool{}
	put(r, fresh, p.Accounts)
	put(r, fresh, p.Members)
	put(r, fresh, p.Connections)
	put(r, fresh, p.Served)
	put(r, fresh, p.Grants)
	put(r, fresh, p.Definitions)
	put(r, fresh, p.Probes)
	put(r, fresh, p.Tasks)
	put(r, fresh, p.Tokens)
	put(r, fresh, p.Paired)
	for d, n := range used {
		if b := r.tokens[token.Digest(d)]; b != nil {
			b.Used = n
		}
	}
	return r, nil
}

func put[R store.Row](r *Registry, fresh map[ids.Project]bool, rows []R) {
	for _, row := range rows {
		r.put(fresh, row)
	}
}

// Apply puts into memory what the store has made durable.
func (r *Registry) Apply(c Change) {
	fresh := map[ids.Project]bool{}
	for _, row := range c.Delete {
		r.remove(fresh, row)
	}
	for _, row := range c.Put {
		r.put(fresh, row)
	}
}

// SetRoot replaces the root facts. What they end must have been ended before: see Reconcile.
func (r *Registry) SetRoot(root *Root) { r.root = root }

// Root returns the root facts. They are never changed, only replaced.
func (r *Registry) Root() *Root { return r.root }

// edit returns the project's view for changing: a copy, made once in each Apply,
// so that whoever holds the former view keeps reading what it was.
func (r *Registry) edit(fresh map[ids.Project]bool, p ids.Project) *View {
	v := r.views[p]
	switch {
	case v == nil:
		v = &View{ID: p, Members: map[ids.Account]string{}, Connections: map[ids.Connection]*Connected{}, ByServer: map[ids.Server]ids.Connection{},
			Served: map[string]*Grant{}, Names: map[string]Name{}}
	case fresh[p]:
		return v
	default:
		v = &View{ID: p, Members: maps.Clone(v.Members), Connections: maps.Clone(v.Connections), ByServer: maps.Clone(v.ByServer),
			Served: maps.Clone(v.Served), Names: maps.Clone(v.Names)}
		for id, c := range v.Connections {
			v.Connections[id] = &Connected{Connection: c.Connection, Grants: maps.Clone(c.Grants), Prefixes: slices.Clone(c.Prefixes)}
		}
	}
	r.views[p], fresh[p] = v, true
	return v
}

func (r *Registry) put(fresh map[ids.Project]bool, row store.Row) {
	switch row := row.(type) {
	case store.Account:
		r.accounts[row.ID] = row
	case store.Member:
		r.edit(fresh, row.Project).Members[row.Account] = row.Role
	case store.Connection:
		v := r.edit(fresh, row.Project)
		c := v.Connections[row.ID]
		if c == nil {
			c = &Connected{Grants: map[string]*Grant{}}
			v.Connections[row.ID] = c
		}
		c.Connection = row
		v.ByServer[row.Server] = row.ID
		r.where[row.ID] = row.Project
	case store.Served:
		r.edit(fresh, row.Project).Names[row.Name] = Name{row.Connection, row.Tool}
	case store.Grant:
		v := r.edit(fresh, row.Project)
		v.Served[row.Served] = &row
		c := v.Connections[row.Connection]
		c.Grants[row.Tool] = &row
		c.index(row.Tool)
	case store.Definition:
		r.definitions[row.Digest] = row.Raw
	case store.Probe:
		c := &Catalogue{Revision: row.Revision, Probed: row.At, Error: row.Error, Era: row.Era, Tools: make(map[string]*Pin, len(row.Pins))}
		for i := range row.Pins {
			c.Order = append(c.Order, row.Pins[i].Tool)
			c.Tools[row.Pins[i].Tool] = &row.Pins[i]
		}
		r.probes[row.Revision] = c
	case store.Task:
		r.tasks[row.ID] = &row
		was := r.live[row.Project][row.ID] != nil
		if row.Ended != 0 {
			delete(r.live[row.Project], row.ID)
			if was {
				if r.ofHost[row.Host]--; r.ofHost[row.Host] == 0 {
					delete(r.ofHost, row.Host)
				}
			}
			return
		}
		if !was {
			r.ofHost[row.Host]++
		}
		if r.live[row.Project] == nil {
			r.live[row.Project] = map[ids.Task]*Task{}
		}
		r.live[row.Project][row.ID] = &row
	case store.Token:
		d := token.Digest(row.Digest)
		used := 0
		if b := r.tokens[d]; b != nil {
			used = b.Used
		} else {
			r.ofTask[row.Task] = append(r.ofTask[row.Task], d)
		}
		r.tokens[d] = bindingOf(row, used)
	case store.Paired:
		r.paired[person{row.Channel, row.Identity}] = row
	}
}

func (r *Registry) remove(fresh map[ids.Project]bool, row store.Row) {
	switch row := row.(type) {
	case store.Member:
		delete(r.edit(fresh, row.Project).Members, row.Account)
	case store.Grant:
		v := r.edit(fresh, row.Project)
		delete(v.Served, row.Served)
		c := v.Connections[row.Connection]
		delete(c.Grants, row.Tool)
		c.index(row.Tool)
	case store.Token:
		delete(r.tokens, token.Digest(row.Digest))
		r.ofTask[row.Task] = without(r.ofTask[row.Task], token.Digest(row.Digest))
	case store.Paired:
		delete(r.paired, person{row.Channel, row.Identity})
	}
}

// index brings Prefixes up to date after the grant of a key came, changed or went.
func (c *Connected) index(key string) {
	kind, _ := item.Split(key)
	if kind != item.Resource {
		return
	}
	c.Prefixes = slices.DeleteFunc(c.Prefixes, func(g *Grant) bool { return g.Tool == key })
	if g := c.Grants[key]; g != nil {
		c.Prefixes = append(c.Prefixes, g)
	}
	if len(c.Prefixes) == 0 {
		c.Prefixes = nil
	}
	slices.SortFunc(c.Prefixes, func(a, b *Grant) int { return strings.Compare(a.Tool, b.Tool) })
}

func isResource(g *Grant) bool {
	kind, _ := item.Split(g.Tool)
	return kind == item.Resource
}

func without(ds []token.Digest, d token.Digest) []token.Digest {
	var out []token.Digest
	for _, o := range ds {
		if o != d {
			out = append(out, o)
		}
	}
	return out
}
