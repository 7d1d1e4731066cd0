package policy

import (
	"fmt"
	"maps"
	"slices"

	"postern/policy/class"
)

// The built-in modes. ModeAuto has no list of its own: it is the principal's floor,
// as it stands at each call, and so never wider.
const (
	ModeSearch = "search"
	ModeCode   = "code"
	ModeAuto   = "auto"
)

// The execution profiles.
const (
	ProfileStandard    = "standard"
	ProfileIsolatedPod = "isolated-pod"
)

// MaxModes bounds the custom modes.
const MaxModes = 64

// builtin are the lists of the built-in modes. search names the native tools that
// read and admits whatever only reads; every other class is denied there, because a
// name is a server's word: one that calls its deleting tool "read_file" gains nothing.
// A list of code would restrict, so it has none.
var builtin = map[string]*ToolPolicy{
	ModeSearch: {Whitelist: true, Allowed: class.NativeReaders(), AllowedClasses: sets(class.Read()), DeniedClasses: sets(class.All() &^ class.Read())},
	ModeCode:   {},
}

func sets(s class.Set) *class.Set { return &s }

// Modes are the modes of an installation. The zero value has the built-in ones.
type Modes struct {
	custom map[string]*ToolPolicy
}

// NewModes returns the built-in modes and custom ones. A custom mode that takes the
// name of a built-in one, or whose lists are wrong, is an error: it must not change
// what a name means.
func NewModes(custom map[string]*ToolPolicy) (Modes, error) {
	if len(custom) > MaxModes {
		return Modes{}, fmt.Errorf("%d modes, at most %d are possible", len(custom), MaxModes)
	}
	for name, p := range custom {
		if BuiltinMode(name) || p == nil {
			return Modes{}, fmt.Errorf("mode %q is built in", name)
		}
		if err := p.Check(); err != nil {
			return Modes{}, fmt.Errorf("mode %q: %w", name, err)
		}
	}
	return Modes{custom: maps.Clone(custom)}, nil
}

// BuiltinMode tells whether name is a built-in mode.
func BuiltinMode(name string) bool { return name == ModeAuto || builtin[name] != nil }

// Names lists the modes, the built-in ones first.
func (m Modes) Names() []string {
	return append([]string{ModeSearch, ModeCode, ModeAuto}, slices.Sorted(maps.Keys(m.custom))...)
}

// Known tells whether a task may be made with the mode.
func (m Modes) Known(name string) bool { return name == ModeAuto || m.list(name) != nil }

// Policy returns what a mode lists, nil for auto and for what is no mode. It is not to be changed.
func (m Modes) Policy(name string) *ToolPolicy { return m.list(name) }

func (m Modes) list(name string) *ToolPolicy {
	if p := builtin[name]; p != nil {
		return p
	}
	return m.custom[name]
}

// Floor is the widest mode of a principal. The zero value leaves no mode.
type Floor struct {
	Mode string
	// Execute lets tools that run programs through. An owner's own floor has it in an
	// isolated pod only; a mode that the operator named has it as its lists say.
	Execute bool
}

// Within tells whether a mode is no wider than the floor. What cannot be shown to be
// narrower is wider.
func (m Modes) Within(mode string, f Floor) bool {
	if mode == ModeAuto {
		return m.list(f.Mode) != nil
	}
	p, widest := m.list(mode), m.list(f.Mode)
	return p != nil && widest != nil && (mode == f.Mode || p.Within(widest))
}

// Answer says whether a task's mode includes the tool of a server, for a principal of
// that floor. An unknown mode is undecided.
func (m Modes) Answer(mode string, f Floor, server, tool string, classes class.Set) Answer {
	widest := m.list(f.Mode)
	p := widest
	if mode != ModeAuto && mode != f.Mode {
		p = m.list(mode)
	}
	switch {
	case p == nil && mode != ModeAuto:
		return Undecided
	case widest == nil, p != widest && !p.Within(widest):
		return RefusedWider
	case classes.Has(class.ProcessExecute) && !f.Execute:
		return Refused
	}
	return p.Answer(server, tool, classes)
}

// KnownProfile tells whether a project may be given the execution profile.
func KnownProfile(profile string) bool {
	return profile == ProfileStandard || profile == ProfileIsolatedPod
}

// ProfileAnswer says whether an execution profile lets a tool run. In standard a
// tool that executes processes is kept out where its jail forbids spawning, for
// it could only fail there. An unknown profile is undecided.
func ProfileAnswer(profile string, classes class.Set, jailMaySpawn bool) Answer {
	if !KnownProfile(profile) {
		return Undecided
	}
	if profile == ProfileStandard && classes.Has(class.ProcessExecute) && !jailMaySpawn {
		return Refused
	}
	return Allowed
}
