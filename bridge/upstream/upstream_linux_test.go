package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/mcp"
)

const patience = 10 * time.Second

// peer plays the tool server on the other ends of real pipes.
type peer struct {
	t      *testing.T
	s      *Server
	in     *bufio.Reader
	stdin  *os.File
	out    *os.File
	errs   *os.File
	done   chan error
	change chan struct{}
}

func newPeer(t *testing.T) *peer { t.Helper(); return boundPeer(t, Bounds{}) }

func boundPeer(t *testing.T, bounds Bounds) *peer {
	t.Helper()
	var in, out, errs [2]int
	for _, p := range []*[2]int{&in, &out, &errs} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	p := &peer{t: t, done: make(chan error, 1), change: make(chan struct{}, 16)}
	p.stdin, p.out, p.errs = os.NewFile(uintptr(in[0]), ""), os.NewFile(uintptr(out[1]), ""), os.NewFile(uintptr(errs[1]), "")
	p.in = bufio.NewReader(p.stdin)
	p.s = New(Config{Stdin: in[1], Stdout: out[0], Stderr: errs[0], Version: "test", Bounds: bounds, Changed: func() { p.change <- struct{}{} }})
	go func() { p.done <- p.s.Run() }()
	t.Cleanup(func() {
		_ = p.out.Close()
		_ = p.errs.Close()
		<-p.done
		_ = p.stdin.Close()
	})
	return p
}

func (p *peer) say(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil {
		p.t.Error(err)
	}
}

func (p *peer) hears(want string) {
	p.t.Helper()
	line, err := p.in.ReadString('\n')
	if err != nil || strings.TrimSuffix(line, "\n") != want {
		p.t.Fatalf("the server heard %q, %v; want %q", line, err, want)
	}
}

// probe is one call that writes down what it is told.
type probe struct{ told chan string }

func newProbe() *probe { return &probe{make(chan string, 1000)} }

func (p *probe) Answer(a *mcp.Answer, _ int, err error) {
	if err != nil {
		p.told <- err.Error()
		return
	}
	p.told <- string(mcp.Peer{}.AppendAnswer(nil, mcp.Value("0"), a))
}

func (p *probe) Progress(m []mcp.Member) { p.told <- "progress " + string(mcp.Find(m, "progress")) }

func (p *probe) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-p.told:
		if strings.TrimSuffix(got, "\n") != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("told nothing, want %q", want)
	}
}

func (p *peer) call() (int64, *probe) {
	p.t.Helper()
	id, c := p.s.NextID(), newProbe()
	line := fmt.Sprintf(`{"id":%d}`, id)
	if err := p.s.Call(id, []byte(line+"\n"), c); err != nil {
		p.t.Fatal(err)
	}
	p.hears(line)
	return id, c
}

const result = `{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`

func told(n int) string { return fmt.Sprintf(result, 0, n) }

func TestUpstream1_AnAnswerEndsItsOwnCall(t *testing.T) {
	p := newPeer(t)
	one, c1 := p.call()
	two, c2 := p.call()
	p.say(`{"jsonrpc":"2.0","id":"%d","result":{}}`, one)
	p.say(`{"jsonrpc":"2.0","id":null,"result":{}}`)
	p.say(`{"jsonrpc":"2.0","id":999,"result":{}}`)
	p.say(`{"jsonrpc":"2.0","id":%d.0,"result":{}}`, one)
	p.say(result, two, 2)
	p.say(result, two, 3)
	p.say(result, one, 1)
	c2.want(t, told(2))
	c1.want(t, told(1))
	if len(c1.told)+len(c2.told) != 0 {
		t.Error("a call was told more than its answer")
	}
	if n := p.s.Counts().Unmatched; n != 5 {
		t.Errorf("%d answers were dropped, want 5", n)
	}
}

func TestUpstream2_ProgressComesBeforeTheAnswerOnly(t *testing.T) {
	p := newPeer(t)
	id, c := p.call()
	note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}`
	p.say(note, id, 1)
	p.say(note, id+1, 2)
	p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"%d","progress":3}}`, id)
	p.say(result, id, 1)
	p.say(note, id, 4)
	c.want(t, "progress 1")
	c.want(t, told(1))
	_, last := p.call()
	p.say(result, id+1, 5)
	last.want(t, told(5))
	if len(c.told) != 0 {
		t.Errorf("told %q after the answer", <-c.told)
	}
}

