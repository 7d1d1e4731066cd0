package registry

import (
	"slices"
	"time"

	"postern/ids"
	"postern/policy/access"
	"postern/policy/class"
)

// Root is what root alone decides, as posternd pushed it. It is replaced as a
// whole and never changed; the authority fills it from the orders it hears.
type Root struct {
	Version  uint64
	Accounts map[ids.Account]RootAccount
	Projects map[ids.Project]RootProject
	Servers  map[ids.Server]RootServer
	Hosts    map[string]RootHost
	// Assigned are the credentials, by who has them for what.
	Assigned map[Assignment]Credential
	// Access is the access policy, nil where there is no file; it is never changed.
	Access     *access.Policy
	AccessFile AccessFile
	// The users of jails: none of them is anybody's.
	FirstUID, UIDs uint32
	// How long records are kept, and how much of them; 0 is without an end.
	KeepAge   time.Duration
	KeepBytes int64
	// What bridges take from each runtime; 0 is the bridge's own bound.
	Sessions  SessionBounds
	Artifacts KeepArtifacts
	// MetricsUID may read counts beside root; 0 is nobody.
	MetricsUID uint32
	// ReadOnly is since when nothing is changed, milliseconds since the epoch; 0 is not so.
	ReadOnly int64
}

// SessionBounds are those of one runtime's session.
type SessionBounds struct {
	Requests int           // without an answer
	Line     int64         // bytes of one line
	LineWait time.Duration // for a long line to come on
	Depth    int           // of nested values
	Queue    int64         // bytes that wait for it to read
}

// KeepArtifacts says which artifacts are kept; 0 is without an end.
type KeepArtifacts struct {
	Age     time.Duration
	Bytes   int64 // of all projects
	Project int64 // bytes of one
}

// AccessFile is where the access policy came from.
type AccessFile struct {
	Path   string
	Digest string // of the document; "" where there is none
	Error  string // why it could not be read
	At     int64  // milliseconds since the epoch
}

// Leased tells whether a uid lies in the range of the jails.
func (r *Root) Leased(uid uint32) bool { return uid >= r.FirstUID && uid-r.FirstUID < r.UIDs }

// RootAccount is a person or a service, and the uids that are it.
type RootAccount struct {
	ID      ids.Account
	Name    string
	UIDs    []uint32
	Deleted bool
}

// RootProject is a workspace and its owner.
type RootProject struct {
	ID               ids.Project
	Label            string
	Owner            ids.Account
	Workspace        string
	PersonBind       bool
	ExecutionProfile string
	RecordArguments  bool     // what its calls are given is kept with their records
	OpenNames        []string // protected names that its servers may write
	Created          int64    // milliseconds since the epoch
	Moved            int64    // when its directory became another one; 0: never
	Deleted          bool
}

// RootServer is a registration with everything that was ever registered under it.
type RootServer struct {
	ID        ids.Server
	Label     string
	Current   ids.Revision
	Revisions map[ids.Revision]*RootRevision
	Deleted   bool
}

// RootRevision is what the authority may know of one revision.
type RootRevision struct {
	ID       ids.Revision
	Digest   string
	Profile  string // of its jail
	Fork     bool   // its jail may spawn
	Required bool   // it needs a credential
	PerTask  bool   // one instance for each task
	Writes   bool   // its jail can write into the project's directory
	Classes  map[string]class.Set
	Tiers    map[string]class.Tier
	Secret   []string // fields of arguments that no record shows
	Created  int64    // milliseconds since the epoch
	Call     time.Duration
	Start    time.Duration
	Idle     time.Duration
	Stop     time.Duration
	// Bounds that its profile sets; 0 is Postern's own.
	CallMost   time.Duration // of a call with all its progress
	Calls      int           // in flight at one instance
	Line       int64
	Depth      int
	Blocks     int
	Stderr     int64
	Pages      int
	Queue      int64
	PerSession int // in flight of one session at one instance
	Items      int // of one list
	// Definition is the size of one item, Definitions that of a whole list.
	Definition, Definitions int64
	LineWait                time.Duration // for a long line to come on
}

// RootHost is a program that may create tasks for others.
type RootHost struct {
	ID                       string
	UID                      uint32
	AllAccounts, AllProjects bool
	Accounts                 map[ids.Account]bool
	Projects                 map[ids.Project]bool
	Channels                 []string
}

// Assignment is one credential's place.
type Assignment struct {
	Project ids.Project
	Server  ids.Server
}

// Credential tells one from another; what it is, the authority never knows. The zero one
// is none.
type Credential struct {
	ID         ids.Credential
	Generation uint64 // rises when it is rotated
}

// Serves tells whether the host may act for the account in the project.
func (h RootHost) Serves(a ids.Account, p ids.Project) bool {
	return (h.AllAccounts || h.Accounts[a]) && (h.AllProjects || h.Projects[p])
}

// Speaks tells whether the host may name principals of the channel. That of an account
// itself needs no channel.
func (h RootHost) Speaks(channel string) bool {
	return channel == access.Channel || slices.Contains(h.Channels, channel)
}

// AccountOf returns the account a uid belongs to. Uid 0 belongs to none, and
// neither does a uid that two accounts claim.
func (r *Root) AccountOf(uid uint32) (RootAccount, bool) {
	var found RootAccount
	n := 0
	for _, a := range r.Accounts {
		if uid != 0 && slices.Contains(a.UIDs, uid) && !a.Deleted {
			found, n = a, n+1
		}
	}
	if n != 1 {
		return RootAccount{}, false
	}
	return found, true
}

// HostOf returns the host that runs under a uid.
func (r *Root) HostOf(uid uint32) (RootHost, bool) {
	for _, h := range r.Hosts {
		if uid != 0 && h.UID == uid {
			return h, true
		}
	}
	return RootHost{}, false
}
