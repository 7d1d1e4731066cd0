package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"postern/ids"
	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

// readOrders reads until the authority's end is closed. It never waits for work: each
// order is done on a goroutine of its own, and more than maxOrders of them at a time
// is a violation. It returns the reason for the end.
func (s *Supervisor) readOrders(l *life) error {
	buf := make([]byte, order.MaxMessage+1)
	for {
		m, err := l.a.receive(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			l.a.kill(err.Error())
			return err
		}
		switch m := m.(type) {
		case order.Opening:
			l.a.note(func() { l.a.reads++ })
			if !s.served.Load() { // else nobody waits for the start any more
				s.tell(Notice{Extend: readyWait + goneWait, Status: "Starting: the authority reads its store"})
			}
			continue
		case order.Ready:
			l.a.note(func() { l.a.ready = true })
			for names := range slices.Chunk(s.tasks.names(), order.MaxTaskDirs) {
				l.a.send(order.TaskDirs{Tasks: names})
			}
			continue
		case order.Pong:
			l.a.note(func() { l.a.pong = m })
			continue
		case order.Drained:
			l.a.note(func() { l.a.drained = &m })
			continue
		case order.FactsAck:
			l.a.note(func() { l.a.acked, l.a.cut = max(l.a.acked, m.Version), m })
			continue
		}
		select {
		case l.orders <- struct{}{}:
		default:
			err := errors.New("it gave more orders than can be in work")
			l.a.kill(err.Error())
			return err
		}
		l.work.Add(1)
		go func() {
			defer l.work.Done()
			defer func() { <-l.orders }()
			s.obey(l, m)
		}()
	}
}

// obey does one order. What it names is looked up in the facts; what is not there, is
// deleted, or does not fit together is refused.
func (s *Supervisor) obey(l *life, m order.Up) {
	switch m := m.(type) {
	case order.LaunchBridge:
		s.launch(l, m.Seq, func() (launched, error) { return s.orderBridge(l, m) })
	case order.LaunchServer:
		s.launch(l, m.Seq, func() (launched, error) { return s.orderServer(l, m) })
	case order.LaunchProbe:
		s.launch(l, m.Seq, func() (launched, error) { return s.orderProbe(l, m) })
	case order.Stop:
		s.mu.Lock()
		j := s.jails[m.Jail]
		s.mu.Unlock()
		if j != nil && j.life == l {
			j.proc.Stop(min(max(0, time.Duration(m.GraceMs)*time.Millisecond), maxGrace))
		}
	case order.Resolve:
		s.orderResolve(l, m)
	case order.Fetch:
		s.orderFetch(l, m)
	case order.Retire:
		l.a.send(doneWith(m.Seq, s.orderRetire(l, m.Project)))
	case order.TokenFile:
		s.orderToken(l, m)
	case order.TokenFileGone:
		if l.tokens.forget(m.Task) {
			if err := s.run.removeToken(m.Task); err != nil {
				s.cfg.Log.Error("a token file stays", keyError, err)
			}
		}
	case order.TaskGone:
		s.killWhere(func(j *running) bool { return m.Task != "" && j.row.Task == m.Task })
		if err := s.tasks.gone(m.Task); err != nil {
			s.cfg.Log.Error("the directory of an ended task stays", keyError, err)
		}
	case order.StatJails:
		s.orderStats(l, m.Seq)
	}
}

// launched is a launch that worked: the jails, the first of them the one that was asked
// for, and the files that go down with the answer.
type launched struct {
	jails []*running
	files []*os.File
}

// launch bounds the launches in work and answers with the result.
func (s *Supervisor) launch(l *life, seq uint64, do func() (launched, error)) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-l.ctx.Done():
		return
	}
	got, err := do()
	if err != nil {
		r := refusedAs(err, refusal.ServerUnavailable)
		s.cfg.Log.Warn("not launched", keyCode, string(r.Code), keyText, r.Detail)
		l.a.send(order.NotLaunched{Seq: seq, Code: r.Code, Text: cut(toldOf(err))})
		return
	}
	row := got.jails[0].row
	m := order.Launched{Seq: seq, Jail: row.Jail, PID: row.PID, UID: row.UID}
	if len(got.jails) > 1 {
		m.Bridge = got.jails[1].row.Jail
	}
	l.a.send(m, got.files...)
	for _, f := range got.files {
		f.Close()
	}
	for _, j := range got.jails {
		j.told <- true
	}
}

