package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"postern/policy/class"
	"postern/refusal"
)

// names of the rules in the order in which people read them.
var inOrder = []string{"account", "project", "task", "session", "host", "member", "connection", "revision", "grant", "pin", "principal", "access policy",
	"mode", "execution profile", "shared directory", "path arguments", "credential", "approval", "limits", "record"}

func TestA6_ExplainNamesEveryRuleInTheOrderOfTheDecision(t *testing.T) {
	f := good()
	for i, a := range Explain(&f) {
		if a.Rule != inOrder[i] || !a.Asked || a.Code != "" {
			t.Errorf("rule %d: %+v, want %s to pass", i, a, inOrder[i])
		}
	}
	if n := len(Explain(&f)); n != len(inOrder) {
		t.Fatalf("%d rules, want %d", n, len(inOrder))
	}
	f.Granted, f.Pin = false, PinUnknown
	for _, a := range Explain(&f) {
		if a.Rule == "pin" && (a.Asked || a.Code != "") || a.Rule == "grant" && a.Code != refusal.ToolNotGranted {
			t.Errorf("without a grant: %+v", a)
		}
	}
	f = good()
	f.Connection, f.Mode = NoConnection, Refused
	for i, a := range Explain(&f) {
		if a.Asked != (i <= slices.Index(inOrder, "connection")) {
			t.Errorf("a foreign tool: %+v", a)
		}
	}
}

// Whatever the facts are, what Explain says denies is what Decide says denies.
func TestA6_ExplainAndDecideNeverDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := good()
		f.Approved = rapid.Bool().Draw(t, "approved")
		for range rapid.IntRange(0, 8).Draw(t, "denials") {
			d := denials[rapid.IntRange(0, len(denials)-1).Draw(t, "which")]
			set(&f, d.field, d.value)
		}
		var said []refusal.Code
		for _, a := range Explain(&f) {
			if a.Code != "" {
				said = append(said, a.Code)
			}
		}
		v := Decide(&f)
		var want []refusal.Code
		if !v.Allow {
			want = append([]refusal.Code{v.Code}, v.Also...)
		}
		if !slices.Equal(said, want) {
			t.Fatalf("Explain %v, Decide %v for %+v", said, want, f)
		}
	})
	if code, _ := rules.ask(&Facts{}); code == "" {
		t.Error("what is no rule passes")
	}
	f := Facts{Tier: class.Observe}
	if len(Explain(&f)) != len(inOrder) {
		t.Fatal("the zero facts are not explained whole")
	}
}
