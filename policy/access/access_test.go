package access

import (
	"testing"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

func TestAccess1_OnlyTheOwnAccountIsAPrincipal(t *testing.T) {
	mine, other := ids.New[ids.Account](time.UnixMilli(1), [10]byte{1}), ids.New[ids.Account](time.UnixMilli(1), [10]byte{2})
	c, code := Resolve(Local(mine), mine)
	if code != "" || c.Answer("fs", "write_file", class.SetOf(class.FilesystemWrite)) != policy.Allowed {
		t.Fatalf("the own account: %+v, %s", c, code)
	}
	for _, p := range []string{"", "local", "local:", "local:*", "*", Local(other), "Local:" + string(mine), "local:" + string(mine) + " ", "whatsapp:+5511999998888", string(mine)} {
		if c, code := Resolve(p, mine); code != refusal.PrincipalRefused || c.Unlimited {
			t.Errorf("%q: %+v, %q", p, c, code)
		}
	}
	if _, code := Resolve("local:", ""); code != refusal.PrincipalRefused {
		t.Error("no account is a principal")
	}
}

func TestAccess2_TheZeroCeilingReachesNothing(t *testing.T) {
	if (Ceiling{}).Answer("fs", "x", class.Read()) == policy.Allowed {
		t.Fatal("it reaches a tool")
	}
	c := Ceiling{Name: "chat", Policy: &policy.ToolPolicy{NoTools: true}}
	if c.Answer("fs", "x", class.Read()) != policy.Refused {
		t.Fatal("a ceiling without tools reaches one")
	}
	c.Policy = &policy.ToolPolicy{Denied: []string{"y"}}
	if c.Answer("fs", "x", class.Read()) != policy.Allowed || c.Answer("fs", "y", class.Read()) != policy.Refused {
		t.Fatal("the ceiling's policy is not asked")
	}
}
