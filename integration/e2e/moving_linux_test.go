package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"postern/supervisor/api"
)

// How often a project is moved under load, and how often somebody is killed meanwhile
// where POSTERN_MOVE_ROUNDS says nothing.
const (
	moves      = 24
	moveRounds = 20
	callers    = 4
)

// moving is a project that is moved from directory to directory, and who calls meanwhile.
type moving struct {
	t     *testing.T
	w     *world
	dirs  []string
	begun atomic.Int64 // moves that were asked for
	done  atomic.Int64 // moves that have returned
	stop  atomic.Bool
	all   sync.WaitGroup
	names atomic.Int64
	mu    sync.Mutex
	rows  []moved
	noes  map[string]int
}

// moved is one call that writes a file, named after the call and nothing else.
type moved struct {
	name, task, outcome string
	from, to            int64 // the directories that it may have worked in
}

func newMoving(t *testing.T) *moving {
	w := newWorld(t)
	w.must("connection", "grant", "a", "count", "write")
	return &moving{t: t, w: w, dirs: []string{w.a.workspace}, noes: map[string]int{}}
}

// next makes one more directory.
func (m *moving) next() string {
	dir := m.w.directory(fmt.Sprintf("moved-%d", len(m.dirs)), aliceUID)
	m.dirs = append(m.dirs, dir)
	return dir
}

