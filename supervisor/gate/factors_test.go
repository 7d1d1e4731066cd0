package gate

import (
	"fmt"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

func dump(v any) []byte { return fmt.Appendf(nil, "%+v", v) }

// factor is one thing an admission needs: how it is taken away, what is answered
// then, and how it comes back.
type factor struct {
	name  string
	take  func(*world)
	code  refusal.Code
	give  func(*world) // nil where it never comes back
	never bool         // Reconsider does not look at it: it is about new calls only
}

func (w *world) editAccount(change func(*registry.RootAccount)) {
	w.root(func(r *registry.Root) {
		a := r.Accounts[id[ids.Account](alice)]
		change(&a)
		r.Accounts[a.ID] = a
	})
}

func (w *world) editProject(change func(*registry.RootProject)) {
	w.root(func(r *registry.Root) {
		p := r.Projects[id[ids.Project](shop)]
		change(&p)
		r.Projects[p.ID] = p
	})
}

func (w *world) editServer(change func(*registry.RootServer)) {
	w.root(func(r *registry.Root) {
		s := r.Servers[id[ids.Server](files)]
		change(&s)
		r.Servers[s.ID] = s
	})
}

// editTask changes a task in memory, for the file refuses to.
func (w *world) editTask(change func(*registry.Task)) {
	t := *w.reg().Task(w.task)
	change(&t)
	w.reg().Apply(registry.Change{Put: []store.Row{t}})
}

func restore(w *world) { w.reg().SetRoot(facts()) }

var factors = []factor{
	{"the account is suspended", func(w *world) { w.do(w.reg().Suspend(id[ids.Account](alice), true, 0)) }, refusal.AccountSuspended,
		func(w *world) { w.do(w.reg().Suspend(id[ids.Account](alice), false, 0)) }, false},
	{"the account is deleted", func(w *world) { w.editAccount(func(a *registry.RootAccount) { a.Deleted = true }) }, refusal.AccountDeleted, restore, false},
	{"the account is unknown", func(w *world) {
		w.root(func(r *registry.Root) { delete(r.Accounts, id[ids.Account](alice)) })
	}, refusal.AccountUnknown, restore, false},
	{"the project is deleted", func(w *world) { w.editProject(func(p *registry.RootProject) { p.Deleted = true }) }, refusal.ProjectDeleted, restore, false},
	{"the project is unknown", func(w *world) {
		w.root(func(r *registry.Root) { delete(r.Projects, id[ids.Project](shop)) })
	}, refusal.ProjectUnknown, restore, false},
	{"the task has ended", func(w *world) { w.do(w.reg().EndTask(w.task, "revoked", w.now)) }, refusal.TaskEnded, nil, false},
	{"the host is gone", func(w *world) { w.root(func(r *registry.Root) { delete(r.Hosts, "agent") }) }, refusal.HostUnknown, restore, false},
	{"the host serves another account", func(w *world) {
		w.root(func(r *registry.Root) {
			h := r.Hosts["agent"]
			h.Accounts = map[ids.Account]bool{id[ids.Account](bob): true}
			r.Hosts["agent"] = h
		})
	}, refusal.HostNotAssigned, restore, false},
	{"the host serves another project", func(w *world) {
		w.root(func(r *registry.Root) {
			h := r.Hosts["agent"]
			h.AllProjects, h.Projects = false, map[ids.Project]bool{id[ids.Project](blog): true}
			r.Hosts["agent"] = h
		})
	}, refusal.HostNotAssigned, restore, false},
	{"the project has another owner", func(w *world) {
		w.editProject(func(p *registry.RootProject) { p.Owner = id[ids.Account](carol) })
	}, refusal.NotMember, restore, false},
	{"the account only views", func(w *world) {
		w.editProject(func(p *registry.RootProject) { p.Owner = id[ids.Account](carol) })
		w.do(w.reg().AddMember(id[ids.Project](shop), id[ids.Account](alice), registry.Viewer))
	}, refusal.NotMember, func(w *world) {
		w.do(w.reg().AddMember(id[ids.Project](shop), id[ids.Account](alice), registry.Member))
	}, false},
	{"the connection is disabled", func(w *world) { w.do(w.reg().Enable(w.conn, false, 0)) }, refusal.ConnectionDisabled,
		func(w *world) { w.do(w.reg().Enable(w.conn, true, 0)) }, false},
	{"the registration is deleted", func(w *world) { w.editServer(func(s *registry.RootServer) { s.Deleted = true }) }, refusal.ServerDeleted, restore, false},
	{"the registration has a newer revision", func(w *world) {
		w.editServer(func(s *registry.RootServer) {
			s.Current = id[ids.Revision](9)
			s.Revisions[s.Current] = &registry.RootRevision{ID: s.Current}
		})
	}, refusal.ServerRevisionChanged, restore, false},
	{"the grant is revoked", func(w *world) { w.do(w.reg().Revoke(w.conn, []string{"read_rows"}, 0)) }, refusal.ToolNotGranted,
		func(w *world) { w.grant(w.conn, class.Unmarked, "read_rows") }, false},
	{"the definition is another one", func(w *world) { w.probe(files, strings.Replace(catalogue, "reads ", "reads and sends", 1)) }, refusal.ToolChanged,
		func(w *world) { w.probe(files, catalogue) }, false},
	{"the definition differs by a space", func(w *world) { w.probe(files, strings.Replace(catalogue, "reads  ", "reads ", 1)) }, refusal.ToolChanged,
		func(w *world) { w.grant(w.conn, class.Unmarked, "read_rows") }, false},
	{"the tool is gone", func(w *world) { w.probe(files, strings.Replace(catalogue, "read_rows", "read_rowss", 1)) }, refusal.ToolChanged,
		func(w *world) { w.probe(files, catalogue) }, false},
	{"the definition is malformed", func(w *world) {
		w.probe(files, strings.Replace(catalogue, `"inputSchema":{"type":"object","x":1e400}`, `"inputSchema":7`, 1))
	}, refusal.ToolQuarantined, func(w *world) { w.probe(files, catalogue) }, false},
	{"the running server lists it otherwise", func(w *world) {
		if changed, err := w.g.Listed(shopSet, Place{Conn: w.conn}, id[ids.Revision](files), []byte(strings.Replace(catalogue, "reads ", "sends", 1))); err != nil || !changed {
			w.t.Fatal(changed, err)
		}
	}, refusal.ToolChanged, func(w *world) {
		if changed, err := w.g.Listed(shopSet, Place{Conn: w.conn}, id[ids.Revision](files), []byte(catalogue)); err != nil || !changed {
			w.t.Fatal(changed, err)
		}
	}, false},
	{"the running server no longer lists it", func(w *world) { w.g.Listed(shopSet, Place{Conn: w.conn}, id[ids.Revision](files), []byte("[]")) }, refusal.ToolChanged,
		func(w *world) { w.g.Unlisted(shopSet, Place{Conn: w.conn}) }, false},
	{"the principal is another account", func(w *world) {
		w.editTask(func(t *registry.Task) { t.Principal = "local:" + string(id[ids.Account](bob)) })
	}, refusal.PrincipalRefused, func(w *world) {
		w.editTask(func(t *registry.Task) { t.Principal = "local:" + string(id[ids.Account](alice)) })
	}, false},
	{"the principal is of a channel", func(w *world) {
		w.editTask(func(t *registry.Task) { t.Principal = "whatsapp:+5511999998888" })
	}, refusal.PrincipalRefused, nil, false},
	{"the mode is unknown", func(w *world) { w.editTask(func(t *registry.Task) { t.Mode = "chat" }) }, refusal.ModeRefused,
		func(w *world) { w.editTask(func(t *registry.Task) { t.Mode = "code" }) }, false},
	{"the execution profile is unknown", func(w *world) {
		w.editProject(func(p *registry.RootProject) { p.ExecutionProfile = "free" })
	}, refusal.ProfileRefused, restore, false},
	{"the tool executes and its jail may not", func(w *world) {
		w.editServer(func(s *registry.RootServer) {
			s.Revisions[s.Current].Classes["read_rows"] = class.SetOf(class.ProcessExecute)
			s.Revisions[s.Current].Tiers["read_rows"] = class.Reversible
		})
	}, refusal.ProfileRefused, func(w *world) {
		w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Fork = true })
	}, false},
	{"the server needs a credential", func(w *world) {
		w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Required = true })
	}, refusal.CredentialMissing, restore, false},
	{"the operator marks it destructive", func(w *world) {
		w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Tiers["read_rows"] = class.Destructive })
	}, refusal.ApprovalRequired, restore, false},
	{"the owner marks it destructive", func(w *world) { w.grant(w.conn, class.Destructive, "read_rows") }, refusal.ApprovalRequired,
		func(w *world) { w.grant(w.conn, class.Unmarked, "read_rows") }, false},
	{"the session has as many calls as it may", func(w *world) {
		for w.g.OpenCalls() < MaxPerSession {
			w.admitted("filling", w.ask(w.ses, w.conn, "list_dir"))
		}
	}, refusal.LimitCalls, func(w *world) { w.g.SetEnded(shopSet, refusal.ServerExited, "") }, true},
}

