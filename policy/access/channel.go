package access

import (
	"github.com/goccy/go-yaml/ast"

	"postern/near"
	"postern/policy"
)

// closes is what a key that is not known does to a channel.
const closes = "; until then nobody of the channel is admitted"

// channel reads one channel. A key that is not known denies the whole channel, for it
// may be a restriction that was misspelt.
func (r *reader) channel(m pair, modes policy.Modes) *channel {
	key := under("channels", m.key)
	c := &channel{at: Place{lineOf(m.at), key}, users: map[string]entry{}, blocked: map[string]Place{}, people: true}
	c.admission = Place{c.at.Line, under(key, "access.admission") + ": restricted"}
	list, ok := r.mapping(m.value, key)
	c.broken = !ok
	var access, reply *pair
	for _, k := range list {
		at := under(key, k.key)
		switch k.key {
		case "enabled":
			on, ok := r.truth(k.value, at)
			if c.off = !on; c.off {
				c.at = Place{lineOf(k.at), at}
			}
			c.broken = c.broken || !ok
		case "type":
			r.word(k.value, at) // of whoever reads this file beside Postern
		case "default_mode":
			c.mode, c.modeless = r.mode(k, at, modes)
		case "allow", "owners":
			r.legacy(c, m.key, k)
		case "reply_in_groups":
			reply = &k
		case "access":
			access = &k
		default:
			r.unknown(k.at, at, "channels.*", k.key, closes)
			c.broken = true
		}
	}
	c.groups.at = Place{c.at.Line, under(key, "access.groups.enabled") + ": not on"}
	if reply != nil {
		at := under(key, "reply_in_groups")
		c.groups.on, _ = r.truth(reply.value, at)
		c.groups.at = Place{lineOf(reply.at), at}
	}
	c.unknown = entry{at: Place{c.at.Line, under(key, "access.default")}, ok: true, kind: Unknown, level: Chat}
	if access != nil {
		r.access(c, m.key, access.value, modes)
	}
	return c
}

// legacy reads allow or owners: identities without a level. access.users, which is
// read later, replaces what they say of the same one.
func (r *reader) legacy(c *channel, channel string, m pair) {
	kind := User
	if m.key == "owners" {
		kind = Owner
	}
	r.list(m.value, under(under("channels", channel), m.key), MaxEntries, func(n ast.Node, at string) {
		id, ok := r.identity(n, at, channel)
		if ok && c.users[id].kind != Owner {
			c.users[id] = entry{at: Place{lineOf(n), at}, ok: true, kind: kind}
		}
	})
}

func (r *reader) identity(n ast.Node, at, channel string) (string, bool) {
	s, ok := scalar(n)
	if !ok {
		r.bad(n, at, "want an identity")
		return "", false
	}
	id, err := normalIn(channel, s)
	if err != nil {
		r.bad(n, at, "%v", err)
		return "", false
	}
	return id, true
}

// access reads the section that gives levels.
func (r *reader) access(c *channel, channel string, n ast.Node, modes policy.Modes) {
	key := under(under("channels", channel), "access")
	list, ok := r.mapping(n, key)
	c.broken = c.broken || !ok
	for _, k := range list {
		at := under(key, k.key)
		switch k.key {
		case "admission":
			s, _ := r.word(k.value, at)
			if c.open = s == "open"; !c.open && s != "restricted" {
				r.bad(k.value, at, "want restricted or open, and is restricted until it is one of them")
			}
			c.admission = Place{lineOf(k.at), at + ": restricted"}
		case "default":
			c.unknown = r.reach(k, at, Unknown, Chat)
			if c.unknown.ok && c.unknown.level == Full {
				r.bad(k.at, at, "full is never given to whom nobody knows")
				c.unknown.ok = false
			}
		case "users":
			r.users(c, channel, k.value, at)
		case "groups":
			r.groups(c, channel, k, at, modes)
		default:
			r.unknown(k.at, at, "channels.*.access", k.key, closes)
			c.broken = true
		}
	}
}

func (r *reader) users(c *channel, channel string, n ast.Node, key string) {
	list, ok := r.entries(n, key)
	if len(list) > MaxEntries {
		r.bad(n, key, "want at most %d", MaxEntries)
		ok = false
	}
	// Without them nobody can tell whom they block.
	c.people = ok
	seen := map[string]bool{}
	for _, k := range list {
		at := under(key, k.key)
		id, ok := r.identity(k.at, at, channel)
		e := r.user(k, at)
		if !ok {
			if e.kind == Blocked || !e.ok { // whom it was to keep out is not known
				c.somebody = &Place{lineOf(k.at), at}
			}
			continue
		}
		if seen[id] {
			r.bad(k.at, at, "is the identity of another entry too, and so denied")
			e.ok = false
		}
		seen[id] = true
		if e.kind == Blocked {
			c.blocked[lower(id)] = e.at
		}
		c.users[id] = e
	}
}

