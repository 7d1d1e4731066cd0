package workers

import (
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// refusalIn is the code in a connector's error line; "" if it is none.
func refusalIn(line string) refusal.Code {
	var e struct {
		Error struct {
			Data struct {
				Code refusal.Code `json:"code"`
			} `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(line), &e) != nil {
		return ""
	}
	return e.Error.Data.Code
}

func pipe(t testing.TB) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	return p[0], p[1]
}

// broken tells whether nobody holds the reading end.
func broken(w int) bool {
	_, err := unix.Write(w, []byte{1})
	return err == unix.EPIPE
}

func sendTo(fd int, raw []byte) { unix.Sendmsg(fd, raw, nil, nil, unix.MSG_NOSIGNAL) }

func closeSocket(r *rig) { unix.Shutdown(r.fd, unix.SHUT_RDWR) }

// badFacts announces facts whose document is none.
func (r *rig) badFacts() {
	fd, err := sealed("facts", []byte(`{"version":1,"unknown":true}`))
	if err != nil {
		r.t.Fatal(err)
	}
	r.say(order.Facts{Version: 1}, fd)
}

func gateSet(project int) gate.Set { return gate.Set{Project: id[ids.Project](project), Number: 1} }
