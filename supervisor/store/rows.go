package store

import "postern/ids"

// Digest is a SHA-256 sum.
type Digest = [32]byte

// Row is one row of policy.db. Rows are values: a change is a list of them, and
// the same list is written to the file and then applied to memory.
type Row interface{ row() }

// Account holds what the authority itself knows of an account. An account
// without a row is not suspended; whether it exists is root's.
type Account struct {
	ID        ids.Account
	Suspended bool
	Version   uint64
}

// Member is an account's role in a project it does not own.
type Member struct {
	Project ids.Project
	Account ids.Account
	Role    string // owner, member or viewer
}

// Connection is a project's use of a server.
type Connection struct {
	ID         ids.Connection
	Project    ids.Project
	Server     ids.Server
	Accepted   ids.Revision
	Enabled    bool
	Credential string // keyless or credential
	Version    uint64 // rises with each change of the connection or its grants
	Created    int64  // milliseconds since the epoch
}

// Definition is a raw definition that was granted or accepted, kept for comparing.
type Definition struct {
	Digest Digest
	Raw    []byte
}

// Grant is one project, one connection, one item.
type Grant struct {
	ID         ids.Grant
	Project    ids.Project
	Connection ids.Connection
	Tool       string // the item's key: a tool as the server names it, "prompt:NAME", "resource:PREFIX"
	Served     string // as the project's runtimes see it
	Tier       uint8  // the owner's mark, 0 for none
	By         string // who granted
	At         int64  // milliseconds since the epoch
	Revision   ids.Revision
	Pin        Digest // of the definition that was accepted
}

// Served reserves a name in a project for one tool of one connection for ever.
type Served struct {
	Project    ids.Project
	Name       string
	Connection ids.Connection
	Tool       string
}

// Probe is what the probe of a revision found; its pins replace the former ones.
type Probe struct {
	Revision ids.Revision
	At       int64  // milliseconds since the epoch
	Error    string // why there are no tools
	Era      string // what the server speaks: one of eras
	Pins     []Pin
}

// eras are what a server was found to speak: a hint for its next start. Their places are
// what is stored.
var eras = [...]string{"", "legacy", "modern", "both"}

// Pin is one tool as a probe found it.
type Pin struct {
	Tool        string
	Raw         []byte // the definition as the server sent it
	Digest      Digest // of Raw
	ReadOnly    uint8  // the annotations, as package class counts claims
	Destructive uint8
	Quarantine  string // why it can not be granted or called; empty if it can
}

// Task is immutable but for its end, which is for ever.
type Task struct {
	ID        ids.Task
	Account   ids.Account
	Host      string
	Project   ids.Project
	Principal string
	Mode      string
	Created   int64 // milliseconds since the epoch
	Ended     int64 // 0 while live
	Reason    string
	Moved     int64 // the project's when the task was made; negative where that was not written yet
}

// Paired is a person of a channel who used a pairing code.
type Paired struct {
	Channel  string
	Identity string // in its one spelling
	Host     string // through which they did
	At       int64  // milliseconds since the epoch
}

// Token is a minted token by its digest. Its uses are counted in activity.db.
type Token struct {
	Digest  Digest
	Task    ids.Task
	Project ids.Project
	UID     uint32
	Binds   int
	Wall    int64  // nanoseconds since the epoch, when it was minted
	Boot    int64  // nanoseconds since boot, when it was minted
	BootID  string // of that boot
	TTL     int64  // nanoseconds
	Ended   bool
}

func (Account) row()    {}
func (Member) row()     {}
func (Connection) row() {}
func (Grant) row()      {}
func (Definition) row() {}
func (Served) row()     {}
func (Probe) row()      {}
func (Task) row()       {}
func (Token) row()      {}
func (Paired) row()     {}

// Change is one durable step of policy.db: rows to write and rows to remove (by
// their key). Accounts, definitions, probes and tasks are never removed.
type Change struct {
	Put    []Row
	Delete []Row
}

// Empty tells that c changes nothing.
func (c Change) Empty() bool { return len(c.Put) == 0 && len(c.Delete) == 0 }

// Policy is everything policy.db holds.
type Policy struct {
	Accounts    []Account
	Members     []Member
	Connections []Connection
	Grants      []Grant
	Served      []Served
	Definitions []Definition
	Probes      []Probe
	Tasks       []Task
	Tokens      []Token
	Paired      []Paired
}
