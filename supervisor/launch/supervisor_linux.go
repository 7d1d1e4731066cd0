package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
	"postern/supervisor/owned"
)

// Supervisor is one running posternd.
type Supervisor struct {
	cfg       Config
	file      *factsFile
	run       *runDir
	packages  *packages
	work      *os.File // of scratch directories, and of those of tasks
	tasks     *taskDirs
	secrets   *secrets
	audit     *audit.Log
	spawn     *spawner
	launcher  *jail.Launcher
	leases    *leases
	authority *os.File // the program
	bridge    *os.File // the copy of the program
	own       []ownDir // directories no workspace may overlap
	slots     chan struct{}
	doors     int         // projects that the authority can listen for
	unit      []directive // what the files of the unit say that posternd was started by, if by one

	change  sync.Mutex   // one change of the facts at a time, and the start of a life
	handing sync.RWMutex // held for reading while a jail that is handed a secret starts
	hadFile bool         // postern.yaml was there at the last good look; under change

	mu        sync.Mutex
	facts     Facts
	access    order.Access // as it was found last
	accessWas bool         // the access policy was there once
	live      settings     // what may change while posternd runs
	config    api.ConfigState
	pushed    uint64 // how often facts and access were pushed; the authority acknowledges by it
	life      *life
	jails     map[ids.Jail]*running
	building  map[*running]chan struct{} // launches in work, until they are among jails or have failed; closed then
	looks     map[ids.Project]int        // directories that are being looked at
	resolves  *seats
	fetches   *seats
	copies    chan struct{}
	rooms     rooms
	restarts  int
	served    atomic.Bool // an authority has served
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
	s, undo, err := open(ctx, cfg)
	defer func() { undo() }()
	if errors.Is(err, errAsked) {
		cfg.Log.Info("ended before it served", keyError, err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.tryJail(ctx); err != nil {
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
	s.tell(Notice{Status: "Starting the authority"})
	stopping := context.AfterFunc(ctx, func() { s.tell(Notice{Stopping: true, Status: "Stopping"}) })
	defer stopping()
	ctx, end := context.WithCancel(ctx)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.leave(ctx, end); return nil })
	g.Go(func() error { return s.serveRoot(ctx, root) })
	g.Go(func() error { return s.keepAuthority(ctx) })
	g.Go(func() error { return s.watchAccess(ctx) })
	g.Go(func() error { return s.watchConfig(ctx) })
	g.Go(func() error { return s.watchAuthority(ctx) })
	g.Go(func() error {
		s.tasks.keepSwept(ctx, func(err error) { cfg.Log.Error("what a tool server left stays", keyError, err) })
		return nil
	})
	g.Go(func() error { s.keepCollected(ctx); return nil })
	return g.Wait()
}

// open acquires everything in a ladder; undo gives it back in reverse.
func open(ctx context.Context, cfg Config) (s *Supervisor, undo func(), err error) {
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

	around, err := lookAround()
	around.managed = cfg.Managed
	if err := errors.Join(slices.Concat(around.inTheWay(), around.shutOff(cfg.written()), []error{err})...); err != nil {
		return nil, undo, err
	}
	if cfg.Cgroup, err = cfg.group(); err != nil {
		return nil, undo, err
	}
	s = &Supervisor{cfg: cfg, unit: around.unit, live: settingsOf(cfg), hadFile: cfg.FileFound, config: api.ConfigState{File: cfg.File, At: time.Now().UnixMilli()}, own: cfg.ownDirs(), jails: map[ids.Jail]*running{}, building: map[*running]chan struct{}{}, looks: map[ids.Project]int{}, resolves: newSeats(maxResolves), fetches: newSeats(maxFetches), copies: make(chan struct{}, maxCopies), rooms: rooms{all: map[ids.Jail]*roomOf{}}, leases: newLeases(cfg.UIDs), slots: make(chan struct{}, maxLaunches)}
	if s.file, err = openRootDir(cfg.RootDir); err != nil {
		return nil, undo, around.changedBy(err, "StateDirectory", "StateDirectoryMode")
	}
	stack = append(stack, s.file.close)
	if s.facts, err = s.loadFacts(); err != nil {
		return nil, undo, err
	}
	for _, err := range around.shutOff(workspacesOf(s.facts)) {
		cfg.Log.Warn("a workspace is not here as it is on the host, and its servers meet that", keyError, err)
	}
	if s.doors, err = openDoors(); err != nil {
		return nil, undo, err
	}
	if n := s.facts.living(); n > s.doors {
		return nil, undo, errors.New(tooMany(n, s.doors))
	}
	release, err := lockUIDs(cfg.LockDir, cfg.UIDs)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("lock-dir: there is no directory %q; make it, or name another: %w", cfg.LockDir, err)
	}
	if err != nil {
		return nil, undo, err
	}
	stack = append(stack, release)
	s.secrets = &secrets{systemd: cfg.Credentials}
	var store *os.File
	for name, at := range map[string]**os.File{packageDir: &store, workDir: &s.work, secretsDir: &s.secrets.dir} {
		if *at, err = privateDir(filepath.Join(cfg.RootDir, name)); err != nil {
			return nil, undo, err
		}
		f := *at
		stack = append(stack, func() { f.Close() })
	}
	s.packages = openPackages(store)
	if err := s.packages.begin(s.facts); err != nil {
		return nil, undo, err
	}
	if err := s.keepForms(s.facts, cfg.Profiles); err != nil {
		return nil, undo, err
	}
	if err := s.secrets.sweep(s.facts); err != nil {
		return nil, undo, err
	}
	for _, w := range s.secrets.warnings(s.facts) {
		cfg.Log.Warn(w)
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
	if s.accessWas = isThere(s.access); s.accessWas {
		err = s.file.keepSeen(cfg.Access)
	} else {
		s.accessWas, err = s.file.sawAccess(cfg.Access)
		s.access = s.unlessGone(s.access)
	}
	if err != nil {
		return nil, undo, err
	}
	if s.access.Error != "" {
		cfg.Log.Error("the access policy cannot be read, and whom it governs is denied", keyError, s.access.Error)
	}
	if raw, err := s.told(); err != nil || len(raw) > order.MaxRoot {
		return nil, undo, errors.Join(err, fmt.Errorf("the root facts, the hosts and the access policy take %d bytes for the authority, at most %d", len(raw), order.MaxRoot))
	}
	if err := prepareState(cfg.StateDir, cfg.UID, cfg.GID); err != nil {
		return nil, undo, around.changedBy(err, "StateDirectory", "StateDirectoryMode")
	}
	programs, err := cfg.keepPrograms(ctx)
	if err != nil {
		return nil, undo, around.changedBy(err, "NoExecPaths")
	}
	stack = append(stack, func() { programs.Close() })
	if s.bridge, err = openCopy(programs, bridgeProgram); err != nil {
		return nil, undo, err
	}
	bridge := s.bridge
	stack = append(stack, func() { bridge.Close() })
	if s.authority, err = cfg.openProgram(ctx, authorityProgram); err != nil {
		return nil, undo, err
	}
	authority := s.authority
	stack = append(stack, func() { authority.Close() })
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
	f, err := owned.Open(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := owned.Check(f, owned.OthersAny); err != nil {
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
	f, err := owned.Open(path, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	return owned.CheckBy(f, uid, owned.OthersAny)
}

// now returns the facts and the life they were pushed to, if any.
func (s *Supervisor) now() (Facts, *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts, s.life
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
		s.tell(Notice{Status: fmt.Sprintf("The authority ended, and another is started in %v: %v", pause, err)})
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
		select {
		case <-a.done: // its own end is why its wire ended, and says more
		case <-time.After(reapWait):
			a.kill("its wire ended")
		}
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
	why := orElse(a.why, a.how)
	a.mu.Unlock()
	return errors.Join(err, s.run.clearAuthority(), errors.New(why))
}

// begin gives a new authority what it starts with: facts, its socket, and every
// project's. No fact changes meanwhile, so nothing is missed and nothing sent twice.
func (s *Supervisor) begin(l *life) error {
	s.change.Lock()
	defer s.change.Unlock()
	f, _ := s.now()
	fail := func(err error) error { l.a.kill(err.Error()); return err }
	raw, err := s.told()
	if err != nil {
		return fail(err)
	}
	_, n := s.next()
	if err := l.a.sendFacts(raw, n); err != nil {
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
		if !l.a.becomesReady(l.ctx, readyWait) {
			l.a.kill(fmt.Sprintf("it was not ready, and gave no sign of reading its store for %v", readyWait))
			return
		}
		s.cfg.Log.Info("authority ready", keyPID, l.a.proc.Pid)
		if s.cfg.Ready != nil {
			s.cfg.Ready()
		}
		s.tell(Notice{Ready: !s.served.Swap(true), Status: s.statusLine(l)})
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
