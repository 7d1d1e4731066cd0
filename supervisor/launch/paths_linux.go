package launch

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// Bounds of the questions about paths. A file system that does not answer costs at most
// maxResolves goroutines of its own project.
const (
	resolveWait = time.Second // for one answer
	maxResolves = 8           // of one project at a time; more wait
)

// orderResolve answers where the path arguments of a call lie. Nothing is opened for
// reading, nothing is followed out, and no name that is found leaves posternd.
func (s *Supervisor) orderResolve(l *life, m order.Resolve) {
	end := time.NewTimer(resolveWait)
	defer end.Stop()
	busy := order.Resolved{Seq: m.Seq, Code: refusal.Busy, Text: "the project's file system does not answer"}
	leave, ok := s.resolves.enter(m.Project, end.C)
	if !ok {
		l.a.send(busy)
		return
	}
	found := make(chan order.Resolved, 1)
	go func() {
		defer leave()
		found <- s.resolve(m)
	}()
	select {
	case r := <-found:
		l.a.send(r)
	case <-end.C:
		l.a.send(busy)
	}
}

func (s *Supervisor) resolve(m order.Resolve) order.Resolved {
	out := order.Resolved{Seq: m.Seq}
	dir, at, err := s.directoryOf(m.Project, m.Task, m.Moved, m.OfHost)
	if err != nil {
		r := refusedAs(err, refusal.Busy)
		out.Code, out.Text = r.Code, cut(r.Detail)
		return out
	}
	root := -1 // nothing is there yet, so every name would be a new one
	if dir != nil {
		defer dir.Close()
		root = int(dir.Fd())
	}
	for i, path := range m.Paths {
		if why := lies(root, at, path); why != "" {
			out.Which, out.Text = i, why
			return out
		}
	}
	out.Inside = true
	return out
}

// directoryOf opens the directory that paths must lie in: the project's, which must be
// the registered one, or a task's own, which is not there before its first server and
// is nowhere on the host that anybody but root could name. It tells where the asker
// sees it. moved says which directory of the project the asker means: after a move it is
// another one, and what was asked about the former says nothing about it.
func (s *Supervisor) directoryOf(project ids.Project, task ids.Task, moved int64, ofHost bool) (dir *os.File, at string, err error) {
	f, _ := s.now()
	p, err := f.liveProject(project)
	if err != nil {
		return nil, "", err
	}
	if p.Moved != moved {
		return nil, "", movedMeanwhile(p.ID)
	}
	at = seenAt(p, ofHost)
	if task != "" {
		if ofHost {
			return nil, "", api.Refuse(refusal.BadRequest, "A task's own directory has no path on the host.")
		}
		dir, err = s.tasks.look(task, p.ID)
		return dir, at, err
	}
	dir, _, refused := openWorkspace(p.Workspace, false)
	if refused != nil {
		return nil, "", refused
	}
	if refused := checkIdentity(dir, p); refused != nil {
		dir.Close()
		return nil, "", refused
	}
	return dir, at, nil
}

// lies says why a path argument does not lie beneath the directory, "" where it does.
// What does not exist lies where its directory is. A path that leads upwards is read
// both ways, by its text and by its directories, and must lie beneath either way. at is
// the directory's path where the asker is.
func lies(root int, at, path string) string {
	parts, ok := spelled(at, path)
	if !ok {
		return "it is not a path beneath the directory"
	}
	if !upwards(parts) && plain(root, parts) {
		return ""
	}
	if upwards(parts) {
		text, ok := textual(parts)
		if !ok {
			return "it leads out of the directory"
		}
		if why := walk(root, at, text); why != "" {
			return why
		}
	}
	return walk(root, at, parts)
}

// plain tells whether the path is there without any link or mount in it, which is what
// most are and one lookup tells.
func plain(root int, parts []string) bool {
	name := strings.Trim(strings.Join(parts, "/"), "/")
	if root == missing || name == "" {
		return false
	}
	fd, err := openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// missing stands for a directory that does not exist.
const missing = -1

// walk looks up one component after the other, each beneath the descriptor of the last
// and following no link by itself: the target of a link is read and walked like the
// rest, with the asker's root for the root of an absolute one.
func walk(root int, at string, parts []string) string {
	open := []int{root}
	defer func() {
		for _, fd := range open[1:] {
			closeFD(fd)
		}
	}()
	up := func() bool {
		if len(open) == 1 {
			return false
		}
		closeFD(open[len(open)-1])
		open = open[:len(open)-1]
		return true
	}
	links := 0
	for looked := 0; len(parts) > 0; looked++ {
		name := parts[0]
		parts = parts[1:]
		if looked == maxPathParts || len(open) > maxPathDepth {
			return "it is too long or too deep"
		}
		switch name {
		case "", ".":
			continue
		case "..":
			if !up() {
				return "it leads out of the directory"
			}
			continue
		}
		fd, target, err := step(open[len(open)-1], name)
		switch {
		case err != nil:
			return "it leads out of the directory, or cannot be looked up"
		case target == "":
			open = append(open, fd)
			continue
		}
		if links++; links > maxPathLinks {
			return "it has too many links"
		}
		to := strings.Split(target, "/")
		if target[0] == '/' {
			var ok bool
			if to, ok = spelled(at, target); !ok {
				return "a link leads out of the directory"
			}
			for up() {
			}
		}
		parts = append(to, parts...)
	}
	return ""
}

// step looks one name up. It returns a descriptor, missing where there is no such name,
// or the target of a link.
func step(dir int, name string) (fd int, target string, err error) {
	if dir == missing {
		return missing, "", nil
	}
	// O_PATH: nothing is opened, so no device, pipe or file system is touched. A mount
	// in the directory is not entered: the jail does not have it.
	fd, err = openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return missing, "", nil
	}
	if err != nil {
		return missing, "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return missing, "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return fd, "", nil
	}
	defer unix.Close(fd)
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return missing, "", err
	}
	if n == 0 || n > maxPath {
		return missing, "", unix.ENAMETOOLONG
	}
	return missing, string(buf[:n]), nil
}

func closeFD(fd int) {
	if fd != missing {
		unix.Close(fd)
	}
}
