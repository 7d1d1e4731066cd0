package main

import (
	"testing"
	"time"

	"postern/supervisor/order"
)

// However often the work tells that it goes on, posternd hears it once in a while, and
// only while it does.
func TestASignOfLifeIsSentOnceInAWhile(t *testing.T) {
	now, sent := time.UnixMilli(1_790_000_000_000), 0
	o := newOpening(func(order.Up) { sent++ }, func() time.Time { return now })
	for range 1000 { // as long as a usual start
		now = now.Add(order.OpeningEvery / 1001)
		o.alive()
	}
	if sent != 0 {
		t.Errorf("a short start sent %d signs", sent)
	}
	for range 10_000 {
		now = now.Add(order.OpeningEvery / 1000)
		o.alive()
	}
	if sent != 10 {
		t.Errorf("ten times the while sent %d signs", sent)
	}
	now = now.Add(time.Hour) // nothing went on
	if sent != 10 {
		t.Errorf("%d signs of work that stood still", sent)
	}
}
