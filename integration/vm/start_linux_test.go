//go:build vm

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/integration/rig"
	"postern/supervisor/store"
)

// What the store holds and how fast it can be read, so that reading it takes longer than
// the start may.
const (
	filledCalls = 2500
	filledBytes = 8 << 10 // of each call's arguments
	readRate    = 200_000 // bytes a second
	startMost   = time.Minute
)

// fillStore writes records into a store, as the user whose it is.
func fillStore(dir string) int {
	fill := func() error {
		s, err := store.Open(dir)
		if err != nil {
			return err
		}
		b, args := s.Batch(), `{"text":"`+strings.Repeat("x", filledBytes)+`"}`
		for i := range filledCalls {
			now := time.Now()
			c := store.Call{ID: ids.New[ids.Call](now, [10]byte{byte(i >> 8), byte(i)}), At: now.UnixNano(), Project: ids.New[ids.Project](now, [10]byte{1}), Tool: "echo", Args: store.Arguments{Value: args}}
			b.Admit(&c)
			if i%100 == 99 {
				err = errors.Join(err, b.Commit())
			}
		}
		return errors.Join(err, s.Close())
	}
	if err := fill(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A store that takes longer to read than TimeoutStartSec is read: systemd is told that the
// start goes on, and neither it nor posternd ends the authority over it.
func TestALargeStoreIsReadForLongerThanTheStartMayTake(t *testing.T) {
	install(t)
	command(t, "systemctl", "start", "postern")
	command(t, "systemctl", "stop", "postern")

	owner, err := user.Lookup("postern")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		t.Fatal(err)
	}
	fill := exec.Command("/proc/self/exe", roleFill, "/var/lib/postern")
	fill.SysProcAttr, fill.Dir = rig.As(uid), "/"
	if out, err := fill.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A file that was found damaged is read whole before anything is served. Nothing of it
	// is in memory, as after a boot.
	activity := filepath.Join("/var/lib/postern", store.ActivityFile)
	if err := os.WriteFile(activity+".damaged", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(activity)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}

	dropIn(t, fmt.Sprintf("TimeoutStartSec=%d\nIOReadBandwidthMax=/dev/nvme0n1 %d", int(startMost.Seconds()), readRate))
	began := time.Now()
	command(t, "systemctl", "start", "--no-block", "postern")
	until(t, "the status tells what takes so long", func() bool {
		return show(t, "StatusText") == "Starting: the authority reads its store" && show(t, "ActiveState") == "activating"
	})
	pid := mainPID(t)
	until(t, "it has started, or failed", func() bool { return show(t, "ActiveState") != "activating" })
	took := time.Since(began).Round(time.Second)
	t.Logf("the start took %v, of %v that are given", took, startMost)
	if took <= startMost {
		t.Errorf("the start took %v, which is no longer than systemd waits anyway", took)
	}
	if show(t, "ActiveState") != "active" || mainPID(t) != pid || show(t, "NRestarts") != "0" || !serving() {
		t.Errorf("it is %s, with %s restarts", show(t, "ActiveState"), show(t, "NRestarts"))
	}
	if text := said(t, began); strings.Count(text, `"authority started"`) != 1 {
		t.Errorf("not one authority was started:\n%s", text)
	}
}
