package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/supervisor/api"
)

var t0 = time.UnixMilli(1_790_000_000_000)

func contains(s, part string) bool { return strings.Contains(s, part) }

// npm makes the tree that npm leaves: nested packages, links in .bin, one executable.
func npm(t *testing.T, root string) {
	t.Helper()
	for path, text := range map[string]string{
		"package.json":                      `{"name":"x"}`,
		"node_modules/.package-lock.json":   "{}",
		"node_modules/@s/server/index.js":   "#!/usr/bin/env node\n",
		"node_modules/@s/server/lib/a.js":   "a",
		"node_modules/dep/index.js":         "dep",
		"node_modules/dep/node_modules/d/x": "nested",
	} {
		os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755)
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(filepath.Join(root, "node_modules/@s/server/index.js"), 0o755)
	os.MkdirAll(filepath.Join(root, "node_modules/.bin"), 0o755)
	if err := os.Symlink("../@s/server/index.js", filepath.Join(root, "node_modules/.bin/server")); err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T) *packages {
	t.Helper()
	store, err := privateDir(filepath.Join(newDir(t), "root", packageDir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return openPackages(store)
}

func nothing(string) bool { return false }

func agree(*os.File) *api.Refusal { return nil }

func TestLaunch5_TheCopyIsWhatWasDigested(t *testing.T) {
	needRoot(t)
	store, src := openStore(t), newDir(t)
	npm(t, src)
	os.Chown(filepath.Join(src, "package.json"), 1000, 1000)
	digest, _, refused := store.ingest(src, true, nothing, agree)
	if refused != nil {
		t.Fatal(refused)
	}
	copied := filepath.Join(store.store.Name(), digest)
	if raw, err := os.ReadFile(filepath.Join(copied, "node_modules/.bin/server")); err != nil || !contains(string(raw), "env node") {
		t.Fatalf("the link in .bin: %q, %v", raw, err)
	}
	filepath.Walk(copied, func(path string, info os.FileInfo, err error) error {
		st := info.Sys().(*syscall.Stat_t)
		if st.Uid != 0 || st.Gid != 0 || info.Mode()&os.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0 || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s: %v of %d", path, info.Mode(), st.Uid)
		}
		return nil
	})
	// The same content is the same digest; what happens to the source later changes no copy.
	if again, _, refused := store.ingest(src, true, nothing, agree); refused != nil || again != digest {
		t.Fatalf("%s, %v", again, refused)
	}
	os.WriteFile(filepath.Join(src, "package.json"), []byte("evil"), 0o644)
	if raw, _ := os.ReadFile(filepath.Join(copied, "package.json")); string(raw) != `{"name":"x"}` {
		t.Fatalf("the copy follows its source: %q", raw)
	}
	other, _, refused := store.ingest(src, true, nothing, agree)
	if refused != nil || other == digest {
		t.Fatalf("changed content has digest %s, %v", other, refused)
	}
	os.Chmod(filepath.Join(src, "package.json"), 0o755)
	if x, _, refused := store.ingest(src, true, nothing, agree); refused != nil || x == other {
		t.Fatalf("an executable bit does not count: %s, %v", x, refused)
	}
	// A trial run leaves nothing.
	os.WriteFile(filepath.Join(src, "new"), nil, 0o644)
	before, _ := os.ReadDir(store.store.Name())
	if _, _, refused := store.ingest(src, false, nothing, agree); refused != nil {
		t.Fatal(refused)
	}
	if after, _ := os.ReadDir(store.store.Name()); len(after) != len(before) {
		t.Fatalf("%d entries before a trial run, %d after", len(before), len(after))
	}
}

func TestLaunch5_WhatDoesNotBelongInAPackageIsRefused(t *testing.T) {
	needRoot(t)
	for name, spoil := range map[string]func(dir string) error{
		"an absolute link":   func(d string) error { return os.Symlink("/etc/passwd", d+"/x") },
		"a link that leaves": func(d string) error { return os.Symlink("../../etc", d+"/node_modules/x") },
		"a link out through another": func(d string) error {
			os.Symlink("node_modules", d+"/one")
			return os.Symlink("../one/../../x", d+"/node_modules/two")
		},
		"a link that leaves on a way": func(d string) error {
			os.MkdirAll(d+"/a/b/c", 0o755)
			os.Symlink("../../../node_modules", d+"/a/b/c/l")
			return os.Symlink("l/../..", d+"/a/b/c/m")
		},
		"links in a circle": func(d string) error { os.Symlink("q", d+"/p"); return os.Symlink("p", d+"/q") },
		"a FIFO":            func(d string) error { return syscall.Mkfifo(d+"/x", 0o644) },
		"a device":          func(d string) error { return syscall.Mknod(d+"/x", syscall.S_IFCHR|0o644, 1<<8|3) },
		"a socket":          func(d string) error { return syscall.Mknod(d+"/x", syscall.S_IFSOCK|0o644, 0) },
		"a set-uid file":    func(d string) error { return os.Chmod(d+"/package.json", 0o755|os.ModeSetuid) },
		"a set-gid file":    func(d string) error { return os.Chmod(d+"/package.json", 0o755|os.ModeSetgid) },
		"a tree too deep":   func(d string) error { return os.MkdirAll(d+strings.Repeat("/d", maxPackageDepth+2), 0o755) },
	} {
		store, src := openStore(t), newDir(t)
		npm(t, src)
		if err := spoil(src); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if digest, _, refused := store.ingest(src, true, nothing, agree); refused == nil {
			t.Errorf("%s: ingested as %s", name, digest)
		}
		if left, _ := os.ReadDir(store.store.Name()); len(left) != 0 {
			t.Errorf("%s: %v stays in the store", name, left)
		}
	}
	// The permitted twins: a link to a sibling, a dangling link, a directory with its group's bit.
	store, src := openStore(t), newDir(t)
	npm(t, src)
	os.Symlink("package.json", src+"/sibling")
	os.Symlink("missing", src+"/dangling")
	os.Mkdir(src+"/shared", 0o755)
	os.Chmod(src+"/shared", 0o755|os.ModeSetgid)
	if _, _, refused := store.ingest(src, true, nothing, agree); refused != nil {
		t.Error(refused)
	}
}

// TestLaunch5_TenThousandFilesOfNpmsLayout: the copy has every file and every link, and
// its list says so.
func TestLaunch5_TenThousandFilesOfNpmsLayout(t *testing.T) {
	needRoot(t)
	store, src := openStore(t), newDir(t)
	npm(t, src)
	const many = 10_000
	for i := range many {
		dir := filepath.Join(src, "node_modules", fmt.Sprintf("@scope%d/p%d/lib", i/1000, i/10))
		if i%10 == 0 {
			os.MkdirAll(dir, 0o755)
			os.Symlink(fmt.Sprintf("../@scope%d/p%d/lib/0.js", i/1000, i/10), filepath.Join(src, "node_modules/.bin", fmt.Sprint("p", i/10)))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.js", i%10)), fmt.Append(nil, "module.exports = ", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	digest, letGo, refused := store.ingest(src, true, nothing, agree)
	if refused != nil {
		t.Fatal(refused)
	}
	defer letGo()
	t.Logf("%d files in %v", many, time.Since(begun).Round(time.Millisecond))
	raw, err := store.read(digest, listSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if listed := filesOf(raw); len(listed) != many+many/10+7 {
		t.Errorf("%d files and links are listed", len(listed))
	}
	for _, at := range []string{"node_modules/.bin/p999", "node_modules/@scope9/p999/lib/0.js"} {
		if raw, err := os.ReadFile(filepath.Join(store.store.Name(), digest, at)); err != nil || string(raw) != "module.exports = 9990" {
			t.Errorf("%s: %q, %v", at, raw, err)
		}
	}
}

// TestC161_ACommandThatCannotStartSaysWhich: what is wrong is said when it is
// registered, of the file that it is wrong with, and not at the first call.
func TestC161_ACommandThatCannotStartSaysWhich(t *testing.T) {
	needRoot(t)
	src := newDir(t)
	npm(t, src)
	for name, text := range map[string]string{"good": "#!/usr/bin/env node\n", "spaced": "#! /usr/bin/env -S node\n", "missing": "#!/opt/none/bin/ruby\n", "relative": "#!node\n", "empty": "#!\n", "data": "#!/etc/passwd\n", "outside": "#!/usr/bin/dash\n", "a b": "#!/usr/bin/env node\n"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, row := range []struct{ program, want string }{
		{"/package/good", ""}, {"/package/spaced", ""}, {"/package/a b", ""},
		{"/package/missing", `"/package/missing" is a script whose interpreter "/opt/none/bin/ruby" is missing: no such file or directory`},
		{"/package/relative", `interpreter "node" is not an absolute path`},
		{"/package/empty", "interpreter is not named"},
		{"/package/data", `interpreter "/etc/passwd" may not be executed by everybody`},
		{"/package/outside", `interpreter "/usr/bin/dash" is not executed by the profile`},
		{"/package/package.json", "may not be executed by everybody (mode 0644)"},
		{"/package/none", `The executable "/package/none" is missing: no such file`},
	} {
		_, refused := checkProgram(tree, &Revision{Command: []string{row.program}}, func(p string) bool { return p != "/usr/bin/dash" })
		if row.want == "" && refused != nil || row.want != "" && (refused == nil || !contains(refused.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.program, refused, row.want)
		}
	}
	r := start(t, newConfig(t))
	for _, command := range []string{"npx", "uvx", "./server", "bin/server", "/usr/bin/../bin/env"} {
		_, refused := r.ask(api.ServerAdd, api.ServerParams{Label: "s", Profile: "node", Command: []string{command}})
		if refused == nil || !contains(refused.Error(), "no PATH is searched") || !contains(refused.Error(), command) {
			t.Errorf("%s: %v", command, refused)
		}
	}
}

func TestProgram_IsFoundOrRefused(t *testing.T) {
	needRoot(t)
	src := newDir(t)
	npm(t, src)
	tree, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	os.Symlink("/bin/sh", src+"/out")
	for program, ok := range map[string]bool{
		"/package/node_modules/@s/server/index.js": true,
		"/package/node_modules/.bin/server":        true,
		"/package/package.json":                    false, // not executable
		"/package/node_modules":                    false,
		"/package/none":                            false,
		"/package/out":                             false, // leaves the copy
		"/usr/bin/env":                             true,
		"/usr/bin/none":                            false,
		"/etc/passwd":                              false,
	} {
		v := Revision{Command: []string{program, "/package/none.js"}}
		warnings, refused := checkProgram(tree, &v, func(p string) bool { return p != "/bin/sh" })
		if (refused == nil) != ok {
			t.Errorf("%s: %v", program, refused)
		}
		if ok && len(warnings) != 1 {
			t.Errorf("%s: warnings %q", program, warnings)
		}
		if ok && !strings.HasPrefix(program, "/package/") && (len(v.Recorded) != 1 || !strings.HasPrefix(v.Recorded[0], program+" sha256:")) {
			t.Errorf("%s: recorded %q", program, v.Recorded)
		}
	}
}
