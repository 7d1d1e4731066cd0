package hostile

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// killRounds is how often something is killed where POSTERN_CRASH_ROUNDS says nothing.
const killRounds = 28

// Each process of a private Postern is killed at random moments under load, and all
// of them at once. Each call carries a number of its own. After each restart: what a
// server received was admitted, is recorded once and was received once; what was
// answered is recorded; nothing is open; the grants are those that were confirmed
// before; a token that was used up stays so; and no jail, group, process or socket of
// the former life is left. POSTERN_CRASH_ROUNDS says how many rounds.
func TestCrash_X13_KillingEachProcessUnderLoad(t *testing.T) {
	rounds := killRounds
	if text := os.Getenv("POSTERN_CRASH_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	k := &killing{t: t, w: w, rng: rand.New(rand.NewPCG(1, 2)), answered: map[string]bool{}, states: map[string]int{}, kills: map[string]int{}}
	k.cursor = k.page("").Follow
	k.granted = k.grants()
	victims := []string{"server", "bridge", "authority", "posternd", "connect", "all", "authority again"}
	for round := range rounds {
		// Each kind comes as often as the others, in a random order.
		if round%len(victims) == 0 {
			k.rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		}
		k.round(victims[round%len(victims)])
		if t.Failed() {
			t.Fatalf("in round %d, after the death of %s", round, victims[round%len(victims)])
		}
	}
	t.Logf("%d rounds %v: %d calls asked for, %d answered, %d received, records: %v", rounds, k.kills, k.number, k.sum, k.received, k.states)
	if k.sum < 5*rounds || k.states["unknown"] == 0 {
		t.Error("the load was none")
	}
	until(t, "the pause after the last death is over", func() bool {
		c, code := w.bind(w.a, aliceUID, "")
		defer c.Close()
		if code != "" {
			return false
		}
		io.WriteString(c, `{"postern":{"stdio":"here"}}`+"\n")
		c.SetDeadline(time.Now().Add(quickWait))
		r := quick{c}
		if !r.initialize() {
			return false
		}
		ok, _ := r.call("last")
		return ok
	})
	w.works(w.a)
}

// killing is one run of it.
type killing struct {
	t   *testing.T
	w   *world
	rng *rand.Rand

	mu       sync.Mutex
	number   int
	answered map[string]bool // in this round
	connect  *os.Process     // of the caller that comes through postern connect

	cursor   string // behind the records of former rounds
	spent    string // a token that was used up
	spentAt  time.Time
	granted  []string
	sum      int
	received int
	states   map[string]int
	kills    map[string]int
}

func (k *killing) round(victim string) {
	t, w := k.t, k.w
	if time.Since(k.spentAt) > time.Minute { // long before it expires
		k.spend()
	}
	clear(k.answered)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { k.load(stop, k.door) })
	}
	wg.Go(func() { k.load(stop, k.command) })
	until(t, "calls are answered", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return len(k.answered) > 0 })
	k.change()
	time.Sleep(time.Duration(k.rng.IntN(200)) * time.Millisecond)
	k.kill(victim)
	time.Sleep(time.Duration(k.rng.IntN(150)) * time.Millisecond)
	close(stop)
	wg.Wait()
	until(t, "the authority serves after the death of "+victim, func() bool {
		var st api.StatusResult
		return w.Call(api.Status, nil, &st) == nil && st.State == "serving" && st.OpenCalls == 0
	})
	k.check()
	k.swept()
}

// spend uses a token up.
func (k *killing) spend() {
	k.t.Helper()
	k.spent, _ = k.w.task(k.w.a, aliceUID, 1)
	k.spentAt = time.Now()
	until(k.t, "a token is used", func() bool { // a bridge that died may still have to be started again
		c, code := k.w.bind(k.w.a, aliceUID, k.spent)
		c.Close()
		return code == "" || code == "token_used"
	})
}

