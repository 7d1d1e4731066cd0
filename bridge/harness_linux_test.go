package bridge

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// patience bounds every wait of a test; an event that comes ends the wait.
const patience = 20 * time.Second

var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bridge-test")
	if err != nil {
		panic(err)
	}
	bin = dir
	for _, name := range []string{"count", "weird", "hostile", "noisy", "modern", "offers", "pictures"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "../integration/testdata/servers/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v: %s", err, out))
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// authority is the other end of the bridge's socket, written for the test: it admits
// what the test lets it, starts real fixture servers, and writes down what it hears.
type authority struct {
	b            *Bridge
	serverBounds wire.Bounds
	startMs      int64              // of every server; 0 stands for 3 s
	bounds       wire.SessionBounds // of the sessions that are bound from then on
	t            testing.TB
	fd           int
	done         chan error
	cancel       context.CancelFunc

	sending sync.Mutex

	mu       sync.Mutex
	heard    []wire.Up
	raw      []string      // datagrams, where the test wants them
	more     chan struct{} // closed and replaced at each message
	serial   byte
	tools    []wire.Tool
	commands map[ids.Connection][]string
	servers  map[ids.Connection]*exec.Cmd
	ends     map[ids.Connection]chan struct{} // closed when the server last started has ended
	// admit decides; nil admits. It may return held to answer later by itself.
	admit   func(wire.Admit) refusal.Code
	noStart refusal.Code
	slots   map[ids.Session]uint64 // what a session's view says of every tool; 0 where none is named
	deaf    int                    // how many Starts are not answered
	started []uint64               // those that were

	lateViews        bool         // they are answered a little later, and counted
	views, mostViews atomic.Int64 // those that wait for their answer
	quiet            bool         // remember nothing
	era              string       // what Started says that a server speaks
	catalog          map[ids.Connection][]byte
}

const held refusal.Code = "held by the test"

var epoch = time.UnixMilli(1_790_000_000_000)

func newID[T ids.ID](a *authority) T {
	a.serial++
	return ids.New[T](epoch, [10]byte{0: 1, 9: a.serial})
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &authority{
		t: t, fd: pair[0], done: make(chan error, 1), cancel: cancel, more: make(chan struct{}),
		commands: map[ids.Connection][]string{}, servers: map[ids.Connection]*exec.Cmd{}, ends: map[ids.Connection]chan struct{}{}, catalog: map[ids.Connection][]byte{},
	}
	a.b = New(Config{FD: pair[1], Version: "test"})
	go func() { a.done <- a.b.Run(ctx) }()
	listening := make(chan struct{})
	go func() { defer close(listening); a.listen() }()
	t.Cleanup(func() {
		_ = unix.Shutdown(a.fd, unix.SHUT_RDWR)
		select {
		case <-a.done:
		case <-time.After(patience):
			t.Error("the bridge did not end with its authority")
		}
		<-listening
		a.sending.Lock()
		_ = unix.Close(a.fd)
		a.fd = -1 // what ends later must not tell the next test's bridge
		a.sending.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, cmd := range a.servers {
			_ = cmd.Process.Kill()
		}
	})
	await[wire.Hello](a)
	return a
}

// server registers a fixture and offers its tools under their own names.
func (a *authority) server(command []string, tools ...string) ids.Connection {
	a.mu.Lock()
	defer a.mu.Unlock()
	conn := newID[ids.Connection](a)
	command[0] = filepath.Join(bin, command[0])
	a.commands[conn] = command
	for _, name := range tools {
		a.tools = append(a.tools, wire.Tool{Name: name, Connection: conn, Tool: name, Callable: true,
			Definition: []byte(`{"name":"` + name + `","inputSchema":{"type":"object"}}`)})
	}
	return conn
}

// count registers the counting fixture and returns the path of its log.
func (a *authority) count(tools ...string) (ids.Connection, string) {
	log := filepath.Join(a.t.TempDir(), "calls.log")
	return a.server([]string{"count", log}, tools...), log
}

func (a *authority) tell(m wire.Down, fds ...int) {
	raw, err := wire.EncodeDown(nil, m)
	if err != nil {
		a.t.Error(err)
		return
	}
	a.tellRaw(raw, fds...)
}

func (a *authority) tellRaw(raw []byte, fds ...int) {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	a.sending.Lock()
	defer a.sending.Unlock()
	for {
		if err := unix.Sendmsg(a.fd, raw, rights, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return
		}
	}
}

