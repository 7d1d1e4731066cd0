package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// Bounds of fetching files that results of tool servers name.
const (
	fetchWait  = 2 * time.Second // for one file
	maxFetches = 2               // of one project at a time; each holds order.MaxFetched bytes
	maxCopies  = 8               // of all projects
	roomKeep   = time.Minute     // for a jail that has ended: its last results are looked at after it
	maxRooms   = 2 * maxJails
)

// Why a file is not fetched. The words stand in records, which members read: they tell
// nothing of the host.
const (
	notPath    = "what names it is not a path beneath the server's directory"
	notKnown   = "its server is not known any more"
	notThere   = "there is no such file"
	notLink    = "there is a symbolic link in its path"
	notBeneath = "its path leads out of the directory, or into what is mounted there"
	notRead    = "its server may not read it"
	notRegular = "it is not a regular file"
	notOne     = "it has more than one name"
	notFree    = "another program has a lease of it"
	notSame    = "it changed while it was copied"
	notDir     = "its directory is not the registered one any more"
	notAnswer  = "its file system does not answer"
	notDone    = "it could not be read; the log of posternd says why, to root"
)

var notLarge = fmt.Sprintf("it has more than %d bytes", order.MaxFetched)

// roomOf says in which directory a tool server works or worked.
type roomOf struct {
	jail    ids.Jail
	life    *life
	project ids.Project
	task    ids.Task // whose alone it is
	moved   int64    // the project's Moved when its launch was ordered
	gone    time.Time
}

// rooms knows the rooms of tool servers that live, or have ended a moment ago.
type rooms struct {
	all    map[ids.Jail]*roomOf
	looked time.Time // when those that ended were looked through
}

// note keeps a room for as long as its jail lives, and a little longer.
func (r *rooms) note(room *roomOf) {
	if full := len(r.all) >= maxRooms; full || time.Since(r.looked) > roomKeep {
		r.looked = time.Now()
		for id, old := range r.all {
			if !old.gone.IsZero() && (full || time.Since(old.gone) > roomKeep) {
				delete(r.all, id)
			}
		}
	}
	r.all[room.jail] = room
}

// orderFetch hands the bytes of one file to the authority. Only what the tool server
// itself could have read is opened, only in the directory that it works in, and nothing
// is opened for its name alone: not a link, a pipe or a device.
func (s *Supervisor) orderFetch(l *life, m order.Fetch) {
	refuse := func(why string) { l.a.send(order.Fetched{Seq: m.Seq, Why: why}) }
	s.mu.Lock()
	room := s.rooms.all[m.Jail]
	s.mu.Unlock()
	if room == nil || room.life != l {
		refuse(notKnown)
		return
	}
	end := time.NewTimer(fetchWait)
	defer end.Stop()
	leave, ok := s.fetches.enter(room.project, end.C)
	if !ok {
		refuse(notAnswer)
		return
	}
	type fetched struct {
		file *os.File
		size int64
		why  string
	}
	found, late := make(chan fetched), make(chan struct{})
	go func() {
		defer leave()
		var f fetched
		select {
		case s.copies <- struct{}{}:
			f.file, f.size, f.why = s.fetch(room, m.Path)
			<-s.copies
		case <-late:
			return
		}
		select {
		case found <- f:
		case <-late:
			if f.file != nil {
				f.file.Close()
			}
		}
	}()
	select {
	case f := <-found:
		if f.why != "" {
			refuse(f.why)
			return
		}
		l.a.send(order.Fetched{Seq: m.Seq, Size: f.size}, f.file)
		f.file.Close()
	case <-end.C:
		close(late)
		refuse(notAnswer)
	}
}

// fetch opens what a path names in a room, and copies it.
func (s *Supervisor) fetch(room *roomOf, named string) (file *os.File, size int64, why string) {
	if !strings.HasPrefix(named, "/") || strings.ContainsFunc(named, unicode.IsControl) {
		return nil, 0, notPath
	}
	parts, ok := spelled(spec.WorkspaceDir, named)
	if !ok || upwards(parts) {
		return nil, 0, notPath
	}
	at := path.Join(parts...)
	if at == "" {
		return nil, 0, notRegular
	}
	dir, _, err := s.directoryOf(room.project, room.task, room.moved, false)
	if err == nil && dir == nil {
		err = unix.ENOENT // the task is gone, and its directory with it
	}
	if err != nil {
		s.cfg.Log.Debug("no file was fetched", keyProject, room.project, keyError, err)
		return nil, 0, notDir
	}
	defer dir.Close()
	uid, gids, err := s.readerOf(room, dir)
	if err != nil {
		s.cfg.Log.Debug("no file was fetched", keyProject, room.project, keyError, err)
		return nil, 0, notDir
	}
	src, why, err := openAs(uid, gids, dir, at)
	if err != nil {
		s.cfg.Log.Error("a file that a result names could not be opened", keyProject, room.project, keyError, err)
		return nil, 0, notDone
	}
	if why != "" {
		return nil, 0, why
	}
	defer src.Close()
	file, size, err = copyWhole(src)
	switch {
	case errors.Is(err, errChanged):
		return nil, 0, notSame
	case err != nil:
		s.cfg.Log.Warn("a file that a result names could not be read", keyProject, room.project, keyError, err)
		return nil, 0, notDone
	}
	return file, size, ""
}

