package profiles

import (
	"math"

	"postern/jail/spec"
	"postern/near"
)

// Kind is what the value of a key has to be.
type Kind string

// The kinds.
const (
	Section  Kind = "section"         // of keys
	Sections Kind = "list of section" // of keys
	Text     Kind = "text"
	Texts    Kind = "list of text"
	Named    Kind = "names" // that anybody may choose, each with a text
	Truth    Kind = "truth"
	Number   Kind = "number"      // from 0 to 2147483647
	Wide     Kind = "wide number" // of 64 bits
	Bytes    Kind = "bytes"       // a number, or text as 64MiB
	Duration Kind = "duration"    // text as 30s
)

// Key is one key of a profile, as the decoder takes it.
type Key struct {
	Path   string // seccomp.groups[].name
	Kind   Kind
	Needed bool // where its section is there
}

// sections are the keys of a profile, for the hints. TestTheHintsKnowEveryKey compares them
// with what is decoded.
var sections = near.Sections{
	"": {"name", "never_register", "fork", "workspace", "workspace_read_only", "package_exec", "devices", "proc", "loopback", "binds", "links",
		"env", "seccomp", "landlock", "limits", "idle", "stop_grace", "start_timeout", "mcp"},
	"binds[]":                {"source", "target", "optional", "exec"},
	"links[]":                {"path", "to"},
	"seccomp":                {"groups", "rules"},
	"seccomp.groups[]":       {"name", "reason", "calls"},
	"seccomp.rules[]":        {"call", "reason", "when"},
	"seccomp.rules[].when[]": {"arg", "mask", "value"},
	"landlock":               {"abi"},
	"limits":                 {"memory", "pids", "cpu_percent", "nofile", "fsize", "tmp", "tmp_inodes", "shm"},
	"mcp": {"call_time", "call_most", "calls", "line", "depth", "blocks", "stderr", "pages", "session_calls", "queue", "items", "definition",
		"line_wait", "definitions"},
}

// whole has every section once, so that the decoder comes by all of them.
const whole = `binds: [{}]
links: [{}]
seccomp: {groups: [{}], rules: [{when: [{}]}]}
landlock: {}
limits: {}
mcp: {}
`

// Keys lists every key that the decoder takes, in the order of the hints' table: the
// decoder itself is asked, so that what is made from the list is what is checked.
func Keys() []Key {
	var out []Key
	d := &decoder{lines: map[string]int{}, visit: func(section string, known fields) {
		for _, name := range sections[section] {
			path := name
			if section != "" {
				path = section + "." + name
			}
			out = append(out, Key{path, known[name].take.kind, known[name].needed})
		}
	}}
	d.decode([]byte(whole))
	return out
}

// Bounds of the numbers of a profile that stand in it as numbers, with both ends. What
// holds is what Validate of the profile says; these are for whoever writes one. A bound
// of mcp that is 0 is one that is not said.
func Bounds() map[string][2]int64 {
	return map[string][2]int64{
		"landlock.abi": {6, math.MaxInt32}, "limits.pids": {1, spec.MaxPids}, "limits.cpu_percent": {1, 100 * 1024}, "limits.nofile": {32, spec.MaxNofile}, "seccomp.rules[].when[].arg": {0, 5},
		"mcp.calls": {0, 256}, "mcp.depth": {0, 512}, "mcp.blocks": {0, 65536}, "mcp.pages": {0, 1000}, "mcp.session_calls": {0, 64}, "mcp.items": {0, 2000},
	}
}
