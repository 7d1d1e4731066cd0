package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
)

// The users of the pages. None has an entry in passwd.
const (
	anaUID     = 61001
	benUID     = 61002
	runtimeUID = 1500 // as the pages say
	hostUID    = 61100
)

// lineWait bounds one line.
const lineWait = 3 * time.Minute

// pokeEvery is how often something is made happen for a line that follows.
const pokeEvery = 300 * time.Millisecond

var built struct {
	dir, bin, repo string
	modules, newer string // packages of the published server; the second is another revision
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "the documents' commands need root")
			return 1
		}
		fmt.Println("the documents' commands need root; none was run")
		return 0
	}
	dir, err := os.MkdirTemp("/tmp", "docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built.dir, built.bin = dir, filepath.Join(dir, "bin")
	built.repo, err = rig.Repository()
	if err == nil {
		err = rig.Build(built.repo, built.bin)
	}
	if err == nil {
		built.modules, err = rig.NPM(built.repo, filepath.Join(built.repo, "out"))
	}
	for _, name := range []string{"offers", "secret"} {
		if err == nil {
			_, err = rig.BuildServer(built.repo, dir, name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// page is a document and what its lines need to be run here.
type page struct {
	name   string
	uid    int               // who types a line without sudo
	put    map[string]string // what is put in the place of what; values may name {dir}
	before func(*world)
	lines  map[string]line // what single lines need, by the line as it is written
}

// line is what one line needs beside what its page says.
type line struct {
	skip   string            // why it is not run here
	uid    int               // who types it, where not the page's
	before func(*world)      // what a reader has done meanwhile
	put    map[string]string // as the page's, before those
	add    string            // what the shell adds: redirections
	exit   int               // the status that the page says it ends with
	want   string            // what it shows, where the page says so
	follow bool              // it goes on until it is interrupted
}

// world is a private Postern and the directories that the pages name.
type world struct {
	*rig.Rig
	t   *testing.T
	dir string // in the place of /srv and the like; everybody may enter
}

func newWorld(t *testing.T) *world {
	w := &world{Rig: rig.ForTest(t, rig.Config{Bin: built.bin, Hosts: []rig.Host{{ID: "agents", UID: hostUID, Channels: []string{"whatsapp"}}}}), t: t}
	w.dir = filepath.Join(w.Dir, "host")
	for _, d := range []string{"bin", "srv", "root"} {
		if err := os.MkdirAll(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for d, uid := range map[string]int{"srv/shop": anaUID, "home": anaUID, "runtime": runtimeUID, "agents": hostUID} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(w.dir, d), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-r", filepath.Join(built.repo, "packaging/examples"), w.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.write("bin/postern", 0, 0o755, "#!/bin/sh\nexec "+filepath.Join(w.Bin, "postern")+" --run-dir "+w.RunDir+" \"$@\"\n")
	w.write("bin/posternd", 0, 0o755, "#!/bin/sh\nexec "+filepath.Join(w.Libexec, "posternd")+" --config "+filepath.Join(w.Dir, "postern.yaml")+" \"$@\"\n")
	return w
}

func (w *world) write(name string, uid int, mode os.FileMode, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a shell line as root and fails where it does.
func (w *world) run(line string) string {
	w.t.Helper()
	out, err := w.shell(0, line)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// shellAs is a shell with a line, as a user at home would start it.
func (w *world) shellAs(ctx context.Context, uid int, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	c.Env = []string{"PATH=" + filepath.Join(w.dir, "bin") + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + filepath.Join(w.dir, "home"), "NO_COLOR=1", "LANG=C.UTF-8"}
	c.Dir, c.SysProcAttr, c.WaitDelay = filepath.Join(w.dir, "root"), rig.As(uid), 5*time.Second
	switch uid {
	case anaUID:
		c.Dir = filepath.Join(w.dir, "home")
	case runtimeUID:
		c.Dir = filepath.Join(w.dir, "runtime")
	case hostUID:
		c.Dir = filepath.Join(w.dir, "agents")
	}
	return c
}

func (w *world) shell(uid int, line string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), lineWait)
	defer cancel()
	out, err := w.shellAs(ctx, uid, line).CombinedOutput()
	return string(out), err
}

// follow runs a line until it has shown something, which it is given reason to, and
// interrupts it as a reader would.
func (w *world) follow(uid int, line string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), lineWait)
	defer cancel()
	c := w.shellAs(ctx, uid, "exec "+line)
	var errb bytes.Buffer
	c.Stderr = &errb
	out, err := c.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	first := make(chan string, 1)
	go func() {
		buf := make([]byte, 4096)
		n, _ := out.Read(buf)
		first <- string(buf[:n])
		io.Copy(io.Discard, out)
	}()
	for {
		select {
		case text := <-first:
			c.Process.Signal(syscall.SIGINT)
			c.Wait()
			if text == "" {
				return errb.String(), errors.New("it ended and showed nothing")
			}
			return text, nil
		case <-time.After(pokeEvery):
			w.happen()
		}
	}
}

// happen makes a record: ana's runtime asks for one of its own tools and is refused.
func (w *world) happen() { w.shell(anaUID, "postern check --project shop Bash >/dev/null") }

// row is one object of a list that a command prints.
type row map[string]any

// rows returns what a list holds, as somebody sees it.
func (w *world) rows(uid int, command, list string) []row {
	w.t.Helper()
	var doc map[string]json.RawMessage
	var rows []row
	out, err := w.shell(uid, "postern --json "+command+" 2>/dev/null")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &doc), json.Unmarshal(doc[list], &rows)); err != nil {
		w.t.Fatalf("%s: %v: %s", command, err, out)
	}
	return rows
}

// newest is the greatest id among those of rows that are wanted: ids begin with the time.
func newest(rows []row, member string, wanted func(row) bool) string {
	var id string
	for _, r := range rows {
		if v, _ := r[member].(string); v > id && wanted(r) {
			id = v
		}
	}
	return id
}

// ids puts what stands for an id in the pages.
func (w *world) ids(text string) string {
	w.t.Helper()
	if strings.Contains(text, "tsk_01a2…") {
		live := func(r row) bool { return r["ended"] == nil }
		text = strings.ReplaceAll(text, "tsk_01a2…", newest(w.rows(0, "task list --project shop", "tasks"), "task", live))
	}
	if strings.Contains(text, "prj_01a2…") {
		any := func(row) bool { return true }
		text = strings.ReplaceAll(text, "prj_01a2…", newest(w.rows(0, "project list", "projects"), "project", any))
	}
	if strings.Contains(text, "acc_01a2…") {
		ana := func(r row) bool { return r["name"] == "ana" }
		text = strings.ReplaceAll(text, "acc_01a2…", newest(w.rows(0, "account list", "accounts"), "account", ana))
	}
	if strings.HasSuffix(text, "activity show p1x") {
		w.happen()
		rows := w.rows(anaUID, "activity --project shop --limit 1", "rows")
		if len(rows) == 0 {
			w.t.Fatal("nothing is recorded")
		}
		text = strings.TrimSuffix(text, "p1x") + fmt.Sprint(rows[0]["cursor"]) // as the table has it of what was denied, for her alone
	}
	return text
}

// commands returns the lines of a page that somebody types.
func commands(text string) []string {
	return rig.Commands(text, func(word string) bool { return word == "postern" || word == "posternd" || elsewhere[word] != "" })
}

// put puts in what the reader would.
func (w *world) put(text string, with map[string]string) string {
	for _, old := range slices.SortedFunc(maps.Keys(with), func(a, b string) int { return len(b) - len(a) }) {
		text = strings.ReplaceAll(text, old, with[old])
	}
	return strings.NewReplacer("{dir}", w.dir, "{run}", w.RunDir, "{root}", w.RootDir, "{state}", w.StateDir, "{mcp}", built.modules, "{mcp-new}", newer(w.t)).Replace(text)
}

// TestEveryCommandOfThePagesRuns: see pages_linux_test.go for what each needs.
func TestEveryCommandOfThePagesRuns(t *testing.T) {
	for _, p := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(p.name), ".md"), func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(built.repo, p.name))
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			if p.before != nil {
				p.before(w)
			}
			met := map[string]bool{}
			ran := 0
			for _, written := range commands(string(raw)) {
				l := p.lines[written]
				met[written] = true
				word, _, _ := strings.Cut(strings.TrimPrefix(written, "sudo "), " ")
				if l.skip != "" || elsewhere[word] != "" {
					continue
				}
				if l.before != nil {
					l.before(w)
				}
				ran++
				w.step(p, l, written)
			}
			for written := range p.lines {
				if !met[written] {
					t.Errorf("the page has no line %q", written)
				}
			}
			t.Logf("%d lines run, %d not", ran, len(met)-ran)
		})
	}
}

