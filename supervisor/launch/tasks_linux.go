package launch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
)

// Bounds of task directories: all that an authority can make by naming tasks that are
// none.
const (
	maxTaskDirs     = 8192
	maxTaskDirsEach = 1024 // of one project
)

// What is not whole yet and what is being removed have names that are no task's. What is
// left of either is removed after the next start.
const (
	makingPrefix  = "making-"
	removedPrefix = "removed-"
)

// taskDirs knows the directories of tasks of servers that are started once for each
// task. Only posternd enters the directory above them, so nobody can put anything else
// in their places. Which project a task's directory is of is written on it, where only
// root can write: an order that names a task beside another project is refused, also
// after a restart.
type taskDirs struct {
	work      *os.File
	discarded chan struct{} // told of each name that was taken away

	mu   sync.Mutex
	all  map[ids.Task]*taskDir
	each map[ids.Project]int
}

type taskDir struct {
	project ids.Project
	users   int  // launches and jails that need it
	gone    bool // removed when the last of them ends
}

// openTaskDirs looks through work: directories of live projects stay for the
// authority to ask for, and everything else that is there is an earlier run's. It is put
// aside alone: posternd starts however much there is, and however it was made.
func openTaskDirs(work *os.File, f Facts) (*taskDirs, error) {
	t := &taskDirs{work: work, discarded: make(chan struct{}, 1), all: map[ids.Task]*taskDir{}, each: map[ids.Project]int{}}
	names, err := namesOf(int(work.Fd()), 1<<20)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		task, err := ids.Parse[ids.Task](name)
		if err == nil {
			if p, err := t.projectOf(name); err == nil {
				if _, err := f.liveProject(p); err == nil && len(t.all) < maxTaskDirs {
					t.all[task] = &taskDir{project: p}
					t.each[p]++
					continue
				}
			}
		}
		if !strings.HasPrefix(name, removedPrefix) {
			errs = append(errs, t.discard(name))
		}
	}
	return t, errors.Join(errs...)
}

// projectOf reads which project a directory is of. One that was not finished has no mark.
func (t *taskDirs) projectOf(name string) (ids.Project, error) {
	dir, err := openAt(int(t.work.Fd()), name, unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	return markOf(dir)
}

func markOf(dir *os.File) (ids.Project, error) {
	var buf [ids.Len]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), markName, buf[:])
	if err != nil {
		return "", os.NewSyscallError("fgetxattr", err)
	}
	return ids.Parse[ids.Project](string(buf[:n]))
}

// take counts one more user of a task's directory, making it where there is none. It
// belongs to uid and gid, the owner's of the project. Whoever took it gives it back.
func (t *taskDirs) take(task ids.Task, p ids.Project, uid, gid uint32) (*jail.Workspace, error) {
	if _, err := ids.Parse[ids.Task](string(task)); err != nil {
		return nil, api.Refuse(refusal.TaskUnknown, "A server of scope task needs a task: %v.", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.all[task]
	switch {
	case d == nil && len(t.all) >= maxTaskDirs:
		return nil, api.Refuse(refusal.Busy, "%d tasks have a directory.", len(t.all))
	case d == nil && t.each[p] >= maxTaskDirsEach:
		return nil, api.Refuse(refusal.Busy, "%d tasks of the project have a directory.", t.each[p])
	case d != nil && d.project != p:
		return nil, api.Refuse(refusal.TaskUnknown, "%s is a task of another project.", task)
	case d != nil && d.gone:
		return nil, api.Refuse(refusal.TaskEnded, "%s.", task)
	}
	dir, err := t.open(task, p, uid, gid, d == nil)
	if err != nil {
		return nil, err
	}
	if d == nil {
		d = &taskDir{project: p}
		t.all[task] = d
		t.each[p]++
	}
	d.users++
	return &jail.Workspace{Dir: dir, UID: uid, GIDs: []uint32{gid}}, nil
}

func (t *taskDirs) open(task ids.Task, p ids.Project, uid, gid uint32, fresh bool) (*os.File, error) {
	if fresh {
		if err := t.make(string(task), p, uid, gid); err != nil {
			return nil, err
		}
	}
	dir, err := openAt(int(t.work.Fd()), string(task), unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(dir.Fd()), &st); err == nil && st.Uid != uid {
		err = api.Refuse(refusal.WorkspaceRefused, "The directory of %s belongs to uid %d, and the project's to uid %d now.", task, st.Uid, uid)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// make makes the directory under another name, and gives it its own when it is whole.
func (t *taskDirs) make(name string, p ids.Project, uid, gid uint32) error {
	work, unfinished := int(t.work.Fd()), makingPrefix+name
	if err := t.discard(unfinished); err != nil {
		return err
	}
	if err := unix.Mkdirat(work, unfinished, 0o700); err != nil {
		return os.NewSyscallError("mkdirat", err)
	}
	dir, err := openAt(work, unfinished, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Fsetxattr(int(dir.Fd()), markName, []byte(p), 0); err != nil {
		return fmt.Errorf("mark the directory of a task: %w", os.NewSyscallError("fsetxattr", err))
	}
	if err := unix.Fchown(int(dir.Fd()), int(uid), int(gid)); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	return os.NewSyscallError("renameat2", unix.Renameat2(work, unfinished, work, name, unix.RENAME_NOREPLACE))
}

// look opens a task's directory, nil where it has none yet.
func (t *taskDirs) look(task ids.Task, p ids.Project) (*os.File, error) {
	if _, err := ids.Parse[ids.Task](string(task)); err != nil {
		return nil, api.Refuse(refusal.TaskUnknown, "%v.", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.all[task]
	if d == nil {
		return nil, nil
	}
	if d.project != p {
		return nil, api.Refuse(refusal.TaskUnknown, "%s is a task of another project.", task)
	}
	return openAt(int(t.work.Fd()), string(task), unix.O_DIRECTORY)
}

// giveBack ends one use. The last one of a task that is gone removes its directory.
func (t *taskDirs) giveBack(task ids.Task) error {
	return t.change(task, func(d *taskDir) { d.users-- })
}

// gone marks a task's directory for removal, and removes it where nothing needs it.
func (t *taskDirs) gone(task ids.Task) error {
	return t.change(task, func(d *taskDir) { d.gone = true })
}

func (t *taskDirs) change(task ids.Task, how func(*taskDir)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.all[task]
	if d == nil {
		return nil
	}
	if how(d); !d.gone || d.users > 0 {
		return nil
	}
	if err := t.discard(string(task)); err != nil {
		return err
	}
	delete(t.all, task)
	if t.each[d.project]--; t.each[d.project] == 0 {
		delete(t.each, d.project)
	}
	return nil
}

// names lists the tasks that have a directory.
func (t *taskDirs) names() []ids.Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.all))
}
