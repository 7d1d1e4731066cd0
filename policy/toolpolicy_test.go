package policy

import (
	"math/rand"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"postern/policy/class"
)

func classes(cs ...class.Class) *class.Set {
	s := class.SetOf(cs...)
	return &s
}

func TestToolPolicy(t *testing.T) {
	read, write, none := class.SetOf(class.FilesystemRead), class.SetOf(class.FilesystemWrite), class.Set(0)
	for _, row := range []struct {
		says   string
		p      *ToolPolicy
		tool   string
		has    class.Set
		answer Answer
	}{
		{"no policy decides nothing", nil, "x", read, Undecided},
		{"an empty policy restricts nothing", &ToolPolicy{}, "x", none, Allowed},
		{"no_tools denies all", &ToolPolicy{NoTools: true, Allowed: []string{"x"}}, "x", read, Refused},
		{"a denial by exact name", &ToolPolicy{Denied: []string{"x"}}, "x", read, Refused},
		{"its twin", &ToolPolicy{Denied: []string{"x"}}, "y", read, Allowed},
		{"names are compared with their case", &ToolPolicy{Denied: []string{"X"}}, "x", read, Allowed},
		{"a denial by server", &ToolPolicy{Denied: []string{"fs/*"}}, "x", read, Refused},
		{"of another server", &ToolPolicy{Denied: []string{"db/*"}}, "x", read, Allowed},
		{"a denial by operation", &ToolPolicy{Denied: []string{"*/x"}}, "x", read, Refused},
		{"of one server's tool", &ToolPolicy{Denied: []string{"fs/x"}}, "x", read, Refused},
		{"a denial by name wins over an allowance", &ToolPolicy{Whitelist: true, Allowed: []string{"x"}, Denied: []string{"x"}}, "x", read, Refused},
		{"a denial by class wins over a name", &ToolPolicy{Whitelist: true, Allowed: []string{"x"}, DeniedClasses: classes(class.FilesystemWrite)}, "x", write, Refused},
		{"whitelist by name", &ToolPolicy{Whitelist: true, Allowed: []string{"x"}}, "x", none, Allowed},
		{"whitelist without the name", &ToolPolicy{Whitelist: true, Allowed: []string{"x"}}, "y", read, Refused},
		{"whitelist by class", &ToolPolicy{Whitelist: true, AllowedClasses: classes(class.FilesystemRead)}, "x", read, Allowed},
		{"all classes must be allowed", &ToolPolicy{Whitelist: true, AllowedClasses: classes(class.FilesystemRead)}, "x", read | write, Refused},
		{"no class beside an allowed list", &ToolPolicy{Whitelist: true, Allowed: []string{"x"}, AllowedClasses: classes(class.FilesystemRead)}, "x", none, RefusedNoClass},
		{"no class beside a denied list", &ToolPolicy{DeniedClasses: classes(class.MCPWrite)}, "x", none, RefusedNoClass},
		{"an empty list allows nothing", &ToolPolicy{Allowed: []string{}}, "x", read, Refused},
		{"an empty class list allows nothing", &ToolPolicy{AllowedClasses: classes()}, "x", read, Refused},
		{"an empty list beside a full one", &ToolPolicy{Allowed: []string{}, AllowedClasses: classes(class.FilesystemRead)}, "x", read, Allowed},
		{"without whitelist_mode allowed names restrict nothing", &ToolPolicy{Allowed: []string{"y"}}, "x", read, Allowed},
	} {
		if got := row.p.Answer("fs", row.tool, row.has); got != row.answer {
			t.Errorf("%s: %v, want %v", row.says, got, row.answer)
		}
	}
}

