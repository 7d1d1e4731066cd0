package gate

import (
	"postern/ids"
	"postern/supervisor/registry"
)

// Credential tells one credential from another and from its former self; the zero one is
// none. What it is, nobody here knows.
type Credential = registry.Credential

// Credential is what a revision is started with for a project: none where it needs none,
// or where none is assigned.
func (g *Gate) Credential(p ids.Project, server ids.Server, rev ids.Revision) Credential {
	v := g.reg.Root().Servers[server].Revisions[rev]
	if v == nil || !v.Required {
		return Credential{}
	}
	return g.reg.Assigned(p, server)
}
