package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/api/documented"
	"postern/supervisor/config"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs root")
	}
	t.Skip("this test needs root")
}

const good = `uid_range: {first: 200000, count: 64}
hosts:
  - id: runner
    uid: 900
    accounts: ["*"]
    projects: [prj_019c8a54-5400-7000-8000-000000000001]
    channels: [whatsapp]
activity: {keep_days: 30, keep_mib: 64}
audit: {file_kib: 64, old_files: 3}
sessions: {requests: 1, line_kib: 16384, line_wait_seconds: 3600, depth: 8, queue_kib: 64}
`

// twice has hosts that cannot be told apart, or are somebody else.
const twice = `hosts:
  - {id: a, uid: 900, accounts: ["*"], projects: ["*"], channels: [Whats App]}
  - {id: a, uid: 901, accounts: ["*"], projects: ["*"]}
  - {id: b, uid: 900, accounts: ["*"], projects: ["*"]}
  - {id: d, uid: 0, accounts: ["*"], projects: ["*"]}
  - {id: c, uid: 200001, accounts: ["*"], projects: ["*"]}
`

func TestPosternd1_NothingIsStartedAndTheStatusIs78(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/tmp", "pd") // short: the paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "postern.yaml")
	if err := os.WriteFile(config, []byte("hots: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(more ...string) []string {
		return append([]string{"--config", config, "--root-dir", dir + "/root", "--state-dir", dir + "/state", "--run-dir", dir + "/run", "--authority-user", "64321:64321"}, more...)
	}
	for name, c := range map[string]struct {
		args   []string
		prep   func()
		status int
		says   []string
	}{
		"mistakes of a file and of flags at once": {at("--uid-range", "1-2", "--authority-user", "no such user"), nil, refusal.ExitConfig,
			[]string{"postern.yaml:1: hots", "uid-range: want FIRST:COUNT", "authority-user: "}},
		"a range that is root's":  {at("--uid-range", "0:10"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"uid-range"}},
		"a file others may write": {at(), func() { os.Chmod(config, 0o666) }, refusal.ExitConfig, []string{"has mode 0666", config}},
		"who is who, beside other mistakes": {at("--uid-range", "200000:64"), func() { os.WriteFile(config, []byte("hots: []\n"+twice), 0o600) }, refusal.ExitConfig,
			[]string{"postern.yaml:1: hots", `two have the id "a"`, `"b" has the uid 900 of "a"`, `"d" has uid 0; root is no host`, `"c" has uid 200001 of the jails' range`, `"Whats App" is no channel`}},
		"an authority in the range":    {at("--authority-user", "1879048200:5"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"authority-user: uid 1879048200 lies in the jails' range"}},
		"an authority that is root":    {at("--authority-user", "0:0"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"authority-user: uid 0 is root's"}},
		"a group that is no path":      {at("--cgroup", "/postern"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"cgroup: want a path relative"}},
		"a directory others may write": {at(), func() { os.WriteFile(config, nil, 0o600); os.Chmod(dir, 0o777) }, refusal.ExitConfig, []string{"has mode 0777", filepath.Dir(config)}},
		"nothing is a mapping":         {at(), func() { os.WriteFile(config, []byte("- a\n"), 0o600) }, refusal.ExitConfig, []string{"postern.yaml:1: the file: want a mapping"}},
		"a file that is missing":       {at("--config", dir+"/none"), nil, refusal.ExitConfig, []string{"none"}},
		"an argument":                  {at("start"), nil, refusal.ExitUsage, []string{"start"}},
		"an unknown flag":              {at("--insecure"), nil, refusal.ExitUsage, []string{"insecure"}},
	} {
		os.WriteFile(config, []byte("hots: []\n"), 0o600)
		os.Chmod(config, 0o600)
		os.Chmod(dir, 0o700)
		if c.prep != nil {
			c.prep()
		}
		var out bytes.Buffer
		if got := run(t.Context(), nil, c.args, io.Discard, &out); got != c.status {
			t.Errorf("%s: status %d, want %d\n%s", name, got, c.status, &out)
		}
		for _, want := range c.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, &out)
			}
		}
	}
	os.Chmod(dir, 0o700)
	// The permitted twin of all of these: --check, which makes nothing either.
	os.WriteFile(config, []byte(good), 0o600)
	os.Chmod(config, 0o600)
	var out bytes.Buffer
	if got := run(t.Context(), nil, at("--check"), io.Discard, &out); got != 0 {
		t.Errorf("--check: %d\n%s", got, &out)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("something was made: %v", left)
	}
	// It reads the facts where there are some, and refuses what is not root's alone.
	os.MkdirAll(dir+"/root", 0o700)
	os.WriteFile(dir+"/root/facts.json", []byte("{}"), 0o644)
	out.Reset()
	if got := run(t.Context(), nil, at("--check"), io.Discard, &out); got != refusal.ExitConfig || !strings.Contains(out.String(), "0644") {
		t.Errorf("--check with facts others may read: %d\n%s", got, &out)
	}
}

