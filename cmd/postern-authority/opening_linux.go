package main

import (
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/order"
)

// opening tells posternd that the start goes on: a large store takes longer to read than
// anybody would wait for an authority that is silent. It is asked to by the work itself.
type opening struct {
	send func(order.Up)
	now  func() time.Time
	next time.Time
}

// newOpening begins to count now: a start that takes a moment tells nothing.
func newOpening(send func(order.Up), now func() time.Time) *opening {
	return &opening{send: send, now: now, next: now().Add(order.OpeningEvery)}
}

func (o *opening) alive() {
	if now := o.now(); !now.Before(o.next) {
		o.next = now.Add(order.OpeningEvery)
		o.send(order.Opening{})
	}
}

// early sends an order before there is a loop. One that cannot be sent at once is left
// out: the next one says the same.
func early(m order.Up) {
	if raw, err := order.EncodeUp(m); err == nil {
		_ = unix.Sendmsg(ordersFD, raw, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}
