package launch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail"
	"postern/jail/spec"
	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// workDir holds what jails write outside every project: scratch directories of probes
// and the directories of tasks.
const workDir = "work"

// The kinds of jail.
const (
	kindBridge = "bridge"
	kindServer = "server"
	kindProbe  = "probe"
)

// running is one live jail.
type running struct {
	row     order.JailRow
	proc    *jail.Process
	life    *life
	names   []string // protected names that it may write
	moved   int64    // its project's Moved when its launch was ordered
	held    held     // the credential that it was handed
	release func()   // called when nothing of it is left; may be nil

	// told gets one value: whether the authority was told of the launch. Only then is it
	// told of the end, and never before the launch: a jail may end at once.
	told chan bool
}

// group is the parent of the jails' control groups. Where a service manager started
// posternd and nobody named one, it is below the unit's own, or posternd does not
// start: in a group that is not given away nothing would hold a jail to its limits.
func (c Config) group() (string, error) {
	if c.Cgroup != "" || !c.Unit {
		return c.Cgroup, nil
	}
	parent, err := jail.UnitGroup()
	if err != nil {
		return "", fmt.Errorf("cgroup: %w", err)
	}
	return orElse(parent, defaultGroup), nil // v1 and hybrid hosts: nothing is delegated
}

// openLauncher opens the jails' side. The group carries the instance id: whoever
// sweeps it sweeps only what an earlier posternd of this root directory left.
func openLauncher(cfg Config, instance ids.Instance) (*jail.Launcher, error) {
	l, err := jail.Open(jail.Config{Init: filepath.Join(cfg.RootDir, programsDir, jailProgram), Cgroup: groupOf(cfg, instance)})
	if err != nil {
		return nil, err
	}
	swept, err := l.Sweep()
	if len(swept) > 0 {
		cfg.Log.Warn("ended what an earlier run left behind", "groups", len(swept))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// checkProfiles reports every profile whose filters cannot be made.
func (c Config) checkProfiles() (out []error) {
	for _, name := range profiles.Names(c.Profiles) {
		if err := jail.CheckProfile(c.Profiles[name]); err != nil {
			out = append(out, err)
		}
	}
	return out
}

// tidyWait is how long the start waits for workspaces to be looked through. A file
// system that does not answer is left to its goroutine.
const tidyWait = 5 * time.Second

// tidyWorkspaces removes the names that an earlier run held in workspaces and could
// not give back.
func (s *Supervisor) tidyWorkspaces() {
	done := make(chan struct{})
	facts := s.facts
	go func() {
		defer close(done)
		for _, p := range facts.Projects {
			if p.Deleted {
				continue
			}
			dir, _, refused := openWorkspace(p.Workspace, false)
			if refused != nil {
				continue // gone or replaced: nothing of ours is there
			}
			if checkIdentity(dir, p) == nil {
				if err := s.launcher.Tidy(dir); err != nil {
					s.cfg.Log.Warn("a workspace was not looked through", keyProject, p.ID, keyError, err)
				}
			}
			dir.Close()
		}
		for _, task := range s.tasks.names() {
			if dir, err := openAt(int(s.work.Fd()), string(task), unix.O_DIRECTORY); err == nil {
				if err := s.launcher.Tidy(dir); err != nil {
					s.cfg.Log.Warn("the directory of a task was not looked through", keyError, err)
				}
				dir.Close()
			}
		}
	}()
	timer := time.NewTimer(tidyWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.cfg.Log.Warn("a workspace's file system does not answer")
	}
}

func groupOf(cfg Config, instance ids.Instance) string {
	return filepath.Join(cfg.Cgroup, string(instance))
}

// removeGroups removes the parent groups, if they are empty, from every hierarchy.
func removeGroups(cfg Config, instance ids.Instance) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		col := strings.Fields(lines.Text())
		if i := slices.Index(col, "-"); len(col) < 5 || i < 0 || i+1 >= len(col) || !strings.HasPrefix(col[i+1], "cgroup") {
			continue
		}
		// Not empty, not there, or somebody else's in between: it stays.
		for g := groupOf(cfg, instance); g != "." && g != "/"; g = filepath.Dir(g) {
			if unix.Rmdir(filepath.Join(unescape(col[4]), g)) != nil {
				break
			}
		}
	}
	return lines.Err()
}

