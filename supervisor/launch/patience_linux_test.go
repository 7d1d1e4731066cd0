package launch

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/supervisor/order"
)

// An authority with much to read was ended because it did not take its projects'
// sockets meanwhile, and so was each that followed. One that is ready has no excuse.
func TestAnAuthorityThatStillReadsItsStoreIsWaitedFor(t *testing.T) {
	for _, ready := range []bool{false, true} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		a := &authority{proc: c.Process, wire: pair[0], ready: ready, done: make(chan struct{}), news: make(chan struct{})}
		for _, size := range []int{4096, 1} { // until not even the smallest message has room
			for err = nil; err == nil; {
				err = unix.Sendmsg(pair[0], make([]byte, size), nil, nil, unix.MSG_DONTWAIT)
			}
			if !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
		}
		over := make(chan struct{})
		reads := time.AfterFunc(sendWait+sendWait/2, func() {
			defer close(over)
			buf := make([]byte, 4096)
			for n := 1; n > 0; {
				n, _ = unix.Read(pair[1], buf)
			}
		})
		began := time.Now()
		err = a.send(order.ProjectSocket{Project: newID[ids.Project](began)})
		if took := time.Since(began); ready != (err != nil) || took < sendWait {
			t.Errorf("ready %v: %v after %v", ready, err, took)
		}
		begun := !reads.Stop()
		a.hangUp()
		a.close()
		c.Process.Kill()
		c.Wait()
		if begun { // its number is the next round's otherwise, and read from there
			<-over
		}
		unix.Close(pair[1])
	}
}
