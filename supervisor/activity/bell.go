package activity

import (
	"sync"
	"sync/atomic"
)

// Bell tells followers that something became durable, or that somebody may read
// less, so that they ask for what is new and are authorized again. The writer rings
// it after a commit or a change; with nobody listening that costs one load. The zero
// value is ready.
type Bell struct {
	mu        sync.Mutex
	rung      chan struct{} // closed by the next Ring
	listening atomic.Bool
}

// Next returns a channel that is closed by the next Ring. To miss nothing, take
// it first and read the records then.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	b.listening.Store(true)
	return b.rung
}

// Ring wakes everyone who took a channel before.
func (b *Bell) Ring() {
	if !b.listening.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listening.Store(false)
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