// start leases a uid, launches r under it and watches it. files of r stay the
// caller's. The jail's end is reported to l, and its uid comes back, when nothing of
// it is left.
func (s *Supervisor) start(l *life, row order.JailRow, r jail.Request, at room, hand held) (*running, error) {
	if l.ctx.Err() != nil {
		return nil, errAuthorityGone
	}
	j := &running{row: row, life: l, names: at.names, moved: at.moved, held: hand, release: at.release, told: make(chan bool, 1)}
	r.Name = string(row.Jail)
	r.UID, r.GID = row.UID, row.UID
	if limits, err := r.Limits.Within(r.Profile.Limits); err == nil { // what is not within it, Launch refuses
		j.row.MemoryMax, j.row.PidsMax = limits.MemoryBytes, limits.PidsMax
	}
	if refused := s.build(j); refused != nil {
		return nil, refused
	}
	var refused *api.Refusal
	r.Proceed = func() error {
		if refused = s.proceed(j); refused != nil {
			return refused
		}
		return nil
	}
	proc, err := s.launcher.Launch(r)
	if err != nil {
		s.mu.Lock()
		s.built(j)
		s.mu.Unlock()
		if refused != nil {
			return nil, refused
		}
		return nil, err
	}
	j.proc, j.row.PID, j.row.Started = proc, proc.Pid(), time.Now().UnixMilli()
	s.mu.Lock()
	s.jails[row.Jail] = j
	s.built(j)
	away := j.elsewhere(s.facts)
	if row.Kind == kindServer && r.Workspace != nil {
		s.rooms.note(&roomOf{jail: row.Jail, life: l, project: row.Project, task: row.Task, moved: at.moved})
	}
	s.mu.Unlock()
	l.work.Add(1)
	go s.watch(j)
	// The authority ended meanwhile, or the project was moved and nobody waits for this one
	// any more: the jails of before were killed when it was not among them.
	if l.ctx.Err() != nil || away {
		proc.Kill()
	}
	return j, nil
}

// watch waits for the end of a jail. Nobody waits for one that cannot be killed: it is
// reported as ended, and its uid stays leased for as long as anything of it is left.
func (s *Supervisor) watch(j *running) {
	<-j.proc.Done()
	exit := j.proc.Exit()
	gone := true
	select {
	case <-j.proc.Gone():
	case <-time.After(goneWait):
		gone = false
		s.cfg.Log.Error("a jail cannot be emptied; its uid is kept", keyJail, j.row.Jail, keyUID, j.row.UID)
	}
	s.mu.Lock()
	delete(s.jails, j.row.Jail)
	if room := s.rooms.all[j.row.Jail]; room != nil {
		room.gone = time.Now()
	}
	s.mu.Unlock()
	if exit.Filtered { // no honest program does this, whatever it was built for
		s.cfg.Log.Warn("a jail was ended by its system call filter", keyJail, j.row.Jail, keyKind, j.row.Kind, keyProject, j.row.Project, keyRevision, j.row.Revision, "call", exit.Call)
	}
	if exit.Replaced { // what it could have written in between is for a person to look at
		s.cfg.Log.Warn("a jail was ended because a protected name of its workspace was replaced from outside", keyJail, j.row.Jail, keyProject, j.row.Project)
	}
	s.cfg.Log.Debug("jail ended", keyJail, j.row.Jail, keyKind, j.row.Kind, "status", exit.Code, "signal", exit.Signal, "oom", exit.OOM)
	if <-j.told {
		// An authority that has ended needs no report; another error ended it.
		_ = j.life.a.send(order.Exited{Jail: j.row.Jail, Status: exit.Code, Signal: exit.Signal, OOM: exit.OOM, Filter: exit.Filtered, Call: exit.Call, Replaced: exit.Replaced, Forced: exit.Forced})
	}
	j.life.work.Done()
	if !gone {
		<-j.proc.Gone()
	}
	if j.release != nil {
		j.release()
	}
	s.leases.giveBack(j.row.UID)
}

