package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/integration/rig"
	"postern/supervisor/api"
	sockets "postern/supervisor/client"
	"postern/supervisor/launch"
)

// Sizes of the large installation.
const (
	scaleFew   = 10   // projects of the small one that it is compared with
	scaleLive  = 200  // projects with a live bridge and tool server
	scaleCalls = 4000 // measured calls of one caller, in each state
	scaleWait  = 5 * time.Minute
)

// granted are the tools granted in each project of the large installation.
var granted = []string{"echo", "slow", "deaf", "stubborn", "write", "read", "env", "fds", "progress", "big"}

// scale measures what many projects cost: a small installation, the same one grown to
// many projects, that one with a connection and grants in each, and with many bridges
// alive. Connections and grants are made over control.sock; of how the projects are
// made, see grow.
func scale(projects int) error {
	return installed(func(s *installation, pkg string) error { return s.measure(pkg, projects) })
}

// installed runs on a private Postern of its own.
func installed(run func(s *installation, pkg string) error) error {
	return private(func(r *rig.Rig, _, dir, pkg string) error {
		s := &installation{r: r, dir: dir, socks: map[string]*sockets.Conn{}}
		if err := run(s, pkg); err != nil {
			return fmt.Errorf("%w\n%s", err, r.Log)
		}
		return nil
	})
}

// installation is one Postern that grows.
type installation struct {
	r        *rig.Rig
	dir      string
	socks    map[string]*sockets.Conn
	projects []string
	busy     sample // of one caller beside many live sessions
}

// ask keeps a connection to each socket.
func (s *installation) ask(a api.Action, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), scaleWait)
	defer cancel()
	path := s.r.Socket(a)
	c := s.socks[path]
	if c == nil {
		var err error
		if c, err = sockets.Dial(ctx, path); err != nil {
			return err
		}
		s.socks[path] = c
	}
	raw, err := c.Call(ctx, a, params, sockets.Options{}, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(raw, result)
}

// label names a project and its directory.
func (s *installation) label(i int) (name, workspace string) {
	name = fmt.Sprintf("p%05d", i)
	return name, filepath.Join(s.dir, "ws", name)
}

func (s *installation) makeWorkspace(i int) (label, ws string, err error) {
	label, ws = s.label(i)
	return label, ws, errors.Join(os.MkdirAll(ws, 0o755), os.Chown(ws, personUID, personUID))
}

// add registers a project as an operator does.
func (s *installation) add(i int) error {
	label, ws, err := s.makeWorkspace(i)
	if err != nil {
		return err
	}
	var p api.ProjectResult
	if err := s.ask(api.ProjectAdd, api.ProjectAddParams{Label: label, Workspace: ws, Owner: "person"}, &p); err != nil {
		return err
	}
	yes := true
	s.projects = append(s.projects, p.Project)
	return s.ask(api.ProjectSet, api.ProjectSetParams{Project: p.Project, PersonBind: &yes}, nil)
}

