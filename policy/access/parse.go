package access

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"postern/policy"
	"postern/policy/class"
)

// Parse reads a policy document. Its mistakes deny whom they are about: one entry, one
// channel, or, where the document has another shape than the one it must have, every
// principal. Parse never fails; what it could not read is in the mistakes.
func Parse(doc []byte) (*Policy, []Mistake) {
	body, wrong := tree(doc)
	if wrong != nil {
		p := Unreadable(*wrong)
		return p, p.mistakes
	}
	r := &reader{}
	p := &Policy{channels: map[string]*channel{}}
	if body == nil {
		return p, nil // a document that says nothing declares nothing
	}
	var custom, channels *pair
	top, ok := r.mapping(body, "")
	for _, m := range top {
		switch m.key {
		case "modes":
			custom = &m
		case "channels":
			channels = &m
		default:
			r.unknown(m.at, m.key, "", m.key, "")
			ok = false
		}
	}
	if custom != nil {
		p.modes = r.modes(custom.value)
		p.denials = r.denials
	}
	if channels != nil {
		list, readable := r.mapping(channels.value, "channels")
		if ok = ok && readable; len(list) > MaxChannels {
			r.bad(channels.at, "channels", "want at most %d", MaxChannels)
			ok = false
		}
		for _, m := range list {
			if err := CheckChannel(m.key); err != nil {
				r.bad(m.at, under("channels", m.key), "%v", err)
				ok = false // whom it was meant for cannot be told
				continue
			}
			p.channels[m.key] = r.channel(m, p.modes)
		}
	}
	p.mistakes = r.told()
	if !ok {
		// What a misspelt key was to forbid is not known, and so nobody is let in.
		at := p.mistakes[max(0, slices.IndexFunc(p.mistakes, func(m Mistake) bool { return !m.Warn }))]
		p.broken = &Place{at.Line, at.Key + ": " + at.Want}
	}
	return p, p.mistakes
}

// Unreadable is the policy of a document that cannot be read at all: it denies every
// principal, and says why.
func Unreadable(why Mistake) *Policy {
	return &Policy{broken: &Place{why.Line, under(why.Key, why.Want)}, mistakes: []Mistake{why}}
}

// Mistakes are what was wrong with the document.
func (p *Policy) Mistakes() []Mistake {
	if p == nil {
		return nil
	}
	return p.mistakes
}

// Broken tells whether the document denies every principal, and why.
func (p *Policy) Broken() (string, bool) {
	if p == nil || p.broken == nil {
		return "", false
	}
	return p.broken.String(), true
}

func (r *reader) modes(n ast.Node) policy.Modes {
	list, _ := r.mapping(n, "modes")
	custom := map[string]*policy.ToolPolicy{}
	for _, m := range list {
		key := under("modes", m.key)
		t, ok := r.toolPolicy(m.value, key)
		if err := CheckChannel(m.key); err != nil {
			r.bad(m.at, key, "want a name of lower-case letters, digits, _ and -")
			continue
		}
		if !ok {
			continue
		}
		if _, err := policy.NewModes(map[string]*policy.ToolPolicy{m.key: t}); err != nil {
			r.bad(m.at, key, "%v", err)
			continue
		}
		custom[m.key] = t
	}
	out, err := policy.NewModes(custom)
	if err != nil {
		r.bad(n, "modes", "%v", err)
	}
	return out
}

// toolPolicy reads one list of tools. Any mistake in it makes the whole of it nothing.
func (r *reader) toolPolicy(n ast.Node, key string) (*policy.ToolPolicy, bool) {
	t := &policy.ToolPolicy{}
	list, ok := r.mapping(n, key)
	if len(list) == 0 {
		r.bad(n, key, "want at least one list, no_tools or whitelist_mode")
		ok = false
	}
	for _, m := range list {
		k := under(key, m.key)
		good := true
		switch m.key {
		case "allowed":
			t.Allowed, good = r.patterns(m.value, k)
		case "denied":
			t.Denied, good = r.patterns(m.value, k)
			if list, ok := m.value.(*ast.SequenceNode); ok && good {
				for i, n := range list.Values {
					r.denials = append(r.denials, Denial{Place{lineOf(n), fmt.Sprintf("%s[%d]", k, i)}, t.Denied[i]})
				}
			}
		case "allowed_capabilities":
			t.AllowedClasses, good = r.classes(m.value, k)
		case "denied_capabilities":
			t.DeniedClasses, good = r.classes(m.value, k)
		case "no_tools":
			t.NoTools, good = r.truth(m.value, k)
		case "whitelist_mode":
			t.Whitelist, good = r.truth(m.value, k)
		default:
			r.unknown(m.at, k, "modes.*", m.key, "")
			good = false
		}
		ok = ok && good
	}
	if ok && t.Allowed != nil && len(t.Allowed) == 0 {
		r.warn(n, under(key, "allowed"), "is empty, and so allows nothing")
	}
	return t, ok
}

func (r *reader) patterns(n ast.Node, key string) ([]string, bool) {
	out, good := []string{}, true
	ok := r.list(n, key, policy.MaxList, func(n ast.Node, key string) {
		s, text := r.word(n, key)
		if err := policy.CheckPattern(s); text && err != nil {
			r.bad(n, key, "%v", err)
			text = false
		}
		if out = append(out, s); !text {
			good = false
		}
	})
	return out, ok && good
}

func (r *reader) classes(n ast.Node, key string) (*class.Set, bool) {
	var out class.Set
	good := true
	ok := r.list(n, key, class.Count, func(n ast.Node, key string) {
		s, text := r.word(n, key)
		c, known := class.Parse(s)
		if text && !known {
			r.bad(n, key, "%.*q is no class", maxShown, s)
		}
		if out |= class.SetOf(c); !known {
			good = false
		}
	})
	return &out, ok && good
}