// readerOf is as whom the room's tool server reads files: the user and the groups that
// are mapped into its jail.
func (s *Supervisor) readerOf(room *roomOf, dir *os.File) (uid uint32, gids []uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return 0, nil, os.NewSyscallError("fstat", err)
	}
	if room.task != "" { // posternd made it
		if st.Uid == 0 {
			return 0, nil, errors.New("the directory of a task belongs to root")
		}
		return st.Uid, []uint32{st.Gid}, nil
	}
	f, _ := s.now()
	p, err := f.liveProject(room.project)
	if err != nil {
		return 0, nil, err
	}
	owner, ok := f.accountByID(p.Owner)
	if !ok {
		return 0, nil, api.Refuse(refusal.AccountDeleted, "%s.", p.Owner)
	}
	uid, gid, refused := checkOwner(dir, p.Workspace, owner.UIDs)
	if refused != nil {
		return 0, nil, refused
	}
	return uid, groupsOf(uid, gid), nil
}

// openAs opens a regular file of one name beneath a directory, as another user. The
// kernel looks at every directory on the way and at the file with that user's rights and
// no capability of root's.
func openAs(uid uint32, gids []uint32, dir *os.File, at string) (f *os.File, why string, err error) {
	err = asUser(uid, gids, func() { f, why = openRegular(int(dir.Fd()), at) })
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, why, err
}

func ints(gids []uint32) []int {
	all := make([]int, len(gids))
	for i, g := range gids {
		all[i] = int(g)
	}
	return all
}

// readAs makes this thread look up and open files as a user, with groups of which the
// first is its own, and tells whether it does.
func readAs(uid int, gids []int) error {
	if err := unix.Setgroups(gids); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	// Neither of these two tells of a failure; each tells what was before.
	for _, id := range []struct {
		set  func(int) (int, error)
		want int
	}{{unix.SetfsgidRetGid, gids[0]}, {unix.SetfsuidRetUid, uid}} {
		id.set(id.want)
		if now, _ := id.set(-1); now != id.want {
			return fmt.Errorf("setfsuid or setfsgid: it is %d, not %d", now, id.want)
		}
	}
	return nil
}

func openRegular(dir int, at string) (*os.File, string) {
	// Only looked up: to open a pipe or a device already does something.
	fd, err := openat2(dir, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return nil, whyNotOpened(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, notDone
	}
	if why := unfit(&st); why != "" {
		return nil, why
	}
	if !stillNamed(fd, path.Base(at)) {
		return nil, notThere
	}
	// The very file that was looked at, whatever its name means by now. A lease that
	// somebody has of it is not waited for.
	got, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, whyNotOpened(err)
	}
	return os.NewFile(uintptr(got), at), ""
}

// stillNamed tells whether the name by which a file was opened is there. It is looked at
// after the count of the file's names: of a file with two, the one that was looked up may
// have been taken away in between, and the one name that was counted is another, which is
// perhaps not in the directory. The kernel shows such a name with a word behind it
// (proc_pid_fd(5)).
func stillNamed(fd int, base string) bool {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && path.Base(name) == base
}

func whyNotOpened(err error) string {
	for _, row := range []struct {
		why  string
		errs []error
	}{
		{notThere, []error{unix.ENOENT, unix.ENOTDIR}},
		{notLink, []error{unix.ELOOP}},
		{notBeneath, []error{unix.EXDEV}},
		{notRead, []error{unix.EACCES, unix.EPERM}},
		{notFree, []error{unix.EWOULDBLOCK}},
		{notPath, []error{unix.ENAMETOOLONG}},
	} {
		if slices.ContainsFunc(row.errs, func(e error) bool { return errors.Is(err, e) }) {
			return row.why
		}
	}
	return notDone
}

// unfit says why a file is none that is fetched, "" where it is one.
func unfit(st *unix.Stat_t) string {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular
	case st.Nlink == 0:
		return notThere
	case st.Nlink > 1:
		return notOne
	case st.Size > order.MaxFetched:
		return notLarge
	}
	return ""
}

var errChanged = errors.New("it changed")

// copyWhole copies a file into a sealed one of memory. It must be the same afterwards as
// before, as far as its times and its size tell.
func copyWhole(src *os.File) (*os.File, int64, error) {
	var before, after unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &before); err != nil {
		return nil, 0, os.NewSyscallError("fstat", err)
	}
	if before.Size > order.MaxFetched { // since it was looked at
		return nil, 0, errChanged
	}
	raw := make([]byte, before.Size+1)
	n, err := io.ReadFull(src, raw)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, 0, err
	}
	if err := unix.Fstat(int(src.Fd()), &after); err != nil {
		return nil, 0, os.NewSyscallError("fstat", err)
	}
	if int64(n) != before.Size || before.Size != after.Size || before.Mtim != after.Mtim || before.Ctim != after.Ctim || unfit(&after) != "" {
		return nil, 0, errChanged
	}
	mem, err := sealed("postern-file", raw[:n])
	return mem, int64(n), err
}
