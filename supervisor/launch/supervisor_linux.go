package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

// Supervisor is one running posternd.
type Supervisor struct {
	cfg       Config
	file      *factsFile
	run       *runDir
	store     *os.File // of packages
	work      *os.File // of scratch directories, and of those of tasks
	tasks     *taskDirs
	audit     *audit.Log
	spawn     *spawner
	launcher  *jail.Launcher
	leases    *leases
	authority *os.File // the program
	bridge    *os.File // the program
	own       []ownDir // directories no workspace may overlap
	slots     chan struct{}

	change  sync.Mutex // one change of the facts at a time, and the start of a life
	hadFile bool       // postern.yaml was there at the last good look; under change

	mu        sync.Mutex
	facts     Facts
	access    order.Access // as it was found last
	accessWas bool         // the access policy was there once, while this posternd runs
	live      settings     // what may change while posternd runs
	config    api.ConfigState
	pushed    uint64 // how often facts and access were pushed; the authority acknowledges by it
	life      *life
	jails     map[ids.Jail]*running
	looks     map[ids.Project]int // directories that are being looked at
	resolves  map[ids.Project]*seats
	restarts  int
}

// SealDescriptors marks everything above stderr close-on-exec, also what posternd
// itself inherited: a descriptor that whoever started it left open must not reach a
// tool server past every path rule. Source: close_range(2), Linux 5.11.
func SealDescriptors() error {
	return os.NewSyscallError("close_range", unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC))
}

// Run is posternd from start to end. It returns when ctx is done and everything it
// made is gone, or an error, wrapping ErrConfig where nothing had been started.
func Run(ctx context.Context, cfg Config) error {
	s, undo, err := open(cfg)
	defer func() { undo() }()
	if err != nil {
		return err
	}
	root, err := s.listenRoot()
	if err != nil {
		return err
	}
	for _, srv := range s.facts.Servers {
		name := srv.Current().Profile
		if _, ok := cfg.Profiles[name]; !ok && !srv.Deleted {
			cfg.Log.Warn("there is no profile of this name, and the server does not start: put its file back, or use postern server update", keyServer, srv.Label, keyProfile, name)
		}
	}
	cfg.Log.Info("serving", keyRunDir, cfg.RunDir, keyInstance, s.facts.Instance, keyFacts, s.facts.Version, keyUIDs, rangeText(cfg.UIDs))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.serveRoot(ctx, root) })
	g.Go(func() error { return s.keepAuthority(ctx) })
	g.Go(func() error { return s.watchAccess(ctx) })
	g.Go(func() error { return s.watchConfig(ctx) })
	g.Go(func() error {
		s.tasks.keepSwept(ctx, func(err error) { cfg.Log.Error("what a tool server left stays", keyError, err) })
		return nil
	})
	return g.Wait()
}

