package stream

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// whole tells whether nothing of the budget is used.
func whole(b *Budget, size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left == size
}

// Half a long line holds what others need only for a while: then that line is given up,
// and what follows it is read.
func TestStream5_AHaltedLineIsGivenUp(t *testing.T) {
	const size = 1 << 20
	for name, more := range map[string]func(fd int, over chan struct{}){
		"silent": func(int, chan struct{}) {},
		"dribbling": func(fd int, over chan struct{}) {
			for {
				select {
				case <-over:
					return
				default:
					pour(fd, "x")
				}
				time.Sleep(100 * time.Microsecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget(size)
			r, w := pipe(t)
			in := NewInput(r, -1, -1, 4<<20, 200*time.Millisecond, nil, budget)
			over, poured := make(chan struct{}), make(chan struct{})
			go func() {
				pour(w, `{"id":7,`+strings.Repeat("x", 100<<10))
				more(w, over)
				close(poured)
			}()
			if _, err := in.Next(); !errors.Is(err, ErrSlow) {
				t.Fatalf("half a line: %v", err)
			}
			if head, _ := in.Edges(); !strings.HasPrefix(string(head), `{"id":7,`) || in.Skipped() < 100<<10 {
				t.Errorf("its head is %.20q, of %d bytes", head, in.Skipped())
			}
			if !whole(budget, size) {
				t.Error("it holds memory still")
			}
			close(over)
			<-poured
			go pour(w, strings.Repeat("x", 200<<10)+"\nshort\n"+strings.Repeat("y", 300<<10)+"\n")
			if line, err := in.Next(); err != nil || string(line) != "short" {
				t.Fatalf("the next line: %.20q %v", line, err)
			}
			if line, err := in.Next(); err != nil || len(line) != 300<<10 {
				t.Fatalf("a long line afterwards: %d bytes, %v", len(line), err)
			}
			in.Release()
			shut(r, w)
		})
	}
}

// One that grows by LinePace within each wait may take many of them. A short line may
// take as long as it likes, also where a long one came before it.
func TestStream5_ASlowLineThatGrowsPasses(t *testing.T) {
	const size, wait, pieces = 4 << 20, 2 * time.Second, 5
	budget := NewBudget(size)
	r, w := pipe(t)
	in := NewInput(r, -1, -1, 4<<20, wait, nil, budget)
	go func() {
		tick := time.NewTicker(wait / 3)
		defer tick.Stop()
		for range pieces {
			<-tick.C
			pour(w, strings.Repeat("x", LinePace))
		}
		pour(w, "\nhalf")
	}()
	began := time.Now()
	line, err := in.Next()
	if err != nil || len(line) != pieces*LinePace {
		t.Fatalf("a slow line: %d bytes, %v", len(line), err)
	}
	if took := time.Since(began); took < wait {
		t.Errorf("it took %v, less than one wait", took)
	}
	got := make(chan string, 1)
	go func() {
		line, err := in.Next()
		if err != nil {
			line = []byte(err.Error())
		}
		got <- string(line)
	}()
	for end := time.Now().Add(time.Minute); !whole(budget, size); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("half a short line keeps the memory of a long one")
		}
	}
	pour(w, " a line\n")
	if line := <-got; line != "half a line" {
		t.Errorf("a short line after it: %q", line)
	}
	in.Release()
	unix.Close(w)
	shut(r)
}