func TestToolPolicyCheck(t *testing.T) {
	for _, p := range []*ToolPolicy{{}, {Whitelist: true, Allowed: []string{}}, {Allowed: []string{"x", "fs/*", "*/x", "fs/x"}}, {Whitelist: true, DeniedClasses: classes()}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if (&ToolPolicy{Whitelist: true}).Check() == nil {
		t.Error("a whitelist without lists passed")
	}
	for _, pattern := range []string{"", "*", "*/*", "get_*", "fs*/x", "fs/", "/x", "a/b/c", "fs/x*", "**"} {
		if (&ToolPolicy{Allowed: []string{pattern}}).Check() == nil || (&ToolPolicy{Denied: []string{pattern}}).Check() == nil {
			t.Errorf("%q passed", pattern)
		}
	}
}

func TestPolicy4_ADenialInAListNeverAllows(t *testing.T) {
	names := []string{"x", "y", "fs/*", "db/*", "*/x", "*/y", "fs/x"}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.SampledFrom(names), 0, 4)
		set := rapid.Custom(func(t *rapid.T) *class.Set {
			if rapid.Bool().Draw(t, "absent") {
				return nil
			}
			s := class.Set(rapid.Uint16().Draw(t, "set"))
			return &s
		})
		p := ToolPolicy{Allowed: list.Draw(t, "allowed"), Denied: list.Draw(t, "denied"), AllowedClasses: set.Draw(t, "allowed classes"),
			DeniedClasses: set.Draw(t, "denied classes"), Whitelist: rapid.Bool().Draw(t, "whitelist")}
		has := class.Set(rapid.Uint16().Draw(t, "has"))
		tool := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tool")
		before := p.Answer("fs", tool, has)
		if (p.AllowedClasses != nil || p.DeniedClasses != nil) && has.Empty() && before == Allowed {
			t.Fatal("no class passed a class list")
		}
		shuffled := p
		shuffled.Allowed, shuffled.Denied = slices.Clone(p.Allowed), slices.Clone(p.Denied)
		rand.Shuffle(len(shuffled.Allowed), func(i, j int) {
			shuffled.Allowed[i], shuffled.Allowed[j] = shuffled.Allowed[j], shuffled.Allowed[i]
		})
		slices.Reverse(shuffled.Denied)
		if after := shuffled.Answer("fs", tool, has); after != before {
			t.Fatalf("the order of lists matters: %v, then %v", before, after)
		}
		narrower := p
		narrower.Denied = append(slices.Clone(p.Denied), rapid.SampledFrom(names).Draw(t, "more"))
		if before != Allowed && narrower.Answer("fs", tool, has) == Allowed {
			t.Fatal("a denied name allowed")
		}
		more := class.Set(rapid.Uint16().Draw(t, "more classes"))
		if p.DeniedClasses != nil {
			more |= *p.DeniedClasses
		}
		narrower = p
		narrower.DeniedClasses = &more
		if before != Allowed && narrower.Answer("fs", tool, has) == Allowed {
			t.Fatal("a denied class allowed")
		}
	})
}

// FuzzNothingTurnsAMissingRuleIntoAllow decides facts of any shape.
func FuzzNothingTurnsAMissingRuleIntoAllow(f *testing.F) {
	f.Add([]byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		at := func(i int) byte {
			if i < len(b) {
				return b[i]
			}
			return 0
		}
		facts := Facts{
			Account: Account(at(0)), Project: Project(at(1)), Task: Task(at(2)), Bound: at(3)&1 == 1, Session: at(4)&1 == 1, Host: Host(at(5)), Member: at(6)&1 == 1,
			Connection: Connection(at(7)), Granted: at(8)&1 == 1, Pin: Pin(at(9)), Principal: Principal(at(10)), Ceiling: Answer(at(11)), Mode: Answer(at(12)),
			Profile: Answer(at(13)), Credential: at(14)&1 == 1, Tier: class.Tier(at(15)), Approved: at(16)&1 == 1, Limits: Limits(at(17)), Recordable: at(18)&1 == 1, Paths: Paths(at(20)), Apart: at(21)&1 == 1,
		}
		if at(19)&1 == 1 {
			facts.Accepted, facts.Current, facts.Running = rev, rev, rev
		}
		want := good()
		want.Tier, want.Approved = facts.Tier, facts.Approved
		allowed := facts == want && (facts.Approved || facts.Tier == class.Observe || facts.Tier == class.Reversible)
		if v := Decide(&facts); v.Allow != allowed {
			t.Fatalf("%+v: %+v", facts, v)
		}
	})
}