// killAll ends every jail and waits until they are reported.
func (s *Supervisor) killAll() { s.killWhere(func(*running) bool { return true }) }

// killWhere ends some jails, waits until they are gone and tells how many they were.
func (s *Supervisor) killWhere(which func(*running) bool) int {
	s.mu.Lock()
	var all []*running
	for _, j := range s.jails {
		if which(j) {
			all = append(all, j)
		}
	}
	s.mu.Unlock()
	done := make(chan struct{}, len(all))
	for _, j := range all {
		go func() { j.proc.Kill(); done <- struct{}{} }()
	}
	for range all {
		<-done
	}
	return len(all)
}

// lease makes the row of a jail that is about to start.
func (s *Supervisor) lease(kind string, p ids.Project, v ids.Revision, profile string) (order.JailRow, error) {
	s.mu.Lock()
	n := len(s.jails)
	s.mu.Unlock()
	if n >= maxJails {
		return order.JailRow{}, api.Refuse(refusal.Busy, "%d jails are alive.", n)
	}
	uid, err := s.leases.take()
	if err != nil {
		return order.JailRow{}, api.Refuse(refusal.Busy, "%v.", err)
	}
	return order.JailRow{Jail: newID[ids.Jail](time.Now()), Kind: kind, Project: p, Revision: v, Profile: profile, UID: uid}, nil
}

// launchBridge starts the bridge of a set and returns it with the authority's end of
// its wire.
func (s *Supervisor) launchBridge(l *life, kind string, project ids.Project) (*running, *os.File, error) {
	profile, _ := s.profile(BridgeProfile)
	row, err := s.lease(kind, project, "", BridgeProfile)
	if err != nil {
		return nil, nil, err
	}
	mine, theirs, err := wirePair()
	if err != nil {
		s.leases.giveBack(row.UID)
		return nil, nil, err
	}
	defer theirs.Close()
	j, err := s.start(l, row, jail.Request{Profile: profile, Argv: []string{spec.ProgramFile}, Program: s.bridge, Extra: []*os.File{theirs}}, room{}, held{})
	if err != nil {
		mine.Close()
		s.leases.giveBack(row.UID)
		return nil, nil, err
	}
	return j, mine, nil
}

func wirePair() (mine, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), "wire"), os.NewFile(uintptr(pair[1]), "wire"), nil
}

// pipes are the three of a tool server. Both ends are blocking: a pipe from os.Pipe
// would hand its O_NONBLOCK to the server and to the bridge.
type pipes struct{ theirs, mine [3]*os.File }

func newPipes() (p pipes, err error) {
	for i := range 3 {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			p.close()
			return pipes{}, os.NewSyscallError("pipe2", err)
		}
		r, w := os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
		if i == 0 {
			p.theirs[i], p.mine[i] = r, w
		} else {
			p.theirs[i], p.mine[i] = w, r
		}
	}
	return p, nil
}

func (p pipes) close() {
	for i := range 3 {
		if p.theirs[i] != nil {
			p.theirs[i].Close()
			p.mine[i].Close()
		}
	}
}

// room is the directory of a tool server.
type room struct {
	dir     *jail.Workspace
	task    ids.Task // whose alone it is
	names   []string // protected names that are open in it
	moved   int64    // its project's Moved when the launch was ordered, also where there is no directory
	release func()   // called when the jail is gone; may be nil
}

