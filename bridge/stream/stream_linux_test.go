package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func pipe(t testing.TB) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return p[0], p[1]
}

func shut(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func writeAll(t testing.TB, fd int, b []byte) {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			t.Errorf("write: %v", err)
			return
		}
		b = b[n:]
	}
}

func TestStream1_ALongLineIsSkippedAndTheNextIsRead(t *testing.T) {
	const most = 100_000
	for _, n := range []int{0, 1, most - 1, most, most + 1, most + 2, 2*most + 5, 3_000_000} {
		r, w := pipe(t)
		line := strings.Repeat("x", n/2) + strings.Repeat("y", n-n/2)
		go func() {
			writeAll(t, w, []byte("before\n"+line+"\nafter\n"))
			shut(w)
		}()
		in := NewInput(r, -1, -1, most, 0, nil, nil)
		if got, err := in.Next(); string(got) != "before" || err != nil {
			t.Fatalf("%d: %q %v", n, got, err)
		}
		got, err := in.Next()
		switch {
		case n <= most && (string(got) != line || err != nil):
			t.Errorf("%d: %d bytes, %v", n, len(got), err)
		case n > most && err != ErrTooLong:
			t.Errorf("%d: %v", n, err)
		case n > most:
			head, tail := in.Edges()
			if string(head) != line[:Edge] || string(tail) != line[n-Edge:] {
				t.Errorf("%d: the edges are wrong: %d and %d bytes", n, len(head), len(tail))
			}
			if len(in.buf) > most+2 {
				t.Errorf("%d: %d bytes are kept", n, len(in.buf))
			}
		}
		if got, err := in.Next(); string(got) != "after" || err != nil {
			t.Errorf("%d: %q %v", n, got, err)
		}
		if _, err := in.Next(); err != io.EOF {
			t.Errorf("%d: %v", n, err)
		}
		shut(r)
	}
}

// What is skipped of one line is bounded too: below and at the bound the next line is
// read, above it the input has ended.
func TestStream1_ALineWithoutAnEndEndsTheInput(t *testing.T) {
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for _, over := range []int{-1, 0, 1} {
		r, w := pipe(t)
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			for range MaxSkipped/len(chunk) - 1 {
				writeAll(t, w, chunk)
			}
			writeAll(t, w, bytes.Repeat([]byte("x"), len(chunk)+over))
			if over <= 0 {
				writeAll(t, w, []byte("\nafter\n"))
			}
			shut(w)
		}()
		in := NewInput(r, -1, -1, 100_000, 0, nil, nil)
		_, err := in.Next()
		if over > 0 {
			if err != ErrEndless {
				t.Errorf("%d bytes over the bound: %v", over, err)
			}
		} else if line, next := in.Next(); err != ErrTooLong || string(line) != "after" || next != nil {
			t.Errorf("%d bytes: %v, then %q, %v", over, err, line, next)
		}
		<-wrote
		shut(r)
	}
}

func TestStream1_LinesAreCutTheSameHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.SliceOfN(rapid.ByteRange('a', 'z'), 0, 9000), 1, 6).Draw(rt, "lines")
		all := append(bytes.Join(lines, []byte("\n")), '\n')
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(all)), 0, 5).Draw(rt, "cuts")
		r, w := pipe(t)
		defer shut(r)
		go func() {
			defer shut(w)
			at := 0
			for _, c := range cuts {
				if c > at {
					writeAll(t, w, all[at:c])
					at = c
				}
			}
			writeAll(t, w, all[at:])
		}()
		in := NewInput(r, -1, -1, 8000, 0, nil, nil)
		for i, want := range lines {
			got, err := in.Next()
			if len(want) > 8000 {
				if err != ErrTooLong {
					rt.Fatalf("line %d: %v", i, err)
				}
				continue
			}
			if err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("line %d: %d bytes, %v", i, len(got), err)
			}
		}
	})
}

func TestInput_TheLifelineAndTheReaderEndTheWait(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(life, otherLife, outReader, w int)
		want error
	}{
		{"the lifeline's other end closes", func(_, o, _, _ int) { shut(o) }, ErrLifeline},
		{"the lifeline says something", func(_, o, _, _ int) { _, _ = unix.Write(o, []byte("x")) }, ErrLifeline},
		{"the lifeline is shut down here", func(l, _, _, _ int) { _ = unix.Shutdown(l, unix.SHUT_RDWR) }, ErrLifeline},
		{"the output has no reader any more", func(_, _, o, _ int) { shut(o) }, ErrPeer},
		{"the input ends", func(_, _, _, w int) { shut(w) }, io.EOF},
	} {
		r, w := pipe(t)
		outReader, out := pipe(t)
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		in := NewInput(r, pair[0], out, 100, 0, nil, nil)
		got := make(chan error)
		go func() {
			_, err := in.Next()
			got <- err
		}()
		c.do(pair[0], pair[1], outReader, w)
		select {
		case err := <-got:
			if err != c.want {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the wait goes on", c.name)
		}
		shut(r, out, pair[0])
	}
}

func TestStream2_SendNeverBlocks(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(pair[0], pair[1])
	r, w := pipe(t)
	defer shut(r, w)
	for name, fd := range map[string]int{"pipe": w, "socket": pair[0]} {
		o := NewOutput(fd, -1, MaxQueued, nil)
		line := bytes.Repeat([]byte("x"), 1<<20)
		n := 0
		var err error
		for ; err == nil; n++ { // nobody reads
			err = o.Send(bytes.Clone(line), nil)
		}
		if !errors.Is(err, ErrFull) || n < MaxQueued>>20 || n > MaxQueued>>20+2 {
			t.Errorf("%s: after %d lines: %v", name, n, err)
		}
		o.Close()
		if err := o.Send(line, nil); err == nil {
			t.Errorf("%s: a closed output accepts lines", name)
		}
	}
}

