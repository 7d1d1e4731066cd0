// Package linear records what callers and whoever changes their permission saw, and
// checks that all of it can have happened one thing after the other, each at one
// moment between its beginning and its end.
//
// A call is admitted where everything it needs holds, and refused where something does
// not. So a history in which a call was admitted that began after a revocation had
// returned, and ended before the next grant began, has no such order; and neither has
// one with a refusal between the return of a grant and the beginning of the next
// revocation.
//
// Tests use it. Its input is theirs; the search is porcupine's.
//
// Invariants:
//   - linear-1: a history with one admission or refusal too many is rejected.
//   - linear-2: what was not decided in the time given is no success.
//
// It makes no calls and no changes itself.
package linear

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Need is one of the things that a call needs: a bit.
type Need uint32

// change is that a need begins or ceases to hold.
type change struct {
	need  Need
	holds bool
}

// call is a call that needs all of these.
type call struct{ needs Need }

// Log is one history. Its methods may be called by many goroutines.
type Log struct {
	holds Need // at the beginning
	began time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// New begins a history in which these needs hold.
func New(holds Need) *Log { return &Log{holds: holds, began: time.Now()} }

// Now is the moment to give as the beginning of what is recorded when it has ended.
func (l *Log) Now() time.Duration { return time.Since(l.began) } // of the monotonic clock

// Changed records that a change which began at a moment has returned.
func (l *Log) Changed(client int, need Need, holds bool, began time.Duration) {
	l.add(porcupine.Operation{ClientId: client, Input: change{need, holds}, Output: true, Call: int64(began), Return: int64(l.Now())})
}

// Called records the answer to a call: admitted, also where it was cancelled later, or
// refused. A call of which neither is known is not recorded.
func (l *Log) Called(client int, needs Need, admitted bool, began time.Duration) {
	l.add(porcupine.Operation{ClientId: client, Input: call{needs}, Output: admitted, Call: int64(began), Return: int64(l.Now())})
}

func (l *Log) add(op porcupine.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, op)
}

// Counts are how much a history says.
type Counts struct{ Admitted, Refused, Changes int }

// Counts counts.
func (l *Log) Counts() (c Counts) {
	for _, op := range l.history() {
		switch admitted := op.Output.(bool); op.Input.(type) {
		case change:
			c.Changes++
		default:
			if admitted {
				c.Admitted++
			} else {
				c.Refused++
			}
		}
	}
	return c
}

func (l *Log) history() []porcupine.Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ops)
}

// Check returns nil where the history can have happened in some order, else what is
// wrong with it, or that this could not be told within wait.
func (l *Log) Check(wait time.Duration) error {
	history := l.history()
	switch porcupine.CheckOperationsTimeout(model(l.holds), history, wait) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return fmt.Errorf("no order explains this history of %d operations%s", len(history), strings.Join(suspects(history), ""))
	}
	return fmt.Errorf("%v was not enough to look through %d operations", wait, len(history))
}

// model is the register that admissions read.
func model(holds Need) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holds },
		Step: func(state, input, output any) (bool, any) {
			has := state.(Need)
			switch in := input.(type) {
			case change:
				if in.holds {
					return true, has | in.need
				}
				return true, has &^ in.need
			case call:
				return (has&in.needs == in.needs) == output.(bool), has
			}
			return false, has
		},
		Hash: func(state any) uint64 { return uint64(state.(Need)) },
	}
}

// maxSuspects bounds what an error lists.
const maxSuspects = 5

// suspects are admissions wholly within a time in which something they needed was
// gone: not all that can be wrong with a history, but what it is most likely to be.
func suspects(history []porcupine.Operation) (out []string) {
	changes := slices.DeleteFunc(slices.Clone(history), func(op porcupine.Operation) bool { _, ok := op.Input.(change); return !ok })
	for _, a := range history {
		in, ok := a.Input.(call)
		if !ok || !a.Output.(bool) {
			continue
		}
		for _, off := range changes {
			c := off.Input.(change)
			if c.holds || c.need&in.needs == 0 || off.Return >= a.Call {
				continue
			}
			again := slices.ContainsFunc(changes, func(on porcupine.Operation) bool {
				o := on.Input.(change)
				return o.holds && o.need == c.need && on.Return > off.Call && on.Call < a.Return
			})
			if !again && len(out) < maxSuspects {
				out = append(out, fmt.Sprintf("\n  caller %d was admitted between %v and %v; need %b was gone when %v came, and nobody had given it back", a.ClientId, time.Duration(a.Call), time.Duration(a.Return), c.need, time.Duration(off.Return)))
			}
		}
	}
	return out
}