func TestGate2_A1_EachFactorAloneRefusesAndItsTwinAdmits(t *testing.T) {
	for _, f := range factors {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t)
			first := w.admitted("everything is in order", w.call())
			w.ended(first, wire.Completed)
			w.commit()
			f.take(w)
			open := w.g.OpenCalls()
			w.refused(f.name, w.call(), f.code)
			if w.g.OpenCalls() != open {
				t.Fatal("a refused call is open")
			}
			if _, _, code := w.g.MayStart(shopSet, wire.Start{Session: w.ses, Connection: w.conn, Tool: "read_rows", RequestID: "8"}, Seen{}); code != f.code {
				t.Fatalf("a start is answered %q", string(code))
			}
			if n := w.denials(f.code); n != 2 {
				t.Fatalf("%d denials are recorded", n)
			}
			if r := w.records()[0]; r.Task != w.task || r.Session != w.ses || r.Account != id[ids.Account](alice) || r.Project != id[ids.Project](shop) || r.Tool != "read_rows" || r.ID != "" {
				t.Fatalf("recorded %+v", r)
			}
			if f.give == nil {
				return
			}
			f.give(w)
			w.admitted("it is back", w.call())
			plan, _, code := w.g.MayStart(shopSet, wire.Start{Session: w.ses, Connection: w.conn, Tool: "read_rows", RequestID: "9"}, Seen{})
			if code != "" || plan.Server != id[ids.Server](files) || plan.Revision != id[ids.Revision](files) {
				t.Fatalf("a start is answered %q, %+v", string(code), plan)
			}
		})
	}
}

