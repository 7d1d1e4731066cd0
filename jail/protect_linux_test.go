package jail

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// git runs the host's git as the owner of the workspace, as something outside does.
func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@x", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@x"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ownerUID, Gid: ownerGID}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// reachable is a workspace whose parents the owner can enter.
func reachable(t *testing.T) *Workspace {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "postern-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own(t, dir, 0o755)
	return &Workspace{Dir: openFile(t, dir), UID: ownerUID, GIDs: []uint32{ownerGID, primeGID}}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Names that are absent when a jail starts cannot be made by it, in any way; the
// owner can; and what nobody used is gone with the jail.
func TestJail7_C070_AbsentReservedNamesCannotBeMade(t *testing.T) {
	l := launcher(t)
	probes := []string{"write=/workspace/free", "mkdir=/workspace/dir", "write=/workspace/dir/.mcp.json"}
	for _, name := range DefaultProtect() {
		at := spec.WorkspaceDir + "/" + name
		probes = append(probes, "write="+at, "mkdir="+at, "rename=/workspace/free:"+at, "rename=/workspace/dir:"+at, "symlink="+at, "link=/workspace/free:"+at, "remove="+at, "write="+at+"/pre-commit")
	}
	probes = append(probes, "rename=/workspace/.git:/workspace/x", "mkdir=/workspace/.git/hooks", "write=/workspace/free")
	r := request(t, "static", probes...)
	r.Workspace = reachable(t)
	dir := r.Workspace.Dir.Name()
	said := answers(t, l, r)
	for _, probe := range probes {
		free := strings.HasSuffix(probe, "/free") || probe == "mkdir=/workspace/dir" || probe == "write=/workspace/dir/.mcp.json"
		if got := said[probe]; strings.HasPrefix(got, "CLOSED") == free {
			t.Errorf("%s: %s", probe, got)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"dir", "free"}) {
		t.Errorf("left in the workspace: %v", got)
	}

	// In a repository whose hooks and module directories are absent, too.
	if out, err := git(t, dir, "init", "-q", "--template="); err != nil {
		t.Fatal(out, err)
	}
	before := names(t, filepath.Join(dir, ".git"))
	probes = nil
	for _, name := range []string{".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/info"} {
		probes = append(probes, "write=/workspace/"+name, "mkdir=/workspace/"+name, "rename=/workspace/free:/workspace/"+name, "write=/workspace/"+name+"/x")
	}
	r = request(t, "static", append(slices.Clone(probes), "write=/workspace/.git/index", "mkdir=/workspace/.git/worktrees", "mkdir=/workspace/.git/objects/aa")...)
	r.Workspace = &Workspace{Dir: openFile(t, dir), UID: ownerUID, GIDs: []uint32{ownerGID}}
	said = answers(t, l, r)
	for _, probe := range probes {
		if !strings.HasPrefix(said[probe], "CLOSED") {
			t.Errorf("in a repository: %s: %s", probe, said[probe])
		}
	}
	expect(t, said, map[string]string{"write=/workspace/.git/index": "OPEN", "mkdir=/workspace/.git/worktrees": "OPEN", "mkdir=/workspace/.git/objects/aa": "OPEN"})
	if got, want := names(t, filepath.Join(dir, ".git")), append(before, "index", "worktrees"); len(got) != len(want) {
		t.Errorf("left in the repository: %v, wanted %v", got, want)
	}

	// The twin: with nothing protected all of it can be made.
	r = request(t, "static", "mkdir=/workspace/.claude", "write=/workspace/.git/config", "write=/workspace/.mcp.json")
	r.Workspace.Protect = []string{}
	if err := os.Mkdir(filepath.Join(r.Workspace.Dir.Name(), ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	own(t, filepath.Join(r.Workspace.Dir.Name(), ".git"), 0o755)
	expect(t, answers(t, l, r), map[string]string{"mkdir=/workspace/.claude": "OPEN", "write=/workspace/.git/config": "OPEN", "write=/workspace/.mcp.json": "OPEN"})
}

// While names are held the owner's git neither sees them nor minds them; what the
// owner puts in their place is kept; two jails hold them until both are gone.
func TestPlaceholdersAreInNobodysWay(t *testing.T) {
	l := launcher(t)
	w := reachable(t)
	dir := w.Dir.Name()
	launch := func() *running {
		r := request(t, "static", "eof")
		r.Workspace = w
		p := start(t, l, r)
		p.line(t)
		return p
	}
	first, second := launch(), launch()
	if out, err := git(t, dir, "status"); err == nil || !strings.Contains(out, "not a git repository") {
		t.Errorf("git status where there is no repository: %q, %v", out, err)
	}
	first.stdin.Close()
	gone(t, first.Process)
	if got := names(t, dir); !slices.Contains(got, ".git") || !slices.Contains(got, ".mcp.json") {
		t.Errorf("the second jail's names are gone with the first: %v", got)
	}
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := git(t, dir, args...); err != nil {
			t.Fatal(args, out, err)
		}
	}
	if out, err := git(t, dir, "status", "--porcelain"); err != nil || out != "" {
		t.Errorf("git sees the names: %q, %v", out, err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, ".claude", "settings.json"), []byte("{}"), 0o644), os.Remove(filepath.Join(dir, ".codex"))); err != nil {
		t.Fatal(err)
	}
	gone(t, second.Process) // a name was taken away under it
	if e := second.Exit(); !e.Replaced || e.Forced {
		t.Errorf("exit %+v, want replaced", e)
	}
	if got := names(t, dir); !slices.Equal(got, []string{".claude", ".git"}) {
		t.Errorf("left: %v", got)
	}

	// In the repository that the owner made, everything git does works beside a jail,
	// in the jail's favour and in the owner's.
	p := launch()
	for _, args := range [][]string{{"fsck"}, {"worktree", "add", "-q", "sub"}, {"gc", "-q"}, {"rev-parse", "--git-common-dir"}, {"-C", "sub", "status"}, {"log", "--oneline"}} {
		if out, err := git(t, dir, args...); err != nil {
			t.Errorf("git %v beside a jail: %s, %v", args, out, err)
		}
	}
	if out, _ := git(t, dir, "status", "--porcelain"); strings.Contains(out, ".mcp") || strings.Contains(out, ".envrc") {
		t.Errorf("git sees the names: %q", out)
	}
	p.stdin.Close()
	gone(t, p.Process)
	if e := p.Exit(); e != (Exit{}) {
		t.Errorf("exit %+v", e)
	}
}

// A file renamed over a protected one, as git config does, takes the mount there
// away in every jail: the kernel asks nobody. The jail ends.
func TestJail7_AReplacedNameEndsTheJail(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "eof")
	r.Workspace = reachable(t)
	dir := r.Workspace.Dir.Name()
	if out, err := git(t, dir, "init", "-q"); err != nil {
		t.Fatal(out, err)
	}
	p := start(t, l, r)
	p.line(t)
	if out, err := git(t, dir, "status"); err != nil { // the twin: this replaces nothing
		t.Fatal(out, err)
	}
	select {
	case <-p.Done():
		t.Fatalf("ended by git status: %+v", p.Exit())
	case <-time.After(100 * time.Millisecond):
	}
	if out, err := git(t, dir, "config", "user.name", "y"); err != nil {
		t.Fatal(out, err)
	}
	gone(t, p.Process)
	if e := p.Exit(); !e.Replaced || e.Forced || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v, want replaced", e)
	}
}