func TestStream3_LinesAreWholeAndInOrder(t *testing.T) {
	r, w := pipe(t)
	o := NewOutput(w, -1, MaxQueued, nil)
	const senders, each = 4, 300
	var group sync.WaitGroup
	for s := range senders {
		group.Go(func() {
			for i := range each {
				line := fmt.Sprintf("%d %d %s\n", s, i, strings.Repeat("z", i*37%9000))
				if err := o.Send([]byte(line), nil); err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	in := NewInput(r, -1, -1, 1<<20, 0, nil, nil)
	next := [senders]int{}
	for range senders * each {
		line, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		var s, i int
		var z string
		_, _ = fmt.Sscanf(string(line), "%d %d %s", &s, &i, &z)
		if i != next[s] || len(z) != i*37%9000 || strings.Trim(z, "z") != "" {
			t.Fatalf("sender %d: line %d of %d bytes, want line %d", s, i, len(z), next[s])
		}
		next[s]++
	}
	group.Wait()
	o.Close()
	shut(r, w)
}

func TestStream2_TheQueueBelowAtAndAboveItsBound(t *testing.T) {
	r, w := pipe(t)
	fill := make([]byte, 1<<20)
	n, err := unix.Pwritev2(w, [][]byte{fill}, -1, unix.RWF_NOWAIT)
	if err != nil || n == len(fill) {
		t.Fatalf("the pipe took %d bytes: %v", n, err)
	}
	o := NewOutput(w, -1, 1000, nil)
	line := func(n int) error { return o.Send(append(bytes.Repeat([]byte{'x'}, n-1), '\n'), nil) }
	for _, c := range []struct {
		says string
		n    int
		want error
	}{{"below", 998, nil}, {"above, in one line", 3, ErrFull}, {"at", 2, nil}, {"above", 1, ErrFull}} {
		if err := line(c.n); err != c.want {
			t.Errorf("%s: %v", c.says, err)
		}
	}
	buf := make([]byte, 1<<20)
	for got := 0; got < n+1000; {
		m, err := unix.Read(r, buf)
		if err != nil {
			t.Fatal(err)
		}
		got += m
	}
	for end := time.Now().Add(10 * time.Second); !o.Idle() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if err := line(1000); err != nil {
		t.Errorf("once it was read: %v", err)
	}
	o.Close()
}

func TestWithdraw_OnlyWhatHasNotBegun(t *testing.T) {
	r, w := pipe(t)
	defer shut(r, w)
	o := NewOutput(w, -1, MaxQueued, nil)
	big := append(bytes.Repeat([]byte("b"), 1<<20), '\n')
	second, third := []byte("second\n"), []byte("third\n")
	for _, line := range [][]byte{big, second, third} {
		if err := o.Send(line, nil); err != nil {
			t.Fatal(err)
		}
	}
	if o.Withdraw(big) {
		t.Error("a line that had begun was withdrawn")
	}
	if !o.Withdraw(second) || o.Withdraw(second) {
		t.Error("the second line could not be withdrawn, or twice")
	}
	if err := o.SendFirst([]byte("urgent\n")); err != nil {
		t.Fatal(err)
	}
	in := NewInput(r, -1, -1, 2<<20, 0, nil, nil)
	for _, want := range []string{string(big[:len(big)-1]), "urgent", "third"} {
		if got, err := in.Next(); string(got) != want || err != nil {
			t.Fatalf("got %d bytes %.10q, %v; want %.10q", len(got), got, err, want)
		}
	}
	o.Close()
}

func TestSend_TheConditionIsAskedBeforeEachLine(t *testing.T) {
	r, w := pipe(t)
	defer shut(r, w)
	o := NewOutput(w, -1, MaxQueued, nil)
	defer o.Close()
	if err := o.Send([]byte("a\n"), func() bool { return true }); err != nil {
		t.Error(err)
	}
	if err := o.Send([]byte("b\n"), func() bool { return false }); err != ErrSkipped {
		t.Error(err)
	}
	if err := o.Send([]byte("c\n"), nil); err != nil {
		t.Error(err)
	}
	in := NewInput(r, -1, -1, 100, 0, nil, nil)
	for _, want := range []string{"a", "c"} {
		if got, _ := in.Next(); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestOutput_AFifoThatKnowsNoNowait: a runtime may open a FIFO by its path, and such a
// file does not know RWF_NOWAIT.
func TestOutput_AFifoThatKnowsNoNowait(t *testing.T) {
	path := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := unix.Open(path, unix.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(r, w)
	o := NewOutput(w, -1, MaxQueued, nil)
	defer o.Close()
	long := strings.Repeat("l", 300_000)
	for _, line := range []string{"one", long, "three"} {
		if err := o.Send([]byte(line+"\n"), nil); err != nil {
			t.Fatal(err)
		}
	}
	in := NewInput(r, -1, -1, 1<<20, 0, nil, nil)
	for _, want := range []string{"one", long, "three"} {
		if got, err := in.Next(); string(got) != want || err != nil {
			t.Fatalf("got %d bytes, %v; want %.10q", len(got), err, want)
		}
	}
}
