package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"postern/policy/class"
)

// ToolPolicy is a list of what may be reached: a custom mode or a ceiling. In
// every list nil means that it was not written; written and empty allows nothing.
type ToolPolicy struct {
	Allowed, Denied               []string // exact, "server/*" or "*/operation"
	AllowedClasses, DeniedClasses *class.Set
	NoTools                       bool
	Whitelist                     bool
}

// Check refuses a whitelist that lists nothing at all, which is a mistake and not
// a policy, and names that are not written in one of the three spellings.
func (p *ToolPolicy) Check() error {
	if p.Whitelist && p.Allowed == nil && p.AllowedClasses == nil && p.Denied == nil && p.DeniedClasses == nil {
		return errors.New("whitelist_mode needs at least one list")
	}
	for _, pattern := range slices.Concat(p.Allowed, p.Denied) {
		server, tool, scoped := strings.Cut(pattern, "/")
		stars := strings.Count(pattern, "*")
		if pattern == "" || scoped && (server == "" || tool == "") || strings.Contains(tool, "/") ||
			stars > 1 || stars == 1 && server != "*" && tool != "*" || !scoped && stars > 0 {
			return fmt.Errorf("%q is not a tool, server/*, or */operation", pattern)
		}
	}
	return nil
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
	if (p.AllowedClasses != nil || p.DeniedClasses != nil) && classes.Empty() {
		return RefusedNoClass
	}
	if p.DeniedClasses != nil && classes.Meets(*p.DeniedClasses) {
		return Refused
	}
	byName := named(p.Allowed, server, tool)
	byClass := p.AllowedClasses != nil && classes.Within(*p.AllowedClasses)
	empty := p.Allowed != nil && len(p.Allowed) == 0 || p.AllowedClasses != nil && p.AllowedClasses.Empty()
	if (p.Whitelist || empty) && !byName && !byClass {
		return Refused
	}
	return Allowed
}

// named tells whether a list holds the tool in one of the three spellings.
func named(list []string, server, tool string) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		s, op, ok := strings.Cut(pattern, "/")
		if !ok {
			return pattern == tool
		}
		return (s == server || s == "*") && (op == tool || op == "*")
	})
}