func TestFlags_UserAndRange(t *testing.T) {
	if uid, gid, err := lookUp("123:456"); err != nil || uid != 123 || gid != 456 {
		t.Errorf("%d:%d, %v", uid, gid, err)
	}
	if uid, _, err := lookUp("nobody"); err != nil || uid == 0 {
		t.Errorf("%d, %v", uid, err)
	}
	for _, bad := range []string{"", "1", "1:", ":1", "a:b", "-1:5", "1:99999999999"} {
		if r, err := parseRange(bad); err == nil {
			t.Errorf("%q is %v", bad, r)
		}
	}
}

func TestPosternd2_C113_TheEnvironmentIsForgotten(t *testing.T) {
	for _, k := range []string{"AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "NOTIFY_SOCKET", "PATH"} {
		t.Setenv(k, "/x")
	}
	run(t.Context(), nil, []string{"--no-such-flag"}, io.Discard, io.Discard)
	if left := os.Environ(); len(left) != 0 {
		t.Errorf("%q stays", left)
	}
}

// configDir is a directory as /etc/postern is, with files of these contents.
func configDir(t *testing.T, files map[string]string) (dir string, args []string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"-check", "-json", "-config", dir + "/postern.yaml", "-root-dir", dir + "/root", "-state-dir", dir + "/state", "-run-dir", dir + "/run", "-authority-user", "64321:64321"}
}

// docs/json.md is read before a test goes to another directory.
var jsonPage, jsonPageErr = os.ReadFile("../../docs/json.md")

func checkedBy(t *testing.T, args []string) (checked, int) {
	t.Helper()
	var out, errs bytes.Buffer
	status := run(t.Context(), nil, args, &out, &errs)
	if jsonPageErr != nil {
		t.Fatal(jsonPageErr)
	}
	page, err := documented.Parse(string(jsonPage))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := page.Check("posternd -check", out.Bytes()); err != nil {
		t.Errorf("it is not as docs/json.md has it: %v", err)
	}
	var doc checked
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || errs.Len() > 0 || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("%v: not one document: %q%q", err, &out, &errs)
	}
	return doc, status
}

