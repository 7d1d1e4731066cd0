package store

import (
	"os"
	"syscall"
)

// Room is how much the store takes and how much its file system still has, in bytes. What
// cannot be asked is 0.
type Room struct{ Policy, Activity, Free int64 }

// Room asks. Any goroutine may.
func (s *Store) Room() (r Room) {
	sizeOf := func(path string) int64 {
		var n int64
		for _, name := range []string{path, path + "-wal"} {
			if info, err := os.Stat(name); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	r.Policy, r.Activity = sizeOf(s.policy.path), sizeOf(s.activity.path)
	var room syscall.Statfs_t
	if syscall.Statfs(s.activity.path, &room) == nil {
		r.Free = int64(room.Bavail) * int64(room.Bsize)
	}
	return r
}
