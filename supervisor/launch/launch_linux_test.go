package launch

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

func TestLaunch1_RootSockIsForUidZero(t *testing.T) {
	r := start(t, newConfig(t))
	path := filepath.Join(r.cfg.RunDir, rootSocket)
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st.Mode(), err)
	}
	// python is not needed: this binary's own client would be root's. perl and sh cannot
	// speak to a Unix socket, so another uid connects from a thread of its own identity.
	try := func() string {
		answer := make(chan string, 1)
		go func() {
			// The thread has another uid for ever; it is never given back to the runtime.
			lockedAs(1234, func() {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					answer <- err.Error()
					return
				}
				defer unix.Close(fd)
				if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
					answer <- err.Error()
					return
				}
				unix.Write(fd, []byte(`{"id":1,"action":"account.add","params":{"name":"eve","uids":[1234]}}`+"\n"))
				b := make([]byte, 4096)
				n, _ := unix.Read(fd, b)
				answer <- string(b[:n])
			})
		}()
		return <-answer
	}
	if got := try(); !strings.Contains(got, "permission denied") {
		t.Errorf("another uid: %s", got)
	}
	// Even where the mode lets everybody in, the peer's uid decides.
	os.Chmod(path, 0o666)
	if got := try(); !strings.Contains(got, `"code":"not_permitted"`) {
		t.Errorf("another uid past the mode: %s", got)
	}
	if m := r.must(api.RootStatus, struct{}{}); m["version"] == nil {
		t.Errorf("the permitted twin: %v", m)
	}
	if raw, _ := os.ReadFile(filepath.Join(r.cfg.RootDir, audit.Name)); len(raw) != 0 {
		t.Errorf("a refused change is in the audit: %s", raw)
	}
}

