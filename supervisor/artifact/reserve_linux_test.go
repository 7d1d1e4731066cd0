package artifact

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Artifacts leave to the records what they need, on a file system that really fills.
func TestArtifact3_TheReserveOfTheDiskIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test mounts a file system and needs root")
		}
		t.Skip("this test mounts a file system and needs root")
	}
	state := t.TempDir()
	if err := syscall.Mount("postern-artifact-test", state, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size=68m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(state, syscall.MNT_DETACH)
	k := running(t, state)
	raw := strings.Repeat("x", 1<<20)
	if kept := bring(t, k, project(1), raw, ""); kept.Err != nil {
		t.Fatalf("with room: %v", kept.Err)
	}
	ballast := filepath.Join(state, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept := bring(t, k, project(1), raw+"y", ""); !errors.Is(kept.Err, ErrFull) {
		t.Fatalf("in the reserve: %v", kept.Err)
	}
	if got := files(t, state); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
	if err := os.WriteFile(ballast, make([]byte, 60<<20), 0o600); err != nil { // the reserve is really there
		t.Fatal(err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if kept := bring(t, k, project(1), raw+"y", ""); kept.Err != nil {
		t.Fatalf("it does not heal: %v", kept.Err)
	}
}