// kill ends what is named, and starts posternd again where that is gone.
func (k *killing) kill(victim string) {
	t, w := k.t, k.w
	k.kills[victim]++
	switch victim {
	case "authority":
		kill9(t, w.authority())
	case "authority again": // the next one dies young
		first := w.authority()
		kill9(t, first)
		until(t, "another authority", func() bool { n := w.authority(); return n > 0 && n != first })
		time.Sleep(time.Duration(k.rng.IntN(60)) * time.Millisecond)
		syscall.Kill(w.authority(), syscall.SIGKILL)
	case "posternd":
		w.Kill9()
		if err := w.Up(); err != nil {
			t.Fatal(err)
		}
	case "connect":
		k.mu.Lock()
		if k.connect != nil {
			k.connect.Kill()
		}
		k.mu.Unlock()
	case "all":
		pids := []int{w.authority()}
		var ps api.PsResult
		if err := w.Call(api.Ps, api.ProjectParams{}, &ps); err != nil {
			t.Fatal(err)
		}
		for _, row := range ps.Rows {
			if row.PID > 1 {
				pids = append(pids, row.PID)
			}
		}
		k.rng.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
		for _, pid := range pids[:k.rng.IntN(len(pids)+1)] { // the rest dies with posternd
			syscall.Kill(pid, syscall.SIGKILL)
		}
		w.Kill9()
		if err := w.Up(); err != nil {
			t.Fatal(err)
		}
	default:
		if pid := w.jail(w.a, victim).PID; pid > 1 { // it may be between two lives
			kill9(t, pid)
		}
	}
}

// change grants or revokes a tool that nobody calls; what was confirmed must hold.
func (k *killing) change() {
	k.t.Helper()
	action := api.ConnectionGrant
	if slices.Contains(k.granted, "big") {
		action = api.ConnectionRevoke
	}
	if err := k.w.Call(action, api.ConnectionParams{Project: k.w.a.id, Server: "count", Tools: []string{"big"}}, nil); err != nil {
		k.t.Fatal(err)
	}
	if action == api.ConnectionGrant {
		k.granted = append(k.granted, "big")
	} else {
		k.granted = slices.DeleteFunc(k.granted, func(s string) bool { return s == "big" })
	}
	slices.Sort(k.granted)
}

func (k *killing) grants() (out []string) {
	k.t.Helper()
	var con api.ConnectionResult
	if err := k.w.Call(api.ConnectionShow, api.ConnectionParams{Project: k.w.a.id, Server: "count"}, &con); err != nil {
		k.t.Fatal(err)
	}
	for _, tool := range con.Tools {
		if tool.Granted {
			out = append(out, tool.Tool)
		}
	}
	slices.Sort(out)
	return out
}

func (k *killing) page(cursor string) (r api.ActivityResult) {
	k.t.Helper()
	if err := k.w.Call(api.Activity, api.ActivityParams{Project: k.w.a.id, Cursor: cursor}, &r); err != nil {
		k.t.Fatal(err)
	}
	return r
}

// check compares what the callers, the server and the records say of this round.
func (k *killing) check() {
	t := k.t
	received := map[string]int{}
	for _, line := range k.w.calls(k.w.a) {
		if _, n, ok := strings.Cut(line, `"n":"`); ok {
			received[strings.TrimSuffix(n, `"}`)]++
		}
	}
	os.Truncate(filepath.Join(k.w.a.workspace, "calls.log"), 0)
	recorded := map[string]api.ActivityRow{}
	for more := true; more; {
		p := k.page(k.cursor)
		k.cursor, more = p.Cursor, p.More
		for _, row := range p.Rows {
			if row.Call == "" || row.State == "denied" {
				continue
			}
			id := strings.Trim(row.RequestID, `"`)
			if was, twice := recorded[id]; twice && was.Call != row.Call {
				t.Errorf("%s was admitted twice", id)
			}
			recorded[id] = row
		}
	}
	for id, row := range recorded {
		k.states[row.State]++
		if row.State == "admitted" || row.State == "started" {
			t.Errorf("%s stays %s", id, row.State)
		}
	}
	for n, times := range received {
		if times != 1 {
			t.Errorf("the server received %s %d times", n, times)
		}
		if _, ok := recorded[n]; !ok {
			t.Errorf("the server received %s, and no record says so", n)
		}
	}
	for n := range k.answered {
		if row, ok := recorded[n]; !ok || row.State != "completed" && row.State != "unknown" {
			t.Errorf("%s was answered, its record: %+v", n, row)
		}
		if received[n] != 1 {
			t.Errorf("%s was answered and not received", n)
		}
	}
	k.sum += len(k.answered)
	k.received += len(received)
	if got := k.grants(); !slices.Equal(got, k.granted) {
		t.Errorf("the grants are %v, confirmed were %v", got, k.granted)
	}
	if c, code := k.w.bind(k.w.a, aliceUID, k.spent); code != "token_used" {
		if c != nil {
			c.Close()
		}
		t.Errorf("a token that was used up: %q", code)
	}
}

