package launch

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"postern/supervisor/api"
)

// notices keeps what posternd tells whoever started it.
type notices struct {
	mu  sync.Mutex
	all []Notice
}

func (n *notices) tell(x Notice) { n.mu.Lock(); defer n.mu.Unlock(); n.all = append(n.all, x) }

func (n *notices) count(is func(Notice) bool) (c int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.all {
		if is(x) {
			c++
		}
	}
	return c
}

func alive(n Notice) bool { return n.Alive }
func ready(n Notice) bool { return n.Ready }

// An authority that stands still is not vouched for, and is replaced; one that answers
// is vouched for, again and again, and lives.
func TestWatch_AnAuthorityThatStandsStillIsReplacedAndNotVouchedFor(t *testing.T) {
	cfg := newConfig(t)
	var heard notices
	cfg.Tell = heard.tell
	cfg.Watchdog = 6 * time.Second // so that 3 s without an answer are too long
	r := start(t, cfg)
	pid := func() int { return int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64)) }
	first := pid()
	was := heard.count(alive)
	waitFor(t, "posternd vouches twice", func() bool { return heard.count(alive) >= was+2 })
	if now := pid(); now != first || heard.count(ready) != 1 {
		t.Errorf("authority %d is %d now; ready was said %d times", first, now, heard.count(ready))
	}
	if n := heard.count(func(n Notice) bool { return strings.Contains(n.Status, "2 sessions, 1 calls open") }); n == 0 {
		t.Error("no status tells what the authority said is open")
	}

	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(first, syscall.SIGKILL)
	// A question that was on its way may still be answered; then nothing is, until the end.
	before := heard.count(alive)
	waitFor(t, "it is ended", func() bool { return strings.Contains(r.log.String(), "it gave no sign of life for 3s") })
	if n := heard.count(alive); n > before+1 {
		t.Errorf("posternd vouched %d times for an authority that stood still", n-before)
	}
	waitFor(t, "another one serves", func() bool { now := pid(); return now != 0 && now != first })
	was = heard.count(alive)
	waitFor(t, "posternd vouches again", func() bool { return heard.count(alive) > was })
	if n := heard.count(ready); n != 1 {
		t.Errorf("ready was said %d times", n)
	}
}

// A start that goes on is told as one, so that whoever started posternd waits; once it
// serves, nobody is asked for time.
func TestWatch_AStartThatGoesOnIsTold(t *testing.T) {
	cfg := newConfig(t)
	var heard notices
	cfg.Tell = heard.tell
	r := start(t, cfg)
	more := func(n Notice) bool { return n.Extend > readyWait && strings.Contains(n.Status, "reads its store") }
	waitFor(t, "ready is told", func() bool { return heard.count(ready) == 1 })
	if n := heard.count(more); n != 1 {
		t.Errorf("more time was asked for %d times", n)
	}
	first := int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	was := heard.count(alive)
	waitFor(t, "another one is vouched for", func() bool {
		now := int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
		return now != 0 && now != first && heard.count(alive) > was
	})
	if n := heard.count(more); n != 1 {
		t.Errorf("after the start more time was asked for: %d times in all", n)
	}
}

// Reading a store may take long, and being silent may not.
func TestWatch_EachSignOfReadingBeginsTheWaitAnew(t *testing.T) {
	const wait = 300 * time.Millisecond
	a := &authority{done: make(chan struct{}), news: make(chan struct{})}
	answer, began := make(chan bool, 1), time.Now()
	go func() { answer <- a.becomesReady(t.Context(), wait) }()
	for time.Since(began) < 3*wait {
		time.Sleep(wait / 30)
		a.note(func() { a.reads++ })
	}
	a.note(func() { a.ready = true })
	if !<-answer {
		t.Errorf("it was given up, after %v", time.Since(began))
	}

	silent := &authority{done: make(chan struct{}), news: make(chan struct{})}
	if silent.becomesReady(t.Context(), wait) {
		t.Error("one that is silent is waited for")
	}
}

// A stop is told, and the sockets go after that.
func TestWatch_AStopIsTold(t *testing.T) {
	cfg := newConfig(t)
	var heard notices
	cfg.Tell = heard.tell
	r := start(t, cfg)
	waitFor(t, "ready is told", func() bool { return heard.count(ready) == 1 })
	if heard.count(func(n Notice) bool { return n.Stopping }) != 0 {
		t.Error("stopping is told before the stop")
	}
	r.down()
	if heard.count(func(n Notice) bool { return n.Stopping }) != 1 {
		t.Error("the stop was not told once")
	}
}
