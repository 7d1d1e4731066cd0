package class

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestClass1_TheSetIsClosed(t *testing.T) {
	want := []string{"filesystem.read", "filesystem.write", "process.execute", "network.read", "message.send", "device.read", "device.execute",
		"memory.read", "memory.write", "runtime.inspect", "scheduling", "mcp.read", "mcp.write"}
	if got := all.Strings(); !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	for i, n := range want {
		c, ok := Parse(n)
		if !ok || int(c) != i+1 || c.String() != n {
			t.Errorf("%q parses as %v", n, c)
		}
	}
	for _, n := range []string{"", "filesystem", "Filesystem.read", "filesystem.read ", "*", "mcp.*"} {
		if c, ok := Parse(n); ok {
			t.Errorf("%q parses as %v", n, c)
		}
	}
	if Class(0).String() != "" || Class(99).String() != "" || SetOf(0, 99) != 0 {
		t.Error("what is not a class is one")
	}
}

func TestSetsReadWhatTheyWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Set(rapid.Uint16().Draw(t, "set")) & all
		if got, ok := ParseSet(s.String()); !ok || got != s {
			t.Fatalf("%q parses as %v", s, got)
		}
		o := Set(rapid.Uint16().Draw(t, "other"))
		within := !s.Empty()
		meets := false
		for c := FilesystemRead; c <= last; c++ {
			within = within && (!s.Has(c) || o.Has(c))
			meets = meets || s.Has(c) && o.Has(c)
		}
		if s.Within(o) != within || s.Meets(o) != meets {
			t.Fatalf("%v within %v: %v; meets: %v", s, o, s.Within(o), s.Meets(o))
		}
	})
	if _, ok := ParseSet("mcp.read,nothing"); ok {
		t.Error("an unknown class was left out")
	}
	if Set(0).Within(all) {
		t.Error("no class is within every set")
	}
	if Read() != read {
		t.Error("the read classes differ")
	}
}

func TestOf(t *testing.T) {
	fr, fw, mr, mw := SetOf(FilesystemRead), SetOf(FilesystemWrite), SetOf(MCPRead), SetOf(MCPWrite)
	for _, row := range []struct {
		says     string
		declared Set
		tool     string
		h        Hints
		want     Set
		from     Source
	}{
		{"the operator decides", SetOf(ProcessExecute), "read_file", Hints{Yes, No}, SetOf(ProcessExecute), Operator},
		{"a known operation", 0, "read_file", Hints{}, fr, KnownName},
		{"a known operation that agrees", 0, "read_text_file", Hints{ReadOnly: Yes}, fr, KnownName},
		{"reading that is not read only", 0, "read_file", Hints{ReadOnly: No}, mw, KnownName},
		{"reading that destroys", 0, "list_directory", Hints{Destructive: Yes}, mw, KnownName},
		{"reading that says both", 0, "read_file", Hints{Yes, Yes}, mw, KnownName},
		{"writing that claims to read keeps its class", 0, "write_file", Hints{ReadOnly: Yes}, fw, KnownName},
		{"writing that says both", 0, "write_file", Hints{Yes, Yes}, fw | mw, KnownName},
		{"reading and writing", 0, "edit_file", Hints{}, fr | fw, KnownName},
		{"names are compared with their case", 0, "Read_File", Hints{}, 0, NoSource},
		{"an unknown name", 0, "purge_all", Hints{}, 0, NoSource},
		{"a claim to read", 0, "query", Hints{ReadOnly: Yes}, mr, Annotations},
		{"a claim to write", 0, "query", Hints{ReadOnly: No}, mw, Annotations},
		{"a claim to destroy", 0, "query", Hints{Destructive: Yes}, mw, Annotations},
		{"both claims", 0, "query", Hints{Yes, Yes}, mr | mw, Annotations},
		{"not destructive says nothing", 0, "query", Hints{Destructive: No}, 0, NoSource},
	} {
		if got, from := Of(row.declared, row.tool, row.h); got != row.want || from != row.from {
			t.Errorf("%s: %v by %v, want %v by %v", row.says, got, from, row.want, row.from)
		}
	}
	if NoSource.String() != "none" || Operator.String() != "operator" || KnownName.String() != "known operation" || Annotations.String() != "server's claim" {
		t.Error("a source has no words")
	}
}

