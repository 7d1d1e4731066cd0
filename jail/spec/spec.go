// Package spec knows what a jail is made of: the execution profile that root
// wrote, and the one document that tells postern-jail what to build.
//
// It is pure and has no privilege. Profiles come from root and are checked by
// Validate all the same; the document comes from the launcher over a pipe that
// nobody else holds, and is decoded strictly because a field that is silently
// ignored is a wall that is silently missing.
//
// Invariants:
//   - spec-1: a document with an unknown field, a duplicate name, a wrong type
//     or trailing bytes is refused; nothing is guessed.
//   - spec-2: a profile that Validate accepts names only clean absolute paths,
//     none of which lies inside another mount of the jail.
//   - spec-3: the canonical form of a profile, of which its digest is taken, covers every
//     field that changes what a jail may do.
//
// It is not the decoder of profile files (profiles) and it touches no kernel
// (jail, jail/stage).
package spec

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// The places a jail gives to what a launch brings along. They exist only on
// the private root, so a profile may not put anything of its own there.
const (
	WorkspaceDir = "/workspace"
	PackageDir   = "/package"
	ProgramFile  = "/program"
	TmpDir       = "/tmp"
	DevDir       = "/dev"
	ShmDir       = "/dev/shm"
	ProcDir      = "/proc"
)

// Profile is one execution profile: everything that differs between jails and
// does not differ between two launches of the same kind of program.
type Profile struct {
	// Name is [a-z][a-z0-9-]{0,31}.
	Name string `json:"name"`
	// Digest is the SHA-256 of the Canonical profile, in lower-case hexadecimal; it is
	// part of a server's revision.
	Digest string `json:"-"`
	// NeverRegister keeps a profile for Postern's own programs: no server may name it.
	NeverRegister bool `json:"never_register"`
	// Fork permits processes besides the first. Without it the program itself
	// is process 1 and clone makes threads only; with it a reaper is process 1.
	Fork bool `json:"fork"`
	// Workspace says that /workspace exists; a launch must then bring one.
	Workspace bool `json:"workspace"`
	// WorkspaceReadOnly takes writing away, whatever the launch says.
	WorkspaceReadOnly bool `json:"workspace_read_only"`
	// PackageExec permits executing files of /package. Without it the mount is
	// noexec, which also refuses native add-ons.
	PackageExec bool `json:"package_exec"`
	// Devices gives /dev with null, zero, full, random and urandom, and no more.
	Devices bool `json:"devices"`
	// Proc gives a /proc that shows the jail's own processes only.
	Proc bool `json:"proc"`
	// Loopback brings lo up inside the jail's own network namespace.
	Loopback bool `json:"loopback"`
	// Binds are the files and directories of the host that the jail sees, read-only.
	Binds []Bind `json:"binds"`
	// Links are the symbolic links made on the private root.
	Links []Link `json:"links"`
	// Env is the environment; a launch may add to it.
	Env map[string]string `json:"env"`

	Seccomp  Seccomp  `json:"seccomp"`
	Landlock Landlock `json:"landlock"`
	Limits   Limits   `json:"limits"`

	// Idle is how long the program may wait without a session before it is
	// stopped; StopGrace how long it may take to end once its stdin is closed;
	// StartTimeout how long until it must have answered its handshake. The
	// jail itself uses none of the three: they are the supervisor's.
	Idle         time.Duration `json:"idle"`
	StopGrace    time.Duration `json:"stop_grace"`
	StartTimeout time.Duration `json:"start_timeout"`

	// MCP bounds what Postern's bridge takes from the program. The jail itself uses
	// none of it. Zero is Postern's own bound.
	MCP MCP `json:"mcp,omitzero"`
}

// MCP are the bounds of one tool server's messages and calls.
type MCP struct {
	CallTime time.Duration `json:"call_time,omitzero"` // of a call without a sign of life
	CallMost time.Duration `json:"call_most,omitzero"` // of a call with all its progress and questions
	Calls    int           `json:"calls,omitzero"`     // in flight at one time
	Line     int64         `json:"line,omitzero"`      // bytes of one answer
	Depth    int           `json:"depth,omitzero"`     // of nested values in an answer
	Blocks   int           `json:"blocks,omitzero"`    // of content in one result
	Stderr   int64         `json:"stderr,omitzero"`    // bytes that are kept, the last ones
	Pages    int           `json:"pages,omitzero"`     // of one of its lists
	// SessionCalls are those in flight of one session.
	SessionCalls int   `json:"session_calls,omitzero"`
	Queue        int64 `json:"queue,omitzero"` // bytes of calls that wait for the program to read
	Items        int   `json:"items,omitzero"` // of one of its lists
	// Definition is the size of one of them, and Definitions that of a whole list.
	Definition  int64 `json:"definition,omitzero"`
	Definitions int64 `json:"definitions,omitzero"`
	// LineWait is for a long line that has begun to come on.
	LineWait time.Duration `json:"line_wait,omitzero"`
}

// Bind is one read-only piece of the host.
type Bind struct {
	// Source is an absolute path of the host, owned by root and writable by nobody else.
	Source string `json:"source"`
	// Target is the place in the jail; empty means the same path.
	Target string `json:"target"`
	// Optional lets a launch go on where the source does not exist.
	Optional bool `json:"optional"`
	// Exec permits execution, which includes mapping a shared library.
	Exec bool `json:"exec"`
}