func TestUpstream3_TheEndEndsEveryCallAtOnce(t *testing.T) {
	p := newPeer(t)
	_, c1 := p.call()
	_, c2 := p.call()
	_, _ = p.errs.WriteString(strings.Repeat("noise ", MaxStderr) + "the last words")
	_ = p.out.Close()
	c1.want(t, ErrExited.Error())
	c2.want(t, ErrExited.Error())
	if err := p.s.Call(p.s.NextID(), []byte("{}\n"), newProbe()); !errors.Is(err, ErrExited) {
		t.Errorf("a later call: %v", err)
	}
	_ = p.errs.Close()
	<-p.done
	p.done <- nil
	if got, past := p.s.Stderr(); len(got) != MaxStderr || past == 0 || !strings.HasSuffix(string(got), "the last words") {
		t.Errorf("%d bytes of stderr: …%s", len(got), got[max(0, len(got)-20):])
	}
}

func TestUpstream4_ABadLineEndsAtMostOneCall(t *testing.T) {
	p := newPeer(t)
	_, quiet := p.call()
	for _, line := range []string{"", "banner", "\x00\x01", "[1]", "42", `{"unfinished`} {
		p.say("%s", line)
	}
	for _, c := range []struct{ line, told string }{
		{`{"id":%d}`, ErrAnswer.Error()},
		{`{"id":%d,"result":7}`, ErrAnswer.Error()},
		{`{"id":%d,"error":7}`, ErrAnswer.Error()},
		{`{"id":%d,"result":{},"result":{}}`, ErrAnswer.Error()},
		{`{"id":%d,"result":{},"error":{"code":1,"message":"m"}}`, ErrAnswer.Error()},
		{"{\"id\":%d,\"result\":{\"a\":\"\xff\"}}", ErrAnswer.Error()},
		{`{"id":%d,"result":{"a":"` + strings.Repeat("x", mcp.MaxLine) + `"}}`, ErrTooLong.Error()},
		{`{"result":{"a":"` + strings.Repeat("x", mcp.MaxLine) + `"},"id":%d}`, ErrTooLong.Error()},
		{`{"id":%d,"result":{"a":"\ud800","b":1,"b":2}}`, `{"jsonrpc":"2.0","id":0,"result":{"a":"\ud800","b":1,"b":2}}`},
	} {
		id, call := p.call()
		p.say(c.line, id)
		call.want(t, c.told)
	}
	if len(quiet.told) != 0 {
		t.Errorf("another call was told %q", <-quiet.told)
	}
	if n := p.s.Counts(); n.Noise != 6 || n.TooLong != 2 {
		t.Errorf("counted %+v", n)
	}
	// A bad line without an id can only belong to the one call that is in flight.
	p.say(`{"result":7}`)
	quiet.want(t, ErrAnswer.Error())
}

func TestUpstream5_TheServerLearnsNothingOfTheRuntime(t *testing.T) {
	p := newPeer(t)
	opened := make(chan error, 1)
	go func() {
		l, err := p.s.Open(time.Now().Add(patience), EraUnknown, false)
		if err == nil && len(l.Tools) != 1 {
			err = fmt.Errorf("listing %+v", l)
		}
		opened <- err
	}()
	p.hears(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"postern","version":"test"}}}`)
	p.say(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
	p.hears(`{"jsonrpc":"2.0","id":"r","error":{"code":-32601,"message":"not offered to tool servers"}}`)
	p.say(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	p.hears(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
	p.hears(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.hears(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`)
	p.say(`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}`)
	if err := <-opened; err != nil {
		t.Error(err)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	select {
	case <-p.change:
	case <-time.After(patience):
		t.Error("the change was not told")
	}
}

