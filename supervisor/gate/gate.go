// Package gate is the only door to a call: it admits, refuses, records and ends.
//
// It runs inside the unprivileged authority, on the loop's goroutine alone: every
// method belongs to the one queue that orders admissions and changes, so none
// takes a lock. Names, sizes, ids and outcomes come from bridges and are hostile;
// their shapes were checked by wire.
//
// Invariants:
//   - gate-1: an admission is told to nobody before Commit has made it durable.
//   - gate-2: each admission is decided on everything as it stands at that moment, wholly before or wholly after any change.
//   - gate-3: after a narrowing change is applied, Reconsider names every open call it no longer allows, and none is admitted again.
//   - gate-4: a call, a session and a tool are looked up within the asking bridge's own set and project; what is foreign answers like what does not exist.
//   - gate-5: every admitted call gets exactly one outcome; what is not certain is unknown.
//   - gate-6: denials are recorded, folded and bounded; they never stop an admission.
//   - gate-7: a session's calls go to the instance of its own place: of a server of scope
//     task, to its own task's.
//   - gate-8: an artifact is taken from the bridge of its call alone, after that has ended and
//     for a while, as many as the outcome said; its row comes when its bytes are durable.
//   - gate-9: arguments are recorded where root has switched that on for the project, at the
//     moment of the call, and without what is secret.
//
// It is not the loop (workers), not the rules (policy), not the facts (registry).
package gate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/artifact"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// Bounds, by name.
const (
	MaxPerSession    = 64                    // open calls of one session
	MaxPerConnection = 256                   // open calls of one instance
	MaxSessions      = 512                   // live sessions of one project
	MaxHostSessions  = 2048                  // live sessions of one configured host's tasks, in all projects
	DefaultCall      = time.Minute           // limit of a call where the registration names none
	MaxCall          = 30 * time.Minute      // a call with all its progress and all its questions to the user
	UserWait         = 5 * time.Minute       // for the runtime's user to answer one question
	EndedDelay       = 50 * time.Millisecond // outcomes wait so long for the next commit
	FateWait         = 5 * time.Second       // outcomes of calls that died with a jail wait so long for how it ended
	MaxFallen        = 4096                  // of them at a time; more are written down without
	TendPause        = 2 * time.Second       // after the store took nothing, before it is tended again
)

// Set names one bridge of a project: one ceiling. It separates processes and
// grants nothing. The zero Set is no project's.
type Set struct {
	Project ids.Project
	Number  uint64
}

// onlySet is the number of the first set of those who have no ceiling.
const onlySet = 1

// Config is what the gate stands on.
type Config struct {
	Registry *registry.Registry
	Store    *store.Store
	Now      func() time.Time     // wall clock
	Instant  func() token.Instant // wall and boot clock, for tokens
	Random   func(b []byte)       // never fails
	// Artifacts holds the bytes of artifacts; without it none is kept.
	Artifacts *artifact.Keeper
	// Audit makes the record of a change durable, or of its failure. It is asked first.
	Audit func(who Actor, n Note) error
}

// Note is what a record says of a change. It holds no secret and no content.
type Note struct{ Target, Before, After, Failed string }

// Gate is the writer's state.
type Gate struct {
	reg      *registry.Registry
	store    *store.Store
	ledger   *store.Batch
	folder   activity.Folder
	bell     activity.Bell
	now      func() time.Time
	instant  func() token.Instant
	random   func([]byte)
	sessions map[ids.Session]*session
	byTask   map[ids.Task]map[ids.Session]*session
	open     map[ids.Call]*call
	fallen   fallen
	owing    map[ids.Call]*owing
	keeper   *artifact.Keeper
	dropNext time.Time // when to look again for artifacts that are too old
	perPlace map[placeKey]int
	slots    map[ids.Task]uint64
	lastSlot uint64
	sets     map[Set]*ceilingSet
	numbers  map[access.Ceiling]uint64 // of the first set of a ceiling
	admitted []*call                   // of the batch that is not durable yet
	drift    map[placeKey]drift
	waiting  time.Time         // since when an outcome waits for a commit
	trouble  string            // why the last commit failed, "" if it did not
	behind   bool              // the last Tend left something to do
	lost     error             // the store failed in a way that does not heal
	owed     []registry.Change // what root facts ended, in memory and not in policy.db yet
	tendNext time.Time         // when the store is tended again, after it took nothing
	facts    policy.Facts
	draining bool // no call is admitted
	counts   Counts
	audit    func(Actor, Note) error
	acting   Actor
}

// session is one bound session.
type session struct {
	id    ids.Session
	task  *registry.Task
	who   access.Principal // what as spells; see whom
	as    string
	set   Set
	uid   uint32
	open  int
	at    map[Place]int // of them, by where they are; never an entry of none
	ended bool
}

