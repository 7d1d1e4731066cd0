package profiles

import "postern/near"

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
