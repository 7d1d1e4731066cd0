package launch

import (
	"fmt"
	"sync"

	"postern/supervisor/order"
)

// leases hands out the uids of the range, each to one live jail. It goes round the
// range, so that a uid rests as long as possible before somebody gets it again.
type leases struct {
	mu    sync.Mutex
	of    order.Range
	next  uint32
	taken map[uint32]bool
}

func newLeases(of order.Range) *leases { return &leases{of: of, taken: map[uint32]bool{}} }

func (l *leases) take() (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.of.Count {
		uid := l.of.First + l.next
		l.next = (l.next + 1) % l.of.Count
		if !l.taken[uid] {
			l.taken[uid] = true
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all %d uids of the range %s are leased", l.of.Count, rangeText(l.of))
}

// giveBack is called only when nothing of the jail is left.
func (l *leases) giveBack(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.taken, uid)
}
