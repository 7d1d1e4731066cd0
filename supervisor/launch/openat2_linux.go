package launch

import "golang.org/x/sys/unix"

// openTries bounds how often a lookup is repeated.
const openTries = 1024

// openat2 is openat2(2), repeated where the kernel could not tell whether ".." stayed
// beneath the root: it answers EAGAIN when any rename or mount of the machine, also
// somebody else's, falls into the lookup. That says nothing about the name.
func openat2(dir int, name string, how *unix.OpenHow) (fd int, err error) {
	for range openTries {
		if fd, err = unix.Openat2(dir, name, how); err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return fd, err
}