// user reads one entry: a level, the role of owner, or a block, which alone stands
// beside anything else.
func (r *reader) user(m pair, key string) entry {
	e := entry{at: Place{lineOf(m.at), key}, kind: User}
	list, ok := r.mapping(m.value, key)
	var owner, leveled, blocked bool
	for _, k := range list {
		at := under(key, k.key)
		good := true
		switch k.key {
		case "level", "write":
			leveled = true
			good = r.reachKey(&e, k, at)
		case "role":
			s, text := r.word(k.value, at)
			if good = text && s == "owner"; text && !good {
				r.bad(k.value, at, "want owner")
			}
			owner = true
		case "blocked":
			blocked, good = r.truth(k.value, at)
			blocked = blocked || !good
		default:
			r.unknown(k.at, at, "channels.*.access.users.*", k.key, "")
			good = false
		}
		ok = ok && good
	}
	switch {
	case blocked:
		e.kind = Blocked
		return e
	case !ok:
		return e
	case owner && leveled:
		r.bad(m.at, key, "an owner has no level: want role alone")
		return e
	case owner:
		e.kind = Owner
	case e.level == NoLevel:
		r.bad(m.at, key, "want level: chat, read or full, role: owner, or blocked: true")
		return e
	}
	e.ok = true
	r.chatWrite(&e, m, key)
	return e
}

// reach reads a level with write, where least stands for a level that is not written.
func (r *reader) reach(m pair, key string, kind Kind, least Level) entry {
	e := entry{at: Place{lineOf(m.at), key}, kind: kind, level: least}
	list, ok := r.mapping(m.value, key)
	for _, k := range list {
		at := under(key, k.key)
		if k.key != "level" && k.key != "write" {
			r.unknown(k.at, at, "channels.*.access.default", k.key, "")
			ok = false
			continue
		}
		ok = r.reachKey(&e, k, at) && ok
	}
	if e.ok = ok; ok {
		r.chatWrite(&e, m, key)
	}
	return e
}

func (r *reader) reachKey(e *entry, k pair, at string) (ok bool) {
	if k.key == "write" {
		e.write, ok = r.truth(k.value, at)
		return ok
	}
	s, text := r.word(k.value, at)
	if e.level, ok = ParseLevel(s); text && !ok {
		r.bad(k.value, at, "want chat, read or full")
	}
	return ok
}

func (r *reader) chatWrite(e *entry, m pair, key string) {
	if e.level == Chat && e.write {
		r.warn(m.at, key, "chat has no tools, and so write means nothing here")
		e.write = false
	}
}

// groups reads the groups. A key that is neither one of its own nor a group's id, or
// whose value is no mapping, denies all groups: it may be one of its own, misspelt.
func (r *reader) groups(c *channel, channel string, m pair, key string, modes policy.Modes) {
	g := &c.groups
	g.named, g.ceiling = map[string]entry{}, true
	g.others = entry{at: Place{lineOf(m.at), under(key, "default")}, ok: true, kind: Group, level: Read}
	list, ok := r.entries(m.value, key)
	if channel == Channel {
		r.bad(m.at, key, "channel %s has no groups", Channel)
		ok = false
	}
	if len(list) > MaxEntries {
		r.bad(m.at, key, "want at most %d", MaxEntries)
		ok = false
	}
	own := map[string]bool{}
	for _, k := range list {
		at := under(key, k.key)
		if own[k.key] {
			r.bad(k.at, at, "is given twice")
			ok = false
		}
		own[k.key] = k.key == "enabled" || k.key == "default" || k.key == "default_mode"
		switch k.key {
		case "enabled":
			was := g.on
			on, good := r.truth(k.value, at)
			if g.on, ok = on, ok && good; was && !on && good {
				r.warn(k.at, at, "false here wins over reply_in_groups: true, and groups are off")
			}
			g.at = Place{lineOf(k.at), at}
		case "default":
			g.others = r.reach(k, at, Group, Read)
		case "default_mode":
			g.mode, g.modeless = r.mode(k, at, modes)
		default:
			id, err := NormalGroup(k.key)
			if err != nil {
				if word := near.Word(k.key, sections["channels.*.access.groups"]); word != "" {
					r.bad(k.at, at, "is neither a key here nor a group; did you mean %s?", word)
				} else {
					r.bad(k.at, at, "want enabled, default, default_mode or a group: %v", err)
				}
				ok = false
				continue
			}
			e := r.reach(k, at, Group, NoLevel)
			if _, twice := g.named[id]; twice {
				r.bad(k.at, at, "is the id of another entry too, and so denied")
				e.ok = false
			}
			if e.ok && e.level == NoLevel {
				r.bad(k.at, at, "want level: chat, read or full")
				e.ok = false
			}
			g.named[id] = e
		}
	}
	if !ok {
		g.broken, g.at = true, Place{lineOf(m.at), key}
	}
}

// mode reads the name of a mode. Where it cannot be read, or is no mode of the document
// (one whose lists are wrong is none), the place is told, and whom it bounds is denied:
// the mode that was meant may be narrower than any that is left.
func (r *reader) mode(m pair, key string, modes policy.Modes) (string, *Place) {
	s, ok := r.word(m.value, key)
	if ok && modes.Known(s) && s != policy.ModeAuto {
		return s, nil
	}
	if ok {
		r.bad(m.value, key, "%.*q is no mode with a list: want one of %q", maxShown, s, modes.Names())
	}
	return "", &Place{lineOf(m.at), key}
}