func TestRootSock_IsStrict(t *testing.T) {
	r := start(t, newConfig(t))
	for name, c := range map[string]struct {
		line string
		want string
	}{
		"an unknown member":         {`{"id":1,"action":"root.status","uid":0}`, "bad_request"},
		"a member twice":            {`{"id":1,"id":2,"action":"root.status"}`, "bad_request"},
		"an unknown parameter":      {`{"id":1,"action":"account.add","params":{"name":"x","uids":[1000],"account":"y"}}`, "bad_request"},
		"an action of control.sock": {`{"id":1,"action":"project.delete","params":{"selector":"x"}}`, "bad_request"},
		"an unknown action":         {`{"id":1,"action":"root.shell"}`, "bad_request"},
		"no JSON":                   {`hello`, "bad_request"},
		"a line too long":           {`{"id":1,"action":"` + strings.Repeat("x", api.MaxLine) + `"}`, "too_large"},
	} {
		c2, err := net.Dial("unix", filepath.Join(r.cfg.RunDir, rootSocket))
		if err != nil {
			t.Fatal(err)
		}
		go c2.Write([]byte(c.line + "\n"))
		got, _ := bufio.NewReader(c2).ReadString('\n')
		c2.Close()
		if !strings.Contains(got, `"code":"`+c.want+`"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestRootFacts_DryRunVersionsAndAudit(t *testing.T) {
	r := start(t, newConfig(t))
	dry := func(q *api.Request) { q.DryRun = true }
	r.must(api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}}, dry)
	ws := r.workspace("ws", 1000)
	r.refused(refusal.NotFound, api.ProjectAdd, api.ProjectAddParams{Label: "p", Workspace: ws, Owner: "alice"})
	// One rule for what is not there, whichever command names it.
	r.refused(refusal.NotFound, api.AccountDelete, api.Selected{Selector: "x"})
	r.refused(refusal.ProjectUnknown, api.ProjectSet, api.ProjectSetParams{Project: "x"})
	r.refused(refusal.ServerUnknown, api.ServerDelete, api.Selected{Selector: "x"})
	r.refused(refusal.ServerUnknown, api.ServerShow, api.Selected{Selector: "x"})
	r.must(api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}})
	r.must(api.ProjectAdd, api.ProjectAddParams{Label: "p", Workspace: ws, Owner: "alice"}, dry)
	if n, err := unix.Getxattr(ws, markName, nil); err == nil {
		t.Errorf("a trial run marked the directory (%d bytes)", n)
	}
	r.refused(refusal.StaleSelector, api.AccountAdd, api.AccountAddParams{Name: "bob", UIDs: []uint32{1001}}, func(q *api.Request) { q.At = 1 })
	r.must(api.AccountAdd, api.AccountAddParams{Name: "bob", UIDs: []uint32{1001}}, func(q *api.Request) { q.At = 2; q.RequestID = "r-1" })
	raw, err := os.ReadFile(filepath.Join(r.cfg.RootDir, audit.Name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"request":"r-1"`) || !strings.Contains(lines[0], "alice") {
		t.Errorf("audit: %s", raw)
	}
	f, err := (&factsFile{path: r.cfg.RootDir}).peek()
	if err != nil || f.Version != 3 || len(f.Accounts) != 2 || len(f.Projects) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	// What was written is there after a restart.
	instance := f.Instance
	r.down()
	r = start(t, r.cfg)
	if m := r.must(api.RootStatus, struct{}{}); m["instance"] != string(instance) {
		t.Errorf("%v, want instance %s", m, instance)
	}
	r.refused(refusal.AlreadyExists, api.AccountAdd, api.AccountAddParams{Name: "eve", UIDs: []uint32{1000}})
}

func TestProjects_WorkspacesAreCheckedAtAdd(t *testing.T) {
	r := start(t, newConfig(t))
	r.must(api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}})
	r.must(api.AccountAdd, api.AccountAddParams{Name: "bob", UIDs: []uint32{1001}})
	ws := r.workspace("ws", 1000)
	os.Mkdir(filepath.Join(ws, "sub"), 0o755)
	os.Chown(filepath.Join(ws, "sub"), 1001, 1001)
	add := func(label, path, owner string) api.ProjectAddParams {
		return api.ProjectAddParams{Label: label, Workspace: path, Owner: owner}
	}
	r.refused(refusal.WorkspaceRefused, api.ProjectAdd, add("p", "relative", "alice"))
	r.refused(refusal.WorkspaceRefused, api.ProjectAdd, add("p", ws+"/../ws", "alice"))
	r.refused(refusal.WorkspaceRefused, api.ProjectAdd, add("p", r.dir+"/none", "alice"))
	r.refused(refusal.WorkspaceRefused, api.ProjectAdd, add("p", ws, "bob"))
	r.refused(refusal.WorkspaceRefused, api.ProjectAdd, add("p", r.workspace("roots", 0), "alice"))
	for _, own := range []string{r.cfg.RootDir, r.cfg.RunDir, r.cfg.StateDir} {
		os.Chown(own, 1000, 1000)
		r.refused(refusal.WorkspaceOverlap, api.ProjectAdd, add("p", own, "alice"))
		os.Chown(own, 0, 0)
	}
	os.Chown(r.cfg.StateDir, fakeUID, fakeGID)
	m := r.must(api.ProjectAdd, add("p", ws, "alice"))
	if !strings.Contains(fmt.Sprint(m["warnings"]), "uid 1001") {
		t.Errorf("files of others are not listed: %v", m)
	}
	r.refused(refusal.AlreadyExists, api.ProjectAdd, add("p", r.workspace("other", 1000), "alice"))
	r.refused(refusal.WorkspaceOverlap, api.ProjectAdd, add("q", filepath.Join(ws, "sub"), "bob"))
	sock := filepath.Join(r.cfg.RunDir, projectsDir, m["project"].(string), socketName)
	st, err := os.Stat(sock)
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Fatalf("%v, %v", st, err)
	}
	if dir, _ := os.Stat(filepath.Dir(sock)); dir.Mode().Perm() != 0o711 {
		t.Errorf("%v", dir.Mode())
	}
	on := true
	if m := r.must(api.ProjectSet, api.ProjectSetParams{Project: "p", PersonBind: &on}); m["person_bind"] != true {
		t.Errorf("%v", m)
	}
	none := "unconfined"
	r.refused(refusal.BadRequest, api.ProjectSet, api.ProjectSetParams{Project: "p", ExecutionProfile: &none})
}

// said is what testdata/server tells of itself.
type said struct {
	Env   []string `json:"env"`
	FDs   []string `json:"fds"`
	Args  []string `json:"args"`
	Wrote string   `json:"wrote"`
	UID   uint32   `json:"uid"`

	Passed string `json:"passed"` // what descriptor 5 holds
	Sealed bool   `json:"sealed"` // and that it cannot be written
}

