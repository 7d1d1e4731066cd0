// Package access knows who a task acts for (its principal), what the access policy
// says of that principal, and the ceiling and the widest mode it puts on it.
//
// It is pure. The policy document is root's and trusted to mean what it says; it may
// still be mistyped, cut off or edited by half. Principals are written by hosts and
// people and are hostile.
//
// Invariants:
//   - access-1: nobody is admitted whom the policy does not admit; without a policy that is the project's owner account alone, by local:<account>.
//   - access-2: the zero Ceiling refuses every tool, and the zero Resolved admits nobody.
//   - access-3: one wrong entry denies whom it governs and nobody else, and is told with its line and key.
//   - access-4: a document that cannot be read denies every principal; nothing of a former one is kept.
//   - access-5: an identity has one spelling; what only looks like it is another, or none.
//   - access-6: admitting allocates nothing.
//   - access-7: an edit changes what it names; every other line of the document, its comments and its order stay.
//
// It grants nothing: a ceiling only takes away, and package policy composes it.
package access

import (
	"fmt"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

// Kind is what a principal is to the policy.
type Kind uint8

// The kinds. A stranger is nobody's.
const (
	Stranger Kind = iota
	Owner
	User
	Paired  // by a code
	Unknown // nobody's, where the channel's admission is open
	Blocked
	Group
)

var kinds = [...]string{"stranger", "owner", "user", "paired", "unknown", "blocked", "group"}

// String is how a person reads the kind.
func (k Kind) String() string {
	if int(k) >= len(kinds) {
		return kinds[Stranger]
	}
	return kinds[k]
}

// Ceiling is the most a principal may reach. The zero value reaches nothing. Equal
// ceilings are equal values.
type Ceiling struct {
	Name      string             // of the level and write; empty where there is no ceiling
	Unlimited bool               // there is no ceiling: mode and profile decide
	Policy    *policy.ToolPolicy // asked unless Unlimited
}

// Answer says whether the ceiling leaves the tool of a server within reach.
func (c Ceiling) Answer(server, tool string, classes class.Set) policy.Answer {
	if c.Unlimited {
		return policy.Allowed
	}
	return c.Policy.Answer(server, tool, classes)
}

// Place is where the document says something.
type Place struct {
	Line int // from 1; 0 where it follows from what is not written
	Key  string
}

// String is how a person reads the place.
func (p Place) String() string {
	if p.Line == 0 {
		return p.Key
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Key)
}

// Facts are what resolving needs to know beside the policy.
type Facts struct {
	Account ids.Account // the task's
	Owner   bool        // it is the project's owner account
	Profile string      // the project's execution profile
	Paired  bool        // the identity has used a pairing code that still holds
}

// Resolved is what the policy says of a principal now. The zero value admits nobody.
type Resolved struct {
	Admitted bool
	Code     refusal.Code // why it is not admitted
	Kind     Kind
	Level    Level // NoLevel where none is declared, and so no ceiling
	Write    bool
	Ceiling  Ceiling
	Floor    policy.Floor // the widest mode
	From     Place        // what decided
}
