package launch

import (
	"strings"
	"syscall"
	"testing"

	"postern/refusal"
)

func TestAProjectWithoutADescriptorForItsSocketIsRefused(t *testing.T) {
	for limit, want := range map[uint64]int{1024: 512, 4096: 2048, 20_000: 20_000 - authorityFiles, 524_288: maxProjects, ^uint64(0): maxProjects, 0: 0} {
		if got := doorsIn(limit); got != want {
			t.Errorf("of %d descriptors %d are for sockets, want %d", limit, got, want)
		}
	}
	f := Facts{Projects: make([]Project, 4)}
	f.Projects[0].Deleted = true // it has none
	if refused := f.checkDoors(4); refused != nil {
		t.Errorf("a fourth of four: %v", refused)
	}
	if refused := f.checkDoors(3); refused == nil || refused.Code != refusal.Busy || !strings.Contains(refused.Detail, "LimitNOFILE") {
		t.Errorf("a fourth of three: %+v", refused)
	}
}

// What posternd starts may have as many as it counts on.
func TestTheLimitOfDescriptorsIsRaised(t *testing.T) {
	doors, err := openDoors()
	if err != nil {
		t.Fatal(err)
	}
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if doors != doorsIn(lim.Max) || lim.Cur < uint64(doors) {
		t.Errorf("%d sockets are counted on, the limit is %d of %d", doors, lim.Cur, lim.Max)
	}
}
