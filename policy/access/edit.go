package access

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"postern/policy"
)

// Action is one kind of mutation; it is named by its target.
type Action string

// The actions.
const (
	SetLevel        Action = "level"         // a person's level and write
	SetPreset       Action = "preset"        // the same, by a preset
	SetOwner        Action = "role"          // a person is an owner
	SetBlocked      Action = "block"         // a person is blocked
	RemoveUser      Action = "remove"        // a person's entry goes
	SetDefault      Action = "default"       // whom nobody knows
	SetAdmission    Action = "admission"     // restricted or open
	SetEnabled      Action = "enabled"       // the channel
	SetMode         Action = "default-mode"  // the widest mode of the channel's people
	SetGroups       Action = "groups"        // groups, on or off
	SetGroupDefault Action = "group-default" // groups that are not named
	SetGroup        Action = "group"         // one group
	RemoveGroup     Action = "group-remove"  // one group's entry goes
)

// Mutation is one change of the document.
type Mutation struct {
	Action  Action
	Channel string
	Target  string // the person or the group, where the action has one
	Level   Level
	Write   bool
	On      bool   // of groups and enabled
	Word    string // of admission and default-mode
}

// Change is what an edit does to its target, in words that hold no identity.
type Change struct {
	Before, After string
	Warnings      []string
}

// Edit returns the document with the mutation in it, and every other line as it was.
// An error says why it is refused; nothing of the document is to be used then. doc is
// nil where there is none yet.
func Edit(doc []byte, m Mutation) ([]byte, Change, error) {
	// Lines are found by the positions that a library tells. Where it tells others than
	// there are, the edit is refused and nobody ends.
	var c Change
	out, err := careful(errShape, func() (out []byte, err error) {
		out, c, err = edit(doc, m)
		return out, err
	})
	return out, c, err
}

func edit(doc []byte, m Mutation) (out []byte, c Change, err error) {
	if bytes.IndexByte(doc, '\r') >= 0 {
		return nil, Change{}, fmt.Errorf("the file has carriage returns, with which lines are not edited: write it with line feeds alone first")
	}
	before, mistakes := Parse(doc)
	if why, broken := before.Broken(); broken {
		return nil, Change{}, fmt.Errorf("the file has a mistake to be mended first: %s", why)
	}
	if err := CheckChannel(m.Channel); err != nil {
		return nil, Change{}, err
	}
	if m.Level == Chat && m.Write {
		m.Write = false
		c.Warnings = append(c.Warnings, "chat has no tools: write stays off")
	}
	t := newText(doc)
	if doc == nil {
		t.lines = []string{"# Who may do what through this host's channels. postern access show says how it is read."}
	}
	target, err := before.change(t, m)
	if err != nil {
		return nil, Change{}, err
	}
	out = t.bytes()
	after, now := Parse(out)
	// The edit is right only if the document says afterwards what was asked and says
	// everything else as before, and nothing in it got worse.
	if why, broken := after.Broken(); broken || len(now) > len(mistakes) {
		return nil, Change{}, fmt.Errorf("%w (it would become: %s%v)", errShape, why, now)
	}
	if e, still := after.entryOf(m, target); still && m.Action == RemoveUser && strings.Contains(e.at.Key, ".access.users.") {
		return nil, Change{}, fmt.Errorf("%w (the entry would stay)", errShape)
	}
	c.Before, c.After = before.describe(m, target), after.describe(m, target)
	if !alike(before, after, m, target) {
		return nil, Change{}, fmt.Errorf("%w (it would change more than that)", errShape)
	}
	if want := m.want(); want != "" && c.After != want {
		return nil, Change{}, fmt.Errorf("%w (it would become %q)", errShape, c.After)
	}
	if m.Channel == Channel && before.channels[Channel] == nil {
		c.Warnings = append(c.Warnings, "channel local is declared now: whoever owns a project is admitted only as this file says; postern access set local NAME --owner admits an owner")
	}
	return out, c, nil
}

// change makes the change and returns the target in its one spelling.
func (p *Policy) change(t *text, m Mutation) (target string, err error) {
	channel := []string{"channels", m.Channel}
	at := func(names ...string) []string { return append(append([]string{}, channel...), names...) }
	if m.Channel == Channel && (m.Action == SetGroups || m.Action == SetGroup || m.Action == SetGroupDefault || m.Action == RemoveGroup) {
		return "", fmt.Errorf("channel %s has no groups", Channel)
	}
	switch m.Action {
	case SetLevel, SetPreset, SetOwner, SetBlocked, RemoveUser:
		if target, err = normalIn(m.Channel, m.Target); err != nil {
			return "", err
		}
		return target, p.editUser(t, m, target, at)
	case SetGroup, RemoveGroup:
		if target, err = NormalGroup(m.Target); err != nil {
			return "", err
		}
		key := p.keyOf(t, at("access", "groups"), func(s string) bool { g, err := NormalGroup(s); return err == nil && g == target }, target)
		if m.Action == RemoveGroup {
			if c := p.channels[m.Channel]; c == nil || c.groups.named[target] == (entry{}) {
				return "", fmt.Errorf("the file has no entry of this group")
			}
			return target, t.remove(at("access", "groups", key))
		}
		return target, setReach(t, at("access", "groups", key), m)
	case SetDefault:
		if m.Level == Full {
			return "", fmt.Errorf("full is never given to whom nobody knows")
		}
		return "", setReach(t, at("access", "default"), m)
	case SetGroupDefault:
		return "", setReach(t, at("access", "groups", "default"), m)
	case SetGroups:
		return "", t.set(at("access", "groups", "enabled"), fmt.Sprint(m.On))
	case SetEnabled:
		return "", t.set(at("enabled"), fmt.Sprint(m.On))
	case SetAdmission:
		if m.Word != "open" && m.Word != "restricted" {
			return "", fmt.Errorf("%.64q: want open or restricted", m.Word)
		}
		return "", t.set(at("access", "admission"), m.Word)
	case SetMode:
		if !p.Modes().Known(m.Word) || m.Word == policy.ModeAuto {
			return "", fmt.Errorf("%.64q is no mode with a list: want one of %q", m.Word, p.Modes().Names())
		}
		return "", t.set(at("default_mode"), m.Word)
	}
	return "", fmt.Errorf("%.64q is no action", m.Action)
}

