package control

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"postern/ids"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/registry"
	"postern/supervisor/token"
	"postern/supervisor/workers"
)

func (a *actions) taskResult(t *registry.Task) api.TaskResult {
	return api.TaskResult{Task: string(t.ID), Account: string(t.Account), Host: t.Host, Project: string(t.Project), Principal: t.Principal, Mode: t.Mode,
		Created: t.Created, Ended: t.Ended, Reason: t.Reason, Sessions: a.Gate.Sessions(t.ID)}
}

// minted is a token that is durable and not delivered yet.
type minted struct {
	tok     token.Token
	expires int64
}

// goodFor is what a token may be used for; zero values are the defaults.
type goodFor struct {
	ttl   time.Duration
	binds int
}

// tokenFor checks what is asked of a token, before anything else is done for it.
func tokenFor(ttlMs int64, binds int) (goodFor, error) {
	if ttlMs < 0 || ttlMs > token.MaxTTL.Milliseconds() {
		return goodFor{}, api.Refuse(refusal.BadRequest, "A token may bind for at most %v.", token.MaxTTL)
	}
	if binds < 0 || binds > token.MaxBinds {
		return goodFor{}, api.Refuse(refusal.BadRequest, "A token is good for 1 to %d binds.", token.MaxBinds)
	}
	g := goodFor{time.Duration(ttlMs) * time.Millisecond, binds}
	if ttlMs == 0 {
		g.ttl = token.DefaultTTL
	}
	if binds == 0 {
		g.binds = token.DefaultBinds
	}
	return g, nil
}

// mint makes a token, which is nothing before its change is applied.
func (a *actions) mint(uid uint32, g goodFor) (minted, token.Binding) {
	var secret [32]byte
	rand.Read(secret[:])
	now := a.Instant()
	return minted{token.New(secret), now.Wall.Add(g.ttl).UnixMilli()}, token.Binding{UID: uid, Binds: g.binds, Minted: now, TTL: g.ttl}
}

// Uids that are no user: what the kernel shows for one it cannot map, and what the
// system calls take for "leave it".
const (
	overflowUID = 65534
	noUID       = 1<<32 - 1
)

// forUID checks the user a token is for: no root, no leased uid, no host.
func (a *actions) forUID(uid uint32) error {
	switch uid {
	case 0:
		return api.Refuse(refusal.BadRequest, "A runtime does not run as root.")
	case overflowUID, noUID:
		return api.Refuse(refusal.BadRequest, "Uid %d is nobody's: the kernel shows it for who has none.", uid)
	}
	if _, host := a.reg.Root().HostOf(uid); host {
		return api.Refuse(refusal.BadRequest, "Uid %d is a host's own.", uid)
	}
	if a.reg.Root().Leased(uid) {
		return api.Refuse(refusal.BadRequest, "Uid %d lies in the range of the jails.", uid)
	}
	return nil
}

// taskNew makes a task for a configured host, whose uid the kernel gave.
func (a *actions) taskNew(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.TaskNewParams](c)
	if err != nil {
		return nil, err
	}
	var who access.Principal
	if p.Principal != "" {
		if who, err = access.ParsePrincipal(p.Principal); err != nil {
			return nil, api.Refuse(refusal.PrincipalRefused, "%v.", err)
		}
	}
	good, err := tokenFor(p.TTLMs, p.Binds)
	if err != nil {
		return nil, err
	}
	var out api.TaskResult
	var m minted
	err = a.do(ctx, func() error {
		h, ok := a.reg.Root().HostOf(c.Who.UID)
		if !ok {
			return refusal.HostUnknown
		}
		proj, err := a.pickProject(c.Who, p.Project)
		if err != nil {
			return err
		}
		if err := a.forUID(p.ForUID); err != nil {
			return err
		}
		// The uid's own account where it has one; a runtime's own user acts for the owner.
		acc := proj.Owner
		if x, ok := a.reg.Root().AccountOf(p.ForUID); ok {
			acc = x.ID
		}
		t := registry.Task{ID: ids.New[ids.Task](a.Now(), random()), Account: acc, Host: h.ID, Project: proj.ID, Principal: access.Local(acc), Mode: p.Mode, Created: a.Now().UnixMilli()}
		if p.Principal != "" {
			t.Principal = who.String()
		}
		if err := a.mayMake(&t); err != nil {
			return err
		}
		var b token.Binding
		m, b = a.mint(p.ForUID, good)
		ch, err := a.reg.NewTaskWithToken(t, m.tok.Digest(), b)
		if err == nil && !c.Req.DryRun {
			err = a.Gate.Apply(ch)
		}
		if err == nil {
			out = a.taskResult(&t)
		}
		return err
	})
	if err != nil || c.Req.DryRun {
		return out, err
	}
	return a.deliver(ctx, out, m, p.ForUID, p.File)
}

// mayMake asks everything that a task must be to be made: what the registry knows of
// its account, project and host, and what the access policy gives its principal.
func (a *actions) mayMake(t *registry.Task) error {
	if err := a.reg.MayHost(t); err != nil { // first: who may not make it learns nothing of the policy
		return err
	}
	r, code := a.Gate.MayMake(t)
	switch code {
	case "":
		return nil
	case refusal.ModeUnknown:
		return api.Refuse(code, "%q; there are %s.", t.Mode, strings.Join(a.reg.Root().Access.Modes().Names(), ", "))
	case refusal.ModeFloor:
		return api.Refuse(code, "%q; the widest mode of %s is %q.", t.Mode, t.Principal, r.Floor.Mode)
	}
	return api.Refuse(code, "%s (%s).", t.Principal, r.From)
}

// endTask ends a task that was made for nothing, on the loop.
func (a *actions) endTask(t ids.Task, why string) {
	if ch, err := a.reg.EndTask(t, why, a.Now()); err == nil {
		a.Gate.Apply(ch)
	}
}

