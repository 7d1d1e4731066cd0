package launch

import (
	"fmt"
	"os"
	"syscall"

	"postern/refusal"
	"postern/supervisor/api"
)

// authorityFiles are the descriptors that the authority keeps for bridges, clients of
// control.sock, connections that are being bound, and its store. The rest of what a
// process may have are projects' sockets.
const authorityFiles = 8192

// openDoors makes room for every project that there can be, as far as the kernel lets
// it, and returns how many the authority can listen for. Without CAP_SYS_RESOURCE the
// hard limit stays as whoever started posternd set it.
func openDoors() (int, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	if want := uint64(maxProjects + authorityFiles); lim.Max < want {
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: want}) == nil {
			lim.Max = want
		}
	}
	return doorsIn(lim.Max), nil
}

// doorsIn is how many projects fit into a limit of descriptors. Where it is small, half
// of it is left for everything else.
func doorsIn(limit uint64) int {
	return int(min(limit-min(authorityFiles, limit/2), maxProjects))
}

// tooMany says why no more than these doors can be listened at.
func tooMany(projects, doors int) string {
	return fmt.Sprintf("each of %d projects needs a socket, and of the descriptors that a process may have here %d are for sockets; raise LimitNOFILE= of the unit, or ulimit -Hn", projects, doors)
}

// living counts the projects that have a socket.
func (f Facts) living() int {
	n := len(f.Projects)
	for _, p := range f.Projects {
		if p.Deleted {
			n--
		}
	}
	return n
}

// checkDoors refuses a project for which the authority could not listen: it would be
// ended by the first descriptor that it cannot take, and so would every one after it.
func (f Facts) checkDoors(doors int) *api.Refusal {
	if n := f.living() + 1; n > doors {
		return api.Refuse(refusal.Busy, "%s.", tooMany(n, doors))
	}
	return nil
}