// toldOf is what everyone may read of a failed launch: the authority shows it to
// owners, members and viewers, and to runtimes. A refusal is worded for them, and two
// steps of a jail tell of the project's own directory. Any other error quotes what was
// tried, which is of the registration, such as its command and the paths of its package,
// and stays in root's log.
func toldOf(err error) string {
	var r *api.Refusal
	var step *jail.StepError
	switch {
	case errors.As(err, &r):
		return r.Detail
	case !errors.As(err, &step):
		return "its jail was not started" + whyText
	case step.Step == "workspace" || step.Step == "protect":
		return err.Error()
	}
	return "its jail was not started, at the step " + step.Step + whyText
}

const whyText = "; the log of posternd says why, to root"

// cut makes a detail the text of a message: the other side writes its own full stop. A
// name of a workspace in it may be no text, and an end may fall into a character; either
// could not be sent, and its asker would wait in vain.
func cut(s string) string {
	return strings.TrimSuffix(strings.ToValidUTF8(s[:min(len(s), order.MaxText)], ""), ".")
}

func doneWith(seq uint64, r *api.Refusal) order.Done {
	if r == nil {
		return order.Done{Seq: seq}
	}
	return order.Done{Seq: seq, Code: r.Code, Text: cut(r.Detail)}
}

// liveProject finds a project that may run something: neither it nor its owner is deleted.
func (f Facts) liveProject(id ids.Project) (Project, error) {
	i := f.projectAt(id)
	if i < 0 {
		return Project{}, api.Refuse(refusal.ProjectUnknown, "%.64q.", id)
	}
	p := f.Projects[i]
	if p.Deleted {
		return Project{}, api.Refuse(refusal.ProjectDeleted, "%s.", id)
	}
	if owner, ok := f.accountByID(p.Owner); !ok || owner.Deleted {
		return Project{}, api.Refuse(refusal.AccountDeleted, "%s.", p.Owner)
	}
	return p, nil
}

// liveRevision finds the server whose current revision this is; an older one does not run
// any more.
func (f Facts) liveRevision(server ids.Server, rev ids.Revision) (Server, error) {
	i := slices.IndexFunc(f.Servers, func(s Server) bool { return s.ID == server })
	if i < 0 || f.Servers[i].Deleted {
		return Server{}, api.Refuse(refusal.ServerUnknown, "%.64q.", server)
	}
	if f.Servers[i].Current().ID != rev {
		return Server{}, api.Refuse(refusal.ServerRevisionChanged, "%.64q is not the current revision of %s.", rev, server)
	}
	return f.Servers[i], nil
}

func (s *Supervisor) orderBridge(l *life, m order.LaunchBridge) (launched, error) {
	f, _ := s.now()
	p, err := f.liveProject(m.Project)
	if err != nil {
		return launched{}, err
	}
	j, wire, err := s.launchBridge(l, kindBridge, p.ID)
	if err != nil {
		return launched{}, err
	}
	return launched{[]*running{j}, []*os.File{wire}}, nil
}

func (s *Supervisor) orderServer(l *life, m order.LaunchServer) (launched, error) {
	f, _ := s.now()
	p, err := f.liveProject(m.Project)
	if err != nil {
		return launched{}, err
	}
	srv, err := f.liveRevision(m.Server, m.Revision)
	if err != nil {
		return launched{}, err
	}
	v := srv.Current()
	if v.Scope != "task" && m.Task != "" {
		return launched{}, api.Refuse(refusal.BadRequest, "%s is started once for all tasks.", m.Server)
	}
	if p.Moved != m.Moved { // the authority has not heard of it yet, and asks for a task from before
		return launched{}, movedMeanwhile(p.ID)
	}
	hand, err := s.secretFor(p, srv, v)
	if err != nil {
		return launched{}, err
	}
	j, pipes, err := s.launchServer(l, kindServer, p, v, hand, func(uint32) (room, error) {
		if v.Scope == "task" {
			return s.taskWorkspace(f, p, m.Task)
		}
		w, err := s.projectWorkspace(f, p)
		return room{dir: w, names: p.OpenNames}, err
	})
	if err != nil {
		return launched{}, err
	}
	return launched{[]*running{j}, pipes.mine[:]}, nil
}

