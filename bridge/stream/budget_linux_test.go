package stream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Half lines of some leave no room for the long line of another, which is told so; its
// short lines go on, and its long ones as soon as one of the others is done.
func TestStream4_InputsShareABudget(t *testing.T) {
	budget := NewBudget(1 << 20)
	long := strings.Repeat("x", 900<<10)
	greedyR, greedyW := pipe(t)
	greedy := NewInput(greedyR, -1, -1, 4<<20, 0, nil, budget)
	ended := make(chan error, 1)
	full := make(chan struct{})
	go func() {
		pour(greedyW, long) // half a line
		close(full)
	}()
	go func() {
		_, err := greedy.Next()
		greedy.Release()
		ended <- err
	}()
	<-full

	r, w := pipe(t)
	in := NewInput(r, -1, -1, 4<<20, 0, nil, budget)
	go pour(w, long+"\nshort\n")
	if _, err := in.Next(); !errors.Is(err, ErrCrowded) {
		t.Fatalf("a long line beside a greedy one: %v", err)
	}
	if line, err := in.Next(); err != nil || string(line) != "short" {
		t.Fatalf("the next line: %q %v", line, err)
	}
	unix.Close(greedyW)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Fatalf("the greedy one: %v", err)
	}
	go pour(w, long+"\n")
	if line, err := in.Next(); err != nil || string(line) != long {
		t.Fatalf("a long line afterwards: %d bytes, %v", len(line), err)
	}
	in.Release()
	shut(greedyR, r, w)
	if budget.left != 1<<20 {
		t.Errorf("%d bytes of the budget are lost", 1<<20-budget.left)
	}
}

func TestStream4_OutputsShareABudget(t *testing.T) {
	budget := NewBudget(1 << 20)
	long := append(bytes.Repeat([]byte("x"), 900<<10), '\n')
	r, w := pipe(t)
	greedy := NewOutput(w, -1, MaxQueued, budget)
	if err := greedy.Send(bytes.Clone(long), nil); err != nil {
		t.Fatal(err)
	}
	r2, w2 := pipe(t)
	other := NewOutput(w2, -1, MaxQueued, budget)
	if err := other.Send(bytes.Clone(long), nil); !errors.Is(err, ErrCrowded) {
		t.Fatalf("a long line beside one that is not read: %v", err)
	}
	if err := other.Send([]byte("short\n"), nil); err != nil {
		t.Fatalf("a short line: %v", err)
	}
	var got [64]byte
	if n, err := unix.Read(r2, got[:]); err != nil || string(got[:n]) != "short\n" {
		t.Fatalf("what came of it: %q %v", got[:n], err)
	}
	for left := len(long); left > 0; { // the other one is read after all
		n, err := unix.Read(r, make([]byte, 64<<10))
		if err != nil {
			t.Fatal(err)
		}
		left -= n
	}
	greedy.Close()
	done := make(chan error, 1)
	go func() { done <- other.Send(bytes.Clone(long), nil) }()
	if err := <-done; err != nil {
		t.Fatalf("a long line afterwards: %v", err)
	}
	unix.Close(r2)
	other.Close()
	shut(r, w, w2)
	if budget.left != 1<<20 {
		t.Errorf("%d bytes of the budget are lost", 1<<20-budget.left)
	}
}

func pour(fd int, s string) {
	for b := []byte(s); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			return
		}
		b = b[n:]
	}
}
