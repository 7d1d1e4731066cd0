// Package peer knows who is at the other end of a Unix socket, and whether that
// process still lives.
//
// It runs in posternd (root) and in the authority (no privilege). Hostile are the
// peer itself, the address it bound, the process it handed its socket to, and
// everything it wrote. Its answers come from getsockopt as numbers: SO_PEERCRED for
// the ids at connect, SO_PEERPIDFD for the process, SO_PEERGROUPS for the groups.
//
// Invariants:
//   - peer-1: an identity is numbers of the kernel; no path, name or message changes it.
//   - peer-2: a peer whose process has ended, or that is not the one that connected, is
//     refused, whoever holds the socket now.
//   - peer-3: the overflow uid and an unmapped uid are refused: they are not a user.
//   - peer-4: PeekBindLine consumes the first line and not one byte more.
//   - peer-5: no descriptor of a peer is ever received here.
//
// It is not an authorization: who may do what is the gate's and the root facts'.
package peer

import (
	"errors"
	"time"
)

// Bounds of the bind line.
const (
	MaxBindLine = 4 << 10
	BindWait    = 2 * time.Second
)

// maxGroups bounds the supplementary groups of a peer (NGROUPS_MAX of Linux).
const maxGroups = 65536

// The ids that stand for "somebody this kernel cannot name here".
const (
	overflowID = 65534
	unmappedID = ^uint32(0)
)

var (
	// ErrGone is returned when the process that connected has ended.
	ErrGone = errors.New("the process that connected is gone")
	// ErrRefused is returned for the overflow uid and for an unmapped uid.
	ErrRefused = errors.New("the peer has no uid of its own here")
	// ErrBindLine is returned when the first line is too long, too late, or never ends.
	ErrBindLine = errors.New("no bind line")
)

// Peer is one process as it was when it connected.
type Peer struct {
	UID, GID uint32
	PID      int // for display; the pidfd is what names the process
	Groups   []uint32

	pidfd int
}

func ownID(uid uint32) error {
	if uid == overflowID || uid == unmappedID {
		return ErrRefused
	}
	return nil
}
