package policy

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"postern/policy/class"
)

func modes(t *testing.T, custom map[string]*ToolPolicy) Modes {
	t.Helper()
	m, err := NewModes(custom)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var toCode = Floor{Mode: ModeCode, Execute: true}

func TestC11_BuiltinModes(t *testing.T) {
	all := class.SetOf
	for _, row := range []struct {
		says  string
		mode  string
		floor Floor
		tool  string
		has   class.Set
		want  Answer
	}{
		{"search takes a tool annotated read", ModeSearch, toCode, "query", all(class.MCPRead), Allowed},
		{"and reading files", ModeSearch, toCode, "read_text_file", all(class.FilesystemRead), Allowed},
		{"not one that writes too", ModeSearch, toCode, "edit_file", all(class.FilesystemRead, class.FilesystemWrite), Refused},
		{"not one without class, whatever its name", ModeSearch, toCode, "read_file", 0, RefusedNoClass},
		{"a reader's name is no class", ModeSearch, toCode, "read_file", all(class.MCPWrite), Refused},
		{"nor does it hide running programs", ModeSearch, toCode, "status", all(class.ProcessExecute, class.RuntimeInspect), Refused},
		{"code takes every granted tool", ModeCode, toCode, "purge", all(class.MCPWrite), Allowed},
		{"also one without class", ModeCode, toCode, "purge", 0, Allowed},
		{"auto is the floor", ModeAuto, Floor{Mode: ModeSearch, Execute: true}, "write_file", all(class.FilesystemWrite), Refused},
		{"its twin", ModeAuto, Floor{Mode: ModeSearch, Execute: true}, "read_file", all(class.FilesystemRead), Allowed},
		{"auto under code", ModeAuto, toCode, "write_file", all(class.FilesystemWrite), Allowed},
		{"a mode above the floor", ModeCode, Floor{Mode: ModeSearch, Execute: true}, "read_file", all(class.FilesystemRead), RefusedWider},
		{"no floor", ModeSearch, Floor{}, "read_file", all(class.FilesystemRead), RefusedWider},
		{"auto without a floor", ModeAuto, Floor{}, "read_file", all(class.FilesystemRead), RefusedWider},
		{"auto is no floor", ModeAuto, Floor{Mode: ModeAuto}, "read_file", all(class.FilesystemRead), RefusedWider},
		{"an unknown floor", ModeSearch, Floor{Mode: "wide"}, "read_file", all(class.FilesystemRead), RefusedWider},
		{"an unknown mode", "wide", toCode, "read_file", all(class.FilesystemRead), Undecided},
		{"no mode", "", toCode, "read_file", all(class.FilesystemRead), Undecided},
		{"running programs below a floor that does not", ModeCode, Floor{Mode: ModeCode}, "bash", all(class.ProcessExecute), Refused},
		{"running programs where the floor does", ModeCode, toCode, "bash", all(class.ProcessExecute), Allowed},
	} {
		if got := (Modes{}).Answer(row.mode, row.floor, "fs", row.tool, row.has); got != row.want {
			t.Errorf("%s: %v, want %v", row.says, got, row.want)
		}
	}
	if got := (Modes{}).Names(); !slices.Equal(got, []string{"search", "code", "auto"}) {
		t.Errorf("%q", got)
	}
}

func TestC11_CustomModes(t *testing.T) {
	m := modes(t, map[string]*ToolPolicy{"reports": {Whitelist: true, Allowed: []string{"db/*"}}, "quiet": {NoTools: true}})
	if got := m.Answer("reports", toCode, "db", "get", 0); got != Allowed {
		t.Errorf("a listed tool: %v", got)
	}
	if got := m.Answer("reports", toCode, "fs", "get", 0); got != Refused {
		t.Errorf("another server's: %v", got)
	}
	if !m.Known("reports") || m.Known("report") || m.Policy("reports") == nil || m.Policy("auto") != nil || m.Names()[4] != "reports" {
		t.Error("the modes differ from what was declared")
	}
	long := make([]string, MaxList+1)
	many := map[string]*ToolPolicy{}
	for i := range long {
		long[i] = fmt.Sprint("t", i)
		many[long[i]] = &ToolPolicy{}
	}
	for says, custom := range map[string]map[string]*ToolPolicy{
		"a built-in name":      {"search": {}},
		"auto's name":          {"auto": {}},
		"a mode of no lists":   {"x": nil},
		"an empty whitelist":   {"x": {Whitelist: true}},
		"a list that is long":  {"x": {Allowed: long}},
		"modes without number": many,
	} {
		if _, err := NewModes(custom); err == nil {
			t.Errorf("%s was accepted", says)
		}
	}
}

func TestC11_ExecutionProfiles(t *testing.T) {
	run := class.SetOf(class.ProcessExecute)
	for _, row := range []struct {
		says string
		got  Answer
		want Answer
	}{
		{"standard", ProfileAnswer(ProfileStandard, class.SetOf(class.FilesystemWrite), false), Allowed},
		{"running programs where the jail may spawn", ProfileAnswer(ProfileStandard, run, true), Allowed},
		{"running programs where it may not", ProfileAnswer(ProfileStandard, run, false), Refused},
		{"the same in an isolated pod", ProfileAnswer(ProfileIsolatedPod, run, false), Allowed},
		{"another profile", ProfileAnswer("pod", run, true), Undecided},
		{"no profile", ProfileAnswer("", 0, true), Undecided},
	} {
		if row.got != row.want {
			t.Errorf("%s: %v, want %v", row.says, row.got, row.want)
		}
	}
}

// anyPolicy draws lists from few names, so that they meet.
var anyPolicy = rapid.Custom(func(t *rapid.T) *ToolPolicy {
	list := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "fs/*", "db/*", "*/x", "*/y", "fs/x"}), 0, 3)
	set := rapid.Custom(func(t *rapid.T) *class.Set {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		s := class.Set(rapid.Uint16().Draw(t, "set")) & class.All()
		return &s
	})
	p := &ToolPolicy{AllowedClasses: set.Draw(t, "allowed classes"), DeniedClasses: set.Draw(t, "denied classes"), Denied: list.Draw(t, "denied"),
		NoTools: rapid.IntRange(0, 9).Draw(t, "no tools") == 0, Whitelist: rapid.Bool().Draw(t, "whitelist")}
	if rapid.Bool().Draw(t, "names") {
		p.Allowed = list.Draw(t, "allowed")
	}
	return p
})