// C156, C157: every mistake of every file that is read at once, with its place and the
// nearest key, and nothing is started.
func TestPosternd1_C156_MistakesOfAllFilesAtOnce(t *testing.T) {
	needRoot(t)
	files := map[string]string{
		"postern.yaml":            "activity:\n  keep_day: 3\nkeep_mib: 100\nhosts:\n  - {id: Runner, uid: 900, accounts: ['*'], project: ['*']}\n",
		"postern.yaml.d/10.yaml":  "drain_second: 5\nhosts:\n  - {id: runner, uid: 901, accounts: ['*'], projects: ['*']}\n",
		"postern.yaml.d/20.yml":   "hosts: []\n",
		"postern.yaml.d/README":   "nothing\n",
		"postern.yaml.d/.10.yaml": "{{{\n",
		"profiles.d/mine.yaml":    "nmae: mine\nlimits: {memry: 1GiB}\n",
		"access.yaml":             "chanels: {}\nchannels:\n  w: {alow: [x], access: {user: {}}}\n",
	}
	dir, args := configDir(t, files)
	doc, status := checkedBy(t, args)
	if status != refusal.ExitConfig || doc.File != dir+"/postern.yaml" || !doc.Found {
		t.Errorf("status %d, %+v", status, doc)
	}
	for _, want := range []config.Mistake{
		{File: "postern.yaml", Line: 2, Key: "activity.keep_day", Want: "is not a key here; did you mean keep_days?"},
		{File: "postern.yaml", Line: 3, Key: "keep_mib", Want: "is not a key here; it belongs there: activity.keep_mib, artifacts.keep_mib"},
		{File: "postern.yaml", Line: 5, Key: "hosts[0].project", Want: "is not a key here; did you mean projects?"},
		{File: "postern.yaml.d/10.yaml", Line: 1, Key: "drain_second", Want: "is not a key here; did you mean drain_seconds?"},
		{File: "postern.yaml.d/10.yaml", Line: 3, Key: "hosts[0].id", Want: "the host at"},
		{File: "postern.yaml.d/20.yml", Want: "is not read: a name here ends in .yaml"},
		{File: "profiles.d/mine.yaml", Line: 1, Key: "nmae", Want: "did you mean name?"},
		{File: "profiles.d/mine.yaml", Line: 2, Key: "limits.memry", Want: "did you mean memory?"},
	} {
		if !slices.ContainsFunc(doc.Mistakes, func(m config.Mistake) bool {
			return (want.File == "" || m.File == filepath.Join(dir, want.File)) && m.Line == want.Line && m.Key == want.Key && strings.Contains(m.Want, want.Want)
		}) {
			t.Errorf("no %+v in\n%+v", want, doc.Mistakes)
		}
	}
	// Those of access.yaml deny whom they are about and keep nothing from starting; asked
	// for every mistake, posternd tells them too, once the rest is in order.
	for name, text := range map[string]string{"postern.yaml": good, "postern.yaml.d/10.yaml": "drain_seconds: 5\n"} {
		os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
	}
	os.Remove(dir + "/postern.yaml.d/20.yml")
	os.Remove(dir + "/profiles.d/mine.yaml")
	doc, status = checkedBy(t, args)
	for _, want := range []config.Mistake{
		{File: "access.yaml", Line: 1, Key: "chanels", Want: "did you mean channels?"},
		{File: "access.yaml", Line: 3, Key: "channels.w.alow", Want: "did you mean allow?"},
		{File: "access.yaml", Line: 3, Key: "channels.w.access.user", Want: "did you mean users?"},
	} {
		if status != refusal.ExitConfig || !slices.ContainsFunc(doc.Mistakes, func(m config.Mistake) bool {
			return m.File == filepath.Join(dir, want.File) && m.Line == want.Line && m.Key == want.Key && strings.Contains(m.Want, want.Want)
		}) {
			t.Errorf("no %+v in\n%+v", want, doc.Mistakes)
		}
	}
	// The permitted twin, and what it tells.
	os.WriteFile(dir+"/access.yaml", []byte("channels:\n  w: {allow: [x]}\n"), 0o600)
	doc, status = checkedBy(t, args)
	said := map[string]config.Said{}
	for _, s := range doc.Settings {
		said[s.Key] = s
	}
	if status != 0 || len(doc.Mistakes) != 0 || !said["uid_range.first"].Restart || said["drain_seconds"] != (config.Said{Key: "drain_seconds", File: dir + "/postern.yaml.d/10.yaml", Line: 1}) || said["hosts.runner"].Line != 3 {
		t.Errorf("status %d, %+v", status, doc)
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("something was made: %v", left)
	}
}

