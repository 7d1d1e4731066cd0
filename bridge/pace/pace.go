// Package pace knows how a goroutine that only makes blocking system calls stays
// cheap for Go's scheduler.
//
// It has no privilege of its own and no input. Go's monitor takes the processor away
// from a goroutine that has not passed through the scheduler for ten milliseconds, at
// each of its system calls, looks for the next one every 20 µs and wakes a thread to
// have it looked after. A loop of reads and writes never passes through the scheduler:
// it pays that on every call, on the core that its peer needs. One that passes through
// now and then is left alone.
//
// It is not a limit: nothing waits here.
package pace

import (
	"runtime"
	"time"
)

// Every is less than the monitor's ten milliseconds, by about one turn of the loop, and
// no shorter: to pass through wakes a thread that finds nothing to do, which costs more
// than all system calls of a turn.
const Every = 7 * time.Millisecond

// Turn is one goroutine's.
type Turn struct{ last time.Time }

// Yield passes through the scheduler if that is due. It is called once in each turn
// of a loop, before it waits.
func (t *Turn) Yield() {
	if now := time.Now(); now.Sub(t.last) >= Every {
		t.last = now
		runtime.Gosched()
	}
}
