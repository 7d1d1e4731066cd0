package bridge

import (
	"testing"
	"time"

	"postern/refusal"
)

// A server that says nothing has the time that its profile gives it, and never less than
// the least that a handshake may take.
func TestStart_ASilentServerHasItsWholeTime(t *testing.T) {
	for says, row := range map[string]struct {
		startMs int64
		least   time.Duration
	}{
		"what the profile says":     {1500, 1500 * time.Millisecond},
		"less than a handshake has": {1, handshakeLeast},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			a.set(func() { a.startMs = row.startMs })
			a.server([]string{"hostile", "mute"}, "echo")
			c := a.passed().initialize()
			begun := time.Now()
			c.call("1", "echo", `{}`)
			c.wantRefusal("1", refusal.ServerUnavailable)
			if took := time.Since(begun); took < row.least {
				t.Errorf("it was given up after %v", took)
			}
		})
	}
	// One that speaks in its time is called.
	a := newAuthority(t)
	a.count("echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	if got := c.answer(); got.Error != nil {
		t.Errorf("%+v", got)
	}
}
