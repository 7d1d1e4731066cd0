// Package order knows the messages between the authority and posternd, and the
// root facts that posternd keeps and pushes.
//
// It is pure. The wire is a SOCK_SEQPACKET pair that posternd made: the type's
// name, one space, one strictly decoded JSON object, at most MaxMessage bytes.
// posternd treats what comes from the authority as hostile: an order names ids,
// and everything that runs is taken from the root facts.
//
//	authority                                posternd
//	                                 ◀─────  Facts{version} + memfd        at start and at each change
//	  FactsAck{version, stands}      ─────▶  (only now the change answers its caller)
//	                                 ◀─────  Control{} + listening socket
//	                                 ◀─────  ProjectSocket{project} + listening socket
//	  Opening{}                      ─────▶  its store is still being read: again and again
//	  Ready{}                        ─────▶
//	  LaunchBridge{seq, project, set}─────▶
//	                                 ◀─────  Launched{seq, jail} + wire end
//	  LaunchServer{seq, project, …}  ─────▶
//	                                 ◀─────  Launched{seq, jail} + stdin, stdout, stderr
//	  LaunchProbe{seq, revision, …}  ─────▶
//	                                 ◀─────  Launched{seq, jail, bridge} + wire end, stdin, stdout, stderr
//	                                 ◀─────  NotLaunched{seq, code, text}
//	  Stop{jail, grace}              ─────▶
//	                                 ◀─────  Exited{jail, …}               once for each Launched
//	  Resolve{seq, project, paths, …}─────▶  path arguments of one call
//	                                 ◀─────  Resolved{seq, inside}
//	  Fetch{seq, jail, path}         ─────▶  a file that a tool server's result names
//	                                 ◀─────  Fetched{seq, size, why} + memfd
//	  Retire{seq, project}           ─────▶  tombstone: it only narrows
//	  TokenFile{seq, task, uid}      ─────▶
//	                                 ◀─────  TokenFileIs{seq, path} + file open for writing
//	  TokenFileGone{task}            ─────▶
//	                                 ◀─────  TaskDirs{tasks}               after Ready: of former authorities
//	  TaskGone{task}                 ─────▶  its directory is removed: it only narrows
//	  StatJails{seq}                 ─────▶
//	                                 ◀─────  Stats{seq, rows, last}
//	                                 ◀─────  Done{seq, code, text}
//	                                 ◀─────  Ping{n}                       does its loop still turn?
//	  Pong{n, sessions, calls}       ─────▶
//	                                 ◀─────  Drain{timeout}                posternd ends: take nothing new
//	  Drained{ended}                 ─────▶  no jail is left
//
// Descriptors travel down only.
//
// Invariants:
//   - order-1: a message of one direction never decodes as one of the other.
//   - order-2: an order carries no command, uid map or environment, and no path but those of Resolve and Fetch, which are looked up beneath a project's directory, or a task's own, and nowhere else.
//
// It is not the transport; launch obeys orders, workers gives them.
package order

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"postern/ids"
	"postern/refusal"
)

// Bounds of the wire.
const (
	MaxMessage   = 64 << 10
	MaxText      = 2048
	MaxStatsRows = 64      // rows of one Stats message
	MaxTaskDirs  = 512     // tasks of one TaskDirs message
	MaxStands    = 100     // calls that one FactsAck names
	MaxStandTool = 256     // bytes of a tool's name there
	MaxFetched   = 8 << 20 // bytes of one file
)

// OpeningEvery is how often the authority tells that it reads its store.
const OpeningEvery = 5 * time.Second

