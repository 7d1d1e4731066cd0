package upstream

import (
	"sync"

	"golang.org/x/sys/unix"
)

// MaxStderr is how much of a server's stderr is kept: the last bytes.
const MaxStderr = 16 << 10

// ring keeps the last MaxStderr bytes. Reading always goes on, so that a server that
// writes much never stops in its own write.
type ring struct {
	most int
	mu   sync.Mutex
	last []byte
	past uint64 // bytes that were forgotten before last
}

func (r *ring) fill(fd int) {
	defer closeFD(fd)
	buf := make([]byte, 2<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		r.mu.Lock()
		r.last = append(r.last, buf[:n]...)
		if over := len(r.last) - r.most; over > 0 {
			r.last = append(r.last[:0], r.last[over:]...)
			r.past += uint64(over)
		}
		r.mu.Unlock()
	}
}

func (r *ring) bytes() (last []byte, past uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]byte(nil), r.last...), r.past
}

func closeFD(fd int) { _ = unix.Close(fd) }
