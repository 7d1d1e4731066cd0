package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// maze is a workspace with what leads out of one, and its harmless twins.
func maze(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"sub/deep", "workspace"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"file", "sub/file", "~name", "file with space"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"abs": "/etc/passwd", "rel": "../outside", "up": "..", "dangling": "/nowhere", "dir": "/etc", "proc": "/proc/self/root", "sub/out": "../../outside",
		"chain": "abs", "within": "file", "sub/back": "../file", "mounted": "/workspace/sub/file", "deep": "sub/deep", "missing": "not/there", "loop": "loop", "dot": ".",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestC13_WhereAPathLies(t *testing.T) {
	dir := t.TempDir()
	maze(t, dir)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := descriptors(t)
	inside := []string{
		".", "./", "/workspace", "/workspace/", "//workspace//file", "/./workspace/file", "file", "./file", "sub/file", "sub//deep/", "sub/../file", "new", "new/deeper/still",
		"/workspace/new", "within", "sub/back", "mounted", "deep/x", "missing", "missing/more", "dot/file", "pipe", "./~name", "file with space", "workspace/x", "a:b", "file/below",
		"...", "..a", "a..", "new/../file", "*.go", "a\\b", "deep/../deep/x",
	}
	outside := []string{
		"", "..", "../", "../x", "sub/../../x", "/", "/etc/passwd", "/workspace/..", "/workspace/../etc", "/workspace/../workspace/file", "/workspacex", "/../workspace/file", "/WORKSPACE/file",
		"abs", "rel", "up", "up/x", "dangling", "dir/passwd", "proc/etc", "sub/out", "sub/../abs", "chain", "loop", "new/../../x", "missing/../../../x",
		"~", "~/x", "~root/x", "~name", " /etc/passwd", "/etc/passwd ", "\t../x", "\"/etc/passwd\"", "'file'", "`x`", "\u00a0file", "\ufefffile", "file:///etc/passwd", "FILE:/etc", "file:x", "http://host/x",
		"a\x00b", "bad\xff", strings.Repeat("a", 256), strings.Repeat("a/", maxPath), strings.Repeat("a/", maxPathDepth+1) + "x",
	}
	for _, p := range inside {
		if why := lies(int(f.Fd()), spec.WorkspaceDir, p); why != "" {
			t.Errorf("%q: %s", p, why)
		}
	}
	for _, p := range outside {
		if lies(int(f.Fd()), spec.WorkspaceDir, p) == "" {
			t.Errorf("%.40q lies within", p)
		}
	}
	// Where the directory is not made yet every name is a new one.
	for p, within := range map[string]bool{"abs": true, "a/b/../c": true, "/workspace/x": true, "/etc/passwd": false, "..": false, "a/../../b": false, "~": false} {
		if why := lies(missing, spec.WorkspaceDir, p); (why == "") != within {
			t.Errorf("no directory: %q: %q", p, why)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// What is mounted in the directory is not part of what a jail sees there.
func TestC13_AMountInTheDirectoryIsNotEntered(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	at := filepath.Join(dir, "mnt")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if why := lies(int(f.Fd()), spec.WorkspaceDir, "mnt/x"); why != "" {
		t.Fatalf("before: %s", why)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	if lies(int(f.Fd()), spec.WorkspaceDir, "mnt/x") == "" {
		t.Error("a mounted file system was entered")
	}
}

func TestC13_PathsAreLookedUpInTheRegisteredDirectory(t *testing.T) {
	r := start(t, newConfig(t))
	p, ws := r.project("alice", 1000)
	maze(t, ws)
	d := r.drive()
	seq := uint64(100)
	ask := func(m order.Resolve) order.Resolved {
		t.Helper()
		seq++
		m.Seq = seq
		d.give(m)
		got, _ := expect[order.Resolved](d)
		if got.Seq != seq {
			t.Fatalf("%+v", got)
		}
		return got
	}
	task := newID[ids.Task](t0)
	for says, row := range map[string]struct {
		m      order.Resolve
		inside bool
		which  int
		code   refusal.Code
	}{
		"within":                      {order.Resolve{Project: p, Paths: []string{"file", "/workspace/sub/file", "mounted"}}, true, 0, ""},
		"none":                        {order.Resolve{Project: p}, true, 0, ""},
		"the second is outside":       {order.Resolve{Project: p, Paths: []string{"file", "abs", "file"}}, false, 1, ""},
		"the project's own path":      {order.Resolve{Project: p, Paths: []string{ws + "/file"}}, false, 0, ""},
		"the same, from the host":     {order.Resolve{Project: p, Paths: []string{ws + "/file", "/." + ws + "//sub/./file", ws, "file"}, OfHost: true}, true, 0, ""},
		"beside it":                   {order.Resolve{Project: p, Paths: []string{ws + "x/file"}, OfHost: true}, false, 0, ""},
		"above it":                    {order.Resolve{Project: p, Paths: []string{filepath.Dir(ws)}, OfHost: true}, false, 0, ""},
		"up and down again":           {order.Resolve{Project: p, Paths: []string{ws + "/../" + filepath.Base(ws) + "/file"}, OfHost: true}, false, 0, ""},
		"the jail's, from the host":   {order.Resolve{Project: p, Paths: []string{"/workspace/file"}, OfHost: true}, false, 0, ""},
		"a link into the jail's":      {order.Resolve{Project: p, Paths: []string{ws + "/mounted"}, OfHost: true}, false, 0, ""},
		"a task's own, from the host": {order.Resolve{Project: p, Task: task, Paths: []string{"file"}, OfHost: true}, false, 0, refusal.BadRequest},
		"a project that there is not": {order.Resolve{Project: newID[ids.Project](t0), Paths: []string{"file"}}, false, 0, refusal.ProjectUnknown},
		"no project":                  {order.Resolve{Project: "../../etc", Paths: []string{"passwd"}}, false, 0, refusal.ProjectUnknown},
		"a task's own directory":      {order.Resolve{Project: p, Task: task, Paths: []string{"abs", "file"}}, true, 0, ""},
		"outside a task's own":        {order.Resolve{Project: p, Task: task, Paths: []string{"../x"}}, false, 0, ""},
		"no task":                     {order.Resolve{Project: p, Task: "../work", Paths: []string{"x"}}, false, 0, refusal.TaskUnknown},
	} {
		if got := ask(row.m); got.Inside != row.inside || got.Which != row.which || got.Code != row.code {
			t.Errorf("%s: %+v", says, got)
		}
	}
	// One that is looked at many times at once answers every time.
	for range 64 {
		seq++
		d.give(order.Resolve{Seq: seq, Project: p, Paths: []string{"file"}})
	}
	for range 64 {
		if got, _ := expect[order.Resolved](d); !got.Inside {
			t.Errorf("%+v", got)
		}
	}
	// Another directory at the same path is not the project's.
	if err := os.Rename(ws, ws+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(ws, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if got := ask(order.Resolve{Project: p, Paths: []string{"file"}}); got.Code != refusal.ProjectReplaced || got.Inside {
		t.Errorf("a replaced directory: %+v", got)
	}
	if err := os.Remove(ws); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ws+".old", ws); err != nil {
		t.Fatal(err)
	}
	if got := ask(order.Resolve{Project: p, Paths: []string{"file"}}); !got.Inside {
		t.Errorf("the registered one again: %+v", got)
	}
	if m := r.must(api.RootStatus, struct{}{}); m["jails"].(float64) != 0 {
		t.Errorf("something was started: %v", m)
	}
}

func FuzzSpelled(f *testing.F) {
	for _, p := range []string{"a/b", "/workspace/x", "../x", "~", "file:x", " ", "/"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		parts, ok := spelled(spec.WorkspaceDir, p)
		if !ok {
			return
		}
		if strings.HasPrefix(p, "/") && !strings.HasPrefix(filepath.Clean(p), "/workspace") && !upwards(parts) {
			t.Fatalf("%q is beneath the directory: %q", p, parts)
		}
		text, ok := textual(parts)
		if ok && (upwards(text) || fmt.Sprint(text) != fmt.Sprint(strings.FieldsFunc(strings.Join(text, "/"), func(c rune) bool { return c == '/' }))) {
			t.Fatalf("%q becomes %q", p, text)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if why := lies(int(f.Fd()), spec.WorkspaceDir, "/workspace/a/b/c/new"); why != "" {
			b.Fatal(why)
		}
	}
}
