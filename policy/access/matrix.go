package access

import (
	"maps"
	"slices"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

// Row is what one principal may reach: what the policy declares of it, and the classes
// that its floor and its ceiling leave together, before anything is granted.
type Row struct {
	Channel  string
	Who      string // the identity or the group; "" for everybody of the kind
	Kind     Kind
	Admitted bool
	Code     refusal.Code
	Level    Level
	Write    bool
	Preset   string // "" where there is no ceiling
	Ceiling  string // its name, "" where there is none
	Floor    policy.Floor
	Reach    class.Set // classes of which a tool may pass
	Any      bool      // a tool without class may pass
	From     Place
}

// Matrix lists every principal that the policy names and the kinds it lets in, in a
// project of one execution profile. The same Resolve that admits fills it.
func (p *Policy) Matrix(profile string) []Row {
	var out []Row
	add := func(channel, who string, kind Kind, r Resolved) {
		if kind != Stranger {
			r.Kind = kind
		}
		row := Row{Channel: channel, Who: who, Kind: r.Kind, Admitted: r.Admitted, Code: r.Code, Level: r.Level, Write: r.Write, Preset: PresetOf(r.Level, r.Write),
			Ceiling: r.Ceiling.Name, Floor: r.Floor, From: r.From}
		if r.Admitted {
			row.Reach, row.Any = p.reach(r)
		}
		out = append(out, row)
	}
	f := Facts{Profile: profile}
	if p == nil || p.broken == nil && p.channels[Channel] == nil {
		// The account is any: what matters is that it owns the project.
		add(Channel, "the project's owner", Owner, p.Resolve(Principal{Channel: Channel, ID: "-"}, Facts{Account: "-", Owner: true, Profile: profile}))
	}
	if p == nil {
		return out
	}
	if p.broken != nil {
		add("every channel", "", Stranger, p.Resolve(Principal{Channel: "-"}, f))
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(p.channels)) {
		c := p.channels[name]
		ask := func(who Principal, paired bool) Resolved {
			who.Channel = name
			return p.Resolve(who, Facts{Account: accountOf(name, who.ID), Profile: profile, Paired: paired})
		}
		for _, id := range slices.Sorted(maps.Keys(c.users)) {
			add(name, id, Stranger, ask(Principal{ID: id}, false))
		}
		if name != Channel {
			add(name, "", Paired, ask(Principal{ID: nobody}, true))
		}
		kind := Unknown
		if !c.open {
			kind = Stranger
		}
		add(name, "", kind, ask(Principal{ID: nobody}, false))
		if name == Channel {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(c.groups.named)) {
			add(name, id, Group, ask(Principal{Group: id, ID: nobody}, false))
		}
		add(name, "", Group, ask(Principal{Group: nobody, ID: nobody}, false))
	}
	return out
}

// Pairs says what using a pairing code makes of somebody whom the policy does not name.
// Anything but an admitted Paired is why nobody is paired in that channel.
func (p *Policy) Pairs(who Principal) Resolved {
	if who.ID == "" {
		who.ID = nobody
	}
	return p.Resolve(who, Facts{Paired: true})
}

// accountOf is the account a local principal stands for.
func accountOf(channel, id string) ids.Account {
	if channel != Channel {
		return ""
	}
	return ids.Account(id)
}

// nobody is an identity that no document can name.
const nobody = "/"

// reach is the set of classes of which a tool with that one class passes both the
// floor's mode and the ceiling, and whether one without class does.
func (p *Policy) reach(r Resolved) (class.Set, bool) {
	passes := func(s class.Set) bool {
		return p.Modes().Answer(policy.ModeAuto, r.Floor, "", "", s) == policy.Allowed && r.Ceiling.Answer("", "", s) == policy.Allowed
	}
	var out class.Set
	for _, name := range class.All().Strings() {
		c, _ := class.Parse(name)
		if passes(class.SetOf(c)) {
			out |= class.SetOf(c)
		}
	}
	return out, passes(0)
}