// Orders of the authority.
type (
	// Opening tells that the authority still reads its store, and that this goes on,
	// every OpeningEvery.
	Opening struct{}
	// Ready tells that the authority has read its store and listens.
	Ready struct{}
	// FactsAck tells that the facts of this version decide from now on, and names calls
	// that were admitted before and that the change cut. More of them are only counted.
	FactsAck struct {
		Version uint64  `json:"version"`
		Stands  []Stand `json:"stands,omitempty"`
		More    int     `json:"more,omitzero"`
	}
	// Stand is a call that was admitted before a change; its effects stand.
	Stand struct {
		Call       ids.Call `json:"call"`
		Tool       string   `json:"tool"`
		AgeMs      int64    `json:"age_ms"`
		CancelSent bool     `json:"cancel_sent"`
		Drains     bool     `json:"drains,omitzero"` // it may finish at its former revision
	}
	// LaunchBridge asks for the bridge of one ceiling (set) of a project.
	LaunchBridge struct {
		Seq     uint64      `json:"seq"`
		Project ids.Project `json:"project"`
		Set     uint64      `json:"set"`
	}
	// LaunchServer asks for a tool server of a project.
	LaunchServer struct {
		Seq      uint64       `json:"seq"`
		Project  ids.Project  `json:"project"`
		Set      uint64       `json:"set"`
		Server   ids.Server   `json:"server"`
		Revision ids.Revision `json:"revision"`
		Task     ids.Task     `json:"task,omitempty"` // for a server of scope task
		Moved    int64        `json:"moved,omitzero"` // the project's, as its asker knows it: its directory is of that time or of none
	}
	// LaunchProbe asks for a fresh bridge and the server in an empty scratch workspace.
	LaunchProbe struct {
		Seq      uint64       `json:"seq"`
		Server   ids.Server   `json:"server"`
		Revision ids.Revision `json:"revision"`
		Project  ids.Project  `json:"project,omitempty"` // where it needs a credential
	}
	// Stop ends a jail: its stdin was closed by the sender, grace, then the cgroup is killed.
	Stop struct {
		Jail    ids.Jail `json:"jail"`
		GraceMs int64    `json:"grace_ms"`
	}
	// Resolve asks whether path arguments, read as a tool server reads them whose
	// directory is mounted at /workspace, lie beneath the project's directory, or
	// beneath the task's own where there is one. With OfHost they are read as a program
	// outside of jails reads them, which sees the project's directory at its own path.
	Resolve struct {
		Seq     uint64      `json:"seq"`
		Project ids.Project `json:"project"`
		Task    ids.Task    `json:"task,omitempty"`
		Moved   int64       `json:"moved,omitzero"` // as in LaunchServer
		Paths   []string    `json:"paths"`
		OfHost  bool        `json:"of_host,omitempty"`
	}
	// Fetch asks for the bytes of a file that a result named by its path, as the tool
	// server sees it in whose jail it was said. That lives, or has ended a moment ago.
	Fetch struct {
		Seq  uint64   `json:"seq"`
		Jail ids.Jail `json:"jail"`
		Path string   `json:"path"`
	}
	// Retire leaves a tombstone for a project.
	Retire struct {
		Seq     uint64      `json:"seq"`
		Project ids.Project `json:"project"`
	}
	// TokenFile asks for a file that only UID can read.
	TokenFile struct {
		Seq     uint64      `json:"seq"`
		Task    ids.Task    `json:"task"`
		UID     uint32      `json:"uid"`
		Project ids.Project `json:"project,omitempty"` // lets a second task of the project have a file too
	}
	// TokenFileGone asks to remove it.
	TokenFileGone struct {
		Task ids.Task `json:"task"`
	}
	// TaskGone tells that a task has ended: its directory is removed, and what still runs
	// in it is ended first. It only narrows.
	TaskGone struct {
		Task ids.Task `json:"task"`
	}
	// StatJails asks for the use of every live jail.
	StatJails struct {
		Seq uint64 `json:"seq"`
	}
	// Drained tells that everything ended, and how many calls were given up for it.
	Drained struct {
		Ended uint64 `json:"ended"`
	}
	// Pong answers Ping, from the loop that decides calls, with what is open there.
	Pong struct {
		N        uint64 `json:"n"`
		Sessions uint64 `json:"sessions"`
		Calls    uint64 `json:"calls"`
	}
)

