package launch

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"postern/ids"
	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
	"postern/supervisor/peer"
)

// request is one line of root.
type request struct {
	ctx  context.Context
	peer *peer.Peer
	api.Request
	event func(v any) bool // sends one, and tells whether it was taken
	then  func(l *life)    // done with a committed change while no other can happen
}

// version is what the build knows of itself.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}

// changing is narrowing for a change that takes nothing away.
func (s *Supervisor) changing(r request, rule func(f Facts) (Facts, *api.Refusal)) *api.Refusal {
	_, refused := s.narrowing(r, rule)
	return refused
}

// narrowing runs a rule on the present facts and commits what it returns, and tells
// which calls that cut. One change at a time, so no rule ever decides on facts that are
// not the newest.
func (s *Supervisor) narrowing(r request, rule func(f Facts) (Facts, *api.Refusal)) (api.Cut, *api.Refusal) {
	out := api.Cut{Stands: []api.OpenCall{}}
	s.change.Lock()
	defer s.change.Unlock()
	f, _ := s.now()
	if r.At != 0 && r.At != f.Version {
		return out, api.Refuse(refusal.StaleSelector, "You read version %d, it is %d now.", r.At, f.Version)
	}
	if refused := f.frozen(r); refused != nil {
		return out, refused
	}
	g, refused := rule(f)
	if refused != nil || g.Version == f.Version {
		return out, refused
	}
	raw, refused := s.encoded(g, r.Action)
	if refused != nil || r.DryRun {
		return out, refused
	}
	target, before, after := changed(f, g)
	line := record(r, target, before, after, g.Version)
	if err := s.audit.Write(line); err != nil {
		return out, api.Refuse(refusal.StoreUnavailable, "The change could not be recorded and was not made: %v.", err)
	}
	cut, err := s.commit(r.ctx, g, raw, true)
	if err != nil {
		line.Failed = err.Error()
		if again := s.audit.Write(line); again != nil {
			s.cfg.Log.Error("a failed change stands in the audit as made", keyError, again, keyAction, r.Action)
		}
		return out, refusedAs(err, refusal.StoreUnavailable)
	}
	s.cfg.Log.Info("root facts changed", keyAction, r.Action, keyFacts, g.Version)
	if _, l := s.now(); r.then != nil && l != nil {
		r.then(l)
	}
	return cut, nil
}

// params decodes strictly or refuses.
func params[P any](r request) (P, *api.Refusal) {
	p, err := api.DecodeParams[P](r.Params)
	if err != nil {
		return p, api.Refuse(refusal.BadRequest, "%v.", err)
	}
	return p, nil
}

func (s *Supervisor) accountAdd(r request) (any, *api.Refusal) {
	p, refused := params[api.AccountAddParams](r)
	if refused != nil {
		return nil, refused
	}
	var a order.Account
	refused = s.changing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		g, a, refused = f.addAccount(p, reserved{authority: s.cfg.UID, hosts: s.settings().hosts, uids: s.cfg.UIDs}, time.Now())
		return g, refused
	})
	return accountResult(a), refused
}

func (s *Supervisor) accountDelete(r request) (any, *api.Refusal) {
	p, refused := params[api.Selected](r)
	if refused != nil {
		return nil, refused
	}
	var a order.Account
	cut, refused := s.narrowing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		g, a, refused = f.deleteAccount(p.Selector)
		return g, refused
	})
	return api.AccountEndResult{AccountResult: accountResult(a), Cut: cut}, refused
}

func accountResult(a order.Account) api.AccountResult {
	status := "active"
	if a.Deleted {
		status = "deleted"
	}
	return api.AccountResult{Account: string(a.ID), Name: a.Name, UIDs: a.UIDs, Status: status}
}

func (s *Supervisor) projectAdd(r request) (any, *api.Refusal) {
	p, refused := params[api.ProjectAddParams](r)
	if refused != nil {
		return nil, refused
	}
	var made Project
	var warnings []string
	r.then = func(l *life) {
		if err := s.giveProject(l, made.ID); err != nil {
			s.cfg.Log.Error("no project socket", keyError, err, keyProject, made.ID)
			warnings = append(warnings, fmt.Sprintf("its socket is made when the authority starts again: %v", err))
		}
	}
	refused = s.changing(r, func(f Facts) (Facts, *api.Refusal) {
		g, project, owner, refused := f.addProject(p, time.Now())
		if refused == nil {
			refused = f.checkDoors(s.doors)
		}
		if refused != nil {
			return f, refused
		}
		if warnings, refused = s.bindWorkspace(f, project, owner, r.DryRun); refused != nil {
			return f, refused
		}
		made = *project
		return g, nil
	})
	if refused != nil {
		return nil, refused
	}
	return projectResult(made, warnings), nil
}