// What a killed launcher left is found by its mark: by the next jail of the
// workspace, and by Tidy.
func TestPlaceholdersOfAKilledLauncherAreRemoved(t *testing.T) {
	needs(t)
	w := reachable(t)
	dir := w.Dir.Name()
	for _, remove := range []func(){
		func() {
			if err := launcher(t).Tidy(w.Dir); err != nil {
				t.Error(err)
			}
		},
		func() {
			l := launcher(t)
			r := request(t, "static", "exit=0")
			r.Workspace = w
			p := start(t, l, r)
			gone(t, p.Process)
		},
	} {
		ws, err := (*w).check()
		if err != nil {
			t.Fatal(err)
		}
		killed := occupancy{all: map[[2]uint64]*occupied{}}
		if _, err := killed.occupy(&ws); err != nil { // and never released
			t.Fatal(err)
		}
		if got := names(t, dir); len(got) < 8 {
			t.Fatalf("held: %v", got)
		}
		remove()
		if got := names(t, dir); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	}
}

// A protected name that is a symbolic link is one clear error that names it.
func TestC069_AProtectedNameThatIsALinkIsNamed(t *testing.T) {
	l := launcher(t)
	for name, to := range map[string]string{".mcp.json": "../common/.mcp", ".claude": "/nix/store/x", ".git": "real", ".envrc": "/dev/null"} {
		r := request(t, "static", "exit=0")
		if err := os.Symlink(to, filepath.Join(r.Workspace.Dir.Name(), name)); err != nil {
			t.Fatal(err)
		}
		_, err := tryStart(t, l, r)
		if err == nil || !strings.HasPrefix(err.Error(), "jail: protect:") || !strings.Contains(err.Error(), name+`" is a symbolic link`) || strings.Contains(err.Error(), to) {
			t.Errorf("%s: %v", name, err)
		}
		if got := names(t, r.Workspace.Dir.Name()); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: left %v", name, got)
		}
		// The twin: a link by a name that nobody executes.
		if err := os.Rename(filepath.Join(r.Workspace.Dir.Name(), name), filepath.Join(r.Workspace.Dir.Name(), "free")); err != nil {
			t.Fatal(err)
		}
		p := start(t, l, r)
		gone(t, p.Process)
	}
}

