package access

import (
	"maps"
	"reflect"
)

// alike tells whether two readings of a document say the same, but for what one
// mutation is about. Which line says it is no part of that.
func alike(before, after *Policy, m Mutation, target string) bool {
	b, a := everything(before), everything(after)
	for _, p := range []map[string]*channel{b, a} {
		if p[m.Channel] == nil {
			p[m.Channel] = &channel{users: map[string]entry{}, blocked: map[string]Place{}, groups: groups{named: map[string]entry{}}, people: true, unknown: entry{ok: true, kind: Unknown, level: Chat}}
		}
		except(p[m.Channel], m, target)
	}
	// Naming a group is what declares groups; before, nothing was said of the others.
	if bc, ac := b[m.Channel], a[m.Channel]; m.group() && !bc.groups.ceiling {
		bc.groups.ceiling, bc.groups.others = ac.groups.ceiling, ac.groups.others
	}
	return reflect.DeepEqual(b, a) && reflect.DeepEqual(before.Modes(), after.Modes())
}

func (m Mutation) group() bool {
	switch m.Action {
	case SetGroups, SetGroupDefault, SetGroup, RemoveGroup:
		return true
	}
	return false
}

// except takes away what the mutation may change.
func except(c *channel, m Mutation, target string) {
	switch m.Action {
	case SetLevel, SetPreset, SetOwner, SetBlocked, RemoveUser:
		delete(c.users, target)
		delete(c.blocked, lower(target))
	case SetDefault:
		c.unknown = entry{}
	case SetAdmission:
		c.open = false
	case SetEnabled:
		c.off = false
	case SetMode:
		c.mode, c.groups.mode = "", ""
	case SetGroups:
		c.groups.on = false
	case SetGroupDefault:
		c.groups.ceiling, c.groups.others = false, entry{}
	case SetGroup, RemoveGroup:
		delete(c.groups.named, target)
	}
}

// everything copies what a policy says, without its places.
func everything(p *Policy) map[string]*channel {
	out := map[string]*channel{}
	for name, c := range p.channels {
		s := *c
		s.at, s.admission, s.groups.at = Place{}, Place{}, Place{}
		s.users, s.groups.named, s.blocked = bare(c.users), bare(c.groups.named), map[string]Place{}
		for id := range c.blocked {
			s.blocked[id] = Place{}
		}
		s.unknown.at, s.groups.others.at = Place{}, Place{}
		out[name] = &s
	}
	return out
}

func bare(from map[string]entry) map[string]entry {
	out := map[string]entry{}
	maps.Copy(out, from)
	for id, e := range out {
		e.at = Place{}
		out[id] = e
	}
	return out
}