// open acquires everything in a ladder; undo gives it back in reverse.
func open(cfg Config) (s *Supervisor, undo func(), err error) {
	var stack []func()
	undo = func() {
		for i := len(stack) - 1; i >= 0; i-- {
			stack[i]()
		}
		stack = nil
	}
	defer func() {
		if err != nil {
			undo()
			undo, err = func() {}, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}()
	if err := errors.Join(slices.Concat(cfg.Check(), cfg.checkProfiles(), uidsInUse(cfg.UIDs))...); err != nil {
		return nil, undo, err
	}
	if err := SealDescriptors(); err != nil {
		return nil, undo, err
	}
	// Whatever the shell that started posternd had: modes that matter are set by name,
	// and what others must be able to walk is not closed by accident.
	unix.Umask(0o022)

	s = &Supervisor{cfg: cfg, live: settingsOf(cfg), hadFile: cfg.FileFound, config: api.ConfigState{File: cfg.File, At: time.Now().UnixMilli()}, own: cfg.ownDirs(), jails: map[ids.Jail]*running{}, looks: map[ids.Project]int{}, resolves: map[ids.Project]*seats{}, leases: newLeases(cfg.UIDs), slots: make(chan struct{}, maxLaunches)}
	if s.file, err = openRootDir(cfg.RootDir); err != nil {
		return nil, undo, err
	}
	stack = append(stack, s.file.close)
	if s.facts, err = s.loadFacts(); err != nil {
		return nil, undo, err
	}
	release, err := lockUIDs(cfg.LockDir, cfg.UIDs)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("lock-dir: there is no directory %q; make it, or name another: %w", cfg.LockDir, err)
	}
	if err != nil {
		return nil, undo, err
	}
	stack = append(stack, release)
	for name, at := range map[string]**os.File{packageDir: &s.store, workDir: &s.work} {
		if *at, err = privateDir(filepath.Join(cfg.RootDir, name)); err != nil {
			return nil, undo, err
		}
		f := *at
		stack = append(stack, func() { f.Close() })
	}
	if err := sweepPackages(s.store, s.facts); err != nil {
		return nil, undo, err
	}
	if s.tasks, err = openTaskDirs(s.work, s.facts); err != nil {
		return nil, undo, err
	}
	if s.audit, err = audit.Open(cfg.RootDir, 0, cfg.Audit); err != nil {
		return nil, undo, err
	}
	stack = append(stack, s.audit.Close)
	if err := s.recordRestore(); err != nil {
		return nil, undo, err
	}
	s.access = readAccess(cfg.Access, time.Now())
	s.accessWas = isThere(s.access)
	if s.access.Error != "" {
		cfg.Log.Error("the access policy cannot be read, and whom it governs is denied", keyError, s.access.Error)
	}
	if err := prepareState(cfg.StateDir, cfg.UID, cfg.GID); err != nil {
		return nil, undo, err
	}
	for name, at := range map[string]**os.File{authorityProgram: &s.authority, bridgeProgram: &s.bridge} {
		if *at, err = openProgram(filepath.Join(cfg.Libexec, name)); err != nil {
			return nil, undo, err
		}
		f := *at
		stack = append(stack, func() { f.Close() })
	}
	if s.run, err = openRunDir(cfg.RunDir); err != nil {
		return nil, undo, err
	}
	run := s.run // a rung that fails returns no s
	stack = append(stack, func() {
		if err := run.close(); err != nil {
			cfg.Log.Error("the run directory was not emptied", keyError, err)
		}
	})
	if s.spawn, err = startSpawner(); err != nil {
		return nil, undo, err
	}
	stack = append(stack, s.spawn.close)
	if s.launcher, err = openLauncher(cfg, s.facts.Instance); err != nil {
		return nil, undo, err
	}
	stack = append(stack, func() {
		if err := errors.Join(s.launcher.Close(), removeGroups(cfg, s.facts.Instance)); err != nil {
			cfg.Log.Error("the launcher was not closed", keyError, err)
		}
	})
	s.tidyWorkspaces()
	return s, undo, nil
}

// loadFacts reads them and lets the registrations follow profiles whose content changed.
func (s *Supervisor) loadFacts() (Facts, error) {
	now := time.Now()
	f, err := s.file.load(now)
	if err != nil {
		return Facts{}, err
	}
	if err := errors.Join(s.cfg.checkFacts(f)...); err != nil {
		return Facts{}, err
	}
	f, changed, err := f.followProfiles(s.cfg.Profiles, now)
	if err == nil && changed {
		err = s.file.save(f)
	}
	return f, err
}

