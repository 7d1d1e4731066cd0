package launch

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// registered opens path as project add does and returns it as a project.
func registered(t *testing.T, path string) Project {
	t.Helper()
	f, resolved, refused := openWorkspace(path, true)
	if refused != nil {
		t.Fatal(refused)
	}
	defer f.Close()
	p := Project{Project: order.Project{ID: newID[ids.Project](t0), Workspace: resolved}}
	var err error
	if p.Directory, _, err = identify(int(f.Fd()), false); err != nil {
		t.Fatal(err)
	}
	if p.Directory.Place, err = place(f, resolved); err != nil {
		t.Fatal(err)
	}
	if p.Directory.Marked, err = mark(f, p.ID); err != nil {
		t.Fatal(err)
	}
	return p
}

// again opens it as a launch does.
func again(p Project) *api.Refusal {
	f, _, refused := openWorkspace(p.Workspace, false)
	if refused != nil {
		return refused
	}
	defer f.Close()
	return checkIdentity(f, p)
}

func TestLaunch4_ADirectoryMadeAgainIsAnother(t *testing.T) {
	needRoot(t)
	path := filepath.Join(newDir(t), "ws")
	same := 0
	for range 20 {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		p := registered(t, path)
		if refused := again(p); refused != nil {
			t.Fatalf("the permitted twin: %v", refused)
		}
		var before, after syscall.Stat_t
		syscall.Stat(path, &before)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if refused := again(p); refused == nil || refused.Code != refusal.ProjectReplaced {
			t.Fatalf("a missing directory: %v", refused)
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		syscall.Stat(path, &after)
		if before.Dev == after.Dev && before.Ino == after.Ino {
			same++
		}
		if refused := again(p); refused == nil || refused.Code != refusal.ProjectReplaced {
			t.Fatalf("a directory made again was accepted: %v", refused)
		}
		// Without the mark the handle and the birth time still tell.
		p.Directory.Marked = false
		if refused := again(p); refused == nil || refused.Code != refusal.ProjectReplaced {
			t.Fatalf("without the mark it was accepted: %v", refused)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("device and inode were the same %d of 20 times", same)
}

func TestLaunch4_ACopyAndARenamedDirectoryAreNotTheProject(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	path := filepath.Join(dir, "ws")
	os.Mkdir(path, 0o755)
	p := registered(t, path)
	// Another directory in its place, with the mark copied.
	if err := os.Rename(path, filepath.Join(dir, "aside")); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(path, 0o755)
	f, _, _ := openWorkspace(path, true)
	mark(f, p.ID)
	f.Close()
	if refused := again(p); refused == nil || refused.Code != refusal.ProjectReplaced {
		t.Fatalf("a copy with the mark: %v", refused)
	}
	// The original put back is the project again.
	os.Remove(path)
	os.Rename(filepath.Join(dir, "aside"), path)
	if refused := again(p); refused != nil {
		t.Fatalf("the original: %v", refused)
	}
	// Reached through a link it is not, whatever it is.
	os.Rename(path, filepath.Join(dir, "aside"))
	os.Symlink("aside", path)
	if refused := again(p); refused == nil {
		t.Fatal("the original behind a link was accepted")
	}
}

func TestWorkspace_C050_ALinkIsRefusedWithWhereItLeads(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	os.MkdirAll(filepath.Join(dir, "data", "real"), 0o755)
	os.Symlink("data/real", filepath.Join(dir, "link"))
	os.Symlink("data", filepath.Join(dir, "way"))
	_, _, refused := openWorkspace(filepath.Join(dir, "link"), true)
	if refused == nil || refused.Code != refusal.WorkspaceRefused || !contains(refused.Detail, "data/real") {
		t.Fatalf("a link as the last component: %v", refused)
	}
	f, resolved, refused := openWorkspace(filepath.Join(dir, "way", "real"), true)
	if refused != nil || resolved != filepath.Join(dir, "data", "real") {
		t.Fatalf("a link on the way: %q, %v", resolved, refused)
	}
	f.Close()
	for name, path := range map[string]string{"a file": "/etc/passwd", "nothing": dir + "/none"} {
		if _, _, refused := openWorkspace(path, true); refused == nil || refused.Code != refusal.WorkspaceRefused {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

func TestWorkspace_BelongsToTheAccount(t *testing.T) {
	needRoot(t)
	path := filepath.Join(newDir(t), "ws")
	os.Mkdir(path, 0o755)
	for uid, ok := range map[int]bool{0: false, 1000: true, 1001: false} {
		os.Chown(path, uid, uid)
		f, _, _ := openWorkspace(path, true)
		got, _, refused := checkOwner(f, path, []uint32{0, 1000})
		f.Close()
		if (refused == nil) != ok || ok && got != uint32(uid) {
			t.Errorf("uid %d: %d, %v", uid, got, refused)
		}
	}
}

func overlap(t *testing.T, path string, others []Project, own []ownDir) *api.Refusal {
	t.Helper()
	f, resolved, refused := openWorkspace(path, true)
	if refused != nil {
		t.Fatal(refused)
	}
	defer f.Close()
	where, err := place(f, resolved)
	if err != nil {
		t.Fatal(err)
	}
	return checkOverlap(f, Project{Project: order.Project{ID: newID[ids.Project](t0), Workspace: resolved}}, where, others, own)
}

func TestLaunch4_OverlapsAreRefusedEveryWay(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	for _, d := range []string{"a/mid/deep", "ab", "b", "mnt", "own/in", "base/ws"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(d string) string { return filepath.Join(dir, d) }
	mid := registered(t, in("a/mid"))
	others := []Project{mid}
	own := []ownDir{{in("own"), true}, {in("base"), false}, {in("not there"), true}}
	for path, want := range map[string]bool{
		"a/mid": true, "a": true, "a/mid/deep": true, "own": true, "own/in": true, "base": true,
		"ab": false, "b": false, "base/ws": false,
	} {
		if refused := overlap(t, in(path), others, own); (refused != nil) != want || want && refused.Code != refusal.WorkspaceOverlap {
			t.Errorf("%s: %v, want a refusal: %v", path, refused, want)
		}
	}
	if refused := overlap(t, dir, others, own); refused == nil {
		t.Error("an ancestor of everything was accepted")
	}
	// A retired project's directory is free.
	gone := mid
	gone.Deleted = true
	if refused := overlap(t, in("a/mid"), []Project{gone}, own); refused != nil {
		t.Errorf("a retired project still claims: %v", refused)
	}
	// The same directory by another path: by bind mount of itself, of what is in it, of what it is in.
	for from, want := range map[string]bool{"a/mid": true, "a/mid/deep": true, "a": true, "own/in": true, "b": false} {
		if err := syscall.Mount(in(from), in("mnt"), "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		refused := overlap(t, in("mnt"), others, own)
		if err := syscall.Unmount(in("mnt"), 0); err != nil {
			t.Fatal(err)
		}
		if (refused != nil) != want {
			t.Errorf("bind mount of %s: %v, want a refusal: %v", from, refused, want)
		}
	}
	// A project that was moved into another's directory after both were registered.
	b := registered(t, in("b"))
	if err := os.Rename(in("b"), in("a/mid/b")); err != nil {
		t.Fatal(err)
	}
	if refused := overlap(t, in("a/mid/b"), others, own); refused == nil {
		t.Error("a moved directory was accepted inside another project")
	}
	if refused := overlap(t, in("a/mid/b"), []Project{b}, nil); refused == nil {
		t.Error("a moved directory was accepted as a second project")
	}
}

func TestWorkspace_OverlayfsIsRefusedByTrying(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		os.Mkdir(filepath.Join(dir, d), 0o755)
	}
	opts := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := syscall.Mount("overlay", dir+"/merged", "overlay", 0, opts); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("this kernel mounts no overlayfs: %v", err)
		}
		t.Skipf("this kernel mounts no overlayfs: %v", err)
	}
	defer syscall.Unmount(dir+"/merged", 0)
	for name, ok := range map[string]bool{"merged": false, "upper": true} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := mappable(f, 1000); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

func TestWorkspace_FilesOfOthersAreListed(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	os.Mkdir(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644)
	os.WriteFile(filepath.Join(dir, "sub", "theirs"), nil, 0o644)
	os.WriteFile(filepath.Join(dir, "group"), nil, 0o644)
	for path, uid := range map[string]int{"": 1000, "sub": 1000, "mine": 1000, "sub/theirs": 1001} {
		os.Chown(filepath.Join(dir, path), uid, 1000)
	}
	os.Chown(filepath.Join(dir, "group"), 1000, 1002)
	f, _ := os.Open(dir)
	defer f.Close()
	got := foreign(f, 1000, []uint32{1000})
	slices.Sort(got)
	if len(got) != 2 || !contains(got[0], `"group"`) || !contains(got[0], "1002") || !contains(got[1], `"sub/theirs"`) || !contains(got[1], "1001") {
		t.Fatalf("%q", got)
	}
}