// Messages of posternd.
type (
	// Facts announces root facts; the memfd holds one JSON document of type Root. Version
	// is the number of the push, which rises with the access policy too.
	Facts struct {
		Version uint64 `json:"version"`
	}
	// Control hands over the listening control socket.
	Control struct{}
	// ProjectSocket hands over the listening socket of a project.
	ProjectSocket struct {
		Project ids.Project `json:"project"`
	}
	// Launched answers a launch order.
	Launched struct {
		Seq    uint64   `json:"seq"`
		Jail   ids.Jail `json:"jail"`
		PID    int      `json:"pid"`
		UID    uint32   `json:"uid"`
		Bridge ids.Jail `json:"bridge,omitempty"` // of a probe
	}
	// NotLaunched answers a launch order that was refused or did not work.
	NotLaunched struct {
		Seq  uint64       `json:"seq"`
		Code refusal.Code `json:"code"`
		Text string       `json:"text"`
	}
	// Resolved answers Resolve. Inside is true where every path lies beneath; Which is
	// the first that does not. With a Code nothing could be judged.
	Resolved struct {
		Seq    uint64       `json:"seq"`
		Inside bool         `json:"inside"`
		Which  int          `json:"which,omitempty"`
		Code   refusal.Code `json:"code,omitempty"`
		Text   string       `json:"text,omitempty"`
	}
	// Fetched answers Fetch with a sealed memfd of so many bytes. With Why there is none.
	Fetched struct {
		Seq  uint64 `json:"seq"`
		Size int64  `json:"size"`
		Why  string `json:"why,omitempty"`
	}
	// Exited tells that a jail is empty and gone.
	Exited struct {
		Jail   ids.Jail `json:"jail"`
		Status int      `json:"status"`           // exit status, -1 if killed
		Signal int      `json:"signal,omitempty"` // that ended it
		OOM    bool     `json:"oom,omitempty"`    // the memory limit ended it
		Filter bool     `json:"filter,omitempty"` // a system call that no jail may make ended it
		Call   string   `json:"call,omitempty"`   // which, where the kernel told
		// Replaced: a name of the workspace that it may not write was replaced from outside.
		Replaced bool `json:"replaced,omitempty"`
		Forced   bool `json:"forced,omitempty"` // it outlived its grace
	}
	// TaskDirs names tasks that have a directory from before this authority began. It
	// comes after Ready, in as many messages as it takes.
	TaskDirs struct {
		Tasks []ids.Task `json:"tasks"`
	}
	// TokenFileIs answers TokenFile with the file, open for writing.
	TokenFileIs struct {
		Seq  uint64 `json:"seq"`
		Path string `json:"path"`
	}
	// Stats answers StatJails.
	Stats struct {
		Seq  uint64    `json:"seq"`
		Last bool      `json:"last"`
		Rows []JailRow `json:"rows,omitempty"`
	}
	// JailRow is the use of one live jail.
	JailRow struct {
		Jail     ids.Jail     `json:"jail"`
		Kind     string       `json:"kind"` // bridge, server, probe
		Project  ids.Project  `json:"project,omitempty"`
		Task     ids.Task     `json:"task,omitempty"` // whose directory it has
		Revision ids.Revision `json:"revision,omitempty"`
		Profile  string       `json:"profile"`
		PID      int          `json:"pid"`
		UID      uint32       `json:"uid"`
		Started  int64        `json:"started"` // milliseconds since the epoch
		Memory   int64        `json:"memory"`  // bytes
		CPUUsec  int64        `json:"cpu_usec"`
		Pids     int          `json:"pids"`

		MemoryMax int64     `json:"memory_max,omitzero"` // bytes; its limits
		PidsMax   int       `json:"pids_max,omitzero"`
		Pressure  *Pressure `json:"pressure,omitzero"` // nil where the kernel keeps none
	}
	// Pressure is how much of the last ten seconds, in percent, something in a jail
	// waited for a resource.
	Pressure struct {
		Memory float64 `json:"memory"`
		CPU    float64 `json:"cpu"`
		IO     float64 `json:"io"`
	}
	// Done answers Retire (and TokenFile when it was refused): Code "" is success.
	Done struct {
		Seq  uint64       `json:"seq"`
		Code refusal.Code `json:"code,omitempty"`
		Text string       `json:"text,omitempty"`
	}
	// Drain tells that posternd ends, and how long open calls may go on.
	Drain struct {
		TimeoutMs int64 `json:"timeout_ms"`
	}
	// Ping asks for a sign of life of the loop that decides calls.
	Ping struct {
		N uint64 `json:"n"`
	}
)

// Up is an order, Down a message of posternd.
type (
	Up   interface{ up() string }
	Down interface{ down() string }
)

func (Opening) up() string       { return "Opening" }
func (Ready) up() string         { return "Ready" }
func (FactsAck) up() string      { return "FactsAck" }
func (LaunchBridge) up() string  { return "LaunchBridge" }
func (LaunchServer) up() string  { return "LaunchServer" }
func (LaunchProbe) up() string   { return "LaunchProbe" }
func (Stop) up() string          { return "Stop" }
func (Resolve) up() string       { return "Resolve" }
func (Fetch) up() string         { return "Fetch" }
func (Retire) up() string        { return "Retire" }
func (TokenFile) up() string     { return "TokenFile" }
func (TokenFileGone) up() string { return "TokenFileGone" }
func (TaskGone) up() string      { return "TaskGone" }
func (StatJails) up() string     { return "StatJails" }
func (Drained) up() string       { return "Drained" }
func (Pong) up() string          { return "Pong" }