// A drop-in is held to what the file is held to, and so is its directory.
func TestPosternd1_DropInsAreRootsOwn(t *testing.T) {
	needRoot(t)
	for name, row := range map[string]struct {
		do   func(dir string) error
		says string // "" is no mistake
	}{
		"as it should be":      {func(string) error { return nil }, ""},
		"one without the file": {func(dir string) error { return os.Rename(dir+"/postern.yaml", dir+"/postern.yaml.d/00.yaml") }, ""},
		"writable by others":   {func(dir string) error { return os.Chmod(dir+"/postern.yaml.d/10.yaml", 0o666) }, `10.yaml" has mode 0666`},
		"somebody else's":      {func(dir string) error { return os.Chown(dir+"/postern.yaml.d/10.yaml", 64321, 0) }, "belongs to uid 64321"},
		"a link":               {func(dir string) error { return os.Symlink("10.yaml", dir+"/postern.yaml.d/20.yaml") }, `20.yaml" is a symbolic link`},
		"a dangling link":      {func(dir string) error { return os.Symlink("nowhere", dir+"/postern.yaml.d/20.yaml") }, `20.yaml" is a symbolic link`},
		"a directory":          {func(dir string) error { return os.Mkdir(dir+"/postern.yaml.d/20.yaml", 0o755) }, `20.yaml" is a directory`},
		"a pipe":               {func(dir string) error { return syscall.Mkfifo(dir+"/postern.yaml.d/20.yaml", 0o600) }, `20.yaml" is neither a file nor a directory`},
		"a second name":        {func(dir string) error { return os.Link(dir+"/postern.yaml.d/10.yaml", dir+"/second") }, `10.yaml" has 2 names`},
		"half written": {func(dir string) error {
			return os.WriteFile(dir+"/postern.yaml.d/20.yaml", []byte("sessions: {req"), 0o600)
		}, "20.yaml:1: "},
		"a directory of all":  {func(dir string) error { return os.Chmod(dir+"/postern.yaml.d", 0o777) }, "has mode 0777"},
		"another's directory": {func(dir string) error { return os.Chown(dir+"/postern.yaml.d", 64321, 0) }, "belongs to uid 64321"},
		"a linked directory": {func(dir string) error {
			return errors.Join(os.Rename(dir+"/postern.yaml.d", dir+"/elsewhere"), os.Symlink("elsewhere", dir+"/postern.yaml.d"))
		}, "symbolic link"},
	} {
		// The main file must be there where it is named; without the flag it need not.
		dir, args := configDir(t, map[string]string{"postern.yaml": "drain_seconds: 5\n", "postern.yaml.d/10.yaml": "audit: {old_files: 3}\n"})
		if err := row.do(dir); err != nil {
			t.Fatal(err)
		}
		if name == "one without the file" {
			f, found, err := readConfig(dir + "/postern.yaml")
			if found || err != nil || f.Audit.Files != 3 || f.Drain == nil {
				t.Errorf("%s: %+v, %v", name, f, err)
			}
			continue
		}
		doc, status := checkedBy(t, args)
		if got := fmt.Sprint(doc.Mistakes); (status == 0) != (row.says == "") || !strings.Contains(strings.ReplaceAll(got, " {", " "), row.says) && !strings.Contains(mistakeText(doc), row.says) {
			t.Errorf("%s: status %d, %s", name, status, mistakeText(doc))
		}
	}
}

func mistakeText(doc checked) string {
	var out []string
	for _, m := range doc.Mistakes {
		out = append(out, m.Error())
	}
	return strings.Join(out, "\n")
}

// C156, C157: what is written into a file that nobody reads is refused at the start and by
// -check, with the file's name and what to do; what is known to be left over is not.
func TestPosternd1_C156_WhatIsNotReadForItsNameIsAMistake(t *testing.T) {
	needRoot(t)
	for name, wants := range map[string]string{
		"access.yml":                      "is not read; did you mean access.yaml? Rename it",
		"Access.yaml":                     "is not read; did you mean access.yaml? Rename it",
		"access.json":                     "is not read; did you mean access.yaml? Rename it",
		"acess.yaml":                      "is not read; did you mean access.yaml? Rename it",
		"profile.d/x.yaml":                "is not read; did you mean profiles.d? Rename it",
		"access2.yaml":                    "",
		"postern.yml":                     "is not read; did you mean postern.yaml? Rename it",
		"postern.d/10.yaml":               "is not read; did you mean postern.yaml.d? Rename it",
		"postern.yaml.d/x.conf":           "is not read: a name here ends in .yaml; rename it",
		"postern.yaml.d/x.yml":            "is not read: a name here ends in .yaml; rename it",
		"postern.yaml.d/x":                "is not read: a name here ends in .yaml; rename it",
		"postern.yaml.d/x.YAML":           "is not read: a name here ends in .yaml; rename it",
		"postern.yaml.d/more/x.yaml":      "is not read: a name here ends in .yaml; rename it",
		"profiles.d/x.yml":                "is not read: a name here ends in .yaml; rename it",
		"profiles.d/x.conf":               "is not read: a name here ends in .yaml; rename it",
		"profiles.d/README.md":            "is not read: a name here ends in .yaml; rename it",
		"access.yaml":                     "",
		"access.yaml.lock":                "",
		"access.yaml.bak":                 "",
		"access.yml~":                     "",
		"notes.yml":                       "",
		"postern.yaml.rpmnew":             "",
		"postern.yaml.d/README":           "",
		"postern.yaml.d/10.yaml~":         "",
		"postern.yaml.d/.10.yaml.swp":     "",
		"postern.yaml.d/10.yaml.dpkg-old": "",
		"profiles.d/x.yaml.rpmsave":       "",
		"profiles.d/README":               "",
	} {
		dir, args := configDir(t, map[string]string{"postern.yaml": good, "postern.yaml.d/10.yaml": "drain_seconds: 5\n", name: "# nothing\n"})
		doc, status := checkedBy(t, args)
		at := name
		if strings.Count(name, "/") == 2 || strings.HasPrefix(name, "postern.d") || strings.HasPrefix(name, "profile.d") { // the directory is what is not read
			at = filepath.Dir(name)
		}
		if wants == "" {
			if status != 0 || len(doc.Mistakes) != 0 {
				t.Errorf("%s: status %d, %s", name, status, mistakeText(doc))
			}
			continue
		}
		if status != refusal.ExitConfig || len(doc.Mistakes) != 1 || doc.Mistakes[0].File != filepath.Join(dir, at) || !strings.HasPrefix(doc.Mistakes[0].Want, wants) {
			t.Errorf("%s: status %d, %s", name, status, mistakeText(doc))
		}
		var out, errs bytes.Buffer // and so it is where it is to start
		if status := run(t.Context(), nil, args[2:], &out, &errs); status != refusal.ExitConfig || !strings.Contains(errs.String(), filepath.Join(dir, at)+": "+wants) {
			t.Errorf("%s: started: status %d, %s", name, status, &errs)
		}
		if left, _ := os.ReadDir(dir + "/root"); left != nil {
			t.Errorf("%s: something was made: %v", name, left)
		}
	}
	// A policy that is named elsewhere is held to its own directory and name.
	dir, args := configDir(t, map[string]string{"postern.yaml": good, "else/who.yml": "", "access.yml": ""})
	if doc, status := checkedBy(t, append(args, "-access", dir+"/else/who.yaml")); status != refusal.ExitConfig || len(doc.Mistakes) != 1 || !strings.Contains(mistakeText(doc), "who.yml: is not read; did you mean who.yaml?") {
		t.Errorf("status %d, %s", status, mistakeText(doc))
	}
}