// call is one admitted call without an outcome.
type call struct {
	rec      store.Call
	session  *session
	set      Set
	place    Place
	jail     ids.Jail // its server's
	fate     fate     // how that jail ended, where that is known already
	deadline time.Time
	limit    time.Duration // without a sign of life
	most     time.Time     // no sign of life moves the deadline beyond
	warned   bool
}

// New makes a gate over what was loaded.
func New(c Config) *Gate {
	return &Gate{audit: c.Audit, reg: c.Registry, store: c.Store, ledger: c.Store.Batch(), now: c.Now, instant: c.Instant, random: c.Random,
		sessions: map[ids.Session]*session{}, byTask: map[ids.Task]map[ids.Session]*session{}, open: map[ids.Call]*call{}, perPlace: map[placeKey]int{}, slots: map[ids.Task]uint64{},
		drift: map[placeKey]drift{}, fallen: fallen{}, owing: map[ids.Call]*owing{}, keeper: c.Artifacts, sets: map[Set]*ceilingSet{}, numbers: map[access.Ceiling]uint64{{Unlimited: true}: onlySet}}
}

// Registry is what the gate decides on. Only the loop's goroutine may use it.
func (g *Gate) Registry() *registry.Registry { return g.reg }

// Apply makes a change durable and then puts it into memory. It is how every
// mutation of the authority's facts is made.
func (g *Gate) Apply(c registry.Change) error {
	if c.Empty() {
		return nil
	}
	if err := g.settle(); err != nil {
		return g.troubled(err)
	}
	if err := g.noted(c, ""); err != nil {
		return fmt.Errorf("%w: the change could not be recorded: %w", refusal.StoreUnavailable, err)
	}
	if err := g.store.Apply(c); err != nil {
		// The line above says what was asked; this one, that it was not done.
		return errors.Join(g.troubled(err), g.noted(c, err.Error()))
	}
	g.reg.Apply(c)
	if slices.ContainsFunc(slices.Concat(c.Put, c.Delete), func(r store.Row) bool { _, is := r.(registry.Paired); return is }) {
		g.regroup()
	}
	g.bell.Ring()
	return nil
}

// Actor is who makes the changes that follow, for their records. The zero Actor is the
// authority itself.
type Actor struct {
	By, Origin, Action, Request string
	// Changes tells that it asks for something that read-only mode refuses.
	Changes bool
}

// As runs fn, and records the changes it makes as the actor's. In read-only mode whoever
// asks for a change is refused here, in the queue: what was made before the mode was made
// before it, and nothing is after.
func (g *Gate) As(who Actor, fn func() error) error {
	if since := g.reg.Root().ReadOnly; since != 0 && who.Changes {
		return fmt.Errorf("%w: it is so since %s", refusal.ReadOnly, time.UnixMilli(since).UTC().Format(time.RFC3339))
	}
	g.acting = who
	defer func() { g.acting = Actor{} }()
	return fn()
}

// noted has a change recorded before it is made. Without a record nothing is changed.
func (g *Gate) noted(c registry.Change, failed string) error {
	n := Note{Failed: failed}
	n.Target, n.Before, n.After = g.reg.Describe(c)
	return g.note(n)
}

func (g *Gate) note(n Note) error {
	if g.audit == nil {
		return errors.New("there is no record of changes")
	}
	err := g.audit(g.acting, n)
	if err != nil {
		g.counts.AuditErrors++
	}
	return err
}

// Note records what changes something that is not in policy.db. Without the record the
// caller changes nothing.
func (g *Gate) Note(n Note) error {
	if err := g.note(n); err != nil {
		return fmt.Errorf("%w: the change could not be recorded: %w", refusal.StoreUnavailable, err)
	}
	return nil
}

// SetRoot takes new root facts: what they end is ended before they decide. Where
// the disk is full or the file locked it is ended in memory at once and owed to
// the file: root's side keeps the facts themselves, and an authority that starts
// again is given them before it serves, so the end holds whatever happens. To
// refuse them instead would leave what root has ended callable.
func (g *Gate) SetRoot(root *registry.Root) error {
	c := g.reg.Reconcile(root, g.now())
	if err := g.Apply(c); errors.Is(err, refusal.StoreUnavailable) {
		g.owed, g.tendNext = append(g.owed, c), g.now().Add(TendPause)
		g.reg.Apply(c)
	} else if err != nil {
		return err
	}
	g.reg.SetRoot(root)
	g.regroup()
	g.bell.Ring()
	return nil
}

// settle writes what is owed to policy.db, in its order.
func (g *Gate) settle() error {
	for len(g.owed) > 0 {
		if err := g.store.Apply(g.owed[0]); err != nil {
			return err
		}
		g.owed = g.owed[1:]
	}
	return nil
}

