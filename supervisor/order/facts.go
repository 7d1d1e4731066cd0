package order

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"postern/ids"
)

// Root is the set of facts that only root changes. Version rises with each change.
// It holds no secret and no environment value.
type Root struct {
	Version  uint64       `json:"version"`
	Instance ids.Instance `json:"instance"`
	Accounts []Account    `json:"accounts"`
	Projects []Project    `json:"projects"`
	Servers  []Server     `json:"servers"`
	Hosts    []Host       `json:"hosts"`
	// Credentials say which project has one for which server, and nothing of what it is.
	Credentials []Credential `json:"credentials,omitempty"`

	UIDs     Range    `json:"uids"`
	Access   Access   `json:"access"`
	Audit    Audit    `json:"audit"`
	Keep     Keep     `json:"keep,omitzero"`
	Sessions Sessions `json:"sessions,omitzero"`

	Artifacts KeepArtifacts `json:"artifacts,omitzero"`
	// MetricsUID may read counts beside root; 0 is nobody.
	MetricsUID uint32 `json:"metrics_uid,omitzero"`
	// ReadOnly is since when nothing is changed, milliseconds since the epoch; 0: changes
	// are made.
	ReadOnly int64 `json:"read_only_since,omitzero"`

	Warnings []string `json:"warnings,omitempty"`
}

// Audit says how much of the authority's record of changes is kept.
type Audit struct {
	MaxBytes int64 `json:"max_bytes"`
	Keep     int   `json:"keep"`
}

// Access is the access policy as posternd found it. Without a file nothing but Path is
// set; Error says why one that is there, or was, could not be read, and then there is
// no document.
type Access struct {
	Path     string `json:"path,omitempty"`
	Present  bool   `json:"present,omitempty"`
	Document []byte `json:"document,omitempty"`
	Digest   string `json:"digest,omitempty"` // of the document, to tell which one decides
	Error    string `json:"error,omitempty"`
	At       int64  `json:"at,omitempty"` // when it was found so, milliseconds since the epoch
}

// Account is a person or a service that owns projects.
type Account struct {
	ID      ids.Account `json:"id"`
	Name    string      `json:"name"`
	UIDs    []uint32    `json:"uids"`
	Deleted bool        `json:"deleted,omitempty"`
}

// Project is a workspace and its owner.
type Project struct {
	ID               ids.Project `json:"id"`
	Label            string      `json:"label"`
	Owner            ids.Account `json:"owner"`
	Workspace        string      `json:"workspace"`
	PersonBind       bool        `json:"person_bind"`
	ExecutionProfile string      `json:"execution_profile"`
	RecordArguments  bool        `json:"record_arguments,omitzero"` // what its calls are given is kept with their records
	OpenNames        []string    `json:"open_names,omitempty"`      // protected names that its servers may write
	Created          int64       `json:"created"`                   // milliseconds since the epoch
	Moved            int64       `json:"moved,omitzero"`            // when its directory became another one; tasks from before have ended
	Deleted          bool        `json:"deleted,omitempty"`
}

// Server is a registration; the last revision is the current one.
type Server struct {
	ID        ids.Server `json:"id"`
	Label     string     `json:"label"`
	Revisions []Revision `json:"revisions"`
	Deleted   bool       `json:"deleted,omitempty"`
}

// Current returns the registration's newest revision.
func (s Server) Current() Revision { return s.Revisions[len(s.Revisions)-1] }