func (a *authority) listen() {
	buf := make([]byte, wire.MaxMessage+1)
	reset := false
	for {
		n, err := unix.Read(a.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECONNRESET && !reset { // it ended without having read all; what it said comes after this
			reset = true
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		a.set(func() {
			if a.raw != nil {
				a.raw = append(a.raw, string(buf[:n]))
			}
		})
		for one, rest := wire.Cut(buf[:n]); one != nil; one, rest = wire.Cut(rest) {
			m, err := wire.DecodeUp(one)
			if err != nil {
				a.t.Errorf("the bridge sent %.200q: %v", one, err)
				continue
			}
			a.hear(m)
		}
	}
}

func (a *authority) hear(m wire.Up) {
	if _, is := m.(wire.View); is && a.lateViews { // others may be asked for meanwhile
		if n := a.views.Add(1); n > a.mostViews.Load() {
			a.mostViews.Store(n)
		}
		go func() {
			time.Sleep(time.Millisecond)
			a.views.Add(-1)
			a.answer(m)
		}()
		return
	}
	a.answer(m)
}

func (a *authority) answer(m wire.Up) {
	a.mu.Lock()
	if !a.quiet {
		a.heard = append(a.heard, m)
		close(a.more)
		a.more = make(chan struct{})
	}
	tools, admit, noStart := a.tools, a.admit, a.noStart
	if v, is := m.(wire.View); is && a.slots[v.Session] != 0 {
		tools = slices.Clone(tools)
		for i := range tools {
			tools[i].Slot = a.slots[v.Session]
		}
	}
	a.mu.Unlock()
	switch m := m.(type) {
	case wire.View:
		raw, err := wire.EncodeDown(nil, wire.ViewIs{Session: m.Session, Seq: m.Seq, Tools: tools})
		if err == nil && len(raw) < wire.MaxInline {
			a.tell(wire.ViewIs{Session: m.Session, Seq: m.Seq, Tools: tools})
			return
		}
		doc, err := wire.EncodeTools(tools)
		fd, merr := unix.MemfdCreate("view", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err := errors.Join(err, merr); err != nil {
			a.t.Error(err)
			return
		}
		if n, err := unix.Write(fd, doc); n != len(doc) {
			a.t.Error(err)
		}
		a.tell(wire.ViewIs{Session: m.Session, Seq: m.Seq, Memfd: true}, fd)
		_ = unix.Close(fd)
	case wire.Start:
		a.mu.Lock()
		deaf, twice := a.deaf > 0, slices.Contains(a.started, m.Seq)
		a.deaf--
		if !deaf {
			a.started = append(a.started, m.Seq)
		}
		a.mu.Unlock()
		if deaf || twice { // one that is repeated because a server ended has one answer
			return
		}
		if noStart != "" {
			a.tell(wire.NotStarted{Seq: m.Seq, Session: m.Session, Connection: m.Connection, Slot: m.Slot, Code: noStart})
			return
		}
		a.startIn(m.Connection, m.Slot)
	case wire.Admit:
		code := refusal.Code("")
		if admit != nil {
			code = admit(m)
		}
		switch {
		case code == held:
		case code != "":
			a.tell(wire.Refused{Seq: m.Seq, Code: code})
		case m.Instance == "":
			a.tell(wire.Refused{Seq: m.Seq, Code: refusal.ToolUnknown})
		default:
			a.admitted(m)
		}
	case wire.Catalogue:
		a.mu.Lock()
		a.catalog[m.Connection] = append(a.catalog[m.Connection], m.Data...)
		a.mu.Unlock()
	}
}

func (a *authority) admitted(m wire.Admit) ids.Call {
	call := callOf(m.Seq)
	a.tell(wire.Admitted{Seq: m.Seq, Call: call, DeadlineMs: 60_000})
	return call
}

// callOf is the id that the authority gives to the call asked about under seq.
func callOf(seq uint64) ids.Call {
	return ids.New[ids.Call](epoch, [10]byte{0: 2, 1: byte(seq >> 24), 2: byte(seq >> 16), 3: byte(seq >> 8), 4: byte(seq)})
}

// start launches the fixture of conn with real pipes and hands over their ends.
func (a *authority) start(conn ids.Connection) { a.startIn(conn, 0) }

func (a *authority) startIn(conn ids.Connection, slot uint64) {
	var in, out, errs [2]int
	for _, p := range []*[2]int{&in, &out, &errs} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			a.t.Error(err)
			return
		}
	}
	a.mu.Lock()
	era, startMs := a.era, cmp.Or(a.startMs, 3000)
	command := a.commands[conn]
	instance := newID[ids.Jail](a)
	revision := newID[ids.Revision](a)
	a.mu.Unlock()
	cmd := exec.Command(command[0], command[1:]...)
	child := []*os.File{os.NewFile(uintptr(in[0]), ""), os.NewFile(uintptr(out[1]), ""), os.NewFile(uintptr(errs[1]), "")}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = child[0], child[1], child[2]
	if err := cmd.Start(); err != nil {
		a.t.Error(err)
		return
	}
	for _, f := range child {
		_ = f.Close()
	}
	a.mu.Lock()
	ended := make(chan struct{})
	a.servers[conn], a.ends[conn] = cmd, ended
	a.mu.Unlock()
	a.tell(wire.Started{Connection: conn, Slot: slot, Instance: instance, Revision: revision, StartMs: startMs, Era: era, Bounds: a.serverBounds}, in[1], out[0], errs[0])
	closeAll([]int{in[1], out[0], errs[0]})
	go func() {
		how := "exit 0"
		if err := cmd.Wait(); err != nil {
			how = err.Error()
		}
		close(ended)
		a.tell(wire.Exited{Connection: conn, Slot: slot, Instance: instance, How: how})
	}()
}

func (a *authority) kill(conn ids.Connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.servers[conn].Process.Kill()
}

// forgotten waits until the bridge has noticed that the server of conn ended: the next
// call asks for another.
func (a *authority) forgotten(conn ids.Connection) {
	a.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); logPause() {
		a.b.mu.Lock()
		left := a.b.instances[place{conn: conn}]
		a.b.mu.Unlock()
		if left == nil {
			return
		}
	}
	a.t.Fatal("the bridge did not notice that the server ended")
}

