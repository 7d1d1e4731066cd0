package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// The people and the host; none has an entry in passwd.
const (
	aliceUID   = 61001
	bobUID     = 61002
	runtimeUID = 61050 // runs runtimes of more than one project
	hostUID    = 61100
)

// stateWait bounds the wait for something that a program brings about.
const stateWait = 30 * time.Second

// world is the private Postern that all scenarios share; each makes projects of its own.
type world struct {
	*rig.Rig
	pkg, pictures string         // packages of fixture servers
	people        map[string]int // uids by the names of accounts
	made          int
}

// stage is the world for one scenario with one client.
type stage struct {
	*world
	client client
}

// project is one that a scenario made.
type project struct{ id, label, owner, workspace string }

func (w *world) prepare() error {
	w.people = map[string]int{}
	return errors.Join(w.person("alice", aliceUID), w.person("bob", bobUID), w.register("count"),
		w.do("server", "add", "pictures", "--profile", "static", "--package", w.pictures, "--", "/package/pictures"))
}

func (w *world) person(name string, uid int) error {
	w.people[name] = uid
	return w.do("account", "add", name, "--uid", fmt.Sprint(uid))
}

// register adds the counting server under a label.
func (w *world) register(label string, flags ...string) error {
	args := append([]string{"server", "add", label, "--profile", "static", "--package", w.pkg}, flags...)
	return w.do(append(args, "--", "/package/count")...)
}

// do runs the command as root.
func (w *world) do(args ...string) error {
	out, errb, exit := w.CLI(0, args...)
	if exit != 0 {
		return fmt.Errorf("postern %s: exit %d: %s%s", strings.Join(args, " "), exit, out, errb)
	}
	return nil
}

// project makes one that its owner connects to by being who they are.
func (w *world) project(owner string) (project, error) {
	w.made++
	p := project{label: fmt.Sprintf("p%d", w.made), owner: owner}
	p.workspace = filepath.Join(w.Dir, "ws-"+p.label)
	return p, w.registerProject(&p)
}

// registerProject makes the directory of a project, where it is missing, and registers it.
func (w *world) registerProject(p *project) error {
	uid := w.people[p.owner]
	if err := errors.Join(os.MkdirAll(p.workspace, 0o700), os.Chown(p.workspace, uid, uid)); err != nil {
		return err
	}
	var added api.ProjectResult
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: p.label, Workspace: p.workspace, Owner: p.owner}, &added); err != nil {
		return err
	}
	p.id = added.Project
	return w.do("project", "set", p.id, "--person-bind=true")
}

// granted makes a project in which tools of the counting server are granted.
func (w *world) granted(owner string, tools ...string) (project, error) {
	p, err := w.project(owner)
	if err != nil {
		return p, err
	}
	return p, w.grant(p, tools...)
}

func (w *world) grant(p project, tools ...string) error {
	return errors.Join(w.do("connection", "add", p.id, "count"), w.do(append([]string{"connection", "grant", p.id, "count"}, tools...)...))
}

// open connects as the project's owner.
func (s *stage) open(p project) (runtime, error) {
	return s.openAs(s.people[p.owner], p, "")
}

// opened is both: a project in which tools are granted, and its owner connected.
func (s *stage) opened(owner string, tools ...string) (project, runtime, error) {
	p, err := s.granted(owner, tools...)
	if err != nil {
		return p, nil, err
	}
	r, err := s.open(p)
	return p, r, err
}

func (s *stage) openAs(uid int, p project, token string) (runtime, error) {
	c, err := s.connector(uid, p.id, token)
	if err != nil {
		return nil, err
	}
	r, err := s.client.open(c)
	for _, f := range c.ExtraFiles {
		f.Close()
	}
	return r, err
}

// token is one of a fresh task of the host's, for the runtimes' user.
func (w *world) token(p project) (token, task string, err error) {
	rd, wr, err := os.Pipe()
	if err != nil {
		return "", "", err
	}
	defer rd.Close()
	c := exec.Command(filepath.Join(w.Bin, "postern"), "--run-dir", w.RunDir, "--json", "task", "new", "--token-fd", "3", "--project", p.id, "--for-uid", fmt.Sprint(runtimeUID), "--binds", "4")
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr, c.Dir, c.ExtraFiles, c.SysProcAttr, c.Env = &out, &errb, "/", []*os.File{wr}, rig.As(hostUID), []string{"PATH=/usr/bin"}
	err = c.Run()
	wr.Close()
	if err != nil {
		return "", "", fmt.Errorf("task new: %w: %s", err, errb.String())
	}
	b, err := io.ReadAll(rd)
	if err != nil {
		return "", "", err
	}
	var t api.TaskResult
	err = json.Unmarshal(out.Bytes(), &t)
	return strings.TrimSpace(string(b)), t.Task, err
}

// received is what the project's tool server wrote down of its calls.
func (p project) received() int {
	b, err := os.ReadFile(filepath.Join(p.workspace, "calls.log"))
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "call ") {
			n++
		}
	}
	return n
}

// records are the project's, newest first.
func (w *world) records(p project) ([]api.ActivityRow, error) {
	var act api.ActivityResult
	err := w.Call(api.Activity, api.ActivityParams{Project: p.id, Limit: 100}, &act)
	return act.Rows, err
}

// until waits for what a program brings about.
func until(what string, ok func() bool) error {
	for end := time.Now().Add(stateWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return nil
		}
	}
	return fmt.Errorf("it did not come about: %s", what)
}

// notLetIn is what a client that could not connect says of it, "" where it could. The
// fixture is told the code; the library closes on an answer to no request of its own,
// and keeps it to itself.
func notLetIn(r runtime, err error) string {
	if err != nil {
		return err.Error()
	}
	r.close()
	return ""
}

// says tells whether the client was not let in, for this reason where it can tell.
func (s *stage) says(refused, code string) bool {
	return refused != "" && (!s.client.told || strings.Contains(refused, `"`+code+`"`))
}