// A byte order mark is invisible, and makes another key of the first one: in every file it
// is told by its name.
func TestPosternd1_AByteOrderMarkIsNamed(t *testing.T) {
	needRoot(t)
	profile, _ := profiles.Source("static")
	own := strings.Replace(string(profile), "name: static", "name: mine", 1)
	for _, mark := range []string{"", "\ufeff", "\xff\xfe", "\xfe\xff"} {
		files := map[string]string{"postern.yaml": good, "postern.yaml.d/10.yaml": "drain_seconds: 5\n", "profiles.d/mine.yaml": own, "access.yaml": "channels:\n  w: {allow: [x]}\n"}
		for name, text := range files {
			marked := maps.Clone(files)
			marked[name] = mark + text
			dir, args := configDir(t, marked)
			doc, status := checkedBy(t, args)
			switch {
			case mark == "":
				if status != 0 {
					t.Errorf("without one: %d, %s", status, mistakeText(doc))
				}
			case status != refusal.ExitConfig || !slices.ContainsFunc(doc.Mistakes, func(m config.Mistake) bool {
				return m.File == filepath.Join(dir, name) && m.Line == 1 && strings.Contains(m.Want, "begins with a byte order mark")
			}):
				t.Errorf("%q in %s: %d, %s", mark, name, status, mistakeText(doc))
			}
		}
	}
}

// C177: a path is absolute where it is kept, or is refused; what is shown of a file that
// was named by a relative path is where it is.
func TestC177_PathsAreAbsoluteOrRefused(t *testing.T) {
	needRoot(t)
	dir, _ := configDir(t, map[string]string{"postern.yaml": "{}\n", "profiles.d/mine.yaml": "name: mine\nbinds:\n  - {source: data, target: ./x}\n"})
	t.Chdir(dir)
	doc, status := checkedBy(t, []string{"-check", "-json", "-config", "postern.yaml", "-root-dir", "./data", "-state-dir", "state", "-run-dir", "../run", "-access", "access.yaml", "-authority-user", "64321:64321"})
	if status != refusal.ExitConfig || doc.File != dir+"/postern.yaml" {
		t.Errorf("status %d, %q", status, doc.File)
	}
	text := mistakeText(doc)
	if !strings.Contains(text, "mine.yaml:3: binds[0].source: ") {
		t.Errorf("no mistake about a relative bind in\n%s", text)
	}
	os.Remove(dir + "/profiles.d/mine.yaml")
	doc, _ = checkedBy(t, []string{"-check", "-json", "-config", "postern.yaml", "-root-dir", "./data", "-state-dir", "state", "-run-dir", "../run", "-access", "access.yaml", "-authority-user", "64321:64321"})
	for _, flag := range []string{"root-dir", "state-dir", "run-dir", "access"} {
		if want := flag + ": want an absolute path"; !strings.Contains(mistakeText(doc), want) {
			t.Errorf("no %q in\n%s", want, mistakeText(doc))
		}
	}
}
