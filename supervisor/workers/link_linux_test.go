package workers

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A bridge that ends before it has read all that it was sent has still said what it said.
func TestTheLastWordsOfABridgeThatDidNotReadOnAreHeard(t *testing.T) {
	for _, unread := range []bool{true, false} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		l := &link{fd: pair[0]}
		if unread {
			if err := l.send([]byte("unread")); err != nil {
				t.Fatal(err)
			}
		}
		for _, word := range []string{"one", "two"} {
			if _, err := unix.Write(pair[1], []byte(word)); err != nil {
				t.Fatal(err)
			}
		}
		unix.Close(pair[1])
		buf := make([]byte, 16)
		for _, want := range []string{"one", "two"} {
			if n, err := l.recv(buf); err != nil || string(buf[:n]) != want {
				t.Errorf("unread %v: %q, %v; want %q", unread, buf[:n], err, want)
			}
		}
		if _, err := l.recv(buf); !errors.Is(err, errGone) {
			t.Errorf("unread %v: then %v", unread, err)
		}
		unix.Close(pair[0])
	}
}
