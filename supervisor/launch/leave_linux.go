package launch

import (
	"context"
	"fmt"
	"time"

	"postern/supervisor/order"
)

// leaveGrace is what the end of sessions and jails may take, after the time for open
// calls is over, before posternd ends them itself.
const leaveGrace = 10 * time.Second

// leave waits until posternd is asked to leave, has the authority drain, and ends
// everything when that is done, when its time is over, or when ctx is done because
// somebody does not want to wait.
func (s *Supervisor) leave(ctx context.Context, end func()) {
	select {
	case <-s.cfg.Leave:
	case <-ctx.Done():
		return
	}
	defer end()
	most := s.settings().drain
	_, l := s.now()
	if l == nil || !l.a.isReady() {
		return // nothing that decides: no call is open
	}
	// Whoever asked is told how long it takes, so that it waits as long.
	s.tell(Notice{Stopping: true, Extend: most + leaveGrace + stopWait + goneWait, Status: fmt.Sprintf("Draining: open calls may take %v", most)})
	s.cfg.Log.Info("asked to leave; open calls may go on, and another signal ends them", keyWait, most)
	if l.a.send(order.Drain{TimeoutMs: most.Milliseconds()}) != nil {
		return
	}
	if !l.a.until(ctx, most+leaveGrace, func(a *authority) bool { return a.drained != nil }) {
		s.cfg.Log.Warn("the drain was not finished, and what was open ends with it")
		return
	}
	l.a.mu.Lock()
	ended := l.a.drained.Ended
	l.a.mu.Unlock()
	s.cfg.Log.Info("drained", keyEnded, ended)
}
