package linear

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	granted Need = 1 << iota
	enabled
)

const enough = time.Minute

// made is a history of a register that does right: every operation takes effect at its
// middle. Callers overlap with each other and with the change of their round.
func made(rounds, callers int) *Log {
	l := New(granted | enabled)
	has, at := granted|enabled, int64(0)
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		need := []Need{granted, enabled}[r.IntN(2)]
		holds := r.IntN(2) == 0
		for half := range 2 {
			for c := range callers {
				for n := range 3 {
					middle := at + int64(half*1000+n*200+c*10)
					l.add(porcupine.Operation{ClientId: c, Input: call{granted | enabled}, Output: has == granted|enabled, Call: middle - int64(r.IntN(100)), Return: middle + int64(r.IntN(100))})
				}
			}
			if half == 0 {
				middle := at + 800
				l.add(porcupine.Operation{ClientId: callers, Input: change{need, holds}, Output: true, Call: middle - int64(r.IntN(300)), Return: middle + int64(r.IntN(300))})
				if has &^= need; holds {
					has |= need
				}
			}
		}
		at += 2000
	}
	return l
}

func TestLinear1_AHistoryWithOneLieIsRejected(t *testing.T) {
	if err := made(200, 8).Check(enough); err != nil {
		t.Fatalf("a true history: %v", err)
	}
	// Each kind of lie, alone, in a history that is true without it.
	for _, row := range []struct {
		what           string
		before, after  bool // whether the grant holds before and after the change
		call, answered int64
		admitted       bool
		wrong          bool
		names          string
	}{
		{"admitted after the revocation returned", true, false, 30, 40, true, true, "was admitted"},
		{"its twin: refused after it", true, false, 30, 40, false, false, ""},
		{"admitted while it was under way", true, false, 15, 40, true, false, ""},
		{"refused while it was under way", true, false, 15, 40, false, false, ""},
		{"refused before it began", true, false, 1, 5, false, true, ""},
		{"admitted before it began", true, false, 1, 5, true, false, ""},
		{"refused after the grant returned", false, true, 30, 40, false, true, ""},
		{"its twin: admitted after it", false, true, 30, 40, true, false, ""},
		{"admitted before the grant began", false, true, 1, 5, true, true, ""},
	} {
		l := New(0)
		if row.before {
			l = New(granted)
		}
		l.add(porcupine.Operation{Input: change{granted, row.after}, Output: true, Call: 10, Return: 20})
		l.add(porcupine.Operation{ClientId: 1, Input: call{granted}, Output: row.admitted, Call: row.call, Return: row.answered})
		if err := l.Check(enough); (err != nil) != row.wrong || row.wrong && !strings.Contains(err.Error(), row.names) {
			t.Errorf("%s: %v", row.what, err)
		}
	}
}

// Of a long true history, one answer is turned round: those for which that must be
// wrong, because no change is near, are rejected each.
func TestLinear1_AMutatedHistoryIsRejected(t *testing.T) {
	l := made(12, 8)
	mutated := 0
	for i, op := range l.ops {
		if _, ok := op.Input.(call); !ok {
			continue
		}
		near := false
		for _, o := range l.ops {
			if _, ok := o.Input.(change); ok && o.Call <= op.Return && op.Call <= o.Return {
				near = true
			}
		}
		if near {
			continue
		}
		mutated++
		l.ops[i].Output = !op.Output.(bool)
		if l.Check(enough) == nil {
			t.Fatalf("operation %d of %d was turned round, and nothing is said", i, len(l.ops))
		}
		l.ops[i].Output = op.Output
	}
	if mutated < 10 {
		t.Fatalf("%d mutations prove nothing", mutated)
	}
	if err := l.Check(enough); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

func TestLinear2_NotEnoughTimeIsNoSuccess(t *testing.T) {
	// The lie is at the end, behind many operations that can stand in any order.
	l := New(granted)
	for c := range 400 {
		l.add(porcupine.Operation{ClientId: c, Input: change{granted, c%2 == 0}, Output: true, Call: 0, Return: 1000})
		l.add(porcupine.Operation{ClientId: 1000 + c, Input: call{granted}, Output: c%3 == 0, Call: 0, Return: 1000})
	}
	l.add(porcupine.Operation{ClientId: 3000, Input: change{granted, false}, Output: true, Call: 2000, Return: 2001})
	l.add(porcupine.Operation{ClientId: 3000, Input: call{granted}, Output: true, Call: 3000, Return: 3001})
	if err := l.Check(time.Microsecond); err == nil {
		t.Error("a wrong history passed for want of time")
	}
}

func TestLinear1_WhatOthersRecordIsCounted(t *testing.T) {
	l := New(granted)
	began := l.Now()
	l.Called(1, granted, true, began)
	l.Changed(0, granted, false, l.Now())
	l.Called(1, granted, false, l.Now())
	if c := l.Counts(); c != (Counts{Admitted: 1, Refused: 1, Changes: 1}) {
		t.Errorf("%+v", c)
	}
	if err := l.Check(enough); err != nil {
		t.Error(err)
	}
}
