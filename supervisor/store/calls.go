package store

import (
	"postern/ids"
	"postern/refusal"
)

// State is where a call stands.
type State uint8

// The states. Admitted and Started are open; the others are final.
const (
	NoState State = iota
	Admitted
	Started
	Completed
	Failed
	Cancelled
	Denied
	Unknown
)

var states = [...]string{"", "admitted", "started", "completed", "failed", "cancelled", "denied", "unknown"}

// String returns the state's name.
func (s State) String() string {
	if int(s) >= len(states) {
		return ""
	}
	return states[s]
}

// ParseState returns the state called s.
func ParseState(s string) (State, bool) {
	for i := Admitted; i <= Unknown; i++ {
		if states[i] == s {
			return i, true
		}
	}
	return NoState, false
}

// Open tells whether the call has not ended.
func (s State) Open() bool { return s == Admitted || s == Started }

// Call is one record of activity.db: an admitted call or a denied one.
type Call struct {
	Seq    int64 // its place; set by the batch
	Change int64 // rises with each change of any record; set by the batch

	ID         ids.Call
	At         int64 // nanoseconds since the epoch
	Account    ids.Account
	Host       string
	Project    ids.Project
	Task       ids.Task
	Principal  string
	Mode       string
	Session    ids.Session
	Connection ids.Connection
	Revision   ids.Revision
	Tool       string
	Classes    uint16 // the set, as package class packs it
	Policy     string // what decided: grant, tier, profile, ceiling
	RequestID  string // escaped and bounded by the writer of the record
	ArgsDigest Digest
	ArgsSize   int64
	Args       Arguments // to be written with the record; ArgumentsOf reads them

	State       State
	Ended       int64 // nanoseconds since the epoch, 0 while open
	Size        int64 // bytes of the answer
	Micros      int64 // the bridge's measure
	Code        refusal.Code
	Count       int64  // 1, or how many denials were folded into this record
	Incarnation uint64 // of the authority that wrote it; set by the batch
	Reason      string // why it ended so, or was not begun, in words; escaped and bounded by the writer of the record
}

// Outcome is how an open call ended.
type Outcome struct {
	State  State
	At     int64 // nanoseconds since the epoch
	Size   int64
	Micros int64
	Code   refusal.Code
	Reason string // in words; escaped and bounded by the writer of the record
}

// Session is one bound session, kept beside the bind that made it.
type Session struct {
	ID      ids.Session
	Task    ids.Task
	Project ids.Project
	UID     uint32
	Token   Digest // zero for a person's own session
	Opened  int64  // nanoseconds since the epoch
	Ended   int64
	Reason  string
}