// step runs one line as it is written, with what the reader puts in.
func (w *world) step(p page, l line, written string) {
	w.t.Helper()
	text, sudo := strings.CutPrefix(written, "sudo ")
	uid := p.uid
	if l.uid != 0 {
		uid = l.uid
	}
	if sudo {
		uid = 0
	}
	text, _, _ = strings.Cut(text, "   #")
	text = w.ids(w.put(w.put(text, l.put), p.put) + w.put(l.add, nil))
	ask := w.shell
	if l.follow {
		ask = w.follow
	}
	out, err := ask(uid, text)
	var ee *exec.ExitError
	exit := 0
	if errors.As(err, &ee) {
		exit, err = ee.ExitCode(), nil
	}
	if err != nil || exit != l.exit || !strings.Contains(out, l.want) {
		w.t.Errorf("%s\n  as uid %d: %s\n  exit %d, want %d and %q (%v)\n%s", written, uid, text, exit, l.exit, l.want, err, out)
	}
}

// The runner is worth something: a line that fails, a command that does not exist and
// a follow that shows nothing are errors.
func TestTheRunnerTellsWhatFails(t *testing.T) {
	got := commands("a\n```sh\nx\n# y\n```\nb\n```\npostern ps\nother\nsudo postern doctor\n```\npostern no\n")
	if want := []string{"x", "postern ps", "sudo postern doctor"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	w := newWorld(t)
	for text, want := range map[string]int{"postern frob": 2, "postern project show none": 65, "postern account list": 0, "nosuch": 127} {
		out, err := w.shell(0, text)
		var ee *exec.ExitError
		exit := 0
		if errors.As(err, &ee) {
			exit = ee.ExitCode()
		}
		if exit != want {
			t.Errorf("%s: exit %d, want %d: %s", text, exit, want, out)
		}
	}
	if out, err := w.follow(0, "postern account list >/dev/null"); err == nil {
		t.Errorf("nothing was shown, and %q followed", out)
	}
}

// The program of the page is whole: as the runtime's user, with a token of the host's, it
// lists what is granted and reads a file; without one it is refused, and says so.
func TestTheRuntimeOfThePageWorks(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(built.repo, "docs/runtime-authors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(raw), "\n```python\n")
	program, _, found := strings.Cut(program, "\n```\n")
	if !found {
		t.Fatal("the page has no program")
	}
	w := newWorld(t)
	shop(w)
	w.write("runtime/runtime.py", runtimeUID, 0o644, program)
	w.write("srv/shop/hello.txt", anaUID, 0o644, "hello from the workspace")
	task(w)
	line := w.ids("python3 runtime.py " + w.RunDir + " prj_01a2…")
	out, err := w.shell(runtimeUID, line+" <../agents/token")
	if err != nil || !strings.Contains(out, "'write_file'") || !strings.Contains(out, "hello from the workspace") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.shell(runtimeUID, line+" <../agents/token"); err == nil || !strings.Contains(out, "token_used") {
		t.Errorf("with a token that is used up: %v\n%s", err, out)
	}
}

// What a reader could not find out at first: a person who suspended their own account sees
// empty lists, and is told why.
func TestASuspendedOwnerIsToldWhyListsAreEmpty(t *testing.T) {
	w := newWorld(t)
	w.run("postern account add ana --uid 61001")
	w.run("postern project add shop --workspace " + filepath.Join(w.dir, "srv/shop") + " --owner ana")
	if out, err := w.shell(anaUID, "postern project list"); err != nil || strings.Contains(out, "suspended") || !strings.Contains(out, "shop") {
		t.Errorf("active: %v\n%s", err, out)
	}
	if out, err := w.shell(anaUID, "postern account suspend ana && postern project list"); err != nil || !strings.Contains(out, "account ana is suspended and sees nothing") {
		t.Errorf("suspended: %v\n%s", err, out)
	}
}