// A linked worktree: its .git is a file that leads to a repository elsewhere. The
// file is read-only, so that it leads nowhere else; the repository is not in the
// jail, and nothing can put it there: a bind of what is not root's is refused.
func TestC075_AWorktreesLinkIsProtectedAndItsRepositoryNotGranted(t *testing.T) {
	l := launcher(t)
	w := reachable(t)
	dir := w.Dir.Name()
	for _, args := range [][]string{{"init", "-q", "repo"}, {"-C", "repo", "commit", "-q", "--allow-empty", "-m", "x"}, {"-C", "repo", "worktree", "add", "-q", "../tree"}} {
		if out, err := git(t, dir, args...); err != nil {
			t.Fatal(args, out, err)
		}
	}
	tree := &Workspace{Dir: openFile(t, filepath.Join(dir, "tree")), UID: ownerUID, GIDs: []uint32{ownerGID}}
	r := request(t, "static", "write=/workspace/.git", "rename=/workspace/.git:/workspace/x", "remove=/workspace/.git", "write=/workspace/file", "stat="+dir)
	r.Workspace = tree
	expect(t, answers(t, l, r), map[string]string{"write=/workspace/.git": "CLOSED EROFS", "rename=/workspace/.git:/workspace/x": "CLOSED EBUSY",
		"remove=/workspace/.git": "CLOSED EBUSY", "write=/workspace/file": "OPEN", "stat=" + dir: "CLOSED ENOENT"})
	if out, err := git(t, filepath.Join(dir, "tree"), "status"); err != nil {
		t.Errorf("the worktree is broken: %s, %v", out, err)
	}
	r = request(t, "static", "exit=0")
	r.Profile.Binds = []spec.Bind{{Source: filepath.Join(dir, "repo/.git")}}
	if _, err := tryStart(t, l, r); err == nil || !strings.Contains(err.Error(), "not root's alone") {
		t.Errorf("a bind of the owner's repository: %v", err)
	}

	// A worktree beneath the workspace works in the jail itself.
	r = systemProgram(t, "node-spawn", "/usr/bin/sh", "-c", `set -e
		export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x
		git worktree add -q sub; cd sub; echo a > f; git add f; git commit -q -m inside; git log -1 --format=%s
		cd ..; echo b > g; git add g; git commit -q -m above; git log -1 --format='last %s'
		git config core.fsmonitor /workspace/evil 2>/dev/null && echo config written || echo config refused`)
	r.Workspace = &Workspace{Dir: openFile(t, filepath.Join(dir, "repo")), UID: ownerUID, GIDs: []uint32{ownerGID}}
	expect(t, answers(t, l, r), map[string]string{"inside": "", "last": "above", "config": "refused"})
	if out, err := git(t, filepath.Join(dir, "repo"), "log", "--format=%s", "-2"); err != nil || out != "above\nx" {
		t.Errorf("on the host: %q, %v", out, err)
	}
}

