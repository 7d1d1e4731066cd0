package registry

import (
	"maps"
	"testing"

	"postern/ids"
	"postern/supervisor/store"
)

// P5: a connection follows the need of the revision that is accepted for it. A keyless one
// to a server that has come to need a credential is not ready, whoever has one assigned.
func TestAcceptTakesTheNeedOfACredential(t *testing.T) {
	w := newWorld(t)
	c := w.connect(shop, fs)
	p, s := id[ids.Project](shop), id[ids.Server](fs)
	revise := func(n int, required bool) {
		t.Helper()
		root := *w.r.root
		root.Servers = maps.Clone(root.Servers)
		srv := root.Servers[s]
		srv.Revisions = maps.Clone(srv.Revisions)
		next := *srv.Revisions[srv.Current]
		next.ID, next.Required = id[ids.Revision](n), required
		srv.Revisions[next.ID], srv.Current = &next, next.ID
		root.Servers[s] = srv
		w.r.SetRoot(&root)
		w.probe(n, `[]`)
	}
	ready := func() bool {
		t.Helper()
		k, _ := w.r.Tool(p, c, "x")
		return w.r.CredentialOK(&k)
	}
	if !ready() || w.r.Mode(s) != Keyless {
		t.Fatal("a keyless one misses a credential")
	}
	revise(7, true)
	if w.r.Connection(c).Credential != Keyless || w.r.Mode(s) != WithCredential {
		t.Error("the mode changed before anyone accepted")
	}
	w.do(w.r.Accept(c, id[ids.Revision](7), nil, "uid 0", 0, now))
	if w.r.Connection(c).Credential != WithCredential || ready() {
		t.Error("accepted, with nothing assigned, and ready")
	}
	w.r.root.Assigned = map[Assignment]Credential{{p, s}: {ID: id[ids.Credential](1), Generation: 1}}
	if !ready() {
		t.Error("the twin: assigned, and not ready")
	}
	keyless := w.r.Connection(c).Connection
	keyless.Credential = Keyless
	w.do(Change{Put: []store.Row{keyless}}, nil)
	if ready() {
		t.Error("a keyless connection to a server that needs a credential is ready")
	}
	revise(8, false)
	w.do(w.r.Accept(c, id[ids.Revision](8), nil, "uid 0", 0, now))
	if w.r.Connection(c).Credential != Keyless || !ready() {
		t.Error("back to a keyless revision")
	}
}