func hear(t *testing.T, f *os.File) said {
	t.Helper()
	var s said
	line := readLine(t, f)
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	return s
}

func TestLaunch3_AServerRunsInItsProjectAndItsUidComesBack(t *testing.T) {
	r := start(t, newConfig(t))
	p, ws := r.project("alice", 1000)
	server, rev := r.server("echo", "/workspace/made")
	d := r.drive()

	d.give(order.LaunchBridge{Seq: 1, Project: p, Set: 1})
	b, wire := d.launched()
	if len(wire) != 1 || b.Bridge != "" || !within(b.UID, r.cfg.UIDs) {
		t.Fatalf("%+v with %d descriptors", b, len(wire))
	}
	if kind, err := unix.GetsockoptInt(int(wire[0].Fd()), unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		t.Errorf("the bridge's wire is %d, %v", kind, err)
	}
	d.give(order.LaunchServer{Seq: 2, Project: p, Set: 1, Server: server, Revision: rev})
	l, pipes := d.launched()
	if len(pipes) != 3 || l.UID == b.UID {
		t.Fatalf("%+v with %d descriptors, bridge %+v", l, len(pipes), b)
	}
	for _, f := range pipes {
		if fl, _ := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); fl&unix.O_NONBLOCK != 0 {
			t.Error("a pipe is non-blocking")
		}
	}
	s := hear(t, pipes[1])
	if s.UID != l.UID || s.Wrote != "" || s.Args[0] != "/package/server" {
		t.Errorf("%+v", s)
	}
	st, err := os.Stat(filepath.Join(ws, "made"))
	if err != nil || st.Sys().(*syscall.Stat_t).Uid != 1000 || st.Sys().(*syscall.Stat_t).Gid != 1000 {
		t.Errorf("what it wrote: %v, %v", st, err)
	}

	d.give(order.StatJails{Seq: 3})
	rows, _ := expect[order.Stats](d)
	if len(rows.Rows) != 2 || !rows.Last {
		t.Errorf("%+v", rows)
	}
	for _, row := range rows.Rows {
		if row.Project != p || row.PID == 0 || row.Pids == 0 || row.Started == 0 {
			t.Errorf("%+v", row)
		}
	}

	pipes[0].Close()
	d.give(order.Stop{Jail: l.Jail, GraceMs: 5000})
	x, _ := expect[order.Exited](d)
	if x.Jail != l.Jail || x.Status != 0 || x.Signal != 0 || x.Forced {
		t.Errorf("%+v", x)
	}
	wire[0].Close() // the bridge ends with its wire
	if x, _ := expect[order.Exited](d); x.Jail != b.Jail {
		t.Errorf("%+v", x)
	}
	if m := r.must(api.RootStatus, struct{}{}); m["jails"].(float64) != 0 {
		t.Errorf("%v", m)
	}
}

