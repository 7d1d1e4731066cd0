// Package launch is posternd: it keeps the root facts, makes every jail and every
// socket, and owns the lifetime of the authority and of all that runs below it.
//
// It runs as root. Hostile are: the authority behind its socketpair (it may have been
// taken over; it can name ids and nothing else), every directory that is registered
// and everything in it, the package trees that are ingested, and whoever connects to
// root.sock. Trusted are the files in the root directory, which only root writes, and
// the profiles and hosts that root configured.
//
//	postern (root)  ── root.sock ──▶  Supervisor ── order, descriptors ──▶  authority
//	                                      │  ▲                                  │
//	                         facts.json ◀─┘  └────────── orders ────────────────┘
//	                                      └── jail.Launch ──▶ bridges, tool servers
//
// A change of the facts is one line: validate, audit, write durably, push to the
// authority, wait until it decides by them, answer.
//
// Invariants:
//   - launch-1: only uid 0 changes a root fact; the authority's one exception is a tombstone.
//   - launch-2: facts are durable before anybody is told of them, and whole after any crash.
//   - launch-3: everything that runs comes from the facts; an order names ids.
//   - launch-4: a project's directory is the one that was registered, proved on the
//     descriptor that is mounted, and overlaps no other's and none of Postern's.
//   - launch-5: what runs of a package is the root-owned copy that was digested, whole and
//     for as long as anything runs of it.
//   - launch-6: a uid is leased to one live jail and comes back when nothing of it is left.
//   - launch-7: no jail outlives the authority that asked for it.
//   - launch-8: no child inherits a descriptor, variable or privilege it was not given by name.
//   - launch-9: a file whose owner or mode is not acceptable is refused and never repaired.
//   - launch-10: a uid that runs runtimes of more than one project gets no token file.
//   - launch-11: a task's directory is of one task of one project, is mounted for no
//     other, lasts as long as the task, and is bounded in number.
//   - launch-12: a secret reaches the jails of the one project and server that it is of,
//     and nothing else: no fact, record, log, argument, document or answer.
//   - launch-13: when a credential is revoked or rotated, no jail that was handed the
//     former secret is alive when the answer is given.
//   - launch-14: from its start to its end a posternd runs one set of programs, whatever
//     is installed or taken away meanwhile.
//
// It parses no MCP, opens no network socket, reads nothing of the authority's store,
// and decides no call: that is the gate's, in the authority.
package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"postern/ids"
	"postern/jail/spec"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

// Names of the programs in Config.Libexec.
const (
	authorityProgram = "postern-authority"
	bridgeProgram    = "postern-bridge"
	jailProgram      = "postern-jail"
)

// BridgeProfile is the profile of Postern's own bridge; no registration may name it.
const BridgeProfile = "bridge"

// minUID is the least uid that a jail may lease: below are users of the system.
const minUID = 65536

// Bounds of waiting and of work in parallel.
const (
	callLimit     = 60 * time.Second // of one tools/call, told to the authority
	ackWait       = 5 * time.Second  // for the authority to take new facts
	readyWait     = 60 * time.Second // for the authority to have read its store, or to say that it still does
	sendWait      = 2 * time.Second  // for the authority to take one message, once it is ready
	stopWait      = 3 * time.Second  // for the authority to end by itself
	goneWait      = 10 * time.Second // for a killed jail to be empty
	maxGrace      = 30 * time.Second // of one Stop
	restartFirst  = 250 * time.Millisecond
	reapWait      = 250 * time.Millisecond
	restartMost   = 30 * time.Second
	restartForget = 60 * time.Second // of life after which the back-off starts anew
	maxOrders     = 4096             // in work at the same time
	maxLaunches   = 16               // in work at the same time
	maxJails      = 4096             // alive at the same time
	maxSocketPath = 100
)

