package jail

import "testing"

// What a program calls itself, and what others write into the log, changes nothing.
func TestKillRecordsAreTheKernelsAlone(t *testing.T) {
	const good = `5,812,3362577999,-;audit: type=1326 audit(1796040270.171:21): auid=4294967295 uid=3900062 gid=3900062 ses=4294967295 pid=20250 comm="program" exe="/program" sig=31 arch=40000003 syscall=20 compat=1 ip=0x408a8e code=0x80000000` + "\n"
	if uid, call, ok := killRecord(good); !ok || uid != 3900062 || call != "32-bit call 20 (getpid)" {
		t.Errorf("%d %q %t", uid, call, ok)
	}
	for want, tail := range map[string]string{"x32 call 1 (write)": "arch=c000003e syscall=1073741825", "call 101 (ptrace)": "arch=c000003e syscall=101",
		"32-bit call 4000000": "arch=40000003 syscall=4000000", "call 5 of architecture 0xc00000b7": "arch=c00000b7 syscall=5"} {
		if _, call, ok := killRecord("5,1,1,-;audit: type=1326 audit(1.1:1): uid=1 " + tail); !ok || call != want {
			t.Errorf("%s: %q %t", tail, call, ok)
		}
	}
	for name, record := range map[string]string{
		"a write of a user":   "1" + good,
		"another type":        `5,1,1,-;audit: type=1400 audit(1.1:1): uid=1 arch=40000003 syscall=20`,
		"not of audit":        `5,1,1,-;x: audit: type=1326 audit(1.1:1): uid=1 arch=40000003 syscall=20`,
		"a uid twice":         `5,1,1,-;audit: type=1326 audit(1.1:1): uid=1 uid=2 arch=40000003 syscall=20`,
		"no call":             `5,1,1,-;audit: type=1326 audit(1.1:1): uid=1 arch=40000003`,
		"no number":           `5,1,1,-;audit: type=1326 audit(1.1:1): uid=x arch=40000003 syscall=20`,
		"nothing":             "",
		"nothing but its end": ";",
	} {
		if uid, call, ok := killRecord(record); ok {
			t.Errorf("%s: %d %q", name, uid, call)
		}
	}
}
