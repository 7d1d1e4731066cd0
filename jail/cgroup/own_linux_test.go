package cgroup

import "testing"

// Which group a process is in stands on the line of the unified hierarchy alone, and
// one that cannot be seen from here is nobody's to use.
func TestUnit_TheOwnGroupIsThatOfTheUnifiedHierarchy(t *testing.T) {
	for list, want := range map[string]string{
		"0::/system.slice/postern.service\n":                                   "/system.slice/postern.service",
		"5:memory:/a\n1:name=systemd:/b\n0::/system.slice/postern.service/x\n": "/system.slice/postern.service/x",
		"0::/\n": "/",
	} {
		if got, ok := ownGroup(list); !ok || got != want {
			t.Errorf("%q: %q, %v", list, got, ok)
		}
	}
	for _, list := range []string{"", "5:memory:/a\n", "0::/../other.service\n", "0::\n"} {
		if got, ok := ownGroup(list); ok {
			t.Errorf("%q: %q", list, got)
		}
	}
}
