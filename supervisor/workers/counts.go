package workers

import "time"

// histogramBounds are the upper bounds of a histogram's buckets.
var histogramBounds = [...]time.Duration{500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second}

// Histogram counts durations by size. Its zero value is empty, and it never grows.
type Histogram struct {
	Buckets [len(histogramBounds) + 1]uint64 // the last one is beyond every bound
	Sum     time.Duration
}

func (h *Histogram) observe(d time.Duration, times int) {
	i := 0
	for i < len(histogramBounds) && d > histogramBounds[i] {
		i++
	}
	h.Buckets[i] += uint64(times)
	h.Sum += d * time.Duration(times)
}

// Bounds are the upper bounds of all buckets but the last.
func (h *Histogram) Bounds() []time.Duration { return histogramBounds[:] }

// Totals are sums since the loop was made. They say how much, never whose.
type Totals struct {
	Admission Histogram // from the turn in which a bridge's question was heard to its durable answer; without looking at paths
	Commit    Histogram // of the store, where there was something to write
	Restarts  uint64    // tool servers that ended without being told to
	Bridges   uint64    // bridges that did
	Fences    uint64    // revocations and other changes that bridges had to acknowledge
	Killed    uint64    // bridges that did not
}

// Totals returns a copy. It runs on the loop.
func (w *Workers) Totals() Totals { return w.totals }

// States counts tool servers by their state. It runs on the loop.
func (w *Workers) States() map[string]int {
	out := make(map[string]int, len(instStates))
	for _, name := range instStates[1:] { // an idle one is none
		out[name] = 0
	}
	for _, s := range w.sets {
		for _, inst := range s.insts {
			if inst.state != instIdle {
				out[instStates[inst.state]]++
			}
		}
	}
	return out
}
