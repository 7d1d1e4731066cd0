package workers

import (
	"testing"

	"postern/supervisor/order"
)

// What an operator reads as last error names what ended a jail.
func TestHowAJailEndedIsNamed(t *testing.T) {
	for want, x := range map[string]order.Exited{
		"it exited with status 3":                         {Status: 3},
		"signal 11 ended it":                              {Status: -1, Signal: 11},
		"the memory limit ended it":                       {Status: -1, Signal: 9, OOM: true},
		"it outlived its grace and was killed":            {Status: -1, Signal: 9, Forced: true},
		"its system call filter ended it: 32-bit call 20": {Status: -1, Signal: 31, Filter: true, Call: "32-bit call 20"},
		"its system call filter ended it":                 {Status: 159, Filter: true},
		"a name of its workspace that it may not write was replaced from outside, and it was ended": {Status: -1, Signal: 9, Replaced: true},
	} {
		if got := how(x); got != want {
			t.Errorf("%+v: %q, wanted %q", x, got, want)
		}
	}
}