func (Facts) down() string         { return "Facts" }
func (Control) down() string       { return "Control" }
func (ProjectSocket) down() string { return "ProjectSocket" }
func (Launched) down() string      { return "Launched" }
func (NotLaunched) down() string   { return "NotLaunched" }
func (Resolved) down() string      { return "Resolved" }
func (Fetched) down() string       { return "Fetched" }
func (Exited) down() string        { return "Exited" }
func (TaskDirs) down() string      { return "TaskDirs" }
func (TokenFileIs) down() string   { return "TokenFileIs" }
func (Stats) down() string         { return "Stats" }
func (Done) down() string          { return "Done" }
func (Drain) down() string         { return "Drain" }
func (Ping) down() string          { return "Ping" }

// ErrTooLong is returned for a message over MaxMessage.
var ErrTooLong = errors.New("message exceeds the wire's limit")

// EncodeUp returns m as one datagram.
func EncodeUp(m Up) ([]byte, error) { return encode(m.up(), m) }

// EncodeDown returns m as one datagram.
func EncodeDown(m Down) ([]byte, error) { return encode(m.down(), m) }

func encode(name string, m any) ([]byte, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	if len(name)+1+len(raw) > MaxMessage {
		return nil, fmt.Errorf("encode %s: %w", name, ErrTooLong)
	}
	return append([]byte(name+" "), raw...), nil
}

type decoder[I any] func(raw []byte) (I, error)

func as[M any, I any](wrap func(M) I) decoder[I] {
	return func(raw []byte) (I, error) {
		var m M
		if err := json.Unmarshal(raw, &m, json.RejectUnknownMembers(true)); err != nil {
			var none I
			return none, err
		}
		return wrap(m), nil
	}
}

var ups = map[string]decoder[Up]{
	"Opening":       as(func(m Opening) Up { return m }),
	"Ready":         as(func(m Ready) Up { return m }),
	"FactsAck":      as(func(m FactsAck) Up { return m }),
	"LaunchBridge":  as(func(m LaunchBridge) Up { return m }),
	"LaunchServer":  as(func(m LaunchServer) Up { return m }),
	"LaunchProbe":   as(func(m LaunchProbe) Up { return m }),
	"Stop":          as(func(m Stop) Up { return m }),
	"Resolve":       as(func(m Resolve) Up { return m }),
	"Fetch":         as(func(m Fetch) Up { return m }),
	"Retire":        as(func(m Retire) Up { return m }),
	"TokenFile":     as(func(m TokenFile) Up { return m }),
	"TokenFileGone": as(func(m TokenFileGone) Up { return m }),
	"TaskGone":      as(func(m TaskGone) Up { return m }),
	"StatJails":     as(func(m StatJails) Up { return m }),
	"Drained":       as(func(m Drained) Up { return m }),
	"Pong":          as(func(m Pong) Up { return m }),
}

var downs = map[string]decoder[Down]{
	"Facts":         as(func(m Facts) Down { return m }),
	"Control":       as(func(m Control) Down { return m }),
	"ProjectSocket": as(func(m ProjectSocket) Down { return m }),
	"Launched":      as(func(m Launched) Down { return m }),
	"NotLaunched":   as(func(m NotLaunched) Down { return m }),
	"Resolved":      as(func(m Resolved) Down { return m }),
	"Fetched":       as(func(m Fetched) Down { return m }),
	"Exited":        as(func(m Exited) Down { return m }),
	"TaskDirs":      as(func(m TaskDirs) Down { return m }),
	"TokenFileIs":   as(func(m TokenFileIs) Down { return m }),
	"Stats":         as(func(m Stats) Down { return m }),
	"Done":          as(func(m Done) Down { return m }),
	"Drain":         as(func(m Drain) Down { return m }),
	"Ping":          as(func(m Ping) Down { return m }),
}

// DecodeUp reads one order.
func DecodeUp(b []byte) (Up, error) { return read(ups, b) }

// DecodeDown reads one message of posternd.
func DecodeDown(b []byte) (Down, error) { return read(downs, b) }

func read[I any](set map[string]decoder[I], b []byte) (I, error) {
	var none I
	if len(b) > MaxMessage {
		return none, ErrTooLong
	}
	name, raw, ok := bytes.Cut(b, []byte{' '})
	dec := set[string(name)]
	if !ok || dec == nil {
		return none, fmt.Errorf("no message in this direction is called %.32q", name)
	}
	m, err := dec(raw)
	if err != nil {
		return none, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Descriptors tells how many descriptors come with m.
func Descriptors(m Down) int {
	switch m := m.(type) {
	case Facts, Control, ProjectSocket, TokenFileIs:
		return 1
	case Fetched:
		if m.Why == "" {
			return 1
		}
	case Launched:
		if m.Bridge != "" {
			return 4
		}
		return -1 // 1 for a bridge, 3 for a server: the asker knows
	}
	return 0
}
