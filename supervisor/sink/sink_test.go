package sink

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// gate is a reader that takes nothing until it is let.
type gate struct {
	let chan struct{}
	mu  sync.Mutex
	got strings.Builder
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.let
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got.Write(b)
}

func TestSink1_Sink2_C127_AReaderThatStopsHoldsNobodyUp(t *testing.T) {
	g := &gate{let: make(chan struct{})}
	s := New(g)
	line := strings.Repeat("x", 1023) + "\n"
	const lines = 3 * MaxHeld / 1024
	began := time.Now()
	for range lines {
		if n, err := io.WriteString(s, line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	s.Close() // waits, but not for long
	if took := time.Since(began); took > 10*CloseWait {
		t.Fatalf("it took %v", took)
	}
	close(g.let)
	<-s.over
	kept := strings.Count(g.got.String(), line)
	if kept == 0 || kept > MaxHeld/1024 || !strings.HasSuffix(g.got.String(), fmt.Sprintf("%d lines of the log were dropped: nobody read them\n", lines-kept)) {
		t.Fatalf("%d of %d lines came, the end is %q", kept, lines, g.got.String()[max(0, g.got.Len()-100):])
	}
}

func TestSink3_LinesComeWholeAndInTheirOrder(t *testing.T) {
	g := &gate{let: make(chan struct{})}
	close(g.let)
	s := New(g)
	buf := make([]byte, 0, 64) // a logger uses its buffer again
	for n := range 10_000 {
		buf = fmt.Appendf(buf[:0], "line %d\n", n)
		s.Write(buf)
	}
	s.Close()
	s.Write([]byte("too late\n"))
	got := strings.Split(strings.TrimSuffix(g.got.String(), "\n"), "\n")
	if len(got) != 10_000 {
		t.Fatalf("%d lines", len(got))
	}
	for n, l := range got {
		if l != fmt.Sprintf("line %d", n) {
			t.Fatalf("line %d is %q", n, l)
		}
	}
}
