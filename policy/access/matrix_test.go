package access

import (
	"fmt"
	"strings"
	"testing"

	"postern/policy"
)

func table(rows []Row) string {
	var out strings.Builder
	for _, r := range rows {
		what := string(r.Code)
		if r.Admitted {
			what = fmt.Sprintf("%s, floor %s, %q: %v, other %v", r.Preset, r.Floor.Mode, r.Ceiling, r.Reach, r.Any)
		}
		fmt.Fprintf(&out, "%s|%s|%s|%s\n", r.Channel, r.Who, r.Kind, what)
	}
	return out.String()
}

func TestC9_TheMatrixIsWhatResolveSays(t *testing.T) {
	const reads = "filesystem.read,network.read,device.read,memory.read,runtime.inspect,mcp.read"
	p := parsed(t, `channels:
  w:
    owners: [boss]
    allow: [ann]
    access: {users: {bob: {level: read, write: true}, eve: {blocked: true}}, groups: {enabled: true, "7": {level: full, write: true}}}
  v: {default_mode: code, access: {admission: open}}
`)
	want := `local|the project's owner|owner|, floor code, "": filesystem.read,filesystem.write,network.read,message.send,device.read,device.execute,memory.read,memory.write,runtime.inspect,scheduling,mcp.read,mcp.write, other true
v||paired|read, floor code, "read": ` + reads + `, other false
v||unknown|chat_only, floor code, "chat": , other false
v||group|principal_refused
w|ann|user|, floor search, "": ` + reads + `, other false
w|bob|user|custom, floor search, "read with write": ` + reads + `, other false
w|boss|owner|, floor code, "": filesystem.read,filesystem.write,network.read,message.send,device.read,device.execute,memory.read,memory.write,runtime.inspect,scheduling,mcp.read,mcp.write, other true
w|eve|blocked|principal_blocked
w||paired|read, floor search, "read": ` + reads + `, other false
w||stranger|principal_refused
w|7|group|full, floor search, "full": ` + reads + `, other false
w||group|read, floor search, "read": ` + reads + `, other false
`
	if got := table(p.Matrix(policy.ProfileStandard)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	pod := table((*Policy)(nil).Matrix(policy.ProfileIsolatedPod))
	if !strings.Contains(pod, "process.execute") || strings.Count(pod, "\n") != 1 {
		t.Errorf("an isolated pod: %s", pod)
	}
	if got := table(parsed(t, "channels: {local: {enabled: false}}").Matrix(policy.ProfileStandard)); strings.Contains(got, "owner") {
		t.Errorf("a declared channel local: %s", got)
	}
}