func TestLaunch3_AnOrderNamesNothingThatIsNotThere(t *testing.T) {
	r := start(t, newConfig(t))
	p, ws := r.project("alice", 1000)
	q, _ := r.project("bob", 1001)
	server, rev := r.server("echo")
	other, otherRev := r.server("other")
	d := r.drive()
	launch := func(want refusal.Code, m order.LaunchServer) {
		t.Helper()
		m.Seq = 9
		d.give(m)
		d.notLaunched(want)
	}
	nobody := newID[ids.Project](t0)
	launch(refusal.ProjectUnknown, order.LaunchServer{Project: nobody, Server: server, Revision: rev})
	launch(refusal.ProjectUnknown, order.LaunchServer{Project: "../../etc", Server: server, Revision: rev})
	launch(refusal.ServerUnknown, order.LaunchServer{Project: p, Server: "x", Revision: rev})
	launch(refusal.ServerRevisionChanged, order.LaunchServer{Project: p, Server: server, Revision: otherRev})
	d.give(order.LaunchBridge{Seq: 9, Project: nobody})
	d.notLaunched(refusal.ProjectUnknown)
	d.give(order.LaunchProbe{Seq: 9, Server: server, Revision: otherRev})
	d.notLaunched(refusal.ServerRevisionChanged)

	// An update makes the former revision unlaunchable, a deletion the server.
	r.must(api.ServerUpdate, api.ServerParams{Label: "echo", Profile: "static", Package: filepath.Join(r.dir, "pkg-echo"), Command: []string{"/package/server", "more"}})
	launch(refusal.ServerRevisionChanged, order.LaunchServer{Project: p, Server: server, Revision: rev})
	r.must(api.ServerDelete, api.Selected{Selector: "other"})
	launch(refusal.ServerUnknown, order.LaunchServer{Project: p, Server: other, Revision: otherRev})
	server, rev = r.server("again")

	// The directory is looked at each time.
	d.give(order.LaunchServer{Seq: 10, Project: p, Server: server, Revision: rev})
	l, pipes := d.launched() // the permitted twin
	pipes[0].Close()
	if x, _ := expect[order.Exited](d); x.Jail != l.Jail {
		t.Fatalf("%+v", x)
	}
	os.Chown(ws, 1001, 1001)
	launch(refusal.WorkspaceRefused, order.LaunchServer{Project: p, Server: server, Revision: rev})
	os.Chown(ws, 1000, 1000)
	os.Rename(ws, ws+".old")
	launch(refusal.ProjectReplaced, order.LaunchServer{Project: p, Server: server, Revision: rev})
	os.Mkdir(ws, 0o755)
	os.Chown(ws, 1000, 1000)
	launch(refusal.ProjectReplaced, order.LaunchServer{Project: p, Server: server, Revision: rev})
	os.Remove(ws)
	os.Symlink(ws+".old", ws)
	launch(refusal.WorkspaceRefused, order.LaunchServer{Project: p, Server: server, Revision: rev})
	os.Remove(ws)
	os.Rename(ws+".old", ws)
	d.give(order.LaunchServer{Seq: 11, Project: p, Server: server, Revision: rev})
	_, pipes = d.launched() // put back, it is the project again
	pipes[0].Close()
	expect[order.Exited](d)

	// An account that is deleted, a project that is retired.
	r.must(api.AccountDelete, api.Selected{Selector: "bob"})
	launch(refusal.AccountDeleted, order.LaunchServer{Project: q, Server: server, Revision: rev})
	d.give(order.Retire{Seq: 12, Project: p})
	if done, _ := expect[order.Done](d); done.Seq != 12 || done.Code != "" {
		t.Fatalf("%+v", done)
	}
	launch(refusal.ProjectDeleted, order.LaunchServer{Project: p, Server: server, Revision: rev})
	if _, err := os.Stat(filepath.Join(r.cfg.RunDir, projectsDir, string(p))); !os.IsNotExist(err) {
		t.Errorf("the socket of a retired project stays: %v", err)
	}
	d.give(order.Retire{Seq: 13, Project: nobody})
	if done, _ := expect[order.Done](d); done.Code != refusal.ProjectUnknown {
		t.Fatalf("%+v", done)
	}
	// Its directory is free for another project, which is another one.
	m := r.must(api.ProjectAdd, api.ProjectAddParams{Label: "alice", Workspace: ws, Owner: "alice"})
	if m["project"] == string(p) {
		t.Error("an id was used again")
	}
}

func TestProbe_RunsInAnEmptyDirectoryThatIsRemoved(t *testing.T) {
	r := start(t, newConfig(t))
	server, rev := r.server("echo", "/workspace/made")
	d := r.drive()
	d.give(order.LaunchProbe{Seq: 1, Server: server, Revision: rev})
	l, files := d.launched()
	if len(files) != 4 || l.Bridge == "" || l.Bridge == l.Jail {
		t.Fatalf("%+v with %d descriptors", l, len(files))
	}
	if s := hear(t, files[2]); s.Wrote != "" {
		t.Errorf("it cannot write: %+v", s)
	}
	work := filepath.Join(r.cfg.RootDir, workDir)
	if got, _ := os.ReadDir(work); len(got) != 1 {
		t.Fatalf("%v", got)
	}
	files[1].Close()
	files[0].Close()
	expect[order.Exited](d)
	expect[order.Exited](d)
	waitFor(t, "the scratch directory is removed", func() bool { got, _ := os.ReadDir(work); return len(got) == 0 })
}

