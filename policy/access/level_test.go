package access

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

// golden is what each level with write lets through, class by class, for a tool with
// that one class, and for one without class. A change here is a change of what
// somebody's policy means.
var golden = []struct {
	level Level
	write bool
	name  string
	allow string
	none  policy.Answer
}{
	{Chat, false, "chat", "", policy.Refused},
	{Chat, true, "chat", "", policy.Refused},
	{Read, false, "read", "filesystem.read,network.read,device.read,memory.read,runtime.inspect,mcp.read", policy.RefusedNoClass},
	{Read, true, "read with write", "filesystem.read,filesystem.write,network.read,device.read,memory.read,runtime.inspect,mcp.read,mcp.write", policy.RefusedNoClass},
	{Full, false, "full without write", "filesystem.read,process.execute,network.read,message.send,device.read,device.execute,memory.read,memory.write,runtime.inspect,scheduling,mcp.read", policy.RefusedNoClass},
	{Full, true, "full", "filesystem.read,filesystem.write,process.execute,network.read,message.send,device.read,device.execute,memory.read,memory.write,runtime.inspect,scheduling,mcp.read,mcp.write", policy.Allowed},
}

func TestC5_EachLevelWithAndWithoutWrite(t *testing.T) {
	for _, row := range golden {
		c := CeilingOf(row.level, row.write)
		if c.Name != row.name || c.Unlimited || c.Policy.Check() != nil {
			t.Errorf("%v, write %v: %+v", row.level, row.write, c)
		}
		allow := strings.Split(row.allow, ",")
		for _, name := range class.All().Strings() {
			cl, _ := class.Parse(name)
			want := policy.Refused
			if slices.Contains(allow, name) {
				want = policy.Allowed
			}
			if got := c.Answer("any", "tool", class.SetOf(cl)); got != want {
				t.Errorf("%s: %s is %v, want %v", row.name, name, got, want)
			}
		}
		if got := c.Answer("any", "tool", 0); got != row.none {
			t.Errorf("%s: no class is %v, want %v", row.name, got, row.none)
		}
	}
	// Denials of read stand above names: a mode's list gives nothing back, and a tool of
	// a read class and another is not a reading one.
	if CeilingOf(Read, false).Answer("", "bash", class.SetOf(class.ProcessExecute, class.FilesystemRead)) != policy.Refused {
		t.Error("a tool that runs programs and reads is read")
	}
}

// What write changes is writing of files and of servers' data, and of nothing else; and
// no ceiling, write or not, answers in the place of another rule.
func TestC5_WriteOpensNothingButWriting(t *testing.T) {
	writing := class.SetOf(class.FilesystemWrite, class.MCPWrite)
	for l := Chat; l <= Full; l++ {
		on, off := CeilingOf(l, true), CeilingOf(l, false)
		for has := class.Set(1); has <= class.All(); has++ {
			if has&^class.All() != 0 {
				continue
			}
			was, is := off.Answer("fs", "tool", has), on.Answer("fs", "tool", has)
			if has&writing == 0 && was != is {
				t.Fatalf("%s: write turns %v from %v into %v", l, has, was, is)
			}
			if was == policy.Allowed && is != policy.Allowed {
				t.Fatalf("%s: write takes %v away", l, has)
			}
		}
	}
	widest := CeilingOf(Full, true).Answer("fs", "tool", class.SetOf(class.ProcessExecute))
	if widest != policy.Allowed {
		t.Fatalf("full with write: %v", widest)
	}
	const rev = ids.Revision("rev_01900000-0000-7000-8000-000000000001")
	facts := func() policy.Facts {
		return policy.Facts{Account: policy.AccountActive, Project: policy.ProjectLive, Task: policy.TaskLive, Bound: true, Session: true, Host: policy.HostAssigned,
			Member: true, Connection: policy.ConnectionEnabled, Accepted: rev, Current: rev, Running: rev, Granted: true, Pin: policy.PinMatches, Principal: policy.PrincipalAdmitted,
			Ceiling: widest, Mode: policy.Allowed, Profile: policy.Allowed, Credential: true, Tier: class.Reversible, Paths: policy.PathsInside, Apart: true, Limits: policy.WithinLimits, Recordable: true}
	}
	f := facts()
	if v := policy.Decide(&f); !v.Allow {
		t.Fatalf("with everything else: %+v", v)
	}
	for code, change := range map[refusal.Code]func(*policy.Facts){
		refusal.ApprovalRequired: func(f *policy.Facts) { f.Tier = class.Destructive }, refusal.PathOutside: func(f *policy.Facts) { f.Paths = policy.PathsOutside },
		refusal.ProfileRefused: func(f *policy.Facts) { f.Profile = policy.Refused }, refusal.ModeRefused: func(f *policy.Facts) { f.Mode = policy.Refused },
		refusal.ToolNotGranted: func(f *policy.Facts) { f.Granted = false }, refusal.WorkspaceShared: func(f *policy.Facts) { f.Apart = false },
	} {
		f := facts()
		change(&f)
		if v := policy.Decide(&f); v.Allow || v.Code != code {
			t.Errorf("full with write and %s: %+v", string(code), v)
		}
	}
}