// session is a new task's, nil where none is to be had now.
func (m *moving) session() (r *runtime, task string) {
	tok, task, _, exit := m.w.tryToken(m.w.a, runtimeUID)
	if exit != 0 {
		return nil, ""
	}
	r = m.w.connect(m.w.a, runtimeUID, tok)
	if got := r.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`); got.Error != nil {
		r.close()
		return nil, ""
	}
	return r, task
}

// write makes one call, and takes note of it.
func (m *moving) write(r *runtime, task string) string {
	x := moved{name: fmt.Sprintf("call-%d", m.names.Add(1)), task: task, from: m.done.Load()}
	got := r.call("write", fmt.Sprintf(`{"path":"/workspace/%s","text":%q}`, x.name, task))
	x.outcome, x.to = got.outcome(), m.begun.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = append(m.rows, x)
	if x.outcome != "ok" {
		m.noes[x.outcome]++
	}
	return x.outcome
}

// call calls without pause, task after task, until it is stopped.
func (m *moving) call() {
	m.all.Go(func() {
		for !m.stop.Load() {
			r, task := m.session()
			if r == nil {
				continue
			}
			for ended := false; !ended && !m.stop.Load(); {
				m.write(r, task)
				select {
				case <-r.ended:
					ended = true
				default:
				}
			}
			r.close()
		}
	})
}

// holds lists what lies in a directory, with sizes: what a server that still works there
// would change.
func (m *moving) holds(dir string) map[string]int64 {
	out := map[string]int64{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		m.t.Error(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			out[e.Name()] = info.Size()
		}
	}
	return out
}

func (m *moving) works(dir string) bool {
	calls, err := filepath.Glob(filepath.Join(dir, "call-*"))
	return err == nil && len(calls) > 0
}

// judge looks for every file of every call.
func (m *moving) judge() (answered int) {
	m.t.Helper()
	where := map[string][]int{}
	for i, dir := range m.dirs {
		for name := range m.holds(dir) {
			if strings.HasPrefix(name, "call-") {
				where[name] = append(where[name], i)
			}
		}
	}
	ofTask := map[string]int{}
	for _, x := range m.rows {
		at := where[x.name]
		if x.outcome == "ok" {
			answered++
			if len(at) != 1 {
				m.t.Errorf("%+v was answered, and its file lies in %v", x, at)
			}
		}
		for _, i := range at {
			if int64(i) < x.from || int64(i) > x.to {
				m.t.Errorf("%+v worked in directory %d", x, i)
			}
			if first, known := ofTask[x.task]; known && first != i {
				m.t.Errorf("%+v: its task worked in directories %d and %d", x, first, i)
			}
			ofTask[x.task] = i
		}
	}
	return answered
}

// A project is moved again and again while its sessions call without pause. Each call works
// in one directory, of before or after, and each task in one; when a move has returned,
// nothing changes the former directory any more.
func TestP2_MovesUnderLoadLeaveEachCallInOneDirectory(t *testing.T) {
	m := newMoving(t)
	for range callers {
		m.call()
	}
	var left []map[string]int64
	for i := range moves {
		// Each directory is worked in before the next.
		until(t, "somebody works there", func() bool { return m.works(m.dirs[i]) })
		dir := m.next()
		m.begun.Add(1)
		if err := m.w.Call(api.ProjectMove, api.ProjectMoveParams{Project: m.w.a.id, Workspace: dir}, nil); err != nil {
			t.Fatal(err)
		}
		left = append(left, m.holds(m.dirs[i]))
		m.done.Add(1)
	}
	until(t, "somebody works in the last one", func() bool { return m.works(m.dirs[moves]) })
	m.stop.Store(true)
	m.all.Wait()
	answered := m.judge()
	for i, was := range left {
		if now := m.holds(m.dirs[i]); !maps.Equal(was, now) {
			t.Errorf("directory %d was worked in after the move: %v, then %v", i, was, now)
		}
	}
	t.Logf("%d moves, %d calls, %d answered, the others: %v", moves, len(m.rows), answered, m.noes)
	if answered < moves {
		t.Error("the load was none")
	}
}

// posternd or the authority is killed at each moment of a move. The project is wholly
// where it was, its task goes on; or wholly where it was moved to, and its task has ended.
// POSTERN_MOVE_ROUNDS says how often.
func TestP2_KillsInTheMiddleOfAMoveLeaveOneDirectory(t *testing.T) {
	rounds := moveRounds
	if text := os.Getenv("POSTERN_MOVE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	m := newMoving(t)
	at := 0 // the directory that it has
	// How long a move of a project that works takes on this machine, to kill within it.
	first, task := m.session()
	if first == nil || m.write(first, task) != "ok" {
		t.Fatal("no call went through")
	}
	dir := m.next()
	began := time.Now()
	if err := m.w.Call(api.ProjectMove, api.ProjectMoveParams{Project: m.w.a.id, Workspace: dir}, nil); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	first.close()
	at++
	results := map[string]int{}
	for round := range rounds {
		victim := []string{"authority", "posternd"}[round%2]
		m.begun.Store(int64(len(m.dirs))) // any directory will do for the calls; the tasks tell them apart
		m.done.Store(0)
		var r *runtime
		until(t, "a session", func() bool { r, task = m.session(); return r != nil })
		until(t, "a call", func() bool { return m.write(r, task) == "ok" })
		m.all.Go(func() {
			for ended := false; !ended; {
				m.write(r, task)
				select {
				case <-r.ended:
					ended = true
				default:
				}
			}
		})
		dir := m.next()
		pid := m.w.authorityPID()
		answer := make(chan error, 1)
		go func() {
			answer <- m.w.Call(api.ProjectMove, api.ProjectMoveParams{Project: m.w.a.id, Workspace: dir}, nil)
		}()
		// The moments are spread over the move and a little more.
		moment := time.NewTimer(took * 3 / 2 * time.Duration(round) / time.Duration(rounds))
		select {
		case <-moment.C:
		case err := <-answer:
			answer <- err
		}
		if victim == "posternd" {
			m.w.Kill9()
			m.w.noJails(t)
			if err := m.w.Up(); err != nil {
				t.Fatal(err)
			}
		} else {
			kill(t, pid)
		}
		err := <-answer
		m.all.Wait()
		until(t, "the authority serves", func() bool {
			var st api.StatusResult
			return m.w.authorityPID() != pid && m.w.Call(api.Status, nil, &st) == nil && st.State == "serving"
		})
		var shown api.ProjectShowResult
		if err := m.w.Call(api.ProjectShow, api.Selected{Selector: m.w.a.id}, &shown); err != nil {
			t.Fatal(err)
		}
		tok, _, _, exit := m.w.minted("token", task)
		after := shown.Workspace == dir
		results[fmt.Sprintf("%s, after: %v", victim, after)]++
		switch {
		case !after && shown.Workspace != m.dirs[at]:
			t.Fatalf("round %d: it has %s, not %s or %s", round, shown.Workspace, m.dirs[at], dir)
		case !after && err == nil:
			t.Errorf("round %d, %s: the move was done, and is not", round, victim)
		case after == (exit == 0):
			t.Errorf("round %d, %s: it has the directory of after: %v; a token for the task of before: exit %d", round, victim, after, exit)
		}
		held := map[string]map[string]int64{}
		for _, d := range m.dirs {
			held[d] = m.holds(d)
		}
		if after {
			at = len(m.dirs) - 1
			until(t, "a new session", func() bool { r, task = m.session(); return r != nil })
		} else {
			r = m.w.connect(m.w.a, runtimeUID, tok).initialize()
		}
		until(t, "a call afterwards", func() bool { return m.write(r, task) == "ok" })
		r.close()
		for i, d := range m.dirs {
			if now := m.holds(d); maps.Equal(held[d], now) != (i != at) {
				t.Errorf("round %d, %s: a call afterwards left %v in directory %d, which held %v; the project has %d", round, victim, slices.Sorted(maps.Keys(now)), i, slices.Sorted(maps.Keys(held[d])), at)
			}
		}
		if t.Failed() {
			t.Fatalf("in round %d, after the death of %s", round, victim)
		}
	}
	m.judge()
	t.Logf("a move takes %v; %d rounds: %v; %d calls, refused: %v", took, rounds, results, len(m.rows), m.noes)
}