func TestC12_WhatIsWithinIsNeverWider(t *testing.T) {
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		p, o := anyPolicy.Draw(t, "p"), anyPolicy.Draw(t, "o")
		if !p.Within(o) {
			return
		}
		held++
		for _, server := range []string{"fs", "db"} {
			for _, tool := range []string{"x", "y", "z"} {
				has := class.Set(rapid.Uint16().Draw(t, "has")) & class.All()
				if p.Answer(server, tool, has) == Allowed && o.Answer(server, tool, has) != Allowed {
					t.Fatalf("%s/%s %v passes %+v and not %+v", server, tool, has, p, o)
				}
			}
		}
	})
	if held == 0 {
		t.Error("no policy was within another")
	}
	var none *ToolPolicy
	if !none.Within(&ToolPolicy{}) || (&ToolPolicy{}).Within(none) || !(&ToolPolicy{}).Within(&ToolPolicy{}) || (&ToolPolicy{}).Within(&ToolPolicy{NoTools: true}) {
		t.Error("the ends of the order are wrong")
	}
}

func TestC12_AModeIsComparedWithTheFloor(t *testing.T) {
	read := class.SetOf(class.FilesystemRead)
	deny := class.All() &^ class.Read()
	m := modes(t, map[string]*ToolPolicy{
		"files":  {Whitelist: true, AllowedClasses: &read, DeniedClasses: &deny},
		"files2": {Whitelist: true, AllowedClasses: &read},
		"wide":   {Whitelist: true, Allowed: []string{"db/*"}},
	})
	for _, row := range []struct {
		mode, floor string
		want        bool
	}{
		{"search", "search", true}, {"code", "search", false}, {"search", "code", true}, {"auto", "search", true},
		{"files", "search", true}, {"files2", "search", false}, {"wide", "search", false}, {"wide", "code", true}, {"wide", "wide", true}, {"search", "wide", false},
		{"files", "files2", true}, {"auto", "nothing", false}, {"nothing", "code", false}, {"search", "", false}, {"code", "auto", false},
	} {
		if got := m.Within(row.mode, Floor{Mode: row.floor}); got != row.want {
			t.Errorf("%s within %s: %v", row.mode, row.floor, got)
		}
	}
}