// orderProbe starts a fresh bridge and the server in an empty directory. Neither knows
// a project; a server that needs a credential is given that of the one that is named.
func (s *Supervisor) orderProbe(l *life, m order.LaunchProbe) (launched, error) {
	f, _ := s.now()
	srv, err := f.liveRevision(m.Server, m.Revision)
	if err != nil {
		return launched{}, err
	}
	v := srv.Current()
	var holder Project
	switch {
	case v.Credential != credentialNone:
		if holder, err = f.liveProject(m.Project); err != nil {
			return launched{}, err
		}
	case m.Project != "":
		return launched{}, api.Refuse(refusal.BadRequest, "%s needs no credential, and so no project.", m.Server)
	}
	hand, err := s.secretFor(holder, srv, v)
	if err != nil {
		return launched{}, err
	}
	b, wire, err := s.launchBridge(l, kindProbe, "")
	if err != nil {
		return launched{}, err
	}
	j, pipes, err := s.launchServer(l, kindProbe, Project{}, v, hand, s.probeWorkspace)
	if err != nil {
		wire.Close()
		b.told <- false
		b.proc.Kill()
		return launched{}, err
	}
	return launched{[]*running{j, b}, append([]*os.File{wire}, pipes.mine[:]...)}, nil
}

// orderRetire writes the tombstone. It does not wait for the authority to take the new
// facts: the authority waits for this answer, and has denied the project before it asked.
func (s *Supervisor) orderRetire(l *life, id ids.Project) *api.Refusal {
	s.change.Lock()
	defer s.change.Unlock()
	f, _ := s.now()
	g, refused := f.retire(id)
	if refused != nil || g.Version == f.Version {
		return refused
	}
	raw, refused := s.encoded(g, api.ProjectDelete)
	if refused != nil {
		return refused
	}
	target, before, after := changed(f, g)
	if err := s.audit.Write(audit.Record{Actor: fmt.Sprintf("uid %d", s.cfg.UID), Origin: fmt.Sprintf("the authority, process %d", l.a.proc.Pid), Action: string(api.ProjectDelete),
		Target: target, Before: before, After: after, Version: g.Version}); err != nil {
		return api.Refuse(refusal.StoreUnavailable, "%v.", err)
	}
	if _, err := s.commit(l.ctx, g, raw, false); err != nil {
		return refusedAs(err, refusal.StoreUnavailable)
	}
	if err := s.run.removeProject(id); err != nil {
		s.cfg.Log.Error("a project's socket stays", keyError, err, keyProject, id)
	}
	s.killWhere(func(j *running) bool { return j.row.Project == id })
	s.endHolders()
	return nil
}

func (s *Supervisor) orderToken(l *life, m order.TokenFile) {
	refuse := func(c refusal.Code, format string, args ...any) {
		l.a.send(doneWith(m.Seq, api.Refuse(c, format, args...)))
	}
	if _, err := ids.Parse[ids.Task](string(m.Task)); err != nil {
		refuse(refusal.BadRequest, "%v.", err)
		return
	}
	f, _ := s.now()
	if r := l.tokens.take(f, s.cfg, m); r != nil {
		l.a.send(doneWith(m.Seq, r))
		return
	}
	// A task's former file is replaced: its token is no longer the one to use.
	err := s.run.removeToken(m.Task)
	var file *os.File
	var path string
	if err == nil {
		file, path, err = s.run.tokenFile(m.Task, m.UID)
	}
	if err != nil {
		l.tokens.forget(m.Task)
		s.cfg.Log.Error("no token file", keyError, err)
		refuse(refusal.StoreUnavailable, "The token file could not be made.")
		return
	}
	defer file.Close()
	l.a.send(order.TokenFileIs{Seq: m.Seq, Path: path}, file)
}

func (s *Supervisor) orderStats(l *life, seq uint64) {
	s.mu.Lock()
	all := make([]*running, 0, len(s.jails))
	for _, j := range s.jails {
		all = append(all, j)
	}
	s.mu.Unlock()
	var rows []order.JailRow
	for _, j := range all {
		row := j.row
		if st, err := j.proc.Stats(); err == nil { // it may be ending: then its row has no numbers
			row.Memory, row.CPUUsec, row.Pids = st.MemoryBytes, st.CPUUsec, st.Pids
			if p := st.Pressure; p != nil {
				row.Pressure = &order.Pressure{Memory: p.Memory, CPU: p.CPU, IO: p.IO}
			}
		}
		rows = append(rows, row)
	}
	for {
		n := min(len(rows), order.MaxStatsRows)
		l.a.send(order.Stats{Seq: seq, Last: n == len(rows), Rows: rows[:n]})
		if n == len(rows) {
			return
		}
		rows = rows[n:]
	}
}