// swept finds what is left of former lives: groups and processes that ps does not
// know, and names of sockets that nobody serves.
func (k *killing) swept() {
	w := k.w
	until(k.t, "no jail of a former life", func() bool {
		var ps api.PsResult
		if w.Call(api.Ps, api.ProjectParams{}, &ps) != nil {
			return false
		}
		known := map[string]bool{}
		for _, row := range ps.Rows {
			known[row.Jail] = true
		}
		v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + w.Cgroup() + "/*/jal_*")
		v2, _ := filepath.Glob("/sys/fs/cgroup/*/" + w.Cgroup() + "/jal_*")
		v3, _ := filepath.Glob("/sys/fs/cgroup/" + w.Cgroup() + "/*/jal_*")
		for _, g := range slices.Concat(v1, v2, v3) {
			if !known[filepath.Base(g)] {
				return false
			}
		}
		processes := 0
		for _, l := range w.Left() {
			if strings.HasPrefix(l, "process ") {
				processes++
			}
		}
		return processes <= len(ps.Rows)
	})
	names := map[string]bool{}
	entries, err := os.ReadDir(filepath.Join(w.RunDir, "p"))
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range entries {
		names[e.Name()] = true
	}
	if want := map[string]bool{w.a.id: true, w.b.id: true}; !maps.Equal(names, want) {
		k.t.Errorf("sockets of %v, projects are %v", names, want)
	}
}

// caller opens one runtime's connection; end closes it.
type caller func() (c io.ReadWriter, end func())

// load calls with one number after the other until stop.
func (k *killing) load(stop chan struct{}, open caller) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if c, end := open(); c != nil {
			k.calls(stop, quick{c})
			end()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (k *killing) calls(stop chan struct{}, r quick) {
	if !r.initialize() {
		return
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		k.mu.Lock()
		k.number++
		n := fmt.Sprintf("n%d", k.number)
		k.mu.Unlock()
		ok, alive := r.call(n)
		if ok {
			k.mu.Lock()
			k.answered[n] = true
			k.mu.Unlock()
		}
		if !alive {
			return
		}
	}
}

// quickWait bounds one connection of a caller, whatever happens to its peer.
const quickWait = 3 * time.Second

// door is a caller at the project's socket.
func (k *killing) door() (io.ReadWriter, func()) {
	c, err := dialAs(aliceUID, k.w.doorOf(k.w.a))
	if err != nil {
		return nil, nil
	}
	c.SetDeadline(time.Now().Add(quickWait))
	if r := (quick{c}); !r.bind() {
		c.Close()
		return nil, nil
	}
	return c, func() { c.Close() }
}

// command is a caller through postern connect.
func (k *killing) command() (io.ReadWriter, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), quickWait)
	cmd := exec.CommandContext(ctx, filepath.Join(k.w.Bin, "postern"), "--run-dir", k.w.RunDir, "connect", "--project", k.w.a.id)
	cmd.SysProcAttr, cmd.Dir, cmd.Env = rig.As(aliceUID), "/", []string{"PATH=/usr/bin:/bin"}
	in, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return nil, nil
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, nil
	}
	k.mu.Lock()
	k.connect = cmd.Process
	k.mu.Unlock()
	return struct {
			io.Reader
			io.Writer
		}{out, in}, func() {
			in.Close()
			k.mu.Lock()
			k.connect = nil
			k.mu.Unlock()
			cancel()
			cmd.Wait()
		}
}

// quick is a runtime that gives up instead of failing the test.
type quick struct{ io.ReadWriter }

func (q quick) line() string {
	var line []byte
	buf := make([]byte, 4096)
	for {
		n, err := q.Read(buf)
		line = append(line, buf[:n]...)
		if err != nil || n > 0 && line[len(line)-1] == '\n' {
			return string(line)
		}
	}
}

func (q quick) bind() bool {
	io.WriteString(q, bindLine(""))
	if !strings.Contains(q.line(), `"session"`) {
		return false
	}
	_, err := io.WriteString(q, `{"postern":{"stdio":"here"}}`+"\n")
	return err == nil
}

func (q quick) initialize() bool {
	io.WriteString(q, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`+"\n")
	return strings.Contains(q.line(), `"result"`)
}

func (q quick) call(n string) (ok, alive bool) {
	io.WriteString(q, `{"jsonrpc":"2.0","id":"`+n+`","method":"tools/call","params":{"name":"echo","arguments":{"n":"`+n+`"}}}`+"\n")
	for {
		line := q.line()
		if !strings.HasSuffix(line, "\n") {
			return false, false
		}
		for l := range strings.Lines(line) {
			if strings.Contains(l, `"id":"`+n+`"`) {
				return strings.Contains(l, `"text":"echo"`), true
			}
		}
	}
}