// bindWorkspace finds out which directory it is and whether it may be one, and writes
// that into p. The mark is set last, when nothing else can refuse.
func (s *Supervisor) bindWorkspace(f Facts, p *Project, owner order.Account, dry bool) ([]string, *api.Refusal) {
	dir, resolved, refused := openWorkspace(p.Workspace, true)
	if refused != nil {
		return nil, refused
	}
	defer dir.Close()
	refuse := func(err error) ([]string, *api.Refusal) {
		return nil, api.Refuse(refusal.WorkspaceRefused, "%q: %v.", resolved, err)
	}
	if !spec.CleanPath(resolved) {
		return refuse(fmt.Errorf("its path is longer than %d bytes, or the root", spec.MaxPath))
	}
	p.Workspace = resolved
	uid, gid, refused := checkOwner(dir, resolved, owner.UIDs)
	if refused != nil {
		return nil, refused
	}
	if gids := groupsOf(uid, gid); slices.Max(gids) == 0 {
		return refuse(fmt.Errorf("its group is root's, and so is that of uid %d, its owner; a jail never runs with root's group: give the directory another one (chgrp)", uid))
	}
	var err error
	if p.Directory, _, err = identify(int(dir.Fd()), false); err != nil {
		return refuse(err)
	}
	if p.Directory.Place, err = place(dir, resolved); err != nil {
		return refuse(err)
	}
	if refused := checkOverlap(dir, *p, p.Directory.Place, f.Projects, s.own); refused != nil {
		return nil, refused
	}
	if err := mappable(dir, uid); err != nil {
		return refuse(err)
	}
	p.OwnerUID = uid
	warnings := append(closedTo(resolved, uid), foreign(dir, uid, groupsOf(uid, gid))...)
	if dry {
		return warnings, nil
	}
	if p.Directory.Marked, err = mark(dir, p.ID); err != nil {
		return refuse(err)
	}
	return warnings, nil
}

func (s *Supervisor) projectSet(r request) (any, *api.Refusal) {
	p, refused := params[api.ProjectSetParams](r)
	if refused != nil {
		return nil, refused
	}
	var made Project
	cut, refused := s.narrowing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		g, made, refused = f.setProject(p)
		return g, refused
	})
	if refused != nil {
		return nil, refused
	}
	if !r.DryRun {
		s.endOutdated(made)
	}
	return api.ProjectSetResult{ProjectResult: projectResult(made, closedTo(made.Workspace, made.OwnerUID)), Cut: cut}, nil
}

// endOutdated ends what runs with other names open than the project has now. The
// authority knows by then, and starts them again when they are called; one that does
// not want to know keeps nothing open.
func (s *Supervisor) endOutdated(p Project) {
	s.killWhere(func(j *running) bool {
		return j.row.Project == p.ID && j.row.Kind == kindServer && j.row.Task == "" && !slices.Equal(j.names, p.OpenNames)
	})
}

func projectResult(p Project, warnings []string) api.ProjectResult {
	return api.ProjectResult{Project: string(p.ID), Label: p.Label, Owner: string(p.Owner), Workspace: p.Workspace, PersonBind: p.PersonBind,
		ExecutionProfile: p.ExecutionProfile, RecordArguments: p.RecordArguments, OpenNames: p.OpenNames, Warnings: warnings}
}