func TestCancel_WithdrawsWhatTheServerCouldNotSee(t *testing.T) {
	p := newPeer(t)
	big := append([]byte(strings.Repeat("x", 1<<20)), '\n') // fills the pipe: nobody reads
	if err := p.s.Call(p.s.NextID(), big, newProbe()); err != nil {
		t.Fatal(err)
	}
	id, c := p.s.NextID(), newProbe()
	if err := p.s.Call(id, []byte("second\n"), c); err != nil {
		t.Fatal(err)
	}
	if !p.s.Cancel(id, "") {
		t.Error("the waiting call was not withdrawn")
	}
	if p.s.Cancel(id, "") || p.s.Forget(id) || len(c.told) != 0 {
		t.Error("the withdrawn call is still known")
	}
	first := int64(1)
	if p.s.Cancel(first, "why") {
		t.Error("a call that had begun was withdrawn")
	}
	p.hears(strings.TrimSuffix(string(big), "\n"))
	p.hears(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"why"}}`)
}

// Each bound, below, at and above: what reaches it ends its own call, and the next one
// is answered.
func TestUpstream4_BoundsOfAProfile(t *testing.T) {
	line := func(n int) func(int64) string {
		return func(id int64) string {
			head, tail := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"s":"`, id), `"}}`
			return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
		}
	}
	depth := func(n int) func(int64) string { // the envelope and the result are two
		return func(id int64) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"d":%s%s}}`, id, strings.Repeat("[", n-2), strings.Repeat("]", n-2))
		}
	}
	blocks := func(n int) func(int64) string {
		return func(id int64) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[%s],"x":[{},{},{},{}]}}`, id, strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"[{\"","a":[{}]},`, n), ","))
		}
	}
	for _, c := range []struct {
		says   string
		bounds Bounds
		answer func(int) func(int64) string
		at     int
		want   error
	}{
		{"line", Bounds{Line: 5000}, line, 5000, ErrTooLong},
		{"depth", Bounds{Depth: 9}, depth, 9, ErrAnswer},
		{"blocks", Bounds{Blocks: 3}, blocks, 3, ErrTooLong},
	} {
		t.Run(c.says, func(t *testing.T) {
			p := boundPeer(t, c.bounds)
			for n := c.at - 1; n <= c.at+1; n++ {
				id, call := p.call()
				p.say("%s", c.answer(n)(id))
				switch got := <-call.told; {
				case n <= c.at && !strings.Contains(got, `"result"`):
					t.Errorf("%d: told %.200q", n, got)
				case n > c.at && got != c.want.Error():
					t.Errorf("%d: told %.200q, want %q", n, got, c.want)
				}
			}
			id, call := p.call()
			p.say(result, id, 7)
			call.want(t, told(7))
		})
	}
	t.Run("stderr", func(t *testing.T) {
		p := boundPeer(t, Bounds{Stderr: 2000})
		fmt.Fprint(p.errs, "first", strings.Repeat("y", 1995))
		for end := time.Now().Add(patience); len(last(p.s)) < 2000 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		if got := string(last(p.s)); len(got) != 2000 || !strings.HasPrefix(got, "first") {
			t.Errorf("%d bytes are kept at the bound", len(got))
		}
		fmt.Fprint(p.errs, "z")
		for end := time.Now().Add(patience); !strings.HasSuffix(string(last(p.s)), "z") && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		if got := string(last(p.s)); len(got) != 2000 || !strings.HasPrefix(got, "irst") {
			t.Errorf("%d bytes are kept above it: %.10q", len(got), got)
		}
	})
	t.Run("queue", func(t *testing.T) {
		p := boundPeer(t, Bounds{Queue: 1000})
		full, err := unix.Pwritev2(p.s.cfg.Stdin, [][]byte{[]byte(strings.Repeat("\n", 1<<20))}, -1, unix.RWF_NOWAIT)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			n    int
			want error
		}{{999, nil}, {2, ErrBusy}, {1, nil}, {1, ErrBusy}} {
			if err := p.s.Call(p.s.NextID(), append([]byte(strings.Repeat("x", c.n-1)), '\n'), newProbe()); err != c.want {
				t.Errorf("%d bytes: %v", c.n, err)
			}
		}
		for range full { // it reads, and can be called again
			if b, err := p.in.ReadByte(); b != '\n' || err != nil {
				t.Fatal(b, err)
			}
		}
		p.hears(strings.Repeat("x", 998))
		p.hears("")
		id, call := p.call()
		p.say(result, id, 7)
		call.want(t, told(7))
	})
	definition := `{"name":"t%02d","inputSchema":{"type":"object"},"description":"%s"}`
	least := len(fmt.Sprintf(definition, 0, ""))
	for _, c := range []struct {
		says   string
		bounds Bounds
		sizes  []int // of the definitions
		kept   int   // -1 where the list is refused
	}{
		{"items below", Bounds{Items: 3}, []int{least, least}, 2},
		{"items at", Bounds{Items: 3}, []int{least, least, least}, 3},
		{"items above", Bounds{Items: 3}, []int{least, least, least, least}, -1},
		{"definition below", Bounds{Definition: 1 << 10}, []int{1<<10 - 1, least}, 2},
		{"definition at", Bounds{Definition: 1 << 10}, []int{1 << 10, least}, 2},
		{"definition above", Bounds{Definition: 1 << 10}, []int{1<<10 + 1, least}, 1},
		{"definitions below", Bounds{Definitions: 4 << 10}, []int{2 << 10, 2<<10 - 1}, 2},
		{"definitions at", Bounds{Definitions: 4 << 10}, []int{2 << 10, 2 << 10}, 2},
		{"definitions above", Bounds{Definitions: 4 << 10}, []int{2 << 10, 2<<10 + 1}, -1},
		{"definitions, unset, below", Bounds{}, append(slices.Repeat([]int{256 << 10}, 31), 256<<10-1), 32},
		{"definitions, unset, at", Bounds{}, slices.Repeat([]int{256 << 10}, 32), 32},
		{"definitions, unset, above", Bounds{}, append(slices.Repeat([]int{256 << 10}, 31), 255<<10, 1<<10+1), -1},
	} {
		t.Run(c.says, func(t *testing.T) {
			p := boundPeer(t, c.bounds)
			type listed struct {
				Listing
				err error
			}
			done := make(chan listed, 1)
			go func() {
				l, err := p.s.List(time.Now().Add(patience))
				done <- listed{l, err}
			}()
			if _, err := p.in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			var all []string
			for i, n := range c.sizes {
				all = append(all, fmt.Sprintf(definition, i, strings.Repeat("x", n-least)))
			}
			p.say(`{"jsonrpc":"2.0","id":1,"result":{"tools":[%s]}}`, strings.Join(all, ","))
			got := <-done
			switch {
			case c.kept < 0:
				if got.err == nil {
					t.Errorf("%d tools are listed", len(got.Tools))
				}
			case got.err != nil || len(got.Tools) != c.kept || len(got.Quarantined) != len(c.sizes)-c.kept:
				t.Errorf("%d kept, %d kept out, %v", len(got.Tools), len(got.Quarantined), got.err)
			}
			id, call := p.call()
			p.say(result, id, 7)
			call.want(t, told(7))
		})
	}
	for pages := 1; pages <= 3; pages++ {
		t.Run(fmt.Sprint(pages, " pages"), func(t *testing.T) {
			p := boundPeer(t, Bounds{Pages: 2})
			done := make(chan error, 1)
			go func() {
				_, err := p.s.Elements(time.Now().Add(patience), mcp.Tools)
				done <- err
			}()
			for n := 1; n <= min(pages, 2); n++ {
				if _, err := p.in.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				next := ""
				if n < pages {
					next = fmt.Sprintf(`,"nextCursor":"%d"`, n)
				}
				p.say(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[]%s}}`, n, next)
			}
			if err := <-done; (err != nil) != (pages > 2) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestGather_CallsReachTheServerWithTheFlush(t *testing.T) {
	p := newPeer(t)
	var calls []*probe
	for n := range 3 {
		id, c := p.s.NextID(), newProbe()
		if err := p.s.Gather(id, fmt.Appendf(nil, "call %d\n", n+1), c); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	if !p.s.Cancel(2, "") {
		t.Error("a gathered call could not be withdrawn")
	}
	if err := p.s.Flush(); err != nil {
		t.Fatal(err)
	}
	p.hears("call 1")
	p.hears("call 3")
	p.say(result, 1, 1)
	calls[0].want(t, told(1))

	// One that no longer reads, and still has its output open.
	_ = p.stdin.Close()
	id, c := p.s.NextID(), newProbe()
	if err := p.s.Gather(id, []byte("late\n"), c); err != nil {
		t.Fatal(err)
	}
	if err := p.s.Flush(); err != ErrExited {
		t.Errorf("flush to a server that does not read: %v", err)
	}
	if !p.s.Forget(id) || len(c.told) > 0 {
		t.Error("whoever gathered it must end it, and can not")
	}
}

func last(s *Server) []byte {
	data, _ := s.Stderr()
	return data
}