// The same list, asked of a call that was admitted before.
func TestGate3_ReconsiderNamesTheOpenCallForEachFactor(t *testing.T) {
	for _, f := range factors {
		if f.never {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			w := memoryWorld(t)
			c := w.admitted("before", w.call())
			if r := w.g.Reconsider(id[ids.Project](shop)); len(r.Calls) != 0 || len(r.Sessions) != 0 {
				t.Fatalf("nothing has changed: %+v", r)
			}
			f.take(w)
			r := w.g.Reconsider(id[ids.Project](shop))
			if f.code == refusal.ServerRevisionChanged { // it may finish
				if len(r.Calls) != 0 {
					t.Fatalf("%+v", r.Calls)
				}
			} else if len(r.Calls) != 1 || r.Calls[0].Call != c || r.Calls[0].Code != f.code || r.Calls[0].Set != shopSet || r.Calls[0].Tool != "read_rows" {
				t.Fatalf("%+v, want %s for %q", r.Calls, c, string(f.code))
			}
			w.refused("it is not admitted again", w.call(), f.code)
			if w.g.OpenCalls() != 1 {
				t.Fatal("Reconsider ended the call by itself")
			}
			w.ended(c, wire.Completed)
			w.commit()
			if got := w.record(c).State; got != store.Completed {
				t.Fatalf("its outcome is %s", got)
			}
		})
	}
}