// Tend does what has time, between two turns: it tries again to write what is owed,
// and has the store do a small piece of its upkeep. Only an error that must end the
// authority is returned.
func (g *Gate) Tend() error {
	now := g.now()
	if d := g.tendNext.Sub(now); d > 0 && d <= TendPause {
		return nil // the store took nothing a moment ago; and the wall clock was not set back
	}
	owed := len(g.owed) > 0
	err := g.settle()
	if err == nil && owed {
		g.trouble = ""
	}
	if err == nil {
		root := g.reg.Root()
		err = g.store.Tend(now, store.Keep{Age: root.KeepAge, Bytes: root.KeepBytes})
		g.behind = g.store.Behind()
		if err == nil {
			err = g.tendArtifacts(now)
		}
		if errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrBusy) {
			g.tendNext = now.Add(TendPause)
			return nil
		}
	}
	if err == nil {
		return nil
	}
	g.tendNext = now.Add(TendPause)
	if err := g.troubled(err); !errors.Is(err, refusal.StoreUnavailable) {
		return err
	}
	return nil
}

// Waits tells that something waits for a moment of its own, or for Tend: a call that has a
// limit, an outcome that waits for the end of its jail, a change that is owed to the file,
// upkeep that is not done. Where it does not, a second more or less is all the same to
// Tend, but never more: the wall clock may be set meanwhile.
func (g *Gate) Waits() bool {
	return len(g.open) > 0 || len(g.owing) > 0 || len(g.fallen) > 0 || len(g.owed) > 0 || g.trouble != "" || g.behind
}

// Pending tells that outcomes wait for a commit.
func (g *Gate) Pending() bool { return g.ledger.Waiting() > 0 }

// Commit makes what was decided since the last one durable. Outcomes alone wait
// up to EndedDelay for company. An error that is refusal.StoreUnavailable can
// heal: the admissions of the batch never happened. Any other must end the
// authority, because nobody knows what the file holds.
func (g *Gate) Commit() error {
	if g.lost != nil {
		return g.lost
	}
	if g.ledger.Waiting() == 0 {
		return nil
	}
	if len(g.admitted) == 0 {
		if g.waiting.IsZero() {
			g.waiting = g.now()
		}
		if d := g.now().Sub(g.waiting); d >= 0 && d < EndedDelay {
			return nil
		}
	}
	return g.flush()
}

// Flush makes the outcomes that wait durable at once. It is called between turns,
// when no admission is in the batch. A store that is full or busy keeps them.
func (g *Gate) Flush() error {
	if err := g.flush(); err != nil && !errors.Is(err, refusal.StoreUnavailable) {
		return err
	}
	return nil
}

// flush commits at once.
func (g *Gate) flush() error {
	g.waiting = time.Time{}
	err := g.ledger.Commit()
	if err != nil {
		for _, c := range g.admitted {
			g.forget(c)
		}
		g.admitted = g.admitted[:0]
		g.folder = activity.Folder{} // the records it counts on were never written
		return g.troubled(err)
	}
	if len(g.owed) == 0 {
		g.trouble = ""
	}
	g.bell.Ring()
	for _, c := range g.admitted {
		c.rec.Args = store.Arguments{} // written: a call may be open for long
	}
	clear(g.admitted)
	g.admitted = g.admitted[:0]
	return nil
}

// troubled sorts an error of the store: full and busy heal in place. After any
// other one nobody knows what the file holds; it is kept, so that whoever met it,
// the next Commit ends the authority.
func (g *Gate) troubled(err error) error {
	g.trouble = err.Error()
	if errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrBusy) {
		return fmt.Errorf("%w: %w", refusal.StoreUnavailable, err)
	}
	g.lost = err
	return err
}

// Trouble says why calls can not be recorded at the moment, "" if they can.
func (g *Gate) Trouble() string { return g.trouble }

// Bell rings after each commit, and after each change of who may read what. Any
// goroutine may wait for it.
func (g *Gate) Bell() *activity.Bell { return &g.bell }

// OpenCalls counts the admitted calls without an outcome.
func (g *Gate) OpenCalls() int { return len(g.open) }

// Busy tells whether a place of a set has an open call.
func (g *Gate) Busy(set Set, at Place) bool { return g.perPlace[placeKey{set, at}] > 0 }

// OpenAt counts the open calls of a place of a set.
func (g *Gate) OpenAt(set Set, at Place) int { return g.perPlace[placeKey{set, at}] }

func (g *Gate) rand() (r [10]byte) {
	g.random(r[:])
	return r
}

// forget takes a call out of memory; its record is the ledger's.
func (g *Gate) forget(c *call) {
	if _, ok := g.open[c.rec.ID]; !ok {
		return
	}
	delete(g.open, c.rec.ID)
	c.session.open--
	if c.session.at[c.place]--; c.session.at[c.place] <= 0 {
		delete(c.session.at, c.place)
	}
	k := placeKey{c.set, c.place}
	if g.perPlace[k]--; g.perPlace[k] <= 0 {
		delete(g.perPlace, k)
	}
}

// stateOf translates a bridge's word.
func stateOf(o wire.Outcome) store.State {
	switch o {
	case wire.Completed:
		return store.Completed
	case wire.Failed:
		return store.Failed
	case wire.Cancelled:
		return store.Cancelled
	}
	return store.Unknown
}