func TestLaunch8_C058_C113_NothingOfPosterndsIsInherited(t *testing.T) {
	secret := filepath.Join(newDir(t), "secret")
	os.WriteFile(secret, []byte("secret"), 0o600)
	for k, v := range map[string]string{"AWS_SECRET_ACCESS_KEY": "hunter2", "LD_PRELOAD": "", "NOTIFY_SOCKET": "@x", "LISTEN_FDS": "1", "SSH_AUTH_SOCK": "/x"} {
		t.Setenv(k, v)
	}
	// Descriptors that are not close-on-exec, as a careless parent leaves them.
	fd, err := unix.Open(secret, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])

	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	d := r.drive()
	d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
	_, pipes := d.launched()
	s := hear(t, pipes[1])
	slices.Sort(s.Env)
	for _, e := range s.Env {
		name, _, _ := strings.Cut(e, "=")
		if _, ok := r.cfg.Profiles["static"].Env[name]; !ok {
			t.Errorf("the server has %q", e)
		}
	}
	// What its runtime opened for itself aside, it has stdio and no more.
	for _, fd := range s.FDs {
		if fd != "0" && fd != "1" && fd != "2" && fd != "3" && fd != "4" {
			t.Errorf("the server has descriptor %s of %v", fd, s.FDs)
		}
	}
	d.say("!status")
	waitFor(t, "the authority's status", func() bool { return strings.Contains(r.log.String(), "!end") })
	log := r.log.String()
	for _, want := range []string{"environ=\"\"", "cwd=/\n", fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", fakeUID), "NoNewPrivs:\t1",
		"CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapInh:\t0000000000000000", "Groups:\t \n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the authority lacks %q in\n%s", want, log)
		}
	}
	// 0, 1, 2, the wire, and what the relay opened: the control socket, its client, the
	// poller's two, and the directory it reads.
	if strings.Contains(log, "secret") {
		t.Error("the secret is in the authority's lines")
	}
	pid := int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
	links, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, l := range links {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, l.Name()))
		if to == secret {
			t.Errorf("the authority has the secret open as %s", l.Name())
		}
	}
	pipes[0].Close()
}

func TestLaunch7_TheAuthoritysDeathEndsEveryJailAndItStartsAgain(t *testing.T) {
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	for round, end := range []func(d *driver, pid int){
		func(d *driver, _ int) { d.say("!exit") },
		func(_ *driver, pid int) { syscall.Kill(pid, syscall.SIGKILL) },
		func(d *driver, _ int) { d.say("Launched {\"seq\":1}") },                       // a message of the other direction
		func(d *driver, _ int) { d.say("LaunchServer {\"seq\":1,\"command\":\"x\"}") }, // an order with a command
		func(_ *driver, pid int) { syscall.Kill(pid, syscall.SIGTERM) },                // as an upgrade does
	} {
		d := r.drive()
		d.give(order.LaunchBridge{Seq: 1, Project: p, Set: 1})
		b, wire := d.launched()
		d.give(order.LaunchServer{Seq: 2, Project: p, Set: 1, Server: server, Revision: rev})
		l, pipes := d.launched()
		hear(t, pipes[1])
		pid := int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
		end(d, pid)
		for _, jail := range []order.Launched{b, l} {
			waitFor(t, "the jail's process is gone", func() bool { return syscall.Kill(jail.PID, 0) == syscall.ESRCH })
		}
		waitFor(t, "another authority serves", func() bool {
			m := r.must(api.RootStatus, struct{}{})
			now, _ := m["authority_pid"].(float64)
			if int(now) == pid || now == 0 || m["jails"].(float64) != 0 {
				return false
			}
			_, err := os.Stat(filepath.Join(r.cfg.RunDir, controlSocket))
			return err == nil
		})
		if round == 1 && !strings.Contains(r.log.String(), "signal: killed") {
			t.Errorf("the log does not say that a signal ended it:\n%s", r.log)
		}
		for _, f := range append(wire, pipes...) {
			f.Close()
		}
		if _, err := os.Stat(filepath.Join(r.cfg.RunDir, projectsDir, string(p), socketName)); err != nil {
			t.Errorf("round %d: the project's socket: %v", round, err)
		}
	}
	if m := r.must(api.RootStatus, struct{}{}); m["authority_restarts"].(float64) != 5 {
		t.Errorf("%v", m)
	}
}

