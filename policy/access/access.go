// Package access knows who a task acts for (its principal) and the ceiling that
// puts on it.
//
// It is pure. Principals are written by hosts and people and are hostile.
//
// Invariants:
//   - access-1: only local:<the task's own account> is a principal here; every other is refused by name.
//   - access-2: the zero Ceiling refuses every tool.
//
// It grants nothing: a ceiling only takes away, and package policy composes it.
package access

import (
	"strings"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

// Channel is the channel of people who use this machine themselves.
const Channel = "local"

// Local returns the principal of an account's own tasks.
func Local(a ids.Account) string { return Channel + ":" + string(a) }

// Ceiling is the most a principal may reach. The zero value reaches nothing.
type Ceiling struct {
	Name      string             // for people; empty where there is no ceiling
	Unlimited bool               // there is no ceiling: mode and profile decide
	Policy    *policy.ToolPolicy // asked unless Unlimited
}

// Resolve returns the ceiling of a task's principal, or the code that refuses it.
// It is asked again at every admission.
func Resolve(principal string, account ids.Account) (Ceiling, refusal.Code) {
	who, ok := strings.CutPrefix(principal, Channel+":")
	if !ok || account == "" || who != string(account) {
		return Ceiling{}, refusal.PrincipalRefused
	}
	return Ceiling{Unlimited: true}, ""
}

// Answer says whether the ceiling leaves the tool of a server within reach.
func (c Ceiling) Answer(server, tool string, classes class.Set) policy.Answer {
	if c.Unlimited {
		return policy.Allowed
	}
	return c.Policy.Answer(server, tool, classes)
}
