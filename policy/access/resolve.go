package access

import (
	"postern/policy"
	"postern/refusal"
)

// Policy is one document, read. It is never changed: an edited document is another
// one. The nil Policy is an installation without a document.
type Policy struct {
	broken   *Place // the document denies every principal, and where why
	channels map[string]*channel
	modes    policy.Modes
	mistakes []Mistake
	denials  []Denial
}

// Denial is a name in a mode's list of what it denies.
type Denial struct {
	At      Place
	Pattern string
}

// Denials lists them. One that matches no tool denies nothing, which only whoever knows
// the tools can tell.
func (p *Policy) Denials() []Denial {
	if p == nil {
		return nil
	}
	return p.denials
}

// channel is what the document says of one channel.
type channel struct {
	at        Place
	broken    bool // it denies everybody
	off       bool
	open      bool
	admission Place
	mode      string // default_mode, "" where it is not set
	modeless  *Place // default_mode that names no mode
	people    bool   // what it says of people could be read
	users     map[string]entry
	blocked   map[string]Place // by folded identity
	unknown   entry            // of people nobody knows, where admission is open
	somebody  *Place           // an entry that keeps somebody out whose identity cannot be read
	groups    groups
}

type groups struct {
	broken   bool
	on       bool
	at       Place
	mode     string
	modeless *Place
	named    map[string]entry
	others   entry
	ceiling  bool // the document declares groups, and so what others may
}

// entry is what is said of one identity. The zero entry was not readable.
type entry struct {
	at    Place
	ok    bool
	kind  Kind
	level Level
	write bool
}

// Modes are the modes of this installation.
func (p *Policy) Modes() policy.Modes {
	if p == nil {
		return policy.Modes{}
	}
	return p.modes
}

// Resolve says what a principal is now. It is asked at every admission.
func (p *Policy) Resolve(who Principal, f Facts) Resolved {
	if who.Channel == Channel && (f.Account == "" || who.ID != string(f.Account) || who.Group != "") {
		return refused(refusal.PrincipalRefused, Stranger, Place{Key: "a task of channel local acts for its own account"})
	}
	if p != nil && p.broken != nil {
		return refused(refusal.AccessUnavailable, Stranger, *p.broken)
	}
	var c *channel
	if p != nil {
		c = p.channels[who.Channel]
	}
	switch {
	case c == nil && who.Channel == Channel && f.Owner:
		return Resolved{Admitted: true, Kind: Owner, Ceiling: Ceiling{Unlimited: true}, Floor: ownersFloor("", f), From: Place{Key: "the project's owner, for channel local is not declared"}}
	case c == nil:
		return refused(refusal.PrincipalRefused, Stranger, Place{Key: "the channel is not declared"})
	case c.broken:
		return refused(refusal.AccessUnavailable, Stranger, c.at)
	case c.off:
		return refused(refusal.PrincipalRefused, Stranger, c.at)
	case !c.people:
		return refused(refusal.AccessUnavailable, Stranger, c.at)
	}
	if at, ok := c.blocked[lower(who.ID)]; ok {
		return refused(refusal.PrincipalBlocked, Blocked, at)
	}
	if who.Group != "" {
		return c.group(who.Group)
	}
	e, ok := c.users[who.ID]
	switch {
	case ok && !e.ok:
		return refused(refusal.AccessUnavailable, Stranger, e.at)
	case ok && e.kind == Owner:
		return Resolved{Admitted: true, Kind: Owner, Ceiling: Ceiling{Unlimited: true}, Floor: ownersFloor(c.mode, f), From: e.at}
	case c.modeless != nil && (ok || f.Paired || c.open):
		return refused(refusal.AccessUnavailable, Stranger, *c.modeless)
	case ok:
		return e.resolved(c.floor(c.mode))
	case f.Paired && c.somebody != nil:
		return refused(refusal.AccessUnavailable, Stranger, *c.somebody)
	case f.Paired:
		return Resolved{Admitted: true, Kind: Paired, Level: Read, Ceiling: read, Floor: c.floor(c.mode), From: Place{Key: "a pairing code"}}
	case !c.open:
		return refused(refusal.PrincipalRefused, Stranger, c.admission)
	case c.somebody != nil:
		return refused(refusal.AccessUnavailable, Stranger, *c.somebody)
	case !c.unknown.ok:
		return refused(refusal.AccessUnavailable, Stranger, c.unknown.at)
	}
	return c.unknown.resolved(c.floor(c.mode))
}

// group reads the group's entry alone: who speaks there is not looked at.
func (c *channel) group(id string) Resolved {
	g := &c.groups
	e, named := g.named[id]
	switch {
	case g.broken:
		return refused(refusal.AccessUnavailable, Group, g.at)
	case !g.on:
		return refused(refusal.PrincipalRefused, Group, g.at)
	case named && !e.ok:
		return refused(refusal.AccessUnavailable, Group, e.at)
	case g.modeless != nil:
		return refused(refusal.AccessUnavailable, Group, *g.modeless)
	case named:
		return e.resolved(c.floor(g.mode))
	case g.ceiling && !g.others.ok:
		return refused(refusal.AccessUnavailable, Group, g.others.at)
	case g.ceiling:
		return g.others.resolved(c.floor(g.mode))
	}
	return Resolved{Admitted: true, Kind: Group, Ceiling: Ceiling{Unlimited: true}, Floor: c.floor(g.mode), From: g.at}
}

// resolved is what an entry that could be read gives.
func (e entry) resolved(f policy.Floor) Resolved {
	r := Resolved{Admitted: true, Kind: e.kind, Level: e.level, Write: e.write, Floor: f, From: e.at}
	if r.Ceiling = CeilingOf(e.level, e.write); e.level == NoLevel {
		r.Ceiling = Ceiling{Unlimited: true}
	}
	return r
}

// floor is the widest mode of whoever is no owner: search, or what the operator named.
func (c *channel) floor(mode string) policy.Floor {
	if mode == "" {
		mode = policy.ModeSearch
	}
	return policy.Floor{Mode: mode, Execute: true}
}

// ownersFloor is code. It runs programs where the project is an isolated pod, or where
// the operator named a mode for the channel that may: an owner never has less than others.
func ownersFloor(named string, f Facts) policy.Floor {
	return policy.Floor{Mode: policy.ModeCode, Execute: f.Profile == policy.ProfileIsolatedPod || named != "" && named != policy.ModeSearch}
}

func refused(code refusal.Code, k Kind, at Place) Resolved {
	return Resolved{Code: code, Kind: k, From: at}
}
