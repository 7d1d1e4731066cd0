package rig

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A rig that is closed, and one whose posternd was killed and started again, leave
// nothing; one that runs has what Left looks for, so that the look is worth something.
func TestRig1_CloseLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("a private Postern needs root")
		}
		t.Skip("a private Postern needs root")
	}
	repo, err := Repository()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := os.MkdirTemp("/tmp", "rig-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Build(repo, bin); err != nil {
		t.Fatal(err)
	}
	r, err := Start(Config{Bin: bin})
	if err != nil {
		t.Fatal(err)
	}
	if left := r.Left(); len(left) < 2 {
		t.Errorf("while it runs only %v is seen", left)
	}
	r.Kill9()
	if err := r.Up(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left := r.Left(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	// One whose posternd was killed says so when it is closed, and leaves nothing either.
	r, err = Start(Config{Bin: bin})
	if err != nil {
		t.Fatal(err)
	}
	r.Kill9()
	if err := r.Close(); err == nil {
		t.Error("a posternd that was killed is not mentioned")
	}
	if left := r.Left(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	// What a killed driver leaves is removed by the next Sweep.
	r, err = Start(Config{Bin: bin})
	if err != nil {
		t.Fatal(err)
	}
	r.Kill9()
	swept := sweep(bin)
	if !slices.Contains(swept, r.Dir) || len(r.Left()) != 0 { // others' may have been left too
		t.Errorf("swept %v, left %v", swept, r.Left())
	}
	if groups, _ := filepath.Glob("/sys/fs/cgroup/*/postern-rig/*"); len(groups) != 0 {
		t.Logf("groups of other rigs: %v", groups)
	}
}