func (a *authority) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// awaitIf returns the first message of type M, past and future, that passes ok.
func awaitIf[M wire.Up](a *authority, ok func(M) bool) M {
	a.t.Helper()
	late := time.After(patience)
	for at := 0; ; {
		a.mu.Lock()
		for ; at < len(a.heard); at++ {
			if m, is := a.heard[at].(M); is && ok(m) {
				a.mu.Unlock()
				return m
			}
		}
		more := a.more
		a.mu.Unlock()
		select {
		case <-more:
		case <-late:
			var none M
			heard := fmt.Sprintf("%+v", a.all())
			a.t.Fatalf("the bridge sent no such %T; it last sent %s", none, heard[max(0, len(heard)-800):])
		}
	}
}

func await[M wire.Up](a *authority) M {
	a.t.Helper()
	return awaitIf(a, func(M) bool { return true })
}

func (a *authority) all() []wire.Up {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]wire.Up(nil), a.heard...)
}

func count[M wire.Up](a *authority) (n int) {
	for _, m := range a.all() {
		if _, ok := m.(M); ok {
			n++
		}
	}
	return n
}

// awaitCount waits until n messages of type M came.
func awaitCount[M wire.Up](a *authority, n int) {
	a.t.Helper()
	seen := 0
	awaitIf(a, func(M) bool { seen++; return seen == n })
}

// fence returns once the bridge has handled everything that was sent before.
func (a *authority) fence(n uint64) {
	a.t.Helper()
	a.tell(wire.Fence{N: n})
	awaitIf(a, func(m wire.Fenced) bool { return m.N == n })
}

// client is a runtime, and connect with it.
type client struct {
	t     testing.TB
	id    ids.Session
	conn  *os.File // the bound connection
	in    *os.File // what the runtime writes
	lines chan string
	out   *os.File
}

// bind hands a fresh connection to the bridge and reads the bind answer.
func (a *authority) bind() *client {
	a.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	id := newID[ids.Session](a)
	a.mu.Unlock()
	a.tell(wire.Session{Session: id, Bounds: a.bounds}, pair[1])
	_ = unix.Close(pair[1])
	c := &client{t: a.t, id: id, conn: nonblocking(pair[0])}
	a.t.Cleanup(func() { c.close() })
	answer := make([]byte, 256)
	n, err := c.conn.Read(answer)
	if want := `{"postern":{"session":"` + string(id) + `"}}` + "\n"; string(answer[:n]) != want || err != nil {
		a.t.Fatalf("bind answer %q, %v; want %q", answer[:n], err, want)
	}
	return c
}

func nonblocking(fd int) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "")
}

// passed hands over two pipes, as connect does.
func (a *authority) passed() *client {
	a.t.Helper()
	c := a.unread()
	c.read(c.out)
	return c
}

