package profiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const small = `name: small
fork: false
workspace: false
devices: false
proc: false
env: {A: b}
seccomp:
  groups:
    - {name: io, reason: reads, calls: [read, write]}
landlock: {abi: 6}
limits: {memory: 64MiB, pids: 8, cpu_percent: 50, nofile: 64, fsize: 0}
idle: 1m
stop_grace: 1s
start_timeout: 1s
`

var builtins = []string{"bridge", "browser", "node", "node-spawn", "python", "static"}

func TestBuiltinProfilesAreComplete(t *testing.T) {
	all, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	if got := Names(all); !slices.Equal(got, builtins) {
		t.Fatalf("built in: %v", got)
	}
	for name, p := range all {
		if len(p.Digest) != 64 || p.Fork != (name == "node-spawn" || name == "browser") {
			t.Errorf("%s: digest %q, fork %t", name, p.Digest, p.Fork)
		}
	}
	b := all["bridge"]
	if !b.NeverRegister || b.Workspace || b.Devices || b.Proc || len(b.Binds) > 0 || b.Limits.TmpBytes > 0 {
		t.Errorf("the bridge sees files: %+v", b)
	}
	for _, g := range b.Seccomp.Groups {
		for _, call := range g.Calls {
			if strings.HasPrefix(call, "open") || call == "socket" || call == "connect" || call == "accept4" || strings.Contains(call, "link") {
				t.Errorf("the bridge may call %s", call)
			}
		}
	}
	if all["node"].NeverRegister || all["static"].NeverRegister {
		t.Error("a server's profile cannot be registered")
	}
}

func TestProfiles1_StrictDecoding(t *testing.T) {
	if _, err := Decode("small.yaml", []byte(small)); err != nil {
		t.Fatalf("the good file: %v", err)
	}
	for name, change := range map[string][2]string{
		"unknown key":        {"fork: false", "fork: false\nforks: true"},
		"key in other case":  {"fork: false", "Fork: false"},
		"repeated key":       {"fork: false", "fork: false\nfork: true"},
		"text for truth":     {"fork: false", `fork: "false"`},
		"yes for true":       {"fork: false", "fork: yes"},
		"number for text":    {"name: small", "name: 7"},
		"negative number":    {"pids: 8", "pids: -8"},
		"too great a number": {"pids: 8", "pids: 99999999999"},
		"unknown unit":       {"64MiB", "64MB"},
		"overflowing bytes":  {"64MiB", "9223372036854775807GiB"},
		"no duration":        {"idle: 1m", "idle: 60"},
		"missing key":        {"idle: 1m\n", ""},
		"list for mapping":   {"landlock: {abi: 6}", "landlock: [6]"},
		"mapping for list":   {"calls: [read, write]", "calls: {read: write}"},
		"anchor":             {"fork: false", "fork: &f false"},
		"alias":              {"env: {A: b}", "env: *e"},
		"tag":                {"fork: false", "fork: !!bool false"},
		"merge key":          {"env: {A: b}", "env: {<<: {A: b}}"},
		"second document":    {"name: small", "name: small\n---\nname: other"},
		"empty":              {small, ""},
		"only a comment":     {small, "# nothing\n"},
		"null":               {"env: {A: b}", "env: null"},
		"too long":           {small, small + "#" + strings.Repeat("x", MaxFile)},
	} {
		text := strings.Replace(small, change[0], change[1], 1)
		if text == small {
			t.Fatalf("%s: changes nothing", name)
		}
		if _, err := Decode("small.yaml", []byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestProfiles2_EveryMistakeWithFileLineAndKey(t *testing.T) {
	text := strings.NewReplacer("fork: false", "frok: false", "pids: 8", "pids: lots", "idle: 1m", "idle: soon").Replace(small)
	_, err := Decode("small.yaml", []byte(text))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"small.yaml:2: frok: is not a key here",
		"small.yaml:1: fork: is missing",
		`small.yaml:11: limits.pids: want a number from 1 to 32768, not "lots"`,
		`small.yaml:12: idle: want a duration like 30s, not "soon"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among:\n%v", want, err)
		}
	}
	// What only Validate can see carries its line too.
	_, err = Decode("small.yaml", []byte(strings.Replace(small, "abi: 6", "abi: 3", 1)))
	var m Mistake
	if !errors.As(err, &m) || m.Line != 10 || m.Key != "landlock.abi" {
		t.Errorf("got %v", err)
	}
}

func TestProfiles3_AFileOfSomebodyElseIsNotRead(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "small.yaml")
	if err := os.WriteFile(file, []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	if all, err := Load(dir); err != nil || all["small"].Name != "small" || len(all) != len(builtins)+1 {
		t.Fatalf("root's file: %v, %v", Names(all), err)
	}
	for name, spoil := range map[string]func() error{
		"owned by another":       func() error { return os.Chown(file, 1000, 0) },
		"writable by the group":  func() error { return os.Chmod(file, 0o664) },
		"writable by all":        func() error { return os.Chmod(file, 0o646) },
		"directory of another":   func() error { return os.Chown(dir, 1000, 0) },
		"directory open to all":  func() error { return os.Chmod(dir, 0o777) },
		"a link to root's file":  func() error { return errors.Join(os.Rename(file, dir+"/x"), os.Symlink(dir+"/x", file)) },
		"a file of two names":    func() error { return os.Link(file, filepath.Join(filepath.Dir(dir), "second")) },
		"not a regular file":     func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o755)) },
		"another name than ours": func() error { return os.Rename(file, filepath.Join(dir, "other.yaml")) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil {
			t.Errorf("%s: read", name)
		}
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(filepath.Join(filepath.Dir(dir), "second")), os.Mkdir(dir, 0o755), os.WriteFile(file, []byte(small), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := Load(filepath.Join(dir, "absent")); err != nil || len(all) != len(builtins) {
		t.Errorf("no directory: %v, %v", Names(all), err)
	}
}

func TestProfiles4_NoFileReplacesABuiltInProfile(t *testing.T) {
	all, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	if err := add(all, "/etc/node.yaml", []byte(strings.Replace(small, "small", "node", 1))); err == nil {
		t.Error("node was replaced")
	}
	if err := add(all, "/etc/small.yaml", []byte(small)); err != nil {
		t.Errorf("a new name: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte("a: &x [*x]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := Decode("fuzz.yaml", raw)
		if err == nil && len(p.Validate()) > 0 {
			t.Error("decoded and not valid")
		}
	})
}

// What lies in the directory and is not read is told, beside the mistakes of what is read.
func TestProfiles5_AFileThatIsNotReadIsAMistake(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"small.yaml", "small.yaml~", ".small.yaml.swp", "small.yaml.dpkg-old", "README"} {
		put(name, small)
	}
	if all, err := Load(dir); err != nil || all["small"].Name != "small" || len(all) != len(builtins)+1 {
		t.Fatalf("%v, %v", Names(all), err)
	}
	put("other.yml", small)
	put("third.conf", small)
	put("fourth.yaml", "\ufeff"+small)
	_, err := Load(dir)
	for _, want := range []string{"other.yml: is not read: a name here ends in .yaml", "third.conf: is not read", "fourth.yaml:1: begins with a byte order mark"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, found, err := Check(filepath.Join(dir, "other.yml")); err != nil || len(found) != 1 || found[0].Want != `"small" is to stand in a file called small.yaml, not other.yml` {
		t.Errorf("%v, %v", found, err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root: files of other owners must be made")
		}
		t.Skip("needs root: files of other owners must be made")
	}
}