// privateDir makes or opens a directory of root's alone.
func privateDir(path string) (*os.File, error) {
	if err := makeDir(path, 0o700); err != nil {
		return nil, err
	}
	f, err := openPlain(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := checkOwned(f, 0o077); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// prepareState makes the authority's directory; one that is there must be its own.
func prepareState(path string, uid, gid uint32) error {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeDir(path, 0o700); err != nil {
			return err
		}
		return os.Chown(path, int(uid), int(gid))
	}
	if err != nil {
		return err
	}
	f, err := openPlain(path, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkOwnedBy(f, uid, 0o077)
}

// openProgram opens one of Postern's programs once; what is started later is this file,
// whatever its path says then.
func openProgram(path string) (*os.File, error) {
	f, err := openPlain(path, 0)
	if err != nil {
		return nil, err
	}
	if err := checkOwned(f, 0o022); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// now returns the facts and the life they were pushed to, if any.
func (s *Supervisor) now() (Facts, *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts, s.life
}

// commit makes f the facts: durable first, then memory, then the authority, which must
// say that it decides by them. One that does not is ended: whatever it had decided by
// the old facts ends with it, and its successor starts with the new ones.
//
// Preconditions: s.change is held.
func (s *Supervisor) commit(ctx context.Context, f Facts, wait bool) error {
	if err := s.file.save(f); err != nil {
		return api.Refuse(refusal.StoreUnavailable, "The root facts could not be written: %v.", err)
	}
	s.mu.Lock()
	s.facts = f
	s.mu.Unlock()
	s.push(ctx, wait)
	return nil
}

// push tells the authority what root decides now, and waits until it says that it
// decides by it. Pushes have numbers of their own: the access policy changes without
// the facts.
//
// Preconditions: s.change is held.
func (s *Supervisor) push(ctx context.Context, wait bool) {
	l, root, n := s.next()
	if l == nil {
		return
	}
	if err := l.a.sendFacts(root, n); err != nil {
		return // it is being replaced; the next one gets these facts first
	}
	if !wait || !l.a.until(ctx, 0, func(a *authority) bool { return a.ready }) {
		return // before it is ready it decides nothing
	}
	if !l.a.until(ctx, ackWait, func(a *authority) bool { return a.acked >= n }) {
		l.a.kill("it did not take new facts")
	}
}

// next is what is pushed next, its number, and to whom.
func (s *Supervisor) next() (*life, order.Root, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushed++
	return s.life, s.view(s.facts), s.pushed
}

// view is what the authority is told.
//
// Preconditions: s.mu is held.
func (s *Supervisor) view(f Facts) order.Root {
	r := f.root(s.live.hosts, s.cfg.UIDs, s.live.profiles)
	r.Keep = s.live.keep
	r.Access = s.access
	r.Audit = order.Audit{MaxBytes: s.live.audit.MaxBytes, Keep: s.live.audit.Keep}
	return r
}

// life is one authority with everything that was started for it.
type life struct {
	a       *authority
	ctx     context.Context
	started time.Time
	work    sync.WaitGroup // orders and jails
	orders  chan struct{}  // bounds the orders in work
	tokens  tokens
}

// keepAuthority starts the authority, and starts it again when it ends, until ctx is
// done. Between two lives there is no jail.
func (s *Supervisor) keepAuthority(ctx context.Context) error {
	pause := restartFirst
	for {
		started := time.Now()
		err := s.oneLife(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(started) > restartForget {
			pause = restartFirst
		}
		s.cfg.Log.Error("the authority ended", keyError, err, keyPause, pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, restartMost)
		s.mu.Lock()
		s.restarts++
		s.mu.Unlock()
	}
}

func (s *Supervisor) oneLife(ctx context.Context) error {
	a, err := startAuthority(s.spawn, s.authority, s.cfg.UID, s.cfg.GID, s.cfg.StateDir, s.cfg.RunDir, s.cfg.Stderr)
	if err != nil {
		return err
	}
	lifeCtx, cancel := context.WithCancel(ctx)
	l := &life{a: a, ctx: lifeCtx, started: time.Now(), orders: make(chan struct{}, maxOrders), tokens: newTokens()}
	s.cfg.Log.Info("authority started", keyPID, a.proc.Pid)

	var begun errgroup.Group
	begun.Go(func() error { return s.begin(l) })
	stop := context.AfterFunc(ctx, a.stop)
	err = s.readOrders(l)
	cancel()
	s.mu.Lock()
	s.life = nil
	s.mu.Unlock()
	if ctx.Err() == nil {
		a.kill("its wire ended")
	}
	<-a.done
	stop()
	if beginErr := begun.Wait(); err == nil {
		err = beginErr
	}
	s.killAll()
	l.work.Wait()
	a.close()
	a.mu.Lock()
	why := a.why
	a.mu.Unlock()
	return errors.Join(err, s.run.clearAuthority(), fmt.Errorf("ended because %s", orElse(why, "it exited")))
}

// begin gives a new authority what it starts with: facts, its socket, and every
// project's. No fact changes meanwhile, so nothing is missed and nothing sent twice.
func (s *Supervisor) begin(l *life) error {
	s.change.Lock()
	defer s.change.Unlock()
	f, _ := s.now()
	fail := func(err error) error { l.a.kill(err.Error()); return err }
	_, root, n := s.next()
	if err := l.a.sendFacts(root, n); err != nil {
		return fail(err)
	}
	control, err := s.run.control()
	if err != nil {
		return fail(err)
	}
	err = l.a.send(order.Control{}, control)
	control.Close()
	if err != nil {
		return fail(err)
	}
	for _, p := range f.Projects {
		if !p.Deleted {
			if err := s.giveProject(l, p.ID); err != nil {
				return fail(err)
			}
		}
	}
	s.mu.Lock()
	s.life = l
	s.mu.Unlock()
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		if !l.a.until(l.ctx, readyWait, func(a *authority) bool { return a.ready }) {
			l.a.kill("it was not ready in time")
			return
		}
		s.cfg.Log.Info("authority ready", keyPID, l.a.proc.Pid)
		if s.cfg.Ready != nil {
			s.cfg.Ready()
		}
	}()
	return nil
}

// giveProject makes a project's socket and hands it down; posternd keeps no copy.
func (s *Supervisor) giveProject(l *life, id ids.Project) error {
	f, err := s.run.project(id)
	if err != nil {
		return err
	}
	defer f.Close()
	return l.a.send(order.ProjectSocket{Project: id}, f)
}