// At returns the place of b in the jail.
func (b Bind) At() string {
	if b.Target == "" {
		return b.Source
	}
	return b.Target
}

// Link is a symbolic link on the private root: Path points to To.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

// Seccomp is the allow-list of a profile. What it does not name is ENOSYS.
// The refusals that hold for every profile (set-id modes, namespaces, foreign
// architectures and so on) are not data: they stand in jail/seccomp.
type Seccomp struct {
	Groups []SyscallGroup `json:"groups"`
	Rules  []SyscallRule  `json:"rules"`
}

// SyscallGroup names calls that belong together and why they are needed.
type SyscallGroup struct {
	Name   string   `json:"name"`
	Reason string   `json:"reason"`
	Calls  []string `json:"calls"`
}

// SyscallRule allows a call when every condition holds. Several rules for one
// call are alternatives.
type SyscallRule struct {
	Call   string      `json:"call"`
	Reason string      `json:"reason"`
	When   []Condition `json:"when"`
}

// Condition holds when argument Arg & Mask == Value. A Mask of 0 compares the
// low 32 bits, which is what the kernel looks at where the C type is an int:
// comparing all 64 let CVE-2019-10063 slip through with high bits set.
type Condition struct {
	Arg   uint   `json:"arg"`
	Mask  uint64 `json:"mask"`
	Value uint64 `json:"value"`
}

// Landlock says what the second wall around files, ports and signals must be.
type Landlock struct {
	// ABI is the least version of the kernel's interface; everything this
	// version can restrict is restricted. A kernel below it refuses the launch.
	ABI int `json:"abi"`
}

// Limits bound what one jail may use. In a profile every field but TmpBytes,
// TmpInodes and ShmBytes must be positive; in a launch zero means the profile's value.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	// PidsMax counts processes and threads.
	PidsMax int `json:"pids_max"`
	// CPUPercent is of one processor; 200 is two.
	CPUPercent int `json:"cpu_percent"`
	// Nofile is RLIMIT_NOFILE, hard and soft.
	Nofile int `json:"nofile"`
	// FsizeBytes is RLIMIT_FSIZE: the greatest file the program can write.
	FsizeBytes int64 `json:"fsize_bytes"`
	// TmpBytes and TmpInodes bound /tmp; without TmpBytes there is no /tmp.
	TmpBytes  int64 `json:"tmp_bytes"`
	TmpInodes int   `json:"tmp_inodes"`
	// ShmBytes bounds /dev/shm; without it there is none, and no shared memory
	// that is named.
	ShmBytes int64 `json:"shm_bytes"`
}

// Within returns l with zero fields taken from the profile's limits p, or an
// error that names the first field by which l asks for more than p gives.
func (l Limits) Within(p Limits) (Limits, error) {
	for _, f := range []struct {
		name string
		get  func(*Limits) int64
		set  func(*Limits, int64)
	}{
		{"memory", func(l *Limits) int64 { return l.MemoryBytes }, func(l *Limits, v int64) { l.MemoryBytes = v }},
		{"pids", func(l *Limits) int64 { return int64(l.PidsMax) }, func(l *Limits, v int64) { l.PidsMax = int(v) }},
		{"cpu", func(l *Limits) int64 { return int64(l.CPUPercent) }, func(l *Limits, v int64) { l.CPUPercent = int(v) }},
		{"nofile", func(l *Limits) int64 { return int64(l.Nofile) }, func(l *Limits, v int64) { l.Nofile = int(v) }},
		{"fsize", func(l *Limits) int64 { return l.FsizeBytes }, func(l *Limits, v int64) { l.FsizeBytes = v }},
		{"tmp", func(l *Limits) int64 { return l.TmpBytes }, func(l *Limits, v int64) { l.TmpBytes = v }},
		{"shm", func(l *Limits) int64 { return l.ShmBytes }, func(l *Limits, v int64) { l.ShmBytes = v }},
		{"tmp inodes", func(l *Limits) int64 { return int64(l.TmpInodes) }, func(l *Limits, v int64) { l.TmpInodes = int(v) }},
	} {
		want, most := f.get(&l), f.get(&p)
		switch {
		case want < 0 || want > most:
			return Limits{}, fmt.Errorf("limit %s: %d is not within the profile's %d", f.name, want, most)
		case want == 0:
			f.set(&l, most)
		}
	}
	return l, nil
}

// Canonical returns p's canonical JSON without its Digest: fields in the order of this
// file, names of the environment sorted, durations in nanoseconds. Whoever wants the
// digest hashes it; postern-jail does not, and links no hash.
func Canonical(p Profile) ([]byte, error) {
	raw, err := json.Marshal(p, json.Deterministic(true), json.FormatNilSliceAsNull(false),
		json.WithMarshalers(json.MarshalFunc(func(d time.Duration) ([]byte, error) {
			return strconv.AppendInt(nil, int64(d), 10), nil
		})))
	if err != nil {
		return nil, fmt.Errorf("canonical form of profile %q: %w", p.Name, err)
	}
	return raw, nil
}