func (p *Policy) editUser(t *text, m Mutation, id string, at func(...string) []string) error {
	same := func(s string) bool { n, err := normalIn(m.Channel, s); return err == nil && n == id }
	key := p.keyOf(t, at("access", "users"), same, id)
	path := at("access", "users", key)
	e, declared := p.entryOf(m, id)
	switch m.Action {
	case SetOwner:
		return t.set(path, "{role: owner}")
	case SetBlocked:
		return t.set(path, "{blocked: true}")
	case RemoveUser:
		switch {
		case !declared:
			return fmt.Errorf("the file has no entry of this identity")
		case !strings.Contains(e.at.Key, ".access.users."):
			return fmt.Errorf("it is named by %s alone, which is edited by hand", e.at.Key)
		}
		return t.remove(path)
	}
	if declared && e.kind == Owner {
		return fmt.Errorf("an owner has no level: take the entry away first, with --remove (%s)", e.at)
	}
	return setReach(t, path, m)
}

// keyOf finds the key by which the document already names a target.
func (p *Policy) keyOf(t *text, path []string, same func(string) bool, target string) string {
	body, _ := tree(t.bytes())
	n := body
	for _, name := range path {
		var next ast.Node
		for _, e := range valuesOf(n) {
			if s, ok := scalar(e.Key); ok && s == name {
				next = e.Value
			}
		}
		n = next
	}
	for _, e := range valuesOf(n) {
		if s, ok := scalar(e.Key); ok && same(s) {
			return s
		}
	}
	return target
}

// setReach writes a level with write. Where the entry stands as a block, its two lines
// are changed and its comments stay.
func setReach(t *text, path []string, m Mutation) error {
	body, _ := tree(t.bytes())
	at, err := follow(body, append(append([]string{}, path...), "level"))
	if err == nil && at.flow == nil && len(at.missing) <= 1 && len(at.in) > 0 && onlyReach(at.in) {
		child := func(name string) []string { return append(append([]string{}, path...), name) }
		if err := t.set(child("level"), m.Level.String()); err != nil {
			return err
		}
		return t.set(child("write"), fmt.Sprint(m.Write))
	}
	return t.set(path, fmt.Sprintf("{level: %s, write: %v}", m.Level, m.Write))
}

// onlyReach tells whether an entry says nothing but a level with write.
func onlyReach(in []*ast.MappingValueNode) bool {
	for _, e := range in {
		if s, ok := scalar(e.Key); !ok || s != "level" && s != "write" {
			return false
		}
	}
	return true
}

// want is how the target must read afterwards, "" where the action's own words say it.
func (m Mutation) want() string {
	switch m.Action {
	case SetLevel, SetPreset, SetDefault, SetGroupDefault, SetGroup:
		return reachText(m.Level, m.Write)
	case SetOwner:
		return "owner"
	case SetBlocked:
		return "blocked"
	case SetAdmission:
		return m.Word
	case SetEnabled:
		return onOff(m.On)
	case SetGroups:
		return "groups " + onOff(m.On)
	case SetMode:
		return "default mode " + m.Word
	case RemoveGroup:
		return "no entry"
	}
	return ""
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func reachText(l Level, write bool) string {
	if write {
		return "level " + l.String() + ", write on"
	}
	return "level " + l.String() + ", write off"
}

func (p *Policy) entryOf(m Mutation, target string) (e entry, ok bool) {
	if c := p.channels[m.Channel]; c != nil {
		e, ok = c.users[target]
	}
	return e, ok
}

// describe says what the document says of a mutation's target.
func (p *Policy) describe(m Mutation, target string) string {
	c := p.channels[m.Channel]
	if c == nil {
		return "channel not declared"
	}
	switch m.Action {
	case SetDefault:
		return c.unknown.text()
	case SetAdmission:
		if c.open {
			return "open"
		}
		return "restricted"
	case SetEnabled:
		return onOff(!c.off)
	case SetMode:
		if c.mode == "" {
			return "default mode not set"
		}
		return "default mode " + c.mode
	case SetGroups:
		return "groups " + onOff(c.groups.on)
	case SetGroupDefault:
		if !c.groups.ceiling {
			return "no level"
		}
		return c.groups.others.text()
	case SetGroup, RemoveGroup:
		if e, ok := c.groups.named[target]; ok {
			return e.text()
		}
		return "no entry"
	}
	if e, ok := c.users[target]; ok {
		return e.text()
	}
	return "no entry"
}

func (e entry) text() string {
	switch {
	case e.kind == Blocked:
		return "blocked"
	case !e.ok:
		return "an entry with a mistake"
	case e.kind == Owner:
		return "owner"
	case e.level == NoLevel:
		return "allowed, no level"
	}
	return reachText(e.level, e.write)
}
