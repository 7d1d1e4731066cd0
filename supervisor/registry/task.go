package registry

import (
	"strings"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// NewTask makes a task of an account, by a host, in a project. Everything it
// names is checked as an admission would; the principal is the caller's to check.
func (r *Registry) NewTask(t Task) (Change, error) {
	if err := r.MayHost(&t); err != nil {
		return Change{}, err
	}
	if !r.root.Access.Modes().Known(t.Mode) {
		return Change{}, refuse(refusal.ModeUnknown, "mode %q", t.Mode)
	}
	if r.tasks[t.ID] != nil {
		return Change{}, refuse(refusal.AlreadyExists, "task %s", t.ID)
	}
	if len(r.live[t.Project]) >= MaxLive {
		return Change{}, refuse(refusal.Busy, "a project has at most %d live tasks", MaxLive)
	}
	if t.Host != LocalHost && r.ofHost[t.Host] >= MaxOfHost {
		return Change{}, refuse(refusal.Busy, "host %q has %d live tasks; it can revoke some", t.Host, MaxOfHost)
	}
	t.Ended, t.Reason, t.Moved = 0, "", r.root.Projects[t.Project].Moved
	return Change{Put: []store.Row{t}}, nil
}

// MayHost tells whether the host may make the task for its account and channel in its
// project, and why not.
func (r *Registry) MayHost(t *Task) error {
	if err := r.liveProject(t.Project); err != nil {
		return err
	}
	switch r.AccountStanding(t.Account) {
	case policy.AccountUnknown:
		return refuse(refusal.AccountUnknown, "account %q", t.Account)
	case policy.AccountDeleted:
		return refuse(refusal.AccountDeleted, "account %s", t.Account)
	case policy.AccountSuspended:
		return refuse(refusal.AccountSuspended, "account %s", t.Account)
	}
	if role := r.Role(t.Account, t.Project); role != Owner && role != Member {
		return refuse(refusal.NotMember, "account %s", t.Account)
	}
	switch r.HostStanding(t) {
	case policy.HostUnknown:
		return refuse(refusal.HostUnknown, "host %q", t.Host)
	case policy.HostNotAssigned:
		if t.Host == LocalHost {
			return refuse(refusal.PersonBindOff, "project %s", t.Project)
		}
		if r.root.Hosts[t.Host].Serves(t.Account, t.Project) {
			channel, _, _ := strings.Cut(t.Principal, ":")
			return refuse(refusal.HostNotAssigned, "host %q may name nobody of channel %.64q; its channels are in postern.yaml", t.Host, channel)
		}
		return refuse(refusal.HostNotAssigned, "host %q; its accounts and projects are in postern.yaml", t.Host)
	}
	return nil
}

// EndTask ends a task for ever. Ending it again changes nothing.
func (r *Registry) EndTask(id ids.Task, reason string, now time.Time) (Change, error) {
	t := r.tasks[id]
	if t == nil {
		return Change{}, refuse(refusal.TaskUnknown, "task %q", id)
	}
	var c Change
	if t.Ended == 0 {
		r.endTask(&c, t, reason, now)
	}
	return c, nil
}

func (r *Registry) endTask(c *Change, t *Task, reason string, now time.Time) {
	row := *t
	row.Ended, row.Reason = max(now.UnixMilli(), 1), strings.ToValidUTF8(reason[:min(len(reason), MaxReason)], "")
	c.Put = append(c.Put, row)
	// A token of an ended task binds nothing, and what was bound stays in the records.
	for _, d := range r.ofTask[t.ID] {
		c.Delete = append(c.Delete, tokenRow(d, r.tokens[d]))
	}
}

// MintToken adds a token for a live task; whatever tokens the task had end.
func (r *Registry) MintToken(d token.Digest, b token.Binding) (Change, error) {
	t := r.tasks[b.Task]
	switch {
	case t == nil || t.Project != b.Project:
		return Change{}, refuse(refusal.TaskUnknown, "task %q", b.Task)
	case t.Ended != 0:
		return Change{}, refuse(refusal.TaskEnded, "task %s", b.Task)
	}
	return r.mint(t.Host, d, b)
}

// NewTaskWithToken adds a task and its first token, both or neither.
func (r *Registry) NewTaskWithToken(t Task, d token.Digest, b token.Binding) (Change, error) {
	c, err := r.NewTask(t)
	if err != nil {
		return Change{}, err
	}
	b.Task, b.Project = t.ID, t.Project
	first, err := r.mint(t.Host, d, b)
	if err != nil {
		return Change{}, err
	}
	c.Put = append(c.Put, first.Put...)
	return c, nil
}

func (r *Registry) mint(host string, d token.Digest, b token.Binding) (Change, error) {
	switch {
	case b.Binds < 1 || b.Binds > token.MaxBinds:
		return Change{}, refuse(refusal.BadRequest, "a token is good for 1 to %d binds, not %d", token.MaxBinds, b.Binds)
	case b.TTL <= 0 || b.TTL > token.MaxTTL:
		return Change{}, refuse(refusal.BadRequest, "a token may bind for at most %v, not %v", token.MaxTTL, b.TTL)
	case b.UID == 0:
		return Change{}, refuse(refusal.BadRequest, "a token is for a user, not for root")
	case r.tokens[d] != nil:
		return Change{}, refuse(refusal.Internal, "a token was made twice")
	case host != LocalHost && r.unbound(host, b.Task, b.Minted) >= MaxUnbound:
		return Change{}, refuse(refusal.Busy, "host %q has %d tokens that could still bind; they expire, or go with their tasks", host, MaxUnbound)
	}
	var c Change
	for _, old := range r.ofTask[b.Task] {
		c.Delete = append(c.Delete, tokenRow(old, r.tokens[old]))
	}
	b.Used, b.Ended = 0, false
	c.Put = append(c.Put, tokenRow(d, &b))
	return c, nil
}

// unbound counts a host's tokens that could still bind, but for those of one task,
// which a fresh token of it ends.
func (r *Registry) unbound(host string, but ids.Task, now token.Instant) (n int) {
	if r.ofHost[host] < MaxUnbound { // a task has one token at most: nothing to count
		return 0
	}
	for _, b := range r.tokens {
		if t := r.tasks[b.Task]; t != nil && t.Host == host && t.ID != but && token.Check(b, b.UID, b.Project, now) == "" {
			n++
		}
	}
	return n
}

func tokenRow(d token.Digest, b *token.Binding) store.Token {
	return store.Token{Digest: d, Task: b.Task, Project: b.Project, UID: b.UID, Binds: b.Binds, Wall: b.Minted.Wall.UnixNano(),
		Boot: int64(b.Minted.Boot), BootID: b.Minted.ID, TTL: int64(b.TTL), Ended: b.Ended}
}

func bindingOf(t store.Token, used int) *token.Binding {
	return &token.Binding{Task: t.Task, Project: t.Project, UID: t.UID, Binds: t.Binds, Used: used,
		Minted: token.Instant{Wall: time.Unix(0, t.Wall), Boot: time.Duration(t.Boot), ID: t.BootID}, TTL: time.Duration(t.TTL), Ended: t.Ended}
}