// Revision is everything the authority may know of what would run. The command
// itself stays with posternd.
type Revision struct {
	ID           ids.Revision        `json:"id"`
	Digest       string              `json:"digest"`
	Profile      string              `json:"profile"`
	Fork         bool                `json:"fork"`       // its jail may spawn
	Credential   string              `json:"credential"` // none or required
	Scope        string              `json:"scope"`      // project or task
	Writes       bool                `json:"writes"`     // its jail can write into the directory it is given
	Classes      map[string][]string `json:"classes,omitempty"`
	Tiers        map[string]string   `json:"tiers,omitempty"`
	SecretFields []string            `json:"secret_fields,omitempty"` // of arguments, which no record shows
	Created      int64               `json:"created"`
	CallMs       int64               `json:"call_ms"`  // limit of one call
	StartMs      int64               `json:"start_ms"` // limit of start, handshake and listing
	IdleMs       int64               `json:"idle_ms"`
	StopMs       int64               `json:"stop_ms"`
	CallMostMs   int64               `json:"call_most_ms,omitzero"` // with all its progress; 0: the authority's own bound
	Calls        int                 `json:"calls,omitzero"`        // in flight at one instance; 0 as above
	Line         int64               `json:"line,omitzero"`         // these are the bridge's; 0 as above
	Depth        int                 `json:"depth,omitzero"`
	Blocks       int                 `json:"blocks,omitzero"`
	Stderr       int64               `json:"stderr,omitzero"`
	Pages        int                 `json:"pages,omitzero"`
	Queue        int64               `json:"queue,omitzero"`
	PerSession   int                 `json:"per_session,omitzero"` // of Calls, those of one session; the authority's
	Items        int                 `json:"items,omitzero"`       // of one list; from here on the bridge's again
	Definition   int64               `json:"definition,omitzero"`  // bytes of one item
	Listing      int64               `json:"listing,omitzero"`     // bytes of one list
	LineWaitMs   int64               `json:"line_wait_ms,omitzero"`
}

// Credential is the place of one: what it is stays with posternd. Generation rises when
// it is rotated, and is never 0.
type Credential struct {
	ID         ids.Credential `json:"id"`
	Project    ids.Project    `json:"project"`
	Server     ids.Server     `json:"server"`
	Generation uint64         `json:"generation"`
}

// Host is a program that may create tasks.
type Host struct {
	ID       string   `json:"id"`
	UID      uint32   `json:"uid"`
	Accounts []string `json:"accounts"` // ids, or ["*"]
	Projects []string `json:"projects"` // ids, or ["*"]
	Channels []string `json:"channels,omitempty"`
}

// Keep says how long records of calls are kept; 0 is for ever, and of any size.
type Keep struct {
	Days uint32 `json:"days,omitzero"`
	MiB  uint32 `json:"mib,omitzero"` // of activity.db in use
}

// Sessions bounds what bridges take from each runtime; 0 is the bridge's own bound, and
// nothing here widens it.
type Sessions struct {
	Requests        uint32 `json:"requests,omitzero"`          // without an answer
	LineKiB         uint32 `json:"line_kib,omitzero"`          // of one line
	LineWaitSeconds uint32 `json:"line_wait_seconds,omitzero"` // for a long line to come on
	Depth           uint32 `json:"depth,omitzero"`             // of nested values
	QueueKiB        uint32 `json:"queue_kib,omitzero"`         // that wait for it to read
}

// KeepArtifacts says which artifacts of calls are kept.
type KeepArtifacts struct {
	Days       uint32 `json:"days"`
	MiB        uint32 `json:"mib"` // of all projects
	ProjectMiB uint32 `json:"project_mib"`
}

// Range is the machine-wide range of leased uids.
type Range struct {
	First uint32 `json:"first"`
	Count uint32 `json:"count"`
}

// EncodeRoot and DecodeRoot are the document of Facts' memfd.
func EncodeRoot(r Root) ([]byte, error) { return json.Marshal(r, json.Deterministic(true)) }

// MaxRoot bounds the document.
const MaxRoot = 64 << 20

// DecodeRoot reads it strictly.
func DecodeRoot(raw []byte) (Root, error) {
	var r Root
	if len(raw) > MaxRoot {
		return Root{}, ErrTooLong
	}
	if err := json.Unmarshal(raw, &r, json.RejectUnknownMembers(true)); err != nil {
		return Root{}, fmt.Errorf("root facts: %w", err)
	}
	for _, s := range r.Servers {
		if len(s.Revisions) == 0 {
			return Root{}, fmt.Errorf("root facts: server %s has no revision", s.ID)
		}
	}
	return r, nil
}