func TestC6_Presets(t *testing.T) {
	if got := Presets(); !slices.Equal(got, []string{"chat_only", "read", "developer", "full_pod"}) {
		t.Fatalf("%q", got)
	}
	for _, row := range []struct {
		preset  string
		level   Level
		write   bool
		shown   string
		ceiling string
	}{
		{"chat_only", Chat, false, "chat_only", "chat"}, {"read", Read, false, "read", "read"}, {"developer", Full, true, "full", "full"}, {"full_pod", Full, true, "full", "full"},
	} {
		l, w, ok := ParsePreset(row.preset)
		if !ok || l != row.level || w != row.write || PresetOf(l, w) != row.shown || CeilingOf(l, w).Name != row.ceiling {
			t.Errorf("%s: %v %v %v, shown %q", row.preset, l, w, ok, PresetOf(l, w))
		}
	}
	for _, s := range []string{"", "full", "custom", "Read", "chat"} {
		if _, _, ok := ParsePreset(s); ok {
			t.Errorf("%q is a preset", s)
		}
	}
	if PresetOf(Read, true) != "custom" || PresetOf(Full, false) != "custom" || PresetOf(NoLevel, false) != "" {
		t.Error("what is no preset is shown as one")
	}
	for l := Chat; l <= Full; l++ {
		if got, ok := ParseLevel(l.String()); !ok || got != l {
			t.Errorf("%v", l)
		}
	}
	if _, ok := ParseLevel(""); ok {
		t.Error("no level is one")
	}
}

func TestC4_ACeilingNeverAdds(t *testing.T) {
	modes := []string{policy.ModeSearch, policy.ModeCode, policy.ModeAuto}
	const rev = ids.Revision("rev_01900000-0000-7000-8000-000000000001")
	decide := func(ceiling, mode policy.Answer) policy.Verdict {
		return policy.Decide(&policy.Facts{Account: policy.AccountActive, Project: policy.ProjectLive, Task: policy.TaskLive, Bound: true, Session: true, Host: policy.HostAssigned,
			Member: true, Connection: policy.ConnectionEnabled, Accepted: rev, Current: rev, Running: rev, Granted: true, Pin: policy.PinMatches, Principal: policy.PrincipalAdmitted,
			Ceiling: ceiling, Mode: mode, Profile: policy.Allowed, Credential: true, Tier: class.Observe, Limits: policy.WithinLimits, Recordable: true})
	}
	rapid.Check(t, func(t *rapid.T) {
		c := CeilingOf(Level(rapid.IntRange(0, 3).Draw(t, "level")), rapid.Bool().Draw(t, "write"))
		f := policy.Floor{Mode: rapid.SampledFrom(modes).Draw(t, "floor"), Execute: rapid.Bool().Draw(t, "execute")}
		mode, tool := rapid.SampledFrom(modes).Draw(t, "mode"), rapid.SampledFrom([]string{"read_file", "bash", "x"}).Draw(t, "tool")
		has := class.Set(rapid.Uint16().Draw(t, "has")) & class.All()
		ceiling, m := c.Answer("fs", tool, has), (policy.Modes{}).Answer(mode, f, "fs", tool, has)
		with, without := decide(ceiling, m), decide(policy.Allowed, m)
		if with.Allow && !without.Allow {
			t.Fatalf("%s in %s, a tool of %v: the ceiling added", c.Name, mode, has)
		}
		if ceiling != policy.Allowed && with.Code != refusal.AccessRefused {
			t.Fatalf("%s in %s, a tool of %v: %+v", c.Name, mode, has, with)
		}
		if has.Empty() && (c.Name == "chat" || strings.HasPrefix(c.Name, "read") || c.Name == "full without write") && with.Allow {
			t.Fatalf("no class passed %s", c.Name)
		}
	})
}
