package jail

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// idleEnv makes this test binary a launcher that is killed while a process of its idles.
const idleEnv = "POSTERN_TEST_IDLE"

func idled() {
	fmt.Println(idle(unix.CLONE_NEWUSER))
	select {}
}

// The descriptor names a namespace that is not this one, many can be made at once
// while the runtime collects and grows stacks, and no process is left of any.
func TestUserns_MadeManyTimesAtOnce(t *testing.T) {
	needs(t)
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &own); err != nil {
		t.Fatal(err)
	}
	before := children(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range uint32(25) {
				ns, err := userns([]idPair{{ownerUID, leasedID + n}}, []idPair{{ownerGID, leasedID + n}, {primeGID, strangerGID}})
				if err != nil {
					t.Error(err)
					return
				}
				var st unix.Stat_t
				if err := unix.Fstat(fd(ns), &st); err != nil || st.Ino == own.Ino {
					t.Errorf("namespace %d (%v), the own one is %d", st.Ino, err, own.Ino)
				}
				ns.Close()
				deep(64)
				runtime.GC()
			}
		})
	}
	all.Wait()
	if after := children(t); after != before {
		t.Errorf("children of this process: %q, before %q", after, before)
	}
	if _, err := userns(nil, []idPair{{1, 2}}); err == nil {
		t.Error("a namespace without a map of uids")
	}
}

// deep makes the stack grow and move.
func deep(n int) byte {
	var pad [1 << 10]byte
	if n > 0 {
		pad[n] = deep(n - 1)
	}
	return pad[n]
}

func children(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all []string
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // a thread may end meanwhile
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(raw))...)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Nothing but SIGKILL reaches an idling process: no handler of the launcher runs in
// it. It ends with the launcher, however that ends, and at once if it is dead already.
func TestUserns_TheIdlingProcessDiesWithTheLauncher(t *testing.T) {
	needs(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), idleEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var pid int
	said, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscan(said, &pid); err != nil || scanErr != nil || pid <= 0 {
		t.Fatalf("the launcher said %q, %v", said, err)
	}
	child, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGURG, unix.SIGSEGV, unix.SIGUSR1} {
		if err := unix.PidfdSendSignal(child, s, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	ended := []unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}
	if n, _ := unix.Poll(ended, 50); n != 0 {
		t.Fatal("a blocked signal ended it")
	}
	cmd.Process.Kill()
	cmd.Wait()
	if n, err := unix.Poll(ended, 5000); n != 1 {
		t.Fatalf("it outlives its launcher: %v", err)
	}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	orphan := cloneIdleBlocked(t, uintptr(os.Getpid()+1))
	var ws unix.WaitStatus
	if got, err := unix.Wait4(orphan, &ws, 0, nil); got != orphan || !ws.Exited() || ws.ExitStatus() != 1 {
		t.Errorf("with a dead launcher: %d, %v, status %#x", got, err, ws)
	}
}

// cloneIdleBlocked is idle with another parent.
func cloneIdleBlocked(t *testing.T, parent uintptr) int {
	t.Helper()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		t.Fatal(err)
	}
	pid := cloneIdle(unix.CLONE_NEWUSER|unix.CLONE_VM|uintptr(unix.SIGCHLD), parent)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil || pid < 0 {
		t.Fatal(pid, err)
	}
	return pid
}