func TestAuthority_ItsDescriptorsAreNeverReceived(t *testing.T) {
	r := start(t, newConfig(t))
	d := r.drive()
	d.give(order.StatJails{Seq: 1})
	expect[order.Stats](d)
	before := count(t)
	for range 8 {
		d.say("!rights")
	}
	// Where the kernel refuses them to the sender nothing arrives at all; elsewhere the
	// message is a violation, and this life ends. Either way there is no descriptor more.
	waitFor(t, "no descriptor more", func() bool { return count(t) <= before })
	r.must(api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}})
}

func TestFacts_AnAuthorityThatDoesNotTakeThemIsEnded(t *testing.T) {
	r := start(t, newConfig(t))
	d := r.drive()
	pid := r.must(api.RootStatus, struct{}{})["authority_pid"]
	d.say("!mute")
	d.give(order.StatJails{Seq: 1}) // answered: what was said before is in force
	expect[order.Stats](d)
	r.must(api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}}) // durable all the same
	waitFor(t, "another authority serves", func() bool {
		now := r.must(api.RootStatus, struct{}{})["authority_pid"]
		return now != pid && now.(float64) != 0
	})
	r.refused(refusal.AlreadyExists, api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}})
}

func TestLaunch10_TokenFiles(t *testing.T) {
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	d := r.drive()
	task := func() ids.Task { return newID[ids.Task](t0) }
	refuse := func(want refusal.Code, m order.TokenFile) {
		t.Helper()
		d.give(m)
		if done, _ := expect[order.Done](d); done.Code != want || done.Seq != m.Seq {
			t.Fatalf("%+v, want %s", done, want)
		}
	}
	first := task()
	d.give(order.TokenFile{Seq: 1, Task: first, UID: 1000, Project: p})
	is, files := expect[order.TokenFileIs](d)
	if len(files) != 1 || filepath.Dir(is.Path) != filepath.Join(r.cfg.RunDir, tokensDir) {
		t.Fatalf("%+v with %d descriptors", is, len(files))
	}
	if _, err := files[0].Write([]byte("token")); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(is.Path)
	if err != nil || st.Mode().Perm() != 0o400 || st.Sys().(*syscall.Stat_t).Uid != 1000 {
		t.Fatalf("%v, %v", st.Mode(), err)
	}
	// Its user reads it, nobody else.
	for uid, ok := range map[int]bool{1000: true, 1001: false, fakeUID: false} {
		c := exec.Command("/bin/cat", is.Path)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		out, err := c.Output()
		if (err == nil && string(out) == "token") != ok {
			t.Errorf("uid %d: %q, %v", uid, out, err)
		}
	}
	refuse(refusal.BadRequest, order.TokenFile{Seq: 2, Task: "../../x", UID: 1000})
	refuse(refusal.TokenFileUID, order.TokenFile{Seq: 3, Task: task(), UID: 0})
	refuse(refusal.TokenFileUID, order.TokenFile{Seq: 4, Task: task(), UID: r.cfg.UIDs.First})
	refuse(refusal.TokenFileUID, order.TokenFile{Seq: 5, Task: task(), UID: 1000})                                  // a second task that names no project
	refuse(refusal.TokenFileUID, order.TokenFile{Seq: 6, Task: task(), UID: 1000, Project: newID[ids.Project](t0)}) // or another one
	d.give(order.TokenFile{Seq: 7, Task: task(), UID: 1000, Project: p})
	expect[order.TokenFileIs](d) // a second task of the same project may
	d.give(order.TokenFile{Seq: 8, Task: first, UID: 1000, Project: p})
	fresh, _ := expect[order.TokenFileIs](d) // a fresh token of a task replaces its file
	if raw, _ := os.ReadFile(fresh.Path); len(raw) != 0 {
		t.Errorf("the former token is still there: %q", raw)
	}
	d.give(order.TokenFileGone{Task: first})
	waitFor(t, "the file is removed", func() bool { _, err := os.Stat(is.Path); return os.IsNotExist(err) })

	// The account owns a second project: no file any more.
	r.must(api.ProjectAdd, api.ProjectAddParams{Label: "second", Workspace: r.workspace("second", 1000), Owner: "alice"})
	refuse(refusal.TokenFileUID, order.TokenFile{Seq: 9, Task: task(), UID: 1000, Project: p})

	// They end with the authority that asked for them.
	d.say("!exit")
	waitFor(t, "every token file is removed", func() bool {
		left, _ := os.ReadDir(filepath.Join(r.cfg.RunDir, tokensDir))
		return len(left) == 0
	})
}