// unread is passed for a runtime that reads nothing.
func (a *authority) unread() *client {
	a.t.Helper()
	c := a.bind()
	var in, out [2]int
	if err := errors.Join(unix.Pipe2(in[:], unix.O_CLOEXEC), unix.Pipe2(out[:], unix.O_CLOEXEC)); err != nil {
		a.t.Fatal(err)
	}
	c.handover(linePassed+"\n", in[0], out[1])
	closeAll([]int{in[0], out[1]})
	c.in, c.out = nonblocking(in[1]), nonblocking(out[0])
	return c
}

// here lets the connection carry the messages.
func (a *authority) here() *client {
	a.t.Helper()
	c := a.bind()
	c.in, c.out = c.conn, c.conn
	c.handover(lineHere + "\n")
	c.read(c.conn)
	return c
}

func (c *client) handover(line string, fds ...int) {
	c.t.Helper()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(int(c.conn.Fd()), []byte(line), rights, nil, unix.MSG_NOSIGNAL); err != nil {
		c.t.Fatal(err)
	}
	_ = unix.SetNonblock(int(c.conn.Fd()), true)
}

func (c *client) read(from *os.File) {
	c.lines = make(chan string, 100_000)
	go func() {
		defer close(c.lines)
		r := bufio.NewReaderSize(from, 1<<16)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			c.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
}

func (c *client) close() {
	for _, f := range []*os.File{c.conn, c.in, c.out} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, fmt.Sprintf(format, args...)+"\n"); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *client) line() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the session ended instead of answering")
		}
		return line
	case <-time.After(patience):
		c.t.Fatal("no answer")
	}
	return ""
}

// want reads one line and compares it byte for byte.
func (c *client) want(line string) {
	c.t.Helper()
	if got := c.line(); got != line {
		c.t.Fatalf("got  %.2000s\nwant %.2000s", got, line)
	}
}

// ends waits for the session to end.
func (c *client) ends() {
	c.t.Helper()
	late := time.After(patience)
	for {
		select {
		case _, ok := <-c.lines:
			if !ok {
				return
			}
		case <-late:
			c.t.Fatal("the session did not end")
		}
	}
}

// quiet fails if anything but an answer to a fresh ping comes: whatever was to come
// before it would have come.
func (c *client) quiet() {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"quiet","method":"ping"}`)
	c.want(`{"jsonrpc":"2.0","id":"quiet","result":{}}`)
}

func (c *client) initialize() *client {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if got := c.line(); !strings.Contains(got, `"protocolVersion":"2025-06-18"`) {
		c.t.Fatalf("initialize: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *client) call(id, tool, args string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s","arguments":%s}}`, id, tool, args)
}

// answer is what tests read of an answer.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError    bool            `json:"isError"`
		ResultType string          `json:"resultType"`
		Structured json.RawMessage `json:"structuredContent"`
		Tools      []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Next string `json:"nextCursor"`
		Meta struct {
			Refusal struct{ Code, Help string } `json:"postern/refusal"`
		} `json:"_meta"`
	} `json:"result"`
	Error *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func (c *client) answer() answer {
	c.t.Helper()
	var a answer
	line := c.line()
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return a
}

func (c *client) wantRefusal(id string, code refusal.Code) {
	c.t.Helper()
	a := c.answer()
	row := refusal.Of(code)
	if string(a.ID) != id || !a.Result.IsError || a.Result.Meta.Refusal.Code != string(code) || a.Result.Meta.Refusal.Help != code.Help() ||
		len(a.Result.Content) != 1 || a.Result.Content[0].Text != row.Sentence {
		c.t.Fatalf("got %+v, want %s for %s", a, code, id)
	}
}

func (c *client) wantError(id string, code int) answer {
	c.t.Helper()
	a := c.answer()
	if string(a.ID) != id || a.Error == nil || a.Error.Code != code {
		c.t.Fatalf("got %+v, want error %d for %s", a, code, id)
	}
	return a
}

func (c *client) wantText(id, text string) {
	c.t.Helper()
	a := c.answer()
	if string(a.ID) != id || a.Error != nil || len(a.Result.Content) != 1 || a.Result.Content[0].Text != text {
		c.t.Fatalf("got %+v, want %q for %s", a, text, id)
	}
}

// calls returns the counting fixture's log.
func calls(t *testing.T, log string) []string {
	t.Helper()
	raw, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
}

// logged waits until the counting fixture wrote a line with the prefix.
func logged(t *testing.T, log, prefix string) string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, line := range calls(t, log) {
			if strings.HasPrefix(line, prefix) {
				return line
			}
		}
	}
	t.Fatalf("the server was not sent %q", prefix)
	return ""
}

// logPause is between two looks at a file that another process writes.
func logPause() { time.Sleep(time.Millisecond) }
