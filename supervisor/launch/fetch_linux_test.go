package launch

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/supervisor/order"
)

const fetchedText = "\x89PNG\r\n\x1a\nbytes"

// lay makes a file of the owner's.
func lay(t *testing.T, path string, raw string, uid int, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func layDir(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// fetch asks for a file as the authority, and returns its bytes or why there are none.
func (d *driver) fetch(jail ids.Jail, path string) (raw, why string) {
	d.t.Helper()
	d.give(order.Fetch{Seq: 77, Jail: jail, Path: path})
	m, files := expect[order.Fetched](d)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if m.Seq != 77 || (m.Why == "") != (len(files) == 1) {
		d.t.Fatalf("%s: %+v with %d files", path, m, len(files))
	}
	if m.Why != "" {
		return "", m.Why
	}
	if _, err := files[0].Write([]byte("x")); err == nil {
		d.t.Errorf("%s: what is handed over can be written", path)
	}
	got, err := io.ReadAll(io.NewSectionReader(files[0], 0, order.MaxFetched+1))
	if err != nil || int64(len(got)) != m.Size {
		d.t.Fatalf("%s: %d bytes of %d, %v", path, len(got), m.Size, err)
	}
	return string(got), ""
}

// A file that a result names is fetched where its own server could have read it, and
// nothing else is opened.
func TestE4_AFileThatAResultNamesIsFetchedAsItsServerCouldReadIt(t *testing.T) {
	r := start(t, newConfig(t))
	const owner, other = 1000, 1001
	p, ws := r.project("alice", owner)
	q, theirs := r.project("bob", other)
	server, rev := r.server("pictures")
	d := r.drive()
	launch := func(p ids.Project) ids.Jail {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
		l, files := d.launched()
		t.Cleanup(func() {
			for _, f := range files {
				f.Close()
			}
		})
		return l.Jail
	}
	jail, foreign := launch(p), launch(q)

	in := func(name string) string { return filepath.Join(ws, name) }
	lay(t, in("a.png"), fetchedText, owner, 0o600)
	lay(t, in("a b ä.txt"), "spaced", owner, 0o644)
	lay(t, in("empty"), "", owner, 0o644)
	layDir(t, in("sub"), owner, 0o700)
	lay(t, in("sub/b"), "deep", owner, 0o400)
	lay(t, in("everyones"), "everyone's", other, 0o644)
	lay(t, in("group"), "the group's", other, 0o640)
	if err := os.Chown(in("group"), other, owner); err != nil {
		t.Fatal(err)
	}
	lay(t, in("most"), strings.Repeat("m", order.MaxFetched), owner, 0o600)
	lay(t, in("more"), strings.Repeat("m", order.MaxFetched+1), owner, 0o600)
	lay(t, in("huge"), "", owner, 0o600)
	if err := os.Truncate(in("huge"), 1<<40); err != nil {
		t.Fatal(err)
	}
	// What the server's own user may not read, though root could.
	lay(t, in("roots"), "root's", 0, 0o600)
	lay(t, in("others"), "another's", other, 0o600)
	lay(t, in("shut"), "no mode", owner, 0)
	layDir(t, in("closed"), 0, 0o700)
	lay(t, in("closed/file"), "beneath root's", owner, 0o644)
	// What leads elsewhere, or is no file.
	lay(t, filepath.Join(r.dir, "outside"), "outside", owner, 0o644)
	lay(t, filepath.Join(theirs, "secret"), "of another project", other, 0o644)
	lay(t, in("twice"), "two names", owner, 0o644)
	for _, err := range []error{os.Symlink("a.png", in("link")), os.Symlink("/etc/passwd", in("passwd")), os.Symlink("../outside", in("out")), os.Symlink("sub", in("dirlink")), os.Symlink(theirs, in("bob")),
		os.Symlink("/proc/self/fd/0", in("magic")), os.Link(in("twice"), in("twice-again")), unix.Mkfifo(in("pipe"), 0o644), unix.Mknod(in("null"), unix.S_IFCHR|0o666, 1<<8|3),
		unix.Mknod(in("disk"), unix.S_IFBLK|0o666, 7<<8)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: in("socket")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	layDir(t, in("mnt"), owner, 0o755)
	if err := unix.Mount("tmpfs", in("mnt"), "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(in("mnt"), unix.MNT_DETACH)
	lay(t, in("mnt/file"), "mounted", owner, 0o644)

	before := descriptors(t)
	for path, want := range map[string]string{
		"/workspace/a.png": fetchedText, "/workspace/a b ä.txt": "spaced", "/workspace/empty": "", "/workspace/sub/b": "deep", "//workspace//./sub//b": "deep",
		"/workspace/everyones": "everyone's", "/workspace/group": "the group's", "/workspace/most": strings.Repeat("m", order.MaxFetched),
	} {
		if got, why := d.fetch(jail, path); why != "" || got != want {
			t.Errorf("%s: %d bytes of %d, %q", path, len(got), len(want), why)
		}
	}
	for path, want := range map[string]string{
		"/workspace/more": notLarge, "/workspace/huge": notLarge,
		"/workspace/roots": notRead, "/workspace/others": notRead, "/workspace/shut": notRead, "/workspace/closed/file": notRead,
		"/workspace/link": notLink, "/workspace/passwd": notLink, "/workspace/out": notLink, "/workspace/dirlink/b": notLink, "/workspace/bob/secret": notLink, "/workspace/magic": notLink,
		"/workspace/twice": notOne, "/workspace/pipe": notRegular, "/workspace/null": notRegular, "/workspace/disk": notRegular, "/workspace/socket": notRegular,
		"/workspace": notRegular, "/workspace/": notRegular, "/workspace/.": notRegular, "/workspace/sub": notRegular, "/workspace/sub/": notRegular,
		"/workspace/mnt/file": notBeneath, "/workspace/none": notThere, "/workspace/a.png/x": notThere, "/workspace/" + strings.Repeat("n", 256): notPath,
		"": notPath, "a.png": notPath, "/a.png": notPath, "/workspacex/a.png": notPath, "/workspace/../workspace/a.png": notPath, "/workspace/sub/../a.png": notPath, "/workspace/..": notPath, "/etc/passwd": notPath,
		ws + "/a.png": notPath, "/proc/self/fd/0": notPath, "/workspace/a\x00b": notPath, "/workspace/a\nb": notPath, "/workspace/a\x7f": notPath, "/workspace/a\u0085": notPath, "/tmp/a.png": notPath, "file:///workspace/a.png": notPath,
	} {
		if got, why := d.fetch(jail, path); why != want {
			t.Errorf("%q: %d bytes, %q, want %q", path, len(got), why, want)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}

	// Each jail has its own directory; what is no tool server's jail has none.
	if got, why := d.fetch(foreign, "/workspace/a.png"); why != notThere {
		t.Errorf("through another project's jail: %d bytes, %q", len(got), why)
	}
	if got, why := d.fetch(foreign, "/workspace/secret"); why != "" || got != "of another project" {
		t.Errorf("its own: %q, %q", got, why)
	}
	d.give(order.LaunchBridge{Seq: 2, Project: p, Set: 1})
	bridge, _ := d.launched()
	for says, j := range map[string]ids.Jail{"a bridge": bridge.Jail, "no jail": newID[ids.Jail](time.Now()), "a path": "../../etc"} {
		if got, why := d.fetch(j, "/workspace/a.png"); why != notKnown {
			t.Errorf("%s: %d bytes, %q", says, len(got), why)
		}
	}

	// A lease is not waited for: its holder could keep posternd for as long as it likes.
	lay(t, in("leased"), "leased", owner, 0o600)
	leased, err := os.OpenFile(in("leased"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if got, why := d.fetch(jail, "/workspace/leased"); why != notFree {
		t.Errorf("a leased file: %d bytes, %q", len(got), why)
	}
	leased.Close()
	if got, why := d.fetch(jail, "/workspace/leased"); why != "" || got != "leased" {
		t.Errorf("without its lease: %q, %q", got, why)
	}

	// Another directory at the same path is not the one that the jail has.
	if err := errors.Join(os.Rename(ws, ws+".old"), os.Mkdir(ws, 0o755), os.Chown(ws, owner, owner)); err != nil {
		t.Fatal(err)
	}
	lay(t, in("a.png"), "another", owner, 0o644)
	if got, why := d.fetch(jail, "/workspace/a.png"); why != notDir {
		t.Errorf("a directory in its place: %q, %q", got, why)
	}
	if err := errors.Join(os.RemoveAll(ws), os.Rename(ws+".old", ws)); err != nil {
		t.Fatal(err)
	}
	// A jail that has ended a moment ago had results; that of an authority before had none of this one's.
	d.give(order.Stop{Jail: jail})
	expect[order.Exited](d)
	if got, why := d.fetch(jail, "/workspace/a.png"); why != "" || got != fetchedText {
		t.Errorf("after its end: %q, %q", got, why)
	}
	d.say("!exit")
	waitFor(t, "another authority", func() bool { return strings.Count(r.log.String(), "authority ready") == 2 })
	d = r.drive()
	if got, why := d.fetch(jail, "/workspace/a.png"); why != notKnown {
		t.Errorf("of an authority before: %d bytes, %q", len(got), why)
	}
	if strings.Contains(r.log.String(), "outside") {
		t.Error("a name is in the log")
	}
}

// A file of a task's own directory is that task's.
func TestE4_AFileOfATasksOwnDirectoryIsFetched(t *testing.T) {
	cfg := newConfig(t)
	r := start(t, cfg)
	p, ws := r.project("alice", 1000)
	server, rev := r.perTask("notes", "/workspace/made")
	one, two := taskID(1), taskID(2)
	d := r.drive()
	launch := func(task ids.Task) ids.Jail {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev, Task: task})
		l, files := d.launched()
		if s := hear(t, files[1]); s.Wrote != "" {
			t.Fatalf("%+v", s)
		}
		return l.Jail
	}
	first, second := launch(one), launch(two)
	lay(t, filepath.Join(cfg.RootDir, workDir, string(one), "mine"), "first", 1000, 0o600)
	lay(t, filepath.Join(ws, "shared"), "the project's", 1000, 0o644)
	if got, why := d.fetch(first, "/workspace/made"); why != "" || got != "x" {
		t.Errorf("%q, %q", got, why)
	}
	if got, why := d.fetch(first, "/workspace/mine"); why != "" || got != "first" {
		t.Errorf("%q, %q", got, why)
	}
	for j, path := range map[ids.Jail]string{second: "/workspace/mine", first: "/workspace/shared"} {
		if got, why := d.fetch(j, path); why != notThere {
			t.Errorf("%s: %q, %q", path, got, why)
		}
	}
	d.give(order.TaskGone{Task: one})
	waitFor(t, "the end of the directory", func() bool { return gone(filepath.Join(cfg.RootDir, workDir, string(one))) })
	if got, why := d.fetch(first, "/workspace/mine"); why != notDir {
		t.Errorf("of a task that is over: %q, %q", got, why)
	}
}

// Of a file with two names one may be taken away after it was looked up: the name that is
// left is not the one that was asked for.
func TestE4_ANameThatIsGoneIsNotTheFileThatIsLeft(t *testing.T) {
	dir := t.TempDir()
	for name, row := range map[string]struct {
		away, named bool
	}{
		"it is there":                       {false, true},
		"it is gone":                        {true, false},
		"the kernel's word (deleted)":       {false, true},
		"the kernel's word, gone (deleted)": {true, false},
	} {
		at := filepath.Join(dir, name)
		lay(t, at, "x", os.Getuid(), 0o644)
		if err := os.Link(at, at+" kept"); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if row.away {
			err = os.Remove(at)
		} else {
			err = os.Remove(at + " kept")
		}
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 1 {
			t.Fatalf("%s: %v, %d names", name, err, st.Nlink)
		}
		if got := stillNamed(fd, name); got != row.named {
			t.Errorf("%s: %v", name, got)
		}
		unix.Close(fd)
	}
}

// What changes under the copy is bounded all the same, and what is exchanged between two
// looks is never anything else than a file of the directory.
func TestE4_WhatChangesWhileItIsLookedAtIsNeverAnythingElse(t *testing.T) {
	r := start(t, newConfig(t))
	p, ws := r.project("alice", 1000)
	server, rev := r.server("pictures")
	d := r.drive()
	d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
	l, _ := d.launched()
	const size = 4 << 20
	a, b := strings.Repeat("a", size), strings.Repeat("b", size)
	at := filepath.Join(ws, "file")
	lay(t, at, a, 1000, 0o644)
	lay(t, filepath.Join(r.dir, "outside"), "outside", 1000, 0o644)
	lay(t, filepath.Join(ws, "kept"), "kept", 1000, 0o644)

	for says, churn := range map[string]func(n int) error{
		"whole contents": func(n int) error { return os.WriteFile(at, []byte([]string{a, b}[n%2]), 0o644) },
		"growing": func(n int) error {
			f, err := os.OpenFile(at, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("a")
			return errors.Join(err, f.Close())
		},
		"truncated": func(n int) error { return os.Truncate(at, int64(size/(1+n%3))) },
		"exchanged": func(n int) error {
			os.Remove(at + ".new")
			var err error
			switch n % 4 {
			case 0:
				err = os.Symlink("../outside", at+".new")
			case 1:
				err = unix.Mkfifo(at+".new", 0o644)
			case 2:
				err = os.Link(filepath.Join(ws, "kept"), at+".new")
			case 3:
				err = os.WriteFile(at+".new", []byte(a[:size>>(n%16)]), 0o644)
			}
			return errors.Join(err, os.Rename(at+".new", at))
		},
	} {
		os.Remove(at)
		lay(t, at, a, 1000, 0o644)
		stop, done := make(chan struct{}), make(chan error, 1)
		var rounds atomic.Int64
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if err := churn(n); err != nil {
					done <- fmt.Errorf("round %d: %w", n, err)
					return
				}
				rounds.Add(1)
			}
		}()
		whys := map[string]int{}
		for n := 0; n < 30 || rounds.Load() < 60 && len(done) == 0; n++ {
			got, why := d.fetch(l.Jail, "/workspace/file")
			whys[why]++
			if strings.Trim(got, "ab\x00") != "" || len(got) > order.MaxFetched {
				t.Errorf("%s: %d bytes that begin with %.20q", says, len(got), got)
			}
		}
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", says, err)
		}
		t.Logf("%s: %d rounds, %v", says, rounds.Load(), whys)
	}
	os.Remove(at)
	lay(t, at, b, 1000, 0o644)
	if got, why := d.fetch(l.Jail, "/workspace/file"); why != "" || got != b {
		t.Errorf("at rest: %d bytes, %q", len(got), why)
	}
}

// A room outlives its jail by a while, and only so many do.
func TestE4_RoomsOfJailsThatEndedAreBounded(t *testing.T) {
	r := rooms{all: map[ids.Jail]*roomOf{}}
	name := func(n int) ids.Jail { return ids.Jail(fmt.Sprint(n)) }
	for n := range maxRooms {
		r.note(&roomOf{jail: name(n)})
		if n%2 == 0 {
			r.all[name(n)].gone = time.Now()
		}
	}
	if len(r.all) != maxRooms {
		t.Errorf("%d rooms", len(r.all))
	}
	r.note(&roomOf{jail: "one more"})
	if len(r.all) != maxRooms/2+1 || r.all["0"] != nil || r.all["1"] == nil || r.all["one more"] == nil {
		t.Errorf("%d rooms", len(r.all))
	}
	r.all["1"].gone, r.all["3"].gone = time.Now().Add(-roomKeep-time.Second), time.Now()
	r.looked = r.all["1"].gone
	r.note(&roomOf{jail: "another"})
	if r.all["1"] != nil || r.all["3"] == nil || r.all["5"] == nil {
		t.Error("a room is kept for ever, or too short")
	}
}

// Whoever reads as another user does so on a thread of its own: posternd goes on as root.
func TestE4_ReadingAsAnotherUserLeavesPosterndItself(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	lay(t, filepath.Join(dir, "roots"), "x", 0, 0o600)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 100 {
		if got, why, err := openAs(1000, []uint32{1000, 1001}, f, "roots"); why != notRead || err != nil {
			t.Fatalf("%v, %q, %v", got, why, err)
		}
		if _, err := os.ReadFile(filepath.Join(dir, "roots")); err != nil {
			t.Fatalf("root reads: %v", err)
		}
	}
	got, why, err := openAs(0, []uint32{0}, f, "roots")
	if why != "" || err != nil {
		t.Fatal(why, err)
	}
	got.Close()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks { // the main thread too, by which the kernel shows the process to others
		raw, _ := os.ReadFile(filepath.Join("/proc/self/task", task.Name(), "status"))
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "Uid:") && line != "Uid:\t0\t0\t0\t0\n" || strings.HasPrefix(line, "Gid:") && line != "Gid:\t0\t0\t0\t0\n" || strings.HasPrefix(line, "Groups:") && strings.Contains(line, "100") {
				t.Errorf("a thread stays another user's: %s", line)
			}
		}
	}
}
