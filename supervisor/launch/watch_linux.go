package launch

import (
	"context"
	"fmt"
	"time"

	"postern/supervisor/order"
)

// Bounds of the watch. Where a service manager watches posternd in turn, the authority
// is judged well before posternd is.
const (
	pingEvery = 5 * time.Second
	pongWait  = 30 * time.Second // a disk may take its time; every call waits with it
)

// Notice is what the one who started posternd is told of it: systemd, or nobody.
type Notice struct {
	Ready     bool // an authority serves for the first time
	Reloading bool // the configuration is read again; Ready follows
	Stopping  bool
	Extend    time.Duration // how long the start or the stop takes at most from now on; 0 for no news
	Alive     bool          // posternd and what it watches turn
	Status    string        // a line for people; "" for no news
}

// tell passes a notice on, if there is anybody to be told.
func (s *Supervisor) tell(n Notice) {
	if s.cfg.Tell != nil {
		s.cfg.Tell(n)
	}
}

// watchAuthority asks the authority's loop for a sign of life, again and again, and ends an
// authority that gives none: calls would wait for it for ever, and a revocation too. It
// vouches for posternd only after that, so that whoever watches posternd is not told
// that all is well while nothing is decided.
func (s *Supervisor) watchAuthority(ctx context.Context) error {
	every, wait := s.cfg.pace()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A thread that starts nothing any more could not replace the authority either.
		if !s.spawn.turns(wait) {
			continue
		}
		_, l := s.now()
		if l == nil || !l.a.isReady() {
			// Its start and the pause before it have bounds of their own.
			s.tell(Notice{Alive: true})
			continue
		}
		if l.a.send(order.Ping{N: n}) != nil {
			continue // it is being replaced
		}
		if l.a.until(ctx, wait, func(a *authority) bool { return a.pong.N >= n }) {
			s.tell(Notice{Alive: true, Status: s.statusLine(l)})
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.a.done: // it ended by itself
		default:
			l.a.kill(fmt.Sprintf("it gave no sign of life for %v", wait))
		}
	}
}

// pace is how often the authority is asked, and how long it may take.
func (c Config) pace() (every, wait time.Duration) {
	every, wait = pingEvery, pongWait
	if c.Watchdog > 0 {
		every, wait = min(every, c.Watchdog/6), min(wait, c.Watchdog/2)
	}
	return max(every, time.Millisecond), wait
}

// statusLine says in one line what runs.
func (s *Supervisor) statusLine(l *life) string {
	s.mu.Lock()
	jails, broken := len(s.jails), s.config.Error != ""
	s.mu.Unlock()
	l.a.mu.Lock()
	p := l.a.pong
	l.a.mu.Unlock()
	text := fmt.Sprintf("Serving: %d sessions, %d calls open, %d jails", p.Sessions, p.Calls, jails)
	if broken {
		text += "; the configuration has mistakes, and what it said before holds"
	}
	return text
}

func (a *authority) isReady() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

// turns tells whether the thread takes work within a time.
func (s *spawner) turns(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	done := make(chan struct{})
	select {
	case s.asks <- func() { close(done) }:
	case <-timer.C:
		return false
	}
	<-done
	return true
}