// deliver puts the token into the answer to its host, or into a file that only the
// runtime's uid can read. A token that cannot be delivered leaves no live task.
func (a *actions) deliver(ctx context.Context, out api.TaskResult, m minted, uid uint32, file bool) (any, error) {
	out.Expires = m.expires
	if !file {
		out.Token = m.tok.Secret()
		return out, nil
	}
	fd, path, err := a.Workers.TokenFile(ctx, ids.Project(out.Project), ids.Task(out.Task), uid)
	if err == nil {
		err = workers.WriteTokenFile(fd, m.tok.Secret())
	}
	if err != nil {
		if e := a.do(ctx, func() error { a.endTask(ids.Task(out.Task), "its token could not be delivered"); return nil }); e != nil {
			return nil, e
		}
		return nil, told(err)
	}
	out.TokenFile = path
	return out, nil
}

// hostTask finds a live task of the asking host.
func (a *actions) hostTask(w Who, selector string) (*registry.Task, error) {
	h, ok := a.reg.Root().HostOf(w.UID)
	if !ok {
		return nil, refusal.HostUnknown
	}
	t := a.reg.Task(ids.Task(selector))
	if t == nil || t.Host != h.ID {
		return nil, api.Missing(refusal.TaskUnknown, "task", selector)
	}
	return t, nil
}

// taskToken mints a fresh token for a live task: its former sessions close before the
// token is told, and their open calls are given up as unknown. It is minted first,
// which ends the former token: one that still had a bind left could otherwise make
// another session behind the closing.
func (a *actions) taskToken(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.TaskParams](c)
	if err != nil {
		return nil, err
	}
	good, err := tokenFor(p.TTLMs, p.Binds)
	if err != nil {
		return nil, err
	}
	var out api.TaskResult
	var m minted
	var uid uint32
	err = a.do(ctx, func() error {
		t, err := a.hostTask(c.Who, p.Task)
		if err == nil {
			uid, err = a.Gate.TaskUID(t.ID)
		}
		if err == nil {
			var b token.Binding
			m, b = a.mint(uid, good)
			b.Task, b.Project = t.ID, t.Project
			var ch registry.Change
			if ch, err = a.reg.MintToken(m.tok.Digest(), b); err == nil && !c.Req.DryRun {
				err = a.Gate.Apply(ch)
			}
		}
		if err == nil {
			out = a.taskResult(t)
		}
		return err
	})
	if err != nil || c.Req.DryRun {
		return out, err
	}
	if err := a.Workers.CloseTask(ctx, ids.Task(p.Task)); err != nil {
		return nil, err
	}
	out.Sessions = 0
	return a.deliver(ctx, out, m, uid, p.File)
}

// seesTask: a host its own, an owner the project's, a member its own, root all.
func (a *actions) seesTask(w Who, t *registry.Task) bool {
	if w.Root {
		return true
	}
	if h, ok := a.reg.Root().HostOf(w.UID); ok && h.ID == t.Host {
		return true
	}
	acc := a.account(w).ID
	switch a.role(w, t.Project) {
	case registry.Owner, registry.Viewer:
		return true
	case registry.Member:
		return t.Account == acc
	}
	return false
}

func (a *actions) taskList(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ListParams](c)
	if err != nil {
		return nil, err
	}
	var rows []api.TaskResult
	err = a.do(ctx, func() error {
		only, err := a.onlyProject(c.Who, p.Project)
		if err != nil {
			return err
		}
		for _, t := range a.reg.AllTasks() {
			if (only == "" || t.Project == only) && a.seesTask(c.Who, t) {
				rows = append(rows, a.taskResult(t))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out api.TaskListResult
	out.Tasks, out.Next, err = api.Paged(rows, p.After, func(r api.TaskResult) string { return r.Task })
	return out, err
}

func (a *actions) seenTask(w Who, selector string) (*registry.Task, error) {
	t := a.reg.Task(ids.Task(selector))
	if t == nil || !a.seesTask(w, t) {
		return nil, api.Missing(refusal.TaskUnknown, "task", selector)
	}
	return t, nil
}

func (a *actions) taskShow(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.TaskParams](c)
	if err != nil {
		return nil, err
	}
	var out api.TaskResult
	err = a.do(ctx, func() error {
		t, err := a.seenTask(c.Who, p.Task)
		if err == nil {
			out = a.taskResult(t)
		}
		return err
	})
	return out, err
}

// personNote stands at the revocation of a person's own task.
const personNote = "The next connection of this person makes another task; to stop them switch person_bind off, remove the member or suspend the account."

// taskRevoke ends a task for ever: its host, its account, an owner of the project, or root.
func (a *actions) taskRevoke(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.TaskParams](c)
	if err != nil {
		return nil, err
	}
	person := false
	out, err := a.narrow(ctx, c, p.Task, func() (registry.Change, []ids.Project, error) {
		t, err := a.seenTask(c.Who, p.Task)
		if err != nil {
			return registry.Change{}, nil, err
		}
		h, _ := a.reg.Root().HostOf(c.Who.UID)
		if a.role(c.Who, t.Project) != registry.Owner && (h.ID == "" || h.ID != t.Host) && t.Account != a.account(c.Who).ID {
			return registry.Change{}, nil, api.Refuse(refusal.NotPermitted, "The project's owner may, the account that the task acts for, the host that made it, and root.")
		}
		person = t.Host == registry.LocalHost
		ch, err := a.reg.EndTask(t.ID, "revoked", a.Now())
		return ch, []ids.Project{t.Project}, err
	})
	if err != nil {
		return out, err
	}
	if person {
		out.Note = (out.Note + " " + personNote)
	}
	return out, nil
}