func TestGate2_AnotherRevisionThanTheRunningOne(t *testing.T) {
	w := newWorld(t)
	ask := func(running ids.Revision) Decision {
		return w.g.Admit(shopSet, wire.Admit{Session: w.ses, Connection: w.conn, Tool: "read_rows"}, running, Seen{})
	}
	w.refused("an instance of another revision", ask(id[ids.Revision](9)), refusal.ServerRevisionChanged)
	w.refused("no instance", ask(""), refusal.StaleSelector)
	gone := wire.Admit{Session: w.ses, Connection: w.conn, Tool: "read_rows", Instance: id[ids.Jail](1)}
	w.refused("an instance that is gone", w.g.Admit(shopSet, gone, "", Seen{}), refusal.ServerUnavailable)
	if w.denials(refusal.StaleSelector) != 0 || w.denials(refusal.ServerUnavailable) != 1 {
		t.Fatal("what the bridge asks again by itself was recorded as denied, or the other was not")
	}
	w.do(w.reg().Revoke(w.conn, []string{"read_rows"}, 0))
	w.refused("no instance, and no grant", ask(""), refusal.ToolNotGranted)
	w.grant(w.conn, class.Unmarked, "read_rows")
	w.admitted("the accepted one", ask(id[ids.Revision](files)))
}

// A new revision needs acceptance: the current one, then each granted tool whose
// definition is another.
func TestGate2_AcceptingANewRevision(t *testing.T) {
	w := newWorld(t)
	next := id[ids.Revision](9)
	w.editServer(func(s *registry.RootServer) {
		s.Current = next
		s.Revisions[next] = &registry.RootRevision{ID: next, Classes: map[string]class.Set{}, Tiers: map[string]class.Tier{}}
	})
	pins, err := Pins([]byte(strings.Replace(catalogue, "reads ", "opens", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.do(w.reg().PutCatalogue(next, w.now, "", "", pins))
	w.refused("a probe accepts nothing", w.call(), refusal.ServerRevisionChanged)
	w.g.Listed(shopSet, Place{Conn: w.conn}, id[ids.Revision](files), []byte("[]")) // what the former revision says last
	w.do(w.reg().Accept(w.conn, next, nil, "root", 0, w.now))
	w.refused("its definition is another", w.call(), refusal.ToolChanged)
	w.admitted("its definition is the same", w.ask(w.ses, w.conn, "list_dir"))
	w.do(w.reg().Accept(w.conn, next, []string{"read_rows"}, "root", 0, w.now))
	w.admitted("accepted by name", w.call())
}

func TestGate2_LimitOfAConnectionAcrossSessions(t *testing.T) {
	w := newWorld(t)
	var sessions []ids.Session
	for range MaxPerConnection/MaxPerSession + 1 {
		sessions = append(sessions, w.bind(w.task))
	}
	for i := range MaxPerConnection {
		if d := w.ask(sessions[i/MaxPerSession], w.conn, "read_rows"); d.Code != "" {
			t.Fatalf("call %d: %s", i, d.Code)
		}
	}
	last := sessions[len(sessions)-1]
	w.refused("one too many", w.ask(last, w.conn, "read_rows"), refusal.LimitCalls)
	if !w.g.Busy(shopSet, Place{Conn: w.conn}) {
		t.Fatal("the connection is not busy")
	}
	other := w.connect(shop, notes)
	w.grant(other, class.Unmarked, "read_rows")
	w.admitted("another connection", w.ask(last, other, "read_rows"))
	w.g.SessionEnded(sessions[0], "it left")
	w.refused("an ended session's calls are still open", w.ask(last, w.conn, "read_rows"), refusal.LimitCalls)
	w.g.CloseSession(sessions[1])
	for c := range w.g.open {
		if w.g.open[c].session.id == sessions[0] {
			w.g.Abandon(c, refusal.CallTimeout)
		}
	}
	w.admitted("with room", w.ask(last, w.conn, "read_rows"))
	w.g.SetEnded(shopSet, refusal.ServerExited, "")
	if w.g.OpenCalls() != 0 || len(w.g.perPlace) != 0 || w.g.Busy(shopSet, Place{Conn: w.conn}) {
		t.Fatalf("%d open, %v", w.g.OpenCalls(), w.g.perPlace)
	}
}