// serverPut registers a server or gives one a new revision. The copy is made before
// the facts are locked: it may take long, and it names nothing.
func (s *Supervisor) serverPut(r request) (any, *api.Refusal) {
	p, refused := params[api.ServerParams](r)
	if refused != nil {
		return nil, refused
	}
	f, _ := s.now()
	var id ids.Server
	if r.Action == api.ServerUpdate {
		i, refused := f.findServer(p.Label)
		if refused != nil {
			return nil, refused
		}
		id, p.Label = f.Servers[i].ID, f.Servers[i].Label
	}
	v, refused := checkServer(p, s.settings().profiles)
	if refused != nil {
		return nil, refused
	}
	if v.Scope == "task" {
		if err := mappable(s.work, s.cfg.UID); err != nil {
			return nil, api.Refuse(refusal.RegistrationWrong, "The directories of tasks lie in %q: %v.", s.work.Name(), err)
		}
	}
	warnings, letGo, refused := s.ingestFor(r, p, &v)
	if refused != nil {
		return nil, refused
	}
	// What is registered is named by the facts from then on; what is not goes again.
	defer letGo()
	var made Server
	cut, refused := s.narrowing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		if id == "" {
			g, made, refused = f.addServer(p.Label, v, time.Now())
		} else if i, missing := f.findServer(string(id)); missing != nil {
			refused = missing
		} else {
			g, made, refused = f.updateServer(i, v, time.Now())
		}
		if refused != nil || r.DryRun {
			return g, refused
		}
		if err := s.keepForms(Facts{Servers: []Server{made}}, s.settings().profiles); err != nil {
			return g, api.Refuse(refusal.StoreUnavailable, "%v.", err)
		}
		return g, nil
	})
	if refused != nil {
		return nil, refused
	}
	if r.Action == api.ServerAdd { // nothing could have called it
		return serverResult(made, warnings), nil
	}
	return api.ServerChangeResult{ServerResult: serverResult(made, warnings), Cut: cut}, nil
}

// ingestFor copies what v is made of, and holds it until letGo is called.
func (s *Supervisor) ingestFor(r request, p api.ServerParams, v *Revision) (warnings []string, letGo func(), refused *api.Refusal) {
	profile, _ := s.profile(p.Profile)
	runs := func(program string) bool {
		return executable(profile, program) || profile.PackageExec && spec.Inside(program, spec.PackageDir)
	}
	if p.Package == "" {
		warnings, refused = checkProgram(nil, v, runs)
		return warnings, s.packages.wake, refused
	}
	r.event(api.Progress{Text: fmt.Sprintf("copying %q", p.Package)})
	v.Package, letGo, refused = s.packages.ingest(p.Package, !r.DryRun, func(path string) bool { return executable(profile, path) }, func(tree *os.File) (refused *api.Refusal) {
		warnings, refused = checkProgram(tree, v, runs)
		return refused
	})
	return warnings, letGo, refused
}

func (s *Supervisor) serverDelete(r request) (any, *api.Refusal) {
	p, refused := params[api.Selected](r)
	if refused != nil {
		return nil, refused
	}
	var made Server
	cut, refused := s.narrowing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		g, made, refused = f.deleteServer(p.Selector)
		return g, refused
	})
	s.packages.wake()
	if refused != nil {
		return nil, refused
	}
	if !r.DryRun {
		s.endHolders()
	}
	return api.ServerChangeResult{ServerResult: serverResult(made, nil), Cut: cut}, nil
}

func (s *Supervisor) serverList(r request) (any, *api.Refusal) {
	p, refused := params[api.PageParams](r)
	if refused != nil {
		return nil, refused
	}
	f, _ := s.now()
	var rows []api.ServerResult
	for _, server := range f.Servers {
		if !server.Deleted {
			rows = append(rows, serverResult(server, nil))
		}
	}
	var out api.ServerListResult
	var err error
	if out.Servers, out.Next, err = api.Paged(rows, p.After, func(r api.ServerResult) string { return r.Server }); err != nil {
		return nil, api.Refuse(refusal.Internal, "%v.", err)
	}
	return out, nil
}

func (s *Supervisor) serverShow(r request) (any, *api.Refusal) {
	p, refused := params[api.Selected](r)
	if refused != nil {
		return nil, refused
	}
	f, _ := s.now()
	i, refused := f.findServer(p.Selector)
	if refused != nil {
		return nil, refused
	}
	return serverResult(f.Servers[i], nil), nil
}

func serverResult(s Server, warnings []string) api.ServerResult {
	v := s.Current()
	return api.ServerResult{Server: string(s.ID), Label: s.Label, Revision: string(v.ID), Digest: v.Digest, Profile: v.Profile, Scope: v.Scope, Credential: v.Credential, CredentialEnv: v.CredentialEnv, CredentialFD: v.CredentialFD,
		Classes: v.Classes, Tiers: v.Tiers, SecretFields: v.SecretFields, Command: v.Command, Package: v.Package, Recorded: v.Recorded, Deleted: s.Deleted, Warnings: warnings}
}