// Config is everything posternd is told.
type Config struct {
	RootDir   string // root's own: facts, packages, programs, scratch directories
	StateDir  string // the authority's own
	RunDir    string // sockets; short enough that a socket's path has at most 100 bytes
	ConfigDir string // of postern.yaml and profiles.d; "" where there is none
	Libexec   string // the other programs, as they are installed
	LockDir   string // machine-wide locks, /run/lock
	Cgroup    string // of jail.Config; "" with Unit: below the unit's own group
	Unit      bool   // a service manager started posternd, in a group of its own
	Managed   bool   // a service manager started posternd, whether or not it knows it by its number

	Credentials string // the directory in which systemd gives posternd credentials; "" for none

	UIDs     order.Range     // leased to jails
	UID, GID uint32          // of the authority
	Access   string          // the access policy's file; "" for none
	Audit    audit.Retention // of the logs of changes
	Hosts    []order.Host
	Keep     order.Keep     // of the authority's records
	Sessions order.Sessions // what bridges take from each runtime
	Drain    time.Duration  // what open calls get when posternd is asked to leave
	// Artifacts says which of them the authority keeps.
	Artifacts order.KeepArtifacts
	// MetricsUID may read counts beside root; 0 is nobody.
	MetricsUID uint32
	Profiles   map[string]spec.Profile // must hold BridgeProfile

	// Reload, if not nil, reads File and ProfileDir again and gives a whole new Config;
	// what it may change while posternd runs is Audit, Hosts, Keep, Drain, MetricsUID, Profiles and Sessions.
	Reload     func() (Config, error)
	Hangup     <-chan os.Signal // asks for a reload at once; nil for none
	Leave      <-chan struct{}  // closed when posternd is to drain and end; nil for never
	File       string           // postern.yaml
	FileFound  bool             // it was there when this was read
	DropInDir  string           // of files beside postern.yaml; "" for none
	ProfileDir string

	Log    hclog.Logger
	Stderr io.Writer // gets the authority's lines; nil drops them
	// Ready, if not nil, is called each time an authority serves.
	Ready func()
	// Tell, if not nil, is told how posternd is, from several goroutines.
	Tell func(Notice)
	// Watchdog is how long whoever started posternd waits for Notice.Alive; 0 for ever.
	Watchdog time.Duration
}

// defaultGroup holds the groups of jails where none is named and none was given.
const defaultGroup = "postern"

// ErrConfig is wrapped by what Run returns before anything was started: a file, a
// directory, a mode or a range that is not acceptable.
var ErrConfig = errors.New("configuration is not acceptable")

// Check returns every mistake that can be told without touching anything.
func (c Config) Check() []error {
	var out []error
	bad := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	for name, dir := range map[string]string{"root-dir": c.RootDir, "state-dir": c.StateDir, "run-dir": c.RunDir, "libexec": c.Libexec, "lock directory": c.LockDir} {
		if !spec.CleanPath(dir) {
			bad("%s: want an absolute path in its shortest form, not %q", name, dir)
		}
	}
	if longest := filepath.Join(c.RunDir, "p", string(newID[ids.Project](time.Time{})), socketName); len(longest) > maxSocketPath {
		bad("run-dir: %q makes socket paths of %d bytes, at most %d are possible", c.RunDir, len(longest), maxSocketPath)
	}
	if !(c.Cgroup == "" && c.Unit) && (!filepath.IsLocal(c.Cgroup) || filepath.Clean(c.Cgroup) != c.Cgroup) {
		bad("cgroup: want a path relative to each hierarchy, in its shortest form, not %q", c.Cgroup)
	}
	if c.Credentials != "" && !spec.CleanPath(c.Credentials) {
		bad("CREDENTIALS_DIRECTORY: want an absolute path in its shortest form, not %q", c.Credentials)
	}
	if c.Access != "" && !spec.CleanPath(c.Access) {
		bad("access: want an absolute path in its shortest form, not %q", c.Access)
	}
	if err := c.Audit.Check(); err != nil {
		out = append(out, err)
	}
	out = append(out, c.CheckIDs()...)
	if _, ok := c.Profiles[BridgeProfile]; !ok {
		bad("profiles: %q is missing", BridgeProfile)
	}
	return out
}

