package jail

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail/seccomp"
)

// Bounds of looking for the record of a filter's kill.
const (
	killRecordWait = 200 * time.Millisecond // the kernel's own thread writes it, after the death
	maxKillRecords = 1024                   // kept for jails that have not asked yet
	maxKernelLine  = 8 << 10                // bytes of one record of the kernel's log
)

// kernelLog reads what the kernel says of processes that a filter ended. Where
// the log cannot be read, or an audit daemon takes the records first, nothing is
// known; that a filter ended the process is known in any case, by its signal.
type kernelLog struct {
	mu    sync.Mutex
	fd    int               // -1 where it cannot be read
	calls map[uint32]string // by uid, which one live jail has alone
}

func openKernelLog() *kernelLog {
	k := &kernelLog{fd: -1, calls: map[uint32]string{}}
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return k
	}
	// What was said before this launcher began is about jails of others.
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		unix.Close(fd)
		return k
	}
	k.fd = fd
	return k
}

func (k *kernelLog) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd >= 0 {
		unix.Close(k.fd)
		k.fd = -1
	}
}

// killedBy returns the call for which a filter ended a process of uid, "" if the
// log does not tell within killRecordWait.
func (k *kernelLog) killedBy(uid uint32) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for end := time.Now().Add(killRecordWait); k.fd >= 0; {
		k.read()
		if call, ok := k.calls[uid]; ok {
			delete(k.calls, uid)
			return call
		}
		left := time.Until(end)
		if left <= 0 {
			break
		}
		poll := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
		unix.Poll(poll, int(left.Milliseconds())+1)
	}
	return ""
}

// forget drops what an earlier jail of uid left: the uid is leased again.
func (k *kernelLog) forget(uid uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.calls, uid)
}

// read takes every record that is there. Each read(2) of the log is one record;
// EPIPE says that some were overwritten before they were read.
func (k *kernelLog) read() {
	buf := make([]byte, maxKernelLine)
	for {
		n, err := unix.Read(k.fd, buf)
		if err == unix.EINTR || err == unix.EPIPE {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		if uid, call, ok := killRecord(string(buf[:n])); ok && len(k.calls) < maxKillRecords {
			k.calls[uid] = call
		}
	}
}

// killRecord reads one record of the log, such as
//
//	5,812,3362577999,-;audit: type=1326 audit(1796040270.171:21): auid=… uid=3900062 … comm="program" … sig=31 arch=40000003 syscall=20 …
//
// The kernel writes a name that holds a space or a quote in hexadecimal, so a
// program cannot put fields of its own into the line.
func killRecord(record string) (uid uint32, call string, ok bool) {
	const type1326 = "audit: type=1326 "
	head, text, _ := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	if n, err := strconv.Atoi(priority); err != nil || n >= 8 || !strings.HasPrefix(text, type1326) {
		return 0, "", false // not the kernel's own words
	}
	got := map[string]uint64{}
	for field := range strings.FieldsSeq(text[len(type1326):]) {
		name, value, _ := strings.Cut(field, "=")
		base := map[string]int{"uid": 10, "arch": 16, "syscall": 10}[name]
		if base == 0 {
			continue
		}
		n, err := strconv.ParseUint(value, base, 32)
		if _, twice := got[name]; err != nil || twice {
			return 0, "", false
		}
		got[name] = n
	}
	if len(got) != 3 {
		return 0, "", false
	}
	return uint32(got["uid"]), callName(got["arch"], got["syscall"]), true
}

func callName(arch, nr uint64) string {
	const x32 = 0x40000000
	switch {
	case arch == unix.AUDIT_ARCH_I386:
		return fmt.Sprintf("32-bit call %d", nr) + named(seccomp.CallName(seccomp.NameI386, nr))
	case arch != unix.AUDIT_ARCH_X86_64:
		return fmt.Sprintf("call %d of architecture %#x", nr, arch)
	case nr >= x32:
		return fmt.Sprintf("x32 call %d", nr-x32) + named(seccomp.CallName(seccomp.NameX32, nr))
	}
	return fmt.Sprintf("call %d", nr) + named(seccomp.CallName(seccomp.NameAMD64, nr))
}

func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}