// Hard links, FIFOs, devices, sockets, mounts and links of a workspace: none of it
// moves a wall.
func TestC055_ContentOfAWorkspaceMakesNothingOutside(t *testing.T) {
	l := launcher(t)
	target := t.TempDir()
	r := request(t, "static", "ls=/dev", "stat=/workspace/fifo", "write=/workspace/node", "read=/workspace/zero", "read=/workspace/hard", "ls=/workspace/nested",
		"mkdir=/workspace/node_modules/.cache", "connect=unix:/workspace/sock")
	r.Workspace = reachable(t)
	dir := r.Workspace.Dir.Name()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.Symlink("/", at("dev")), os.Symlink(target, at("node_modules")), unix.Mkfifo(at("fifo"), 0o644),
		unix.Mknod(at("node"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.Mknod(at("zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))),
		unix.Mknod(at("sock"), unix.S_IFSOCK|0o666, 0), os.WriteFile(at("plain"), []byte("plain"), 0o644), os.Mkdir(at("nested"), 0o755))
	for _, name := range names(t, dir) {
		err = errors.Join(err, os.Lchown(at(name), ownerUID, ownerGID))
	}
	if err = errors.Join(err, os.Link(at("plain"), at("hard"))); err != nil {
		t.Fatal(err)
	}
	// Another file system mounted inside is not entered: the jail sees the directory
	// beneath the mount.
	if err := unix.Mount("tmpfs", at("nested"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at("nested"), unix.MNT_DETACH)
	if err := os.WriteFile(at("nested/secret"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	said := answers(t, l, r)
	expect(t, said, map[string]string{"ls=/dev": "full null random urandom zero", "stat=/workspace/fifo": "OPEN", "write=/workspace/node": "CLOSED EACCES",
		"read=/workspace/zero": "CLOSED EACCES", "read=/workspace/hard": "plain", "ls=/workspace/nested": "", "mkdir=/workspace/node_modules/.cache": "CLOSED ENOENT"})
	if !strings.HasPrefix(said["connect"], "CLOSED") && !strings.HasPrefix(said["connect=unix:/workspace/sock"], "CLOSED") {
		t.Errorf("connect: %v", said)
	}
	if got := names(t, target); len(got) != 0 {
		t.Errorf("made outside: %v", got)
	}
}

// The directory is what was opened: its name, and those above it, may become
// anything meanwhile.
func TestWorkspaceIsTheDescriptorNotTheName(t *testing.T) {
	l := launcher(t)
	parent := t.TempDir()
	real := filepath.Join(parent, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	own(t, real, 0o755)
	w := &Workspace{Dir: openFile(t, real), UID: ownerUID, GIDs: []uint32{ownerGID}}
	if err := errors.Join(os.Rename(real, real+"-moved"), os.Symlink("/etc", real)); err != nil {
		t.Fatal(err)
	}
	r := request(t, "static", "ls=/workspace", "write=/workspace/new")
	r.Workspace = w
	said := answers(t, l, r)
	if said["write=/workspace/new"] != "OPEN" || strings.Contains(said["ls=/workspace"], "passwd") {
		t.Errorf("%v", said)
	}
	if _, err := os.Lstat(real + "-moved/new"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat("/etc/new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written to /etc: %v", err)
	}
}

// Jails of one workspace that protect different names: what the last one that needs a
// name leaves is removed with it, while the others' stay held.
func TestPlaceholdersGoWithTheLastJailThatNeedsThem(t *testing.T) {
	needs(t)
	w := reachable(t)
	dir := w.Dir.Name()
	all, some := *w, *w
	all.Protect, some.Protect = []string{".git/hooks", ".envrc", ".mcp.json"}, []string{".envrc"}
	held := occupancy{all: map[[2]uint64]*occupied{}}
	enter := func(w Workspace) func() {
		t.Helper()
		release, err := held.occupy(&w)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	wide, narrow := enter(all), enter(some)
	if got := names(t, dir); !slices.Equal(got, []string{".envrc", ".git", ".mcp.json"}) {
		t.Fatalf("held: %v", got)
	}
	wide()
	if got := names(t, dir); !slices.Equal(got, []string{".envrc"}) {
		t.Errorf("after the one that needed all: %v", got)
	}
	wide = enter(all)
	narrow()
	if got := names(t, dir); !slices.Equal(got, []string{".envrc", ".git", ".mcp.json"}) {
		t.Errorf("after the one that needed some: %v", got)
	}
	wide()
	if got := names(t, dir); len(got) != 0 || len(held.all) != 0 {
		t.Errorf("left: %v, %v", got, held.all)
	}
}
