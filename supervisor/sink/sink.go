// Package sink knows how to write a log without ever waiting for its reader.
//
// It runs in posternd and in the authority, in front of their standard error. Behind
// that is a pipe, and who reads it may be slow, stopped or gone: a log line must not
// hold up the loop that answers calls, nor the one that ends jails. What comes in is
// lines of ours; what is hostile in them was quoted before.
//
// Invariants:
//   - sink-1: Write never waits for the reader.
//   - sink-2: what does not fit is counted, and the count is written when the reader is back.
//   - sink-3: lines come out whole and in their order, and Close waits for them, but not for long.
//
// It is no record of anything: what must not be lost is in the store.
package sink

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Bounds of a sink.
const (
	MaxHeld   = 1 << 20     // bytes that wait for the reader; more is dropped
	CloseWait = time.Second // for what waits at the end
)

// Sink is a writer in front of another. Any goroutine may write.
type Sink struct {
	to      io.Writer
	mu      sync.Mutex
	held    [][]byte
	bytes   int
	dropped int
	closed  bool
	more    chan struct{} // holds one token while there is something to write
	over    chan struct{} // closed when the last of it is written
}

// New makes a sink before to and starts the one goroutine that waits for it.
func New(to io.Writer) *Sink {
	s := &Sink{to: to, more: make(chan struct{}, 1), over: make(chan struct{})}
	go s.run()
	return s
}

// Write takes one line, or drops it. It never fails.
func (s *Sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.bytes+len(line) > MaxHeld:
		s.dropped++
	default:
		s.held = append(s.held, append([]byte(nil), line...))
		s.bytes += len(line)
		s.wake()
	}
	return len(line), nil
}

// wake is called with mu held.
func (s *Sink) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Close writes what waits, at most for CloseWait, and takes nothing more.
func (s *Sink) Close() {
	s.mu.Lock()
	s.closed = true
	s.wake()
	s.mu.Unlock()
	select {
	case <-s.over:
	case <-time.After(CloseWait):
	}
}

func (s *Sink) run() {
	defer close(s.over)
	for range s.more {
		for {
			s.mu.Lock()
			if len(s.held) == 0 {
				dropped, closed := s.dropped, s.closed
				s.dropped = 0
				s.mu.Unlock()
				if dropped > 0 {
					fmt.Fprintf(s.to, "%d lines of the log were dropped: nobody read them\n", dropped)
				}
				if closed {
					return
				}
				break
			}
			line := s.held[0]
			s.held = s.held[1:]
			s.mu.Unlock()
			s.to.Write(line) // a log that cannot be written has nobody to tell
			s.mu.Lock()
			s.bytes -= len(line)
			s.mu.Unlock()
		}
	}
}
