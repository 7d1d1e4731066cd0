package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of tells who connected c. The caller closes the Peer; c stays the caller's.
// It returns ErrGone and ErrRefused.
func Of(c *net.UnixConn) (*Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p *Peer
	var inner error
	if err := raw.Control(func(fd uintptr) { p, inner = OfFD(int(fd)) }); err != nil {
		return nil, err
	}
	return p, inner
}

// OfFD is Of for a bare descriptor, which stays the caller's.
//
// The pidfd is asked for first and the credentials second, and the process must be
// alive after both: the kernel holds its struct pid for the socket's life, so a pid
// that was given to somebody else cannot be taken for the peer. Source: socket(7),
// SO_PEERCRED; net/core/sock.c, SO_PEERPIDFD (Linux 6.5).
func OfFD(fd int) (*Peer, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return nil, ErrGone // reaped before it was asked for: kernels before 6.16 say EINVAL
	case err != nil:
		return nil, os.NewSyscallError("getsockopt SO_PEERPIDFD", err)
	}
	unix.CloseOnExec(pidfd)
	p := &Peer{pidfd: pidfd}
	if err := p.read(fd); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Peer) read(fd int) error {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	p.UID, p.GID, p.PID = cred.Uid, cred.Gid, int(cred.Pid)
	if err := ownID(p.UID); err != nil {
		return err
	}
	if p.Groups, err = groups(fd); err != nil {
		return err
	}
	if p.PID <= 0 || !p.Alive() {
		return ErrGone
	}
	// PIDFD_GET_INFO (Linux 6.13) says which pid the descriptor is; older kernels
	// say ENOTTY, and there the struct pid that both options share has to suffice.
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.pidfd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
	switch {
	case errno == unix.ESRCH:
		return ErrGone
	case errno == 0 && int(info.Pid) != p.PID:
		return ErrGone
	}
	return nil
}

// groups asks for the supplementary groups at connect. Source: net/core/sock.c,
// SO_PEERGROUPS: ERANGE answers with the size that is needed.
func groups(fd int) ([]uint32, error) {
	buf := make([]uint32, 32)
	for {
		size := uint32(len(buf) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && int(size/4) > len(buf) && size/4 <= maxGroups:
			buf = make([]uint32, size/4)
		case errno != 0:
			return nil, os.NewSyscallError("getsockopt SO_PEERGROUPS", errno)
		default:
			return buf[:size/4], nil
		}
	}
}

// Alive tells whether the process that connected still runs. A zombie does not.
func (p *Peer) Alive() bool {
	if p.pidfd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n == 0
	}
}

// Close releases the pidfd; twice is harmless.
func (p *Peer) Close() {
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
}

// String quotes nothing of the peer: it is numbers only.
func (p *Peer) String() string { return fmt.Sprintf("uid %d, gid %d, pid %d", p.UID, p.GID, p.PID) }