// grow writes projects into the file of the root facts, of a posternd that is down,
// until there are n. Each change of the facts writes and tells all of them, so that to
// add n one by one costs n²; each has its real directory, marked and identified as
// posternd does it, which looks at each one when it is used.
func (s *installation) grow(n int) error {
	path := filepath.Join(s.r.RootDir, "facts.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var f launch.Facts
	if err := json.Unmarshal(raw, &f, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	like := f.Projects[0]
	for i := len(s.projects); i < n; i++ {
		p := like
		var random [10]byte
		rand.Read(random[:])
		p.ID = ids.New[ids.Project](time.Now(), random)
		if p.Label, p.Workspace, err = s.makeWorkspace(i); err != nil {
			return err
		}
		p.Directory.Place = strings.TrimSuffix(like.Directory.Place, like.Workspace) + p.Workspace
		if err := mark(p.Workspace, &p); err != nil {
			return err
		}
		f.Projects = append(f.Projects, p)
		s.projects = append(s.projects, string(p.ID))
	}
	f.Version++
	if raw, err = json.Marshal(f, json.Deterministic(true)); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

// mark writes into p which directory it is, and its mark beside it.
func mark(path string, p *launch.Project) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return err
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &st); err != nil {
		return err
	}
	p.Directory.Type, p.Directory.Handle, p.Directory.Birth = h.Type(), hex.EncodeToString(h.Bytes()), st.Btime.Sec*1e9+int64(st.Btime.Nsec)
	return unix.Setxattr(path, "trusted.postern.project", []byte(p.ID), 0)
}

func (s *installation) grant(from, to int) error {
	for _, p := range s.projects[from:to] {
		con := api.ConnectionParams{Project: p, Server: "count"}
		if err := s.ask(api.ConnectionAdd, con, nil); err != nil {
			return err
		}
		con.Tools, con.Tier = granted, "reversible"
		if err := s.ask(api.ConnectionGrant, con, nil); err != nil {
			return err
		}
	}
	return nil
}

// found is an installation with its account and its probed server.
func (s *installation) found(pkg string) error {
	return errors.Join(
		s.ask(api.AccountAdd, api.AccountAddParams{Name: "person", UIDs: []uint32{personUID}}, nil),
		s.ask(api.ServerAdd, api.ServerParams{Label: "count", Profile: "static", Package: pkg, Command: []string{"/package/count", "/dev/null"}}, nil),
		s.ask(api.ServerProbe, api.Selected{Selector: "count"}, nil))
}

func (s *installation) measure(pkg string, projects int) error {
	if err := s.found(pkg); err != nil {
		return err
	}
	for i := range scaleFew {
		if err := s.add(i); err != nil {
			return err
		}
	}
	if err := s.grant(0, scaleFew); err != nil {
		return err
	}
	fmt.Printf("%-44s | %8s | %12s | %14s | %s\n", "", "start", "posternd KiB", "authority KiB", "one caller: p50, p99 µs; calls/s")
	small, err := s.state(fmt.Sprintf("%d projects, %d grants", scaleFew, scaleFew*len(granted)), func() error { return nil })
	if err != nil {
		return err
	}
	bare, err := s.state(fmt.Sprintf("%d projects, %d grants", projects, scaleFew*len(granted)), func() error { return s.grow(projects) })
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.grant(scaleFew, projects); err != nil {
		return err
	}
	took := time.Since(began)
	full, err := s.state(fmt.Sprintf("%d projects, %d grants", projects, projects*len(granted)), func() error { return nil })
	if err != nil {
		return err
	}
	each := func(a, b state) float64 {
		return float64(b.posternd+b.authority-a.posternd-a.authority) / float64(projects-scaleFew)
	}
	fmt.Printf("\nan idle project: %.1f KiB of both, with its connection and %d grants %.1f\n", each(small, bare), len(granted), each(small, full))
	fmt.Printf("%d connections and their grants were made in %v, %v each\n", projects-scaleFew, took.Round(time.Second), (took / time.Duration(projects-scaleFew)).Round(time.Microsecond))
	began = time.Now()
	if err := s.add(projects); err != nil {
		return err
	}
	fmt.Printf("one more project added and set: %v\n", time.Since(began).Round(time.Millisecond))
	if err := s.live(full); err != nil {
		return err
	}
	fmt.Printf("admission p99 with %d projects, %d alive, beside %d projects: %.2f\n", projects, scaleLive, scaleFew, float64(s.busy.p99)/float64(small.calls.p99))
	return nil
}

// state is what was found at one size, right after a start.
type state struct {
	posternd, authority int // anonymous memory, KiB
	calls               sample
}

// state stops, changes what lies on the disk, starts, and measures.
func (s *installation) state(what string, change func() error) (out state, err error) {
	for path, c := range s.socks {
		c.Close()
		delete(s.socks, path)
	}
	if err := errors.Join(s.r.Down(), change()); err != nil {
		return out, err
	}
	began := time.Now()
	if err := s.r.Up(); err != nil {
		return out, err
	}
	// It serves when the last project has its socket.
	last := filepath.Join(s.r.RunDir, "p", s.projects[len(s.projects)-1], "bridge.sock")
	for _, err := os.Stat(last); err != nil; _, err = os.Stat(last) {
		if time.Since(began) > scaleWait {
			return out, err
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	var root api.RootStatusResult
	for root.Authority == 0 {
		if err := s.ask(api.RootStatus, nil, &root); err != nil {
			return out, err
		}
	}
	c, err := dial(s.r, s.projects[0])
	if err != nil {
		return out, err
	}
	defer c.close()
	if _, err = measure(c, payload, 1, scaleCalls/4); err == nil {
		out.calls, err = measure(c, payload, 1, scaleCalls)
	}
	if err != nil {
		return out, err
	}
	for pid, to := range map[int]*int{root.PID: &out.posternd, root.Authority: &out.authority} {
		m, err := memory(pid)
		if err != nil {
			return out, err
		}
		*to = m["Pss_Anon"]
	}
	fmt.Printf("%-44s | %6.2f s | %12d | %14d | %s\n", what, took.Seconds(), out.posternd, out.authority, shown(out.calls))
	return out, nil
}

func shown(c sample) string {
	return fmt.Sprintf("%.0f, %.0f; %.0f", float64(c.p50)/1e3, float64(c.p99)/1e3, c.rate)
}

// live opens a session in many projects and measures beside them.
func (s *installation) live(full state) error {
	began := time.Now()
	for _, p := range s.projects[len(s.projects)-1-scaleLive : len(s.projects)-1] {
		c, err := dial(s.r, p)
		if err != nil {
			return fmt.Errorf("project %s: %w", p, err)
		}
		defer c.close()
	}
	took := time.Since(began)
	c, err := dial(s.r, s.projects[0])
	if err != nil {
		return err
	}
	defer c.close()
	if _, err = measure(c, payload, 1, scaleCalls/4); err == nil {
		s.busy, err = measure(c, payload, 1, scaleCalls)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%d sessions opened and called in %v, %v each; beside them one caller: %s\n", scaleLive, took.Round(time.Second), (took / scaleLive).Round(time.Millisecond), shown(s.busy))
	var ps api.PsResult
	if err := s.ask(api.Ps, nil, &ps); err != nil {
		return err
	}
	pss, n := map[string]int{}, map[string]int{}
	for _, row := range ps.Rows {
		m, err := memory(row.PID)
		if err != nil {
			return err
		}
		pss[row.Kind], n[row.Kind] = pss[row.Kind]+m["Pss"], n[row.Kind]+1
	}
	for kind := range n {
		fmt.Printf("%d %ss with an open session: PSS %d KiB each\n", n[kind], kind, pss[kind]/n[kind])
	}
	for _, args := range [][]string{{"project", "list", "--json"}, {"ps", "--json"}, {"connection", "show", s.projects[0], "count", "--json"}} {
		began := time.Now()
		out, errb, exit := s.r.CLI(0, args...)
		if exit != 0 {
			return fmt.Errorf("postern %v: %s", args, errb)
		}
		fmt.Printf("postern %s: %v, %d KiB\n", strings.Join(args[:2], " "), time.Since(began).Round(time.Millisecond), len(out)/1024)
	}
	return nil
}