// launchServer starts a revision in a workspace and returns the caller's pipe ends.
func (s *Supervisor) launchServer(l *life, kind string, project Project, v Revision, hand handover, workspace func(uid uint32) (room, error)) (*running, pipes, error) {
	defer clear(hand.secret) // wherever this ends
	profile, ok := s.profile(v.Profile)
	if ok && profile.Digest != v.ProfileDigest {
		return nil, pipes{}, api.Refuse(refusal.ProfileUnknown, "Profile %q is another than this revision was made with; the server's current revision has it.", v.Profile)
	}
	if !ok {
		return nil, pipes{}, api.Refuse(refusal.ProfileUnknown, "There is no profile %q any more: put its file back, or use postern server update.", v.Profile)
	}
	row, err := s.lease(kind, project.ID, v.ID, v.Profile)
	if err != nil {
		return nil, pipes{}, err
	}
	var at room
	letGo := s.packages.hold(v.Package) // until nothing of the jail is left: it reads the copy
	fail := func(err error) (*running, pipes, error) {
		letGo()
		s.leases.giveBack(row.UID)
		if at.release != nil {
			at.release()
		}
		return nil, pipes{}, err
	}
	r := jail.Request{Profile: profile, Argv: v.Command}
	if profile.Workspace {
		if at, err = workspace(row.UID); err != nil {
			return fail(err)
		}
		r.Workspace, row.Task = at.dir, at.task
		defer r.Workspace.Dir.Close()
	}
	at.moved = project.Moved
	if v.Package != "" {
		r.Package, err = openAt(int(s.packages.store.Fd()), v.Package, unix.O_DIRECTORY)
		if f, _ := s.now(); errors.Is(err, unix.ENOENT) && !f.inStore()[v.Package] { // it was changed a moment ago
			err = api.Refuse(refusal.ServerRevisionChanged, "%s is no longer the current revision.", v.ID)
		}
		if err != nil {
			return fail(err)
		}
		defer r.Package.Close()
	}
	p, err := newPipes()
	if err != nil {
		return fail(err)
	}
	r.Stdin, r.Stdout, r.Stderr = p.theirs[0], p.theirs[1], p.theirs[2]
	if giveBack := at.release; giveBack != nil {
		at.release = func() { giveBack(); letGo() }
	} else {
		at.release = letGo
	}
	j, err := s.startHanded(l, row, r, at, v, hand)
	if err != nil {
		p.close()
		return fail(err)
	}
	for _, f := range p.theirs {
		f.Close()
	}
	return j, p, nil
}

// startHanded starts a jail with its secret, unless that is no longer what is to be handed
// over. Whoever changes a credential finds the jail among those that are alive.
func (s *Supervisor) startHanded(l *life, row order.JailRow, r jail.Request, at room, v Revision, hand handover) (*running, error) {
	if hand.secret == nil {
		return s.start(l, row, r, at, held{})
	}
	done, err := hand.fill(&r, v)
	defer done()
	if err != nil {
		return nil, err
	}
	s.handing.RLock()
	defer s.handing.RUnlock()
	if f, _ := s.now(); !f.holds(hand.credential.held()) {
		return nil, api.Refuse(refusal.CredentialMissing, "It was changed meanwhile.")
	}
	return s.start(l, row, r, at, hand.credential.held())
}

// Bounds of looking at a directory: a file system that does not answer costs at most
// maxLooks goroutines of its own project and nobody else's launch.
const (
	lookWait = 5 * time.Second
	maxLooks = 8
)

// projectWorkspace opens a project's directory and proves everything about it on the
// descriptor that is mounted.
func (s *Supervisor) projectWorkspace(f Facts, p Project) (*jail.Workspace, error) {
	busy := api.Refuse(refusal.Busy, "The file system of %q does not answer.", p.Workspace)
	s.mu.Lock()
	if s.looks[p.ID] >= maxLooks {
		s.mu.Unlock()
		return nil, busy
	}
	s.looks[p.ID]++
	s.mu.Unlock()
	type look struct {
		w   *jail.Workspace
		err error
	}
	seen, late := make(chan look), make(chan struct{})
	go func() {
		w, err := s.openProject(f, p)
		s.mu.Lock()
		if s.looks[p.ID]--; s.looks[p.ID] == 0 {
			delete(s.looks, p.ID)
		}
		s.mu.Unlock()
		select {
		case <-late:
			if w != nil {
				w.Dir.Close()
			}
		case seen <- look{w, err}:
		}
	}()
	timer := time.NewTimer(lookWait)
	defer timer.Stop()
	select {
	case l := <-seen:
		return l.w, l.err
	case <-timer.C:
		close(late)
		return nil, busy
	}
}

