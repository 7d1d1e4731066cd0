package launch

import "time"

// Bounds of waiting until a file that changes is left alone. One that is truncated and
// written in pieces says less in between than it will say, and the next piece follows
// within a moment.
const (
	settleTold   = 50 * time.Millisecond  // that it must stay the same where somebody told of the change
	settleLooked = 500 * time.Millisecond // where only a look at every tick found it
	settleMost   = time.Second            // that is waited for it; whoever never stops writing is read as it is
)

// settling is a change that was seen and is not believed yet. The zero value waits for
// nothing. It goes by what looks have seen and not by what a file is dated: a date is
// its writer's to set.
type settling struct {
	first time.Time // when the change was seen first; zero: nothing waits
	seen  string    // what the last look saw
	since time.Time // and since when each look has seen the same
	told  bool
}

// begin makes the next looks come soon, for a change that somebody told of.
func (s *settling) begin(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.told = true
}

// soon is when to look again; nil, never, where nothing waits.
func (s *settling) soon() <-chan time.Time {
	if s.first.IsZero() {
		return nil
	}
	return time.After(settleTold)
}

// quiet takes what a look saw, which began and ended at these times, and tells whether
// it may be believed. The time between two looks is counted from the end of the one to
// the beginning of the other, so that a slow machine makes it shorter and never longer.
func (s *settling) quiet(seen string, began, ended time.Time) bool {
	if s.first.IsZero() {
		s.first = ended
	}
	if seen != s.seen || s.since.IsZero() {
		s.seen, s.since = seen, ended
	}
	wait := settleLooked
	if s.told {
		wait = settleTold
	}
	return began.Sub(s.since) >= wait || began.Sub(s.first) >= settleMost
}

// end forgets the change, when it was taken or is none.
func (s *settling) end() { *s = settling{} }