func TestRun_LeavesNothingBehindAndRefusesASecond(t *testing.T) {
	cfg := newConfig(t)
	r := start(t, cfg)
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	d := r.drive()
	d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
	l, pipes := d.launched()
	hear(t, pipes[1])

	for name, change := range map[string]func(*Config){
		"the root directory": func(c *Config) { c.RunDir += "2"; c.UIDs.First += 64 },
		"the run directory":  func(c *Config) { c.RootDir += "2"; c.UIDs.First += 64 },
		"the uid range":      func(c *Config) { c.RootDir += "3"; c.RunDir += "3" },
	} {
		c := r.cfg
		change(&c)
		if err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "another posternd") {
			t.Errorf("a second posternd shares %s: %v", name, err)
		}
	}

	r.down()
	if err := syscall.Kill(l.PID, 0); err != syscall.ESRCH {
		t.Errorf("a jail outlives posternd: %v", err)
	}
	if _, err := os.Stat(cfg.RunDir); !os.IsNotExist(err) {
		left, _ := os.ReadDir(cfg.RunDir)
		t.Errorf("the run directory stays: %v, %v", err, left)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/postern-launch-test/" + filepath.Base(r.dir))
	if len(groups) != 0 {
		t.Errorf("groups stay: %v", groups)
	}
	if locks, _ := os.ReadDir(cfg.LockDir); len(locks) != 0 {
		t.Errorf("locks stay: %v", locks)
	}
}

func TestStart_C135_C137_LeftoversOfACrashAreRemovedByName(t *testing.T) {
	cfg := newConfig(t)
	r := start(t, cfg)
	id, _ := r.project("alice", 1000)
	instance := r.must(api.RootStatus, struct{}{})["instance"].(string)
	r.down()
	// What a killed posternd leaves: sockets, token files, scratch, half copies, groups within groups.
	for _, f := range []string{"run/p/" + string(id) + "/bridge.sock", "run/t/tsk", "run/root.sock", "run/control.sock", "root/work/probe-1/x", "root/work/making-1/x", "root/work/removed-1/x", "root/work/tsk_0199/x", "root/pkg/.new-1/x"} {
		path := filepath.Join(r.dir, f)
		os.MkdirAll(filepath.Dir(path), 0o711)
		if strings.HasSuffix(f, ".sock") {
			if err := unix.Mknod(path, unix.S_IFSOCK|0o600, 0); err != nil {
				t.Fatal(err)
			}
			continue
		}
		os.WriteFile(path, nil, 0o600)
	}
	var groups []string
	var roots []string
	for _, name := range []string{"", "memory", "pids", "cpu", "devices", "freezer", "unified"} {
		root := filepath.Join("/sys/fs/cgroup", name)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			roots = append(roots, root)
		}
	}
	for _, root := range roots {
		g := filepath.Join(root, groupOf(cfg, ids.Instance(instance)), "jal_left", "inner")
		if err := os.MkdirAll(g, 0o755); err == nil {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		t.Fatal("no control group could be made")
	}
	// A live process in the innermost group of each hierarchy.
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		os.WriteFile(filepath.Join(g, "cgroup.procs"), []byte(fmt.Sprint(c.Process.Pid)), 0)
	}
	r = start(t, cfg)
	if err := c.Wait(); err == nil {
		t.Error("the left process ended by itself")
	}
	for _, g := range groups {
		if _, err := os.Stat(filepath.Dir(g)); !os.IsNotExist(err) {
			t.Errorf("%s stays", g)
		}
	}
	for _, f := range []string{"run/t/tsk", "root/work/probe-1", "root/work/making-1", "root/work/removed-1", "root/work/tsk_0199", "root/pkg/.new-1"} {
		waitFor(t, f+" is gone", func() bool { return gone(filepath.Join(r.dir, f)) })
	}
	if m := r.must(api.RootStatus, struct{}{}); m["instance"] != instance {
		t.Errorf("%v", m)
	}
}

