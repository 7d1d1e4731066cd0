package pace

import (
	"runtime"
	"testing"
	"time"
)

// On one processor nothing else runs before this goroutine lets it. The scheduler may
// come back to it first, and may interrupt it, but not five times out of five.
func TestYieldPassesThroughTheSchedulerWhenItIsDueAndNotBefore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	count := func(last func() time.Time) (through int) {
		for range 5 {
			ran := make(chan struct{}, 1)
			go func() { ran <- struct{}{} }()
			turn := Turn{last: last()}
			turn.Yield()
			select {
			case <-ran:
				through++
			default:
				<-ran
			}
		}
		return through
	}
	if n := count(func() time.Time { return time.Time{} }); n == 0 {
		t.Error("the first turn is due, and nothing else ran")
	}
	if n := count(func() time.Time { return time.Now().Add(-Every) }); n == 0 {
		t.Error("it is due again, and nothing else ran")
	}
	if n := count(time.Now); n == 5 {
		t.Error("it passed through again at once")
	}
}
