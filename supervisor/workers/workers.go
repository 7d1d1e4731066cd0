// Package workers is the authority's side of bridges: the loop that hears them,
// posternd and new connections, the sessions it hands over, the tool servers it
// has started, and the fences that end a revocation.
//
// It runs as the unprivileged authority. Whatever a bridge sends is hostile: it is
// decoded strictly, checked against what this package itself handed to that
// bridge, and a bridge that breaks the protocol or does not read is ended.
// posternd is trusted; connecting peers are not.
//
// Everything here happens on one goroutine, the loop, in this order each turn:
// functions posted by other goroutines, then what arrived, then one durable
// commit of the admissions among it, then their answers. So the loop is the one
// queue that orders admissions and every change.
//
// Invariants:
//
//   - workers-1: Admitted is sent only after its record is durable.
//   - workers-2: a session, an instance and a call are named only by the bridge they were handed to.
//   - workers-3: a revocation returns only when every affected bridge has answered its fence or its wire is closed and its jail is ended.
//   - workers-4: one bridge for each set and one instance for each place of it; who asks while one starts waits for that one.
//   - workers-5: the loop never waits for a bridge, a peer or posternd.
//   - workers-6: of a server of scope task each task has its own instance, which ends with
//     the task; then posternd is told that its directory is needed no more.
//   - workers-7: an instance of a revision that its connection's calls no longer go to
//     takes none, finishes those that it has within DrainWait, and ends.
//   - workers-8: while it drains no session and no call begins; when it has drained no jail
//     is left, and every call that was open has its outcome.
//   - workers-9: an artifact is whole, as long as it was announced, or its bridge is ended; what
//     there is no room for is passed over, and neither fails a call nor holds the loop up.
//   - workers-10: a file that a result names is asked for after its call has ended, in the
//     jail of that call's server, one of a project at a time; what posternd does not hand
//     over is not kept, and the record says why.
//
// It decides nothing: that is gate's. It starts nothing: that is posternd's.
package workers

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/artifact"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// Bounds, by name.
const (
	BindLine       = 4 << 10                // bytes of the bind line
	BindWait       = 2 * time.Second        // for the bind line
	BindPerUID     = 32                     // unbound connections of one uid
	BridgeStart    = 15 * time.Second       // from the order to Hello
	FenceWait      = 250 * time.Millisecond // for Fenced; then the jail is ended
	FactsWait      = 4 * time.Second        // for the fences of new root facts; posternd waits longer for its answer
	EndGrace       = 5 * time.Second        // after a call's deadline, before its jail is ended
	OrderWait      = 20 * time.Second       // for posternd's answer to a launch
	KillWait       = 5 * time.Second        // for Exited after a kill
	BridgeIdle     = 60 * time.Second       // without a session, then the bridge ends
	StopGrace      = 2 * time.Second        // between a closed stdin and the kill
	DrainWait      = 30 * time.Second       // for the calls of a former revision; then they are cancelled
	HealthyAfter   = 30 * time.Second       // uptime that forgets former failures
	UnlistedMost   = time.Minute            // of a server that does not list its tools after a change; then it ends
	BackoffFirst   = time.Second            // after one failure
	BackoffMost    = 60 * time.Second       // after many
	TickEvery      = 100 * time.Millisecond // deadlines and idle times are looked at
	RestEvery      = time.Second            // the same while there is none
	MaxSets        = 4096                   // live bridges
	MaxWords       = 128                    // instances whose stderr one bridge tells: those that run, and one ended one of each
	MaxPerTurn     = 64                     // messages read from one bridge in a turn
	MaxWaitingBind = 256                    // connections waiting for one bridge
	MaxUnsent      = 4096                   // orders that posternd has not read
	StderrWait     = 2 * time.Second        // for a bridge to tell what its servers wrote to stderr
	LookWait       = 2 * time.Second        // for posternd's answer about a call's paths; then it is refused
	FetchWait      = 5 * time.Second        // for posternd's answer about a file that a result names
	MaxFetches     = 256                    // files of one project that wait to be asked for
	MaxFetchesAll  = 4096                   // of all projects
	MaxFetching    = 8                      // that are on their way, of as many projects
	MaxLooks       = 1024                   // calls whose paths are being looked at; posternd bears 4096 orders in work
)

// wireClosed is why a bridge is taken for ended before posternd says how its jail ended.
const wireClosed = "its wire closed"

// Config is what the loop needs.
type Config struct {
	Gate   *gate.Gate
	Orders int // the pair with posternd; owned by the loop
	Log    hclog.Logger
	// Artifacts keeps what bridges bring; the gate was given the same.
	Artifacts *artifact.Keeper
	// Facts takes new root facts; it is called on the loop.
	Facts func(order.Root) error
	// Control takes the listening control socket, owned from then on by the callee.
	Control func(fd int)
}

// Workers is the loop's state. Only Post and what is built on it may be used from
// other goroutines.
type Workers struct {
	cfg   Config
	gate  *gate.Gate
	log   hclog.Logger
	posts poster
	over  chan struct{} // closed when the loop has ended

	orders    link
	unsent    [][]byte // orders that wait for room in the socket
	lost      error    // why posternd can be given no more orders
	ep        int
	wake      int
	seq       uint64
	looks     int // calls whose paths are being looked at
	fetches   fetches
	asked     map[uint64]asked // orders without an answer
	jails     map[ids.Jail]owner
	sets      map[gate.Set]*set
	byFD      map[int]*set
	listeners map[int]ids.Project
	doors     map[ids.Project]int // listeners, the other way round
	binding   binding
	answers   []answer
	fences    map[*fence]bool
	restarts  map[gate.Set]*backoff
	files     map[ids.Task]bool // tasks whose token lies in a file
	dirs      map[ids.Task]bool // tasks that have a directory
	draining  bool              // nothing new is taken
	closing   *closing          // the last one that was not taken back; nil for none
	leaving   bool              // posternd ends
	troubled  bool              // it was logged that calls cannot be recorded
	turn      time.Time         // when what is handled now was heard
	totals    Totals
	eras      map[ids.Revision]string // what a revision speaks, as it was last heard in this life
}