func (s *Supervisor) openProject(f Facts, p Project) (*jail.Workspace, error) {
	owner, ok := f.accountByID(p.Owner)
	if !ok || owner.Deleted {
		return nil, api.Refuse(refusal.AccountDeleted, "%s.", p.Owner)
	}
	dir, _, refused := openWorkspace(p.Workspace, false)
	if refused != nil {
		return nil, refused
	}
	w, err := s.checkWorkspace(f, p, owner, dir)
	if err != nil {
		dir.Close()
		return nil, err
	}
	return w, nil
}

func (s *Supervisor) checkWorkspace(f Facts, p Project, owner order.Account, dir *os.File) (*jail.Workspace, error) {
	if refused := checkIdentity(dir, p); refused != nil {
		return nil, refused
	}
	uid, gid, refused := checkOwner(dir, p.Workspace, owner.UIDs)
	if refused != nil {
		return nil, refused
	}
	where, err := place(dir, p.Workspace)
	if err != nil {
		return nil, api.Refuse(refusal.WorkspaceRefused, "%v.", err)
	}
	if refused := checkOverlap(dir, p, where, f.Projects, s.own); refused != nil {
		return nil, refused
	}
	return &jail.Workspace{Dir: dir, UID: uid, GIDs: groupsOf(uid, gid), Protect: protectedIn(p)}, nil
}

// groupsOf is the directory's group and the owner's primary one, if the owner has an
// entry of its own.
func groupsOf(uid, gid uint32) []uint32 {
	gids := []uint32{gid}
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		if own, err := strconv.ParseUint(u.Gid, 10, 32); err == nil && uint32(own) != gid {
			gids = append(gids, uint32(own))
		}
	}
	return gids
}

// probeWorkspace makes an empty directory that belongs to the leased uid itself. Only
// posternd enters work, so nobody can put something else in its place.
func (s *Supervisor) probeWorkspace(uid uint32) (room, error) {
	name := fmt.Sprintf("probe-%d", uid)
	work := int(s.work.Fd())
	if err := unix.Mkdirat(work, name, 0o700); err != nil {
		return room{}, os.NewSyscallError("mkdirat", err)
	}
	at := room{release: func() {
		if err := s.tasks.discard(name); err != nil {
			s.cfg.Log.Error("a scratch directory stays", keyError, err)
		}
	}}
	if err := unix.Fchownat(work, name, int(uid), int(uid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return at, os.NewSyscallError("fchownat", err)
	}
	dir, err := openAt(work, name, unix.O_DIRECTORY)
	at.dir = &jail.Workspace{Dir: dir, UID: uid, GIDs: []uint32{uid}}
	return at, err
}

// taskWorkspace opens a task's own directory. The project's directory decides who the
// owner is, and nothing of it is mounted.
func (s *Supervisor) taskWorkspace(f Facts, p Project, task ids.Task) (room, error) {
	w, err := s.projectWorkspace(f, p)
	if err != nil {
		return room{}, err
	}
	w.Dir.Close()
	t, err := s.tasks.take(task, p.ID, w.UID, w.GIDs[len(w.GIDs)-1])
	if err != nil {
		return room{}, err
	}
	return room{dir: t, task: task, release: func() {
		if err := s.tasks.giveBack(task); err != nil {
			s.cfg.Log.Error("the directory of an ended task stays", keyError, err)
		}
	}}, nil
}
