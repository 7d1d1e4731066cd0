package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// What TOML calls a basic string holds no control character, DEL among them; what it says
// is the same.
func TestCLI4_AStanzaOfTOMLHoldsNoControlCharacter(t *testing.T) {
	const odd = "/run/a\x7fb\x1b\n\"\\\u2028é"
	got, err := tomlStanza("/usr/bin/postern", []string{"connect", odd})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != 3 || strings.ContainsFunc(strings.Join(lines, ""), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Fatalf("%q", got)
	}
	var args []string
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "args = ")), &args); err != nil || args[1] != odd {
		t.Errorf("%q, %v", args, err)
	}
}
