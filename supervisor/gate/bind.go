package gate

import (
	"errors"
	"strings"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// BindRequest is one connection that wants to be a session: the project is the
// socket's, the uid the kernel's, the token the bind line's.
type BindRequest struct {
	Project ids.Project
	UID     uint32
	Token   string // "" where the connector has none
}

// Bound is a new session; it is durable.
type Bound struct {
	Session ids.Session
	Task    ids.Task
	Set     Set
}

// standing asks the rules about everything that is neither a tool nor the session:
// those factors are filled in as if they allowed, so that the same function decides.
func (g *Gate) standing(t *registry.Task, p ids.Project) refusal.Code {
	f := policy.Facts{Session: true, Recordable: true}
	g.reg.Facts(&f, t, p, "", "")
	f.Connection, f.Granted, f.Pin, f.Tier = policy.ConnectionEnabled, true, policy.PinMatches, class.Observe
	f.Accepted, f.Current, f.Running = "-", "-", "-"
	f.Profile, f.Credential, f.Limits, f.Ceiling = policy.Allowed, true, policy.WithinLimits, policy.Allowed
	f.Paths, f.Apart, f.Mode = policy.PathsInside, true, policy.Allowed
	if t != nil {
		r, modes := g.Resolved(t), g.modes()
		f.Principal = policy.PrincipalOf(r.Code)
		switch {
		case !r.Admitted: // said already
		case !modes.Known(t.Mode):
			f.Mode = policy.Undecided
		case !modes.Within(t.Mode, r.Floor):
			f.Mode = policy.RefusedWider
		}
	}
	return policy.Decide(&f).Code
}

// Bind makes a session of a task: the one the token was minted for, or the
// person's own where the project lets people bind. It is durable when it returns.
// What is refused is recorded.
func (g *Gate) Bind(r BindRequest) (Bound, refusal.Code) {
	b, code := g.bind(r)
	if code != "" {
		g.denyBind(r, code)
	}
	return b, code
}

func (g *Gate) bind(r BindRequest) (Bound, refusal.Code) {
	var task *registry.Task
	var digest token.Digest
	if r.Token != "" {
		t, err := token.Parse(r.Token)
		if err != nil {
			return Bound{}, refusal.TokenInvalid
		}
		digest = t.Digest()
		b := g.reg.Token(digest)
		if code := token.Check(b, r.UID, r.Project, g.instant()); code != "" {
			return Bound{}, code
		}
		task = g.reg.Task(b.Task)
	} else {
		var code refusal.Code
		if task, code = g.person(r); code != "" {
			return Bound{}, code
		}
	}
	if code := g.standing(task, r.Project); code != "" {
		return Bound{}, code
	}
	live, ofHost := 0, 0
	for _, s := range g.sessions {
		if s.set.Project == r.Project {
			live++
		}
		if s.task.Host == task.Host && task.Host != registry.LocalHost {
			ofHost++
		}
	}
	if live >= MaxSessions || ofHost >= MaxHostSessions {
		return Bound{}, refusal.TooManySession
	}
	s := &session{id: ids.New[ids.Session](g.now(), g.rand()), task: task, set: g.setFor(r.Project, g.Resolved(task).Ceiling), uid: r.UID, at: map[Place]int{}}
	g.ledger.OpenSession(store.Session{ID: s.id, Task: task.ID, Project: r.Project, UID: r.UID, Token: digest, Opened: g.now().UnixNano()})
	if err := g.flush(); err != nil {
		return Bound{}, refusal.StoreUnavailable
	}
	if r.Token != "" {
		g.reg.CountBind(digest)
	}
	g.sessions[s.id] = s
	g.sets[s.set].sessions[s.id] = s
	if g.byTask[task.ID] == nil {
		g.byTask[task.ID] = map[ids.Session]*session{}
	}
	g.byTask[task.ID][s.id] = s
	return Bound{Session: s.id, Task: task.ID, Set: s.set}, ""
}

// person finds or makes the task of a person who connects without a token.
func (g *Gate) person(r BindRequest) (*registry.Task, refusal.Code) {
	p, ok := g.reg.Project(r.Project)
	if !ok || p.Deleted {
		return nil, refusal.ProjectUnknown
	}
	if !p.PersonBind {
		return nil, refusal.PersonBindOff
	}
	if _, host := g.reg.Root().HostOf(r.UID); host {
		return nil, refusal.PeerRefused
	}
	a, ok := g.reg.Root().AccountOf(r.UID)
	if !ok {
		return nil, refusal.AccountUnknown
	}
	t := registry.Task{ID: ids.New[ids.Task](g.now(), g.rand()), Account: a.ID, Host: registry.LocalHost, Project: r.Project,
		Principal: access.Local(a.ID), Created: g.now().UnixMilli()}
	var code refusal.Code
	if err := g.reg.MayHost(&t); errors.As(err, &code) {
		return nil, code
	}
	if _, code := g.MayMake(&t); code != "" { // it gets the mode of the floor
		return nil, code
	}
	if t := g.reg.LocalTask(a.ID, r.Project, t.Mode); t != nil {
		return t, ""
	}
	change, err := g.reg.NewTask(t)
	if err == nil {
		err = g.Apply(change)
	}
	if err != nil {
		if errors.As(err, &code) {
			return nil, code
		}
		return nil, refusal.StoreUnavailable
	}
	return g.reg.Task(t.ID), ""
}

// SessionLive tells whether a session may still be handed over.
func (g *Gate) SessionLive(id ids.Session) bool {
	s := g.sessions[id]
	return s != nil && !s.ended && g.standing(g.reg.Task(s.task.ID), s.set.Project) == ""
}

// SessionEnded ends a session. Its open calls keep their bridge's outcome.
func (g *Gate) SessionEnded(id ids.Session, reason string) {
	s := g.sessions[id]
	if s == nil {
		return
	}
	s.ended = true
	delete(g.sessions, id)
	if c := g.sets[s.set]; c != nil {
		delete(c.sessions, id)
	}
	g.folder.Forget(id)
	delete(g.byTask[s.task.ID], id)
	if len(g.byTask[s.task.ID]) == 0 {
		delete(g.byTask, s.task.ID)
	}
	g.ledger.EndSession(id, g.now().UnixNano(), strings.ToValidUTF8(reason[:min(len(reason), registry.MaxReason)], ""))
}

// Sessions counts a task's live sessions.
func (g *Gate) Sessions(t ids.Task) int { return len(g.byTask[t]) }

// TokenLive tells whether a task has a token that could still bind.
func (g *Gate) TokenLive(t ids.Task) bool { return g.reg.TokenLive(t, g.instant()) }

// TaskUID is the uid a task's runtime runs under: that of its last token.
func (g *Gate) TaskUID(t ids.Task) (uint32, error) {
	if task := g.reg.Task(t); task == nil {
		return 0, refusal.TaskUnknown
	} else if task.Ended != 0 {
		return 0, refusal.TaskEnded
	}
	if uid, ok := g.reg.TokenUID(t); ok {
		return uid, nil
	}
	for _, s := range g.byTask[t] {
		return s.uid, nil
	}
	return 0, refusal.TokenInvalid
}

// TaskSessions lists a task's live sessions with their sets.
func (g *Gate) TaskSessions(t ids.Task) []Cut {
	var out []Cut
	for id, s := range g.byTask[t] {
		out = append(out, Cut{Set: s.set, Session: id, Code: refusal.SessionEnded})
	}
	return out
}

// age is how long a call has been open.
func (c *call) age(now time.Time) time.Duration { return now.Sub(time.Unix(0, c.rec.At)) }
