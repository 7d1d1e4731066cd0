package launch

import (
	"sync"
	"time"

	"postern/ids"
)

// seats bounds the work for each project: a file system that does not answer costs its
// own project that much and no other anything.
type seats struct {
	each int

	mu  sync.Mutex
	all map[ids.Project]*bench
}

type bench struct {
	taken chan struct{}
	users int // those who sit or wait
}

func newSeats(each int) *seats { return &seats{each: each, all: map[ids.Project]*bench{}} }

// enter waits for a seat of a project's, until late. Who has one leaves it.
func (s *seats) enter(p ids.Project, late <-chan time.Time) (leave func(), ok bool) {
	s.mu.Lock()
	b := s.all[p]
	if b == nil {
		b = &bench{taken: make(chan struct{}, s.each)}
		s.all[p] = b
	}
	b.users++
	s.mu.Unlock()
	rise := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.users--; b.users == 0 {
			delete(s.all, p)
		}
	}
	select {
	case b.taken <- struct{}{}:
		return func() { <-b.taken; rise() }, true
	case <-late:
		rise()
		return nil, false
	}
}