var hints = rapid.Custom(func(t *rapid.T) Hints {
	return Hints{Claim(rapid.IntRange(0, 2).Draw(t, "read only")), Claim(rapid.IntRange(0, 2).Draw(t, "destructive"))}
})

var toolNames = rapid.SampledFrom([]string{"read_file", "write_file", "edit_file", "query", "list_directory", "move_file"})

func TestClass2_ClaimsTakeNoWriteClassAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, h := toolNames.Draw(t, "tool"), hints.Draw(t, "hints")
		bare, _ := Of(0, name, Hints{})
		got, _ := Of(0, name, h)
		if bare&^read&^got != 0 {
			t.Fatalf("%s with %v: %v lost a class of %v", name, h, got, bare)
		}
		d := Set(rapid.Uint16().Draw(t, "declared")) & all
		if got, from := Of(d, name, h); d != 0 && (got != d || from != Operator) {
			t.Fatalf("declared %v, got %v by %v", d, got, from)
		}
	})
}

func TestClass3_ANameAloneNeverProvesReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hints.Draw(t, "hints")
		got, _ := Of(0, toolNames.Draw(t, "tool"), h)
		if h.contradictReading() && got.Within(read) {
			t.Fatalf("%v stayed %v", h, got)
		}
	})
}

func TestTierOf(t *testing.T) {
	for _, row := range []struct {
		says            string
		operator, owner Tier
		classes         Set
		h               Hints
		want            Tier
	}{
		{"the operator's mark", Reversible, Unmarked, SetOf(ProcessExecute), Hints{Destructive: Yes}, Reversible},
		{"raised by the owner", Reversible, Destructive, 0, Hints{}, Destructive},
		{"not lowered by the owner", Destructive, Observe, 0, Hints{}, Destructive},
		{"the owner's alone", Unmarked, Observe, 0, Hints{Destructive: Yes}, Observe},
		{"a destructive hint", Unmarked, Unmarked, SetOf(FilesystemRead), Hints{Destructive: Yes}, Destructive},
		{"running programs", Unmarked, Unmarked, SetOf(ProcessExecute), Hints{}, Destructive},
		{"driving devices", Unmarked, Unmarked, SetOf(DeviceExecute, DeviceRead), Hints{}, Destructive},
		{"sending messages", Unmarked, Unmarked, SetOf(MessageSend), Hints{ReadOnly: Yes}, Destructive},
		{"only reading", Unmarked, Unmarked, SetOf(FilesystemRead, MCPRead), Hints{}, Observe},
		{"reading and writing", Unmarked, Unmarked, SetOf(FilesystemRead, FilesystemWrite), Hints{}, Reversible},
		{"no class", Unmarked, Unmarked, 0, Hints{}, Reversible},
		{"a mark from nowhere", Tier(9), Unmarked, 0, Hints{}, Destructive},
	} {
		if got := TierOf(row.operator, row.owner, row.classes, row.h); got != row.want {
			t.Errorf("%s: %v, want %v", row.says, got, row.want)
		}
	}
}

func TestClass4_AnOwnerRaisesAndNeverLowers(t *testing.T) {
	tier := rapid.Custom(func(t *rapid.T) Tier { return Tier(rapid.IntRange(0, 3).Draw(t, "tier")) })
	rapid.Check(t, func(t *rapid.T) {
		operator, owner := tier.Draw(t, "operator"), tier.Draw(t, "owner")
		s, h := Set(rapid.Uint16().Draw(t, "classes")), hints.Draw(t, "hints")
		got := TierOf(operator, owner, s, h)
		if got < operator || got < owner || got == Unmarked {
			t.Fatalf("operator %v, owner %v: %v", operator, owner, got)
		}
		if MayMark(operator, owner) != (owner == Unmarked || owner >= operator) {
			t.Fatalf("operator %v, owner %v: may mark %v", operator, owner, MayMark(operator, owner))
		}
	})
	if MayMark(Unmarked, 9) {
		t.Error("a mark from nowhere was allowed")
	}
	for _, n := range []string{"observe", "reversible", "destructive"} {
		if tr, ok := ParseTier(n); !ok || tr.String() != n {
			t.Errorf("%q parses as %v", n, tr)
		}
	}
	if _, ok := ParseTier(""); ok || Tier(9).String() != "destructive" {
		t.Error("no tier is one")
	}
}
