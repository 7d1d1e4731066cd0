// Package jail knows how to start a program in a jail, watch it and end it:
// Launch(Request) → Process.
//
// It runs as root in the launcher, posternd. Profiles and requests come from
// the root side and are checked; the program, the content of its workspace and
// everything it does are hostile.
//
//	Open     finds what this host can enforce, and refuses below the floor
//	Launch   group → detached mounts → clone into the groups → document → the step table → exec
//	Process  Done when its first process has ended, Gone when nothing is left of it
//	Sweep    removes what an earlier launcher left behind
//
// Invariants:
//   - jail-1: a missing layer refuses; nothing about a jail is best effort.
//   - jail-2: all jails are started from one thread that never ends, because the
//     kernel delivers PDEATHSIG when the starting thread ends, not the process.
//   - jail-3: a jail's group is fresh and is never used twice.
//   - jail-4: an error of Launch leaves no process, group, mount or descriptor.
//   - jail-5: Gone is closed only when no process is left and the group is
//     removed; only then may the uid be leased again.
//   - jail-6: the program has the environment and the descriptors that profile
//     and request name, and no others.
//   - jail-7: no jail makes, changes or replaces a protected name of a workspace;
//     when somebody outside replaces one, which ends its protection, the jail ends.
//
// It knows nothing of MCP, projects or accounts (supervisor), and nothing of
// the steps inside (jail/stage).
package jail

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail/cgroup"
	"postern/jail/seccomp"
	"postern/jail/spec"
)

// Bounds of starting and ending.
const (
	// BuildWait is how long postern-jail may take from clone to exec.
	BuildWait = 10 * time.Second
	// KillWait is how long Stop and Kill wait for a killed jail to be gone. A
	// process that the kernel cannot end, held by a dead file server, is left
	// to its goroutine; its uid stays leased.
	KillWait = 5 * time.Second
	// MaxExtra is the number of descriptors beside stdio.
	MaxExtra = 16
	// maxFilters is the number of compiled profiles kept.
	maxFilters = 64
)

// Config is what a Launcher needs to know.
type Config struct {
	// Init is the path of postern-jail: static, root's, outside every bind.
	Init string
	// Cgroup is the parent group, relative to each hierarchy; one launcher's alone.
	Cgroup string
}

// UnitGroup is the group to give Config where a service manager started this process: it
// lies below the unit's own group, which must be delegated. The process itself may be
// moved into a leaf of that. It is "" where no service manager could delegate one.
func UnitGroup() (string, error) { return cgroup.Unit() }

// Launcher starts jails. It is safe for concurrent use.
type Launcher struct {
	init string
	tree *cgroup.Tree
	log  *kernelLog
	held occupancy
	// start hands functions to the eternal thread.
	start chan func(*cgroup.Home)
	ended chan struct{}

	mu      sync.Mutex
	live    map[string]*Process // by name; nil while it is being launched
	filters map[string][][]byte // by the profile's canonical form
	closed  bool
}

// Open finds what the host offers and makes the parent group. It returns an
// error that names every missing layer if a jail cannot be complete here.
//
// It marks every descriptor above stderr close-on-exec and makes this process
// undumpable, so that no descriptor and no memory of it reaches a jail.
func Open(c Config) (*Launcher, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("building a jail needs root")
	}
	if err := checkInit(c.Init); err != nil {
		return nil, err
	}
	tree, err := cgroup.Open(c.Cgroup)
	if err != nil {
		return nil, err
	}
	if err := checkFloor(); err != nil {
		return nil, err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close_range: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("undumpable: %w", err)
	}
	l := &Launcher{
		init: c.Init, tree: tree, log: openKernelLog(), held: occupancy{all: map[[2]uint64]*occupied{}}, start: make(chan func(*cgroup.Home)), ended: make(chan struct{}),
		live: map[string]*Process{}, filters: map[string][][]byte{},
	}
	go l.eternal()
	return l, nil
}

// Close kills every live jail, waits for them at most KillWait, and ends the
// launcher's thread.
func (l *Launcher) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var live []*Process
	for _, p := range l.live {
		if p != nil {
			live = append(live, p)
		}
	}
	l.mu.Unlock()

	for _, p := range live {
		p.end()
	}
	late := time.NewTimer(KillWait)
	defer late.Stop()
	var left []error
	for _, p := range live {
		select {
		case <-p.gone:
		case <-late.C:
			late.Reset(0)
			left = append(left, fmt.Errorf("jail %q is still there", p.name))
		}
	}
	close(l.ended)
	l.log.close()
	return errors.Join(left...)
}

// Mode returns the kind of control groups of this host: v1, hybrid or v2.
func (l *Launcher) Mode() string { return l.tree.Mode().String() }

// Sweep kills and removes every group under the launcher's parent that is not
// a jail of this launcher, and returns their names. Nothing else outlives a
// launcher: mounts live in the jail's namespace and die with its processes.
func (l *Launcher) Sweep() ([]string, error) {
	return l.tree.Sweep(func(name string) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, ours := l.live[name]
		return ours
	})
}

// CheckProfile reports what no filter can be made of: a profile that asks for a
// call that is refused to all.
func CheckProfile(p spec.Profile) error {
	_, err := seccomp.Compile(p)
	return err
}

// programs returns the compiled filters of p.
func (l *Launcher) programs(p spec.Profile) ([][]byte, error) {
	// The profile's own digest is not asked: a wrong one would lend another profile's
	// filter.
	raw, err := spec.Canonical(p)
	if err != nil {
		return nil, err
	}
	key := string(raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	if have, ok := l.filters[key]; ok {
		return have, nil
	}
	made, err := seccomp.Compile(p)
	if err != nil {
		return nil, err
	}
	if len(l.filters) >= maxFilters {
		clear(l.filters)
	}
	l.filters[key] = made
	return made, nil
}

// checkInit refuses a postern-jail that somebody else could have replaced.
func checkInit(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("postern-jail %q: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 || st.Mode&0o022 != 0 {
		return fmt.Errorf("postern-jail %q: must be a file of root's that nobody else may write", path)
	}
	return nil
}

// StepError is a launch that failed, with the step that failed.
type StepError struct {
	Step  string
	Why   string
	Errno syscall.Errno
}

func (e *StepError) Error() string { return "jail: " + e.Step + ": " + e.Why }

// Unwrap gives the system's error number, so that errors.Is sees it.
func (e *StepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// failed makes a StepError of an error on the launcher's side.
func failed(step string, err error) *StepError {
	e := &StepError{Step: step, Why: err.Error()}
	errors.As(err, &e.Errno)
	return e
}