// CheckIDs returns every mistake in who is who: the jails' range, the authority, the
// hosts. Of what could not be read it says nothing.
func (c Config) CheckIDs() []error {
	var out []error
	bad := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	if c.UIDs.First < minUID || c.UIDs.Count == 0 || uint64(c.UIDs.First)+uint64(c.UIDs.Count) > 1<<31 {
		bad("uid-range (uid_range in postern.yaml): want a range between %d and %d, not %s", minUID, uint64(1)<<31-1, rangeText(c.UIDs))
	}
	switch {
	case c.UID == 0:
		bad("authority-user: uid 0 is root's; the authority has no privilege")
	case within(c.UID, c.UIDs):
		bad("authority-user: uid %d lies in the jails' range %s", c.UID, rangeText(c.UIDs))
	}
	byID, byUID := map[string]bool{}, map[uint32]string{}
	for _, h := range c.Hosts {
		switch {
		case h.ID == "":
			bad("hosts: one has no id")
		case byID[h.ID]:
			bad("hosts: two have the id %q", h.ID)
		}
		switch other, ok := byUID[h.UID]; {
		case ok && other != h.ID:
			bad("hosts: %q has the uid %d of %q", h.ID, h.UID, other)
		case h.UID == 0:
			bad("hosts: %q has uid 0; root is no host", h.ID)
		case h.UID == c.UID:
			bad("hosts: %q has the authority's uid %d", h.ID, h.UID)
		case within(h.UID, c.UIDs):
			bad("hosts: %q has uid %d of the jails' range %s", h.ID, h.UID, rangeText(c.UIDs))
		}
		for _, name := range h.Channels {
			if err := access.CheckChannel(name); err != nil {
				bad("hosts: %q: channels: %w", h.ID, err)
			}
		}
		byID[h.ID], byUID[h.UID] = true, h.ID
	}
	return out
}

// checkFacts refuses facts that the configuration has outgrown: a uid that is now a
// host's or a jail's opens nothing as an account.
func (c Config) checkFacts(f Facts) []error {
	var out []error
	r := reserved{authority: c.UID, hosts: c.Hosts, uids: c.UIDs}
	for _, a := range f.Accounts {
		for _, uid := range a.UIDs {
			if err := r.check(uid); err != nil && !a.Deleted {
				out = append(out, fmt.Errorf("account %q: %w", a.Name, err))
			}
		}
	}
	return out
}

// refusedAs turns an error into what an answer says.
func refusedAs(err error, otherwise refusal.Code) *api.Refusal {
	var r *api.Refusal
	if errors.As(err, &r) {
		return r
	}
	return api.Refuse(otherwise, "%v.", err)
}

// CheckFiles adds to Check what the files say: the users of this machine and, where
// there are any, the facts. It changes nothing.
func (c Config) CheckFiles() []error {
	out := slices.Concat(c.Check(), c.checkProfiles(), uidsInUse(c.UIDs), c.checkAccess())
	f, err := (&factsFile{path: c.RootDir}).peek()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return out
	case err != nil:
		return append(out, err)
	}
	return slices.Concat(out, c.checkFacts(f), c.checkSecrets(f))
}

// uidsInUse names the users and groups of this machine, and the ranges lent to users,
// that a range of leases would touch.
func uidsInUse(r order.Range) (out []error) {
	for _, file := range []struct {
		path         string
		first, count int // columns; count -1: one id
	}{{"/etc/passwd", 2, -1}, {"/etc/group", 2, -1}, {"/etc/subuid", 1, 2}, {"/etc/subgid", 1, 2}} {
		raw, err := os.ReadFile(file.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			out = append(out, err)
		}
		for line := range strings.Lines(string(raw)) {
			col := strings.Split(strings.TrimSpace(line), ":")
			if len(col) <= max(file.first, file.count) {
				continue
			}
			first, err := strconv.ParseUint(col[file.first], 10, 32)
			count := uint64(1)
			if err == nil && file.count >= 0 {
				count, err = strconv.ParseUint(col[file.count], 10, 64)
			}
			if err == nil && first < uint64(r.First)+uint64(r.Count) && uint64(r.First) < first+count {
				out = append(out, fmt.Errorf("uid-range %s touches %q of %s", rangeText(r), col[0], file.path))
			}
		}
	}
	return out
}