// asked is the continuation of one order. It gets posternd's answer, or nil when
// the time is over; descriptors are its to keep or close.
type asked struct {
	until time.Time
	then  func(m order.Down, fds []int)
}

// owner says what a live jail is: a set's bridge, an instance, or a probe's part.
type owner struct {
	set  *set
	inst *instance
}

// set is one bridge: the sessions and instances of one ceiling of one project.
type set struct {
	key      gate.Set
	jail     ids.Jail
	link     link
	ready    bool // Hello has come
	ended    bool
	probe    *probe // nil for a project's bridge
	since    time.Time
	idle     time.Time // when the last session ended; zero while there is one
	waiting  []waitingBind
	sessions map[ids.Session]bool
	insts    map[gate.Place]*instance
	fence    uint64   // the last one sent
	looks    int      // calls whose paths are being looked at
	noes     []uint64 // the last Starts that were refused, at most wire.MaxAsked
	lastErr  string
	arriving *arriving // nil between two artifacts
	pieces   int       // of artifacts that were heard in this turn
	reading  *reading  // the question about stderr that it has not answered; nil for none
	read     uint64    // questions about stderr so far
}

// instance is one tool server of a set.
type instance struct {
	at       gate.Place
	server   ids.Server
	revision ids.Revision
	jail     ids.Jail
	set      *set
	state    instState
	lost     bool      // its bridge no longer has it
	drained  time.Time // when a draining one must have ended
	since    time.Time
	used     time.Time
	waiting  []wire.Start // asked while it was not there; answered when it is, or never will be
	data     []byte       // catalogue parts so far
	parts    int
	calls    uint64
	skipped  wire.Skipped // of the jail that it names
	unlisted time.Time    // since when its list cannot be read after a change; zero where it can
	back     backoff
	was      ids.Jail // the one before jail, and how it ended
	how      string
	names    []string // protected names of the workspace that it may write
	moved    int64    // the project's Moved when its launch was ordered: posternd starts it in the directory of then, or not
	// What it was started with, the zero one where its revision needs none.
	credential gate.Credential
	stopMs     int64
	idleMs     int64
}

type instState uint8

const (
	instIdle instState = iota
	instLaunching
	instListing
	instReady
	instDraining // it finishes what it was admitted to, and takes nothing else
	instEnding
)

var instStates = [...]string{"idle", "launching", "listing", "ready", "draining", "ending"}

type answer struct {
	set *set
	msg wire.Down
}

// backoff counts failures of a start and holds the next one back.
type backoff struct {
	fails    int
	until    time.Time
	restarts int
	lastErr  string // how it failed last, also after it was mended
	down     string // why it cannot be called; "" where it was mended since
}

// anew forgets what failed: what is started next is something else.
func (b *backoff) anew() { *b = backoff{restarts: b.restarts} }

func (b *backoff) failed(now time.Time, why string) {
	b.lastErr, b.down = why, why
	b.until = now.Add(min(BackoffFirst<<min(b.fails, 10), BackoffMost))
	b.fails++
}

// ended takes note of an end after some uptime: only a sustained one is forgiven.
func (b *backoff) ended(now time.Time, uptime time.Duration, why string) {
	if uptime >= HealthyAfter {
		b.fails = 0
	}
	b.failed(now, why)
}

// poster takes functions for the loop from any goroutine.
type poster struct {
	mu   sync.Mutex
	fns  []func()
	shut bool
}

func (p *poster) take() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	fns := p.fns
	p.fns = nil
	return fns
}

// binding bounds the connections that have not bound yet, by uid.
type binding struct {
	mu    sync.Mutex
	byUID map[uint32]int
	all   *semaphore.Weighted
}

// enter counts one more unbound connection of uid, or refuses.
func (b *binding) enter(uid uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byUID[uid] >= BindPerUID {
		return false
	}
	b.byUID[uid]++
	return true
}

func (b *binding) leave(uid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byUID[uid]--; b.byUID[uid] <= 0 {
		delete(b.byUID, uid)
	}
}

// codeOf is the code for calls that died with a tool server, "" where only its end is known.
func codeOf(x order.Exited) refusal.Code {
	switch {
	case x.OOM:
		return refusal.ServerMemory
	case x.Filter:
		return refusal.ServerForbidden
	}
	return ""
}

// how says in words how a jail ended.
func how(x order.Exited) string {
	switch {
	case x.OOM:
		return "the memory limit ended it"
	case x.Filter && x.Call != "":
		return "its system call filter ended it: " + x.Call
	case x.Filter:
		return "its system call filter ended it"
	case x.Replaced:
		return "a name of its workspace that it may not write was replaced from outside, and it was ended"
	case x.Forced:
		return "it outlived its grace and was killed"
	case x.Signal != 0:
		return fmt.Sprintf("signal %d ended it", x.Signal)
	}
	return fmt.Sprintf("it exited with status %d", x.Status)
}
