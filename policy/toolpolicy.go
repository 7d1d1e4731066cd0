package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"postern/policy/class"
)

// MaxList bounds each list of names: a decision reads them all.
const MaxList = 128

// ToolPolicy is a list of what may be reached: a mode or a ceiling. In every list
// nil means that it was not written; written and empty allows nothing.
type ToolPolicy struct {
	Allowed, Denied               []string // exact, "server/*" or "*/operation"
	AllowedClasses, DeniedClasses *class.Set
	NoTools                       bool
	Whitelist                     bool
}

// Check refuses a whitelist that lists nothing at all, which is a mistake and not
// a policy, lists that are too long, and names that are not written in one of the
// three spellings.
func (p *ToolPolicy) Check() error {
	if p.Whitelist && p.Allowed == nil && p.AllowedClasses == nil && p.Denied == nil && p.DeniedClasses == nil {
		return errors.New("whitelist_mode needs at least one list")
	}
	if max(len(p.Allowed), len(p.Denied)) > MaxList {
		return fmt.Errorf("a list has at most %d names", MaxList)
	}
	for _, pattern := range slices.Concat(p.Allowed, p.Denied) {
		if err := CheckPattern(pattern); err != nil {
			return err
		}
	}
	return nil
}

// MaxPattern bounds one name of a list.
const MaxPattern = 160

// CheckPattern refuses what is not a tool's name, "server/tool", "server/*" or
// "*/operation". Anything else would match nothing, silently.
func CheckPattern(pattern string) error {
	first, tool, scoped := strings.Cut(pattern, "/")
	ok := len(pattern) <= MaxPattern
	if scoped {
		ok = ok && (plain(first) || first == "*" && tool != "*") && (plain(tool) || tool == "*")
	} else {
		ok = ok && plain(first)
	}
	if !ok {
		return fmt.Errorf("%.*q is not a tool, server/*, or */operation", MaxPattern, pattern)
	}
	return nil
}

// plain tells whether a name is of the characters that a grantable name has. A
// look-alike of another script is not: it would be another name that reads the same.
func plain(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return name != ""
}

// Answer says whether p lets the tool of a server through. A denial by name or
// class wins over any allowance. The nil policy is undecided.
func (p *ToolPolicy) Answer(server, tool string, classes class.Set) Answer {
	if p == nil {
		return Undecided
	}
	if p.NoTools || named(p.Denied, server, tool) {
		return Refused
	}
	if p.byClass() && classes.Empty() {
		return RefusedNoClass
	}
	if p.DeniedClasses != nil && classes.Meets(*p.DeniedClasses) {
		return Refused
	}
	if !p.restricts() || p.AllowedClasses != nil && classes.Within(*p.AllowedClasses) || named(p.Allowed, server, tool) {
		return Allowed
	}
	return Refused
}

// byClass tells whether a class list is held against tools, so that one without
// class is refused.
func (p *ToolPolicy) byClass() bool { return p.AllowedClasses != nil || p.DeniedClasses != nil }

// restricts tells whether only what is listed passes.
func (p *ToolPolicy) restricts() bool {
	empty := p.Allowed != nil && len(p.Allowed) == 0 || p.AllowedClasses != nil && p.AllowedClasses.Empty()
	return p.Whitelist || empty
}

// Within tells whether p allows nothing that o does not allow, by comparing their
// lists. It may say no of two that happen to allow the same; it never says yes of a
// wider one.
func (p *ToolPolicy) Within(o *ToolPolicy) bool {
	switch {
	case p == nil || p.NoTools:
		return true
	case o == nil || o.NoTools:
		return false
	case o.byClass() && !p.byClass():
		return false // a tool without class passes p and not o
	case o.DeniedClasses != nil && (p.DeniedClasses == nil || *o.DeniedClasses&^*p.DeniedClasses != 0):
		return false
	case !covers(p.Denied, o.Denied):
		return false
	case !o.restricts():
		return true
	case !p.restricts():
		return false
	}
	byClass := p.AllowedClasses == nil || p.AllowedClasses.Empty() || o.AllowedClasses != nil && p.AllowedClasses.Within(*o.AllowedClasses)
	return byClass && covers(o.Allowed, p.Allowed)
}

// covers tells whether each of patterns is one of list or lies in one of them.
func covers(list, patterns []string) bool {
	for _, pattern := range patterns {
		s, op, scoped := strings.Cut(pattern, "/")
		if !slices.ContainsFunc(list, func(wide string) bool {
			ws, wop, wscoped := strings.Cut(wide, "/")
			switch {
			case wide == pattern:
				return true
			case !scoped:
				return wscoped && ws == "*" && wop == pattern
			case !wscoped:
				return op == wide
			}
			return (ws == s || ws == "*") && (wop == op || wop == "*")
		}) {
			return false
		}
	}
	return true
}

// named tells whether a list holds the tool in one of the spellings.
func named(list []string, server, tool string) bool {
	for _, pattern := range list {
		if Matches(pattern, server, tool) {
			return true
		}
	}
	return false
}

// Matches tells whether a name of a list means the tool of a server; a runtime's own
// tool has the server "".
func Matches(pattern, server, tool string) bool {
	s, op, scoped := strings.Cut(pattern, "/")
	return !scoped && pattern == tool || scoped && (s == server || s == "*") && (op == tool || op == "*")
}
