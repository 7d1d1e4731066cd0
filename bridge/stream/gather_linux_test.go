package stream

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStream3_GatheredLinesAreWholeAndInOrder(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pr, pw := pipe(t)
	for kind, end := range map[string][2]int{"a socket": {pair[0], pair[1]}, "a pipe": {pr, pw}} {
		r, w := end[0], end[1]
		o := NewOutput(w, -1, MaxQueued, nil)
		const senders, each = 4, 400
		var group sync.WaitGroup
		for s := range senders {
			group.Go(func() {
				for i := range each {
					line := fmt.Appendf(nil, "%d %d %s\n", s, i, strings.Repeat("z", i*37%9000))
					var err error
					switch {
					case (i+s)%3 > 0:
						err = o.Gather(line)
					default:
						err = o.Send(line, nil)
					}
					if err == nil && i%7 == s {
						err = o.Flush()
					}
					if err != nil {
						t.Errorf("send: %v", err)
					}
				}
				if err := o.Flush(); err != nil {
					t.Errorf("flush: %v", err)
				}
			})
		}
		in := NewInput(r, -1, -1, 1<<20, 0, nil, nil)
		next := [senders]int{}
		for range senders * each {
			line, err := in.Next()
			if err != nil {
				t.Fatal(kind, err)
			}
			var s, i int
			var z string
			_, _ = fmt.Sscanf(string(line), "%d %d %s", &s, &i, &z)
			if i != next[s] || len(z) != i*37%9000 || strings.Trim(z, "z") != "" {
				t.Fatalf("%s: sender %d: line %d of %d bytes, want line %d", kind, s, i, len(z), next[s])
			}
			next[s]++
		}
		group.Wait()
		o.Close()
		shut(r, w)
	}
}

func TestStream2_FlushNeverBlocks(t *testing.T) {
	r, w := pipe(t)
	o := NewOutput(w, -1, MaxQueued, nil)
	full := bytes.Repeat([]byte("f"), 1<<16) // all that the pipe takes
	if n, err := unix.Write(w, full); n != len(full) || err != nil {
		t.Fatal(n, err)
	}
	for _, line := range []string{"one\n", "two\n"} {
		if err := o.Gather([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if !o.Idle() {
		t.Error("what was only gathered counts as not read")
	}
	if err := o.Flush(); err != nil { // returns, although nobody reads
		t.Fatal(err)
	}
	if o.Idle() {
		t.Error("lines wait for a reader, and it counts as idle")
	}
	if err := o.Gather([]byte("three\n")); err != nil {
		t.Fatal(err)
	}
	in := NewInput(r, -1, -1, 1<<20, 0, nil, nil)
	for _, want := range []string{string(full) + "one", "two", "three"} {
		if got, err := in.Next(); string(got) != want || err != nil {
			t.Fatalf("got %.10q, %v; want %.10q", got, err, want)
		}
	}
	o.Close()
	shut(r, w)
}

func TestGather_AtItsBoundsItWritesByItself(t *testing.T) {
	for name, lines := range map[string][]string{
		"bytes": {strings.Repeat("x", maxGathered-1) + "\n", "behind\n"},
		"lines": strings.SplitAfter(strings.Repeat("y\n", maxGatheredLines)+"behind\n", "\n"),
		"large": {"before\n", strings.Repeat("x", maxGathered) + "\n"},
	} {
		r, w := pipe(t)
		o := NewOutput(w, -1, MaxQueued, nil)
		for _, line := range lines {
			if len(line) > 0 {
				if err := o.Gather([]byte(line)); err != nil {
					t.Fatal(err)
				}
			}
		}
		buf := make([]byte, 1<<16)
		poll := []unix.PollFd{{Fd: int32(r), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 10_000); n != 1 {
			t.Fatalf("%s: nothing was written: %v", name, err)
		}
		n, err := unix.Read(r, buf)
		if want := strings.Join(lines, ""); string(buf[:n]) != want || err != nil {
			t.Errorf("%s: %d bytes, %v; want %d", name, n, err, len(want))
		}
		o.Close()
		shut(r, w)
	}
}

func TestGather_IsWithdrawnDroppedAndFails(t *testing.T) {
	r, w := pipe(t)
	o := NewOutput(w, -1, MaxQueued, nil)
	one, two := []byte("one\n"), []byte("two\n")
	for _, line := range [][]byte{one, two} {
		if err := o.Gather(line); err != nil {
			t.Fatal(err)
		}
	}
	if !o.Withdraw(one) || o.Withdraw(one) {
		t.Error("a gathered line could not be withdrawn, or twice")
	}
	if err := o.SendFirst([]byte("urgent\n")); err != nil { // two is written before it: it only waited for company
		t.Fatal(err)
	}
	in := NewInput(r, -1, -1, 1<<10, 0, nil, nil)
	for _, want := range []string{"two", "urgent"} {
		if got, err := in.Next(); string(got) != want || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	if err := o.Gather([]byte("late\n")); err != nil {
		t.Fatal(err)
	}
	shut(r)
	if err := o.Flush(); err != unix.EPIPE {
		t.Errorf("flush without a reader: %v", err)
	}
	if err := o.Gather(one); err != unix.EPIPE {
		t.Errorf("gather after that: %v", err)
	}
	o.Close()
	shut(w)

	r, w = pipe(t)
	o = NewOutput(w, -1, MaxQueued, nil)
	if err := o.Gather(one); err != nil {
		t.Fatal(err)
	}
	o.Close()
	if err := o.Flush(); err != ErrClosed {
		t.Errorf("flush after Close: %v", err)
	}
	shut(w)
	if n, err := unix.Read(r, make([]byte, 8)); n != 0 || err != nil {
		t.Errorf("%d bytes were written after Close, %v", n, err)
	}
	shut(r)
}

func TestQuiet_IsToldOnceAfterEachLine(t *testing.T) {
	r, w := pipe(t)
	defer shut(r)
	told := make(chan struct{}, 10)
	in := NewInput(r, -1, -1, 1<<10, 0, nil, nil)
	in.OnQuiet(time.Millisecond, func() { told <- struct{}{} })
	lines := make(chan string)
	go func() {
		defer close(lines)
		for {
			line, err := in.Next()
			if err != nil {
				return
			}
			lines <- string(line)
		}
	}()
	for n := range 3 {
		writeAll(t, w, []byte("line\n"))
		if got := <-lines; got != "line" {
			t.Fatal(got)
		}
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing came after line %d, and nobody was told", n)
		}
	}
	shut(w)
	if _, more := <-lines; more || len(told) > 0 {
		t.Error("told again, although nothing had come")
	}
}