func TestLaunch7_C137_KillingPosterndEndsEverythingAndTheNextStartsClean(t *testing.T) {
	cfg := newConfig(t)
	r := &rig{t: t, dir: filepath.Dir(cfg.RunDir), cfg: cfg, log: &buffer{}}
	raw, err := json.Marshal(document{cfg.RootDir, cfg.StateDir, cfg.RunDir, cfg.Libexec, cfg.LockDir, cfg.Cgroup, cfg.UIDs})
	if err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(r.dir, "config.json")
	os.WriteFile(doc, raw, 0o600)
	var p ids.Project
	var server ids.Server
	var rev ids.Revision
	var workspace string
	rounds := killRounds(t)
	for round := range rounds {
		c := exec.Command("/proc/self/exe")
		c.Env = []string{"POSTERN_LAUNCH_ROLE=posternd", "POSTERN_LAUNCH_DIR=" + doc}
		c.Stderr = r.log
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if n, _ := out.Read(make([]byte, 1)); n != 1 {
			t.Fatalf("round %d: not ready\n%s", round, r.log)
		}
		if round == 0 {
			p, workspace = r.project("alice", 1000)
			server, rev = r.server("echo")
		}
		authority := int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
		d := r.drive()
		// It is killed at any instant of a launch: of the bridge, of the server, of a
		// probe of both, or when all of them have just begun.
		pids, ends := []int{authority}, []*os.File(nil)
		stage := rand.IntN(4)
		for i, order := range []order.Up{order.LaunchBridge{Seq: 1, Project: p, Set: 1}, order.LaunchServer{Seq: 2, Project: p, Set: 1, Server: server, Revision: rev}, order.LaunchProbe{Seq: 3, Server: server, Revision: rev}} {
			d.give(order)
			if i < stage && i < 2 {
				l, files := d.launched()
				pids, ends = append(pids, l.PID), append(ends, files...)
				if i == 1 {
					hear(t, files[1])
				}
			} else if stage < 3 {
				break
			}
		}
		time.Sleep(rand.N(maxLaunchTime)) // the instant itself is what is tried
		c.Process.Signal(syscall.SIGKILL)
		c.Wait()
		for _, pid := range pids {
			waitFor(t, "what posternd started is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) })
		}
		for _, f := range ends {
			f.Close()
		}
	}
	r = start(t, cfg)
	if names, err := os.ReadDir(workspace); err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() != "made" }) {
		t.Errorf("names are still held in the workspace: %v, %v", names, err)
	}
	waitFor(t, "no scratch directory is left", func() bool {
		left, _ := os.ReadDir(filepath.Join(cfg.RootDir, workDir))
		return len(left) == 0
	})
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + groupOf(cfg, ids.Instance(r.must(api.RootStatus, struct{}{})["instance"].(string))) + "/*/")
	if len(groups) != 0 {
		t.Errorf("groups stay: %v", groups)
	}
	d := r.drive()
	d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
	_, pipes := d.launched()
	hear(t, pipes[1])
	pipes[0].Close()
	expect[order.Exited](d)
}

// maxLaunchTime is about as long as the launches of one round take.
const maxLaunchTime = 30 * time.Millisecond

// killRounds is how often posternd is killed: as make check-long says, else 20 times.
func killRounds(t *testing.T) int {
	t.Helper()
	if s := os.Getenv("POSTERN_KILL_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 20
}

// zombie tells whether nobody has reaped pid yet: orphans here go to a process 1 that
// may take its time.
func zombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}

func TestRepeat_C118_StartsAndStopsLeaveTheSameNumberOfEverything(t *testing.T) {
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	d := r.drive()
	cycle := func() {
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
		_, pipes := d.launched()
		hear(t, pipes[1])
		for _, f := range pipes {
			f.Close()
		}
		expect[order.Exited](d)
	}
	cycle()
	before := count(t)
	for range 30 {
		cycle()
	}
	defer func() {
		if t.Failed() {
			fds, _ := filepath.Glob("/proc/self/fd/*")
			for _, fd := range fds {
				to, _ := os.Readlink(fd)
				t.Logf("%s → %s", fd, to)
			}
		}
	}()
	waitFor(t, fmt.Sprintf("%d descriptors as before", before), func() bool { return count(t) <= before })
	if m := r.must(api.RootStatus, struct{}{}); m["jails"].(float64) != 0 {
		t.Errorf("%v", m)
	}
}

func count(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
