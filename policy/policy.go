// Package policy decides whether one call may be made now.
//
// It is pure: every factor comes as a plain value in Facts, gathered by the gate
// in its one queue. The caller is trusted to state facts truly; names and
// classes inside them are a server's words and hostile.
//
// Invariants:
//   - policy-1: the zero Facts denies, and so does any Facts with one factor left out.
//   - policy-2: only all factors together allow; adding a denial never allows.
//   - policy-3: a tool outside the project's own connections is answered like a name that does not exist.
//   - policy-4: a ceiling, a mode or a profile only takes away.
//   - policy-5: the verdict names every failing rule, and allowing allocates nothing.
//
// It reads no store, knows no clock and makes no call: those are the gate's.
package policy

import (
	"postern/ids"
	"postern/policy/class"
	"postern/refusal"
)

// Account is the standing of the account that owns the task.
type Account uint8

// The standings of an account.
const (
	AccountUnknown Account = iota
	AccountActive
	AccountSuspended
	AccountDeleted
)

// Host is the standing of the host that made the task.
type Host uint8

// The standings of a host. The person's own path counts as assigned.
const (
	HostUnknown Host = iota
	HostAssigned
	HostNotAssigned
)

// Task is the standing of the task, which is bound to the project for ever.
type Task uint8

// The standings of a task.
const (
	TaskUnknown Task = iota
	TaskLive
	TaskEnded
)

// Project is the standing of the project.
type Project uint8

// The standings of a project.
const (
	ProjectUnknown Project = iota
	ProjectLive
	ProjectDeleted
	ProjectReplaced // its directory is not the registered one
)

// Connection is the standing of the connection the tool belongs to.
type Connection uint8

// The standings of a connection. A connection of another project is none of this project's.
const (
	NoConnection Connection = iota
	ConnectionEnabled
	ConnectionDisabled
	ConnectionOrphaned // the registration of its server is deleted
)

// Pin compares the tool's pinned definition with the one its grant was given for.
type Pin uint8

// The comparisons.
const (
	PinUnknown Pin = iota
	PinMatches
	PinChanged
	PinQuarantined
)

// Principal is what the access policy says of the principal a task acts for.
type Principal uint8

// The answers of the access policy.
const (
	PrincipalUnknown Principal = iota
	PrincipalAdmitted
	PrincipalBlocked
	PrincipalUnreadable // what the policy says of it could not be read
)

// PrincipalOf turns the code of a refused principal into the factor.
func PrincipalOf(code refusal.Code) Principal {
	switch code {
	case "":
		return PrincipalAdmitted
	case refusal.PrincipalBlocked:
		return PrincipalBlocked
	case refusal.AccessUnavailable:
		return PrincipalUnreadable
	}
	return PrincipalUnknown
}

// Answer is what one of mode, execution profile and ceiling says of a tool.
type Answer uint8

// The answers. Whatever could not be decided refuses.
const (
	Undecided Answer = iota
	Allowed
	Refused
	RefusedNoClass // refused because a class list is held against a tool without class
	RefusedWider   // the task's mode is wider than the widest its principal may have
)

// Paths says where the path arguments of a known filesystem operation lie.
type Paths uint8

// The answers. A tool without path arguments has them inside.
const (
	PathsUnknown Paths = iota
	PathsInside
	PathsOutside // or missing, or no paths at all
)

// Limits is what bounds say of one more call.
type Limits uint8

// The answers of the bounds.
const (
	LimitsUnknown Limits = iota
	WithinLimits
	TooManyCalls
	TooManyStarts
	Draining
)

// Facts holds every factor of one decision, as it stands at that moment. A
// factor that is left out denies.
type Facts struct {
	Account Account
	Project Project
	Task    Task
	Bound   bool // the task belongs to this account and to this project
	Session bool // the bound session is open
	Host    Host
	Member  bool // the account owns the project or belongs to it

	Connection Connection
	// The accepted revision, the registration's current one and the one that runs
	// (or would run) must be the same.
	Accepted, Current, Running ids.Revision
	Granted                    bool
	Pin                        Pin

	Principal Principal
	Ceiling   Answer
	Mode      Answer
	Profile   Answer
	Paths     Paths
	Apart     bool // no directory that the server can write is shared with another principal's task

	Credential bool // none is needed, or the needed one is assigned and readable
	Tier       class.Tier
	Approved   bool // an approval of exactly this call was found; matters to destructive calls only
	Limits     Limits
	Recordable bool // the store can take the record
}

// Verdict is the answer. The zero value denies.
type Verdict struct {
	Allow bool
	Code  refusal.Code   // the first rule that denies; empty when allowed
	Also  []refusal.Code // every other rule that denies, in order
}
