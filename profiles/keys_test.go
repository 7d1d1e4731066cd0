package profiles

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestTheHintsKnowEveryKey(t *testing.T) {
	seen := map[string]bool{}
	d := &decoder{file: "x", lines: map[string]int{}, visit: func(section string, known fields) {
		seen[section] = true
		if got, want := slices.Sorted(maps.Keys(known)), slices.Sorted(slices.Values(sections[section])); !slices.Equal(got, want) {
			t.Errorf("%q takes %q, the hints know %q", section, got, want)
		}
	}}
	d.decode([]byte(whole))
	for section := range sections {
		if !seen[section] {
			t.Errorf("%q is no section, or this test does not reach it", section)
		}
	}
}

// A key that is misspelt, or lies in the wrong section, at every level.
func TestProfiles1_C156_UnknownKeysAtEveryLevel(t *testing.T) {
	raw := strings.NewReplacer("binds: [{}]", "binds: [{sorce: /x, read_only: true}]", "links: [{}]", "links: [{path: /a, target: /b}]", "groups: [{}]", "groups: [{call: x}]",
		"when: [{}]", "when: [{args: 1}]", "landlock: {}", "landlock: {API: 1}", "limits: {}", "limits: {memry: 1MiB, idle: 3s}", "mcp: {}", "mcp: {call-time: 3s}").Replace(whole)
	_, err := Decode("x.yaml", []byte(raw+"enviroment: {}\nfrok: true\nmemory: 1GiB\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"x.yaml:1: binds[0].sorce: is not a key here; did you mean source?", "x.yaml:1: binds[0].read_only: is not a key here; want one of source, target, optional, exec",
		"x.yaml:2: links[0].target: is not a key here; it belongs there: binds[].target", "x.yaml:3: seccomp.groups[0].call: is not a key here; did you mean calls?",
		"x.yaml:3: seccomp.rules[0].when[0].args: is not a key here; did you mean arg?", "x.yaml:4: landlock.API: is not a key here; did you mean abi?",
		"x.yaml:5: limits.memry: is not a key here; did you mean memory?", "x.yaml:5: limits.idle: is not a key here; it belongs there: idle",
		"x.yaml:6: mcp.call-time: is not a key here; did you mean call_time?", "x.yaml:7: enviroment: is not a key here; want one of name, ",
		"x.yaml:8: frok: is not a key here; did you mean fork?", "x.yaml:9: memory: is not a key here; it belongs there: limits.memory",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}
