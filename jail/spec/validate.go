package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Bounds of one profile.
const (
	MaxBinds    = 64
	MaxLinks    = 64
	MaxEnv      = 128
	MaxEnvBytes = 16 << 10
	MaxPath     = 1024
	MaxNofile   = 1 << 16
	MaxPids     = 1 << 15
	MinMemory   = 4 << 20
)

// Mistake is one thing wrong with a profile: the field, as its file spells it,
// and what was expected.
type Mistake struct {
	Field string
	Want  string
}

func (m Mistake) Error() string { return m.Field + ": " + m.Want }

// Validate returns every mistake of p, none if it may be used.
func (p Profile) Validate() []Mistake {
	var found []Mistake
	bad := func(field, format string, args ...any) {
		found = append(found, Mistake{field, fmt.Sprintf(format, args...)})
	}
	if !ValidName(p.Name) {
		bad("name", "want [a-z][a-z0-9-]{0,31}, not %q", p.Name)
	}
	if len(p.Binds) > MaxBinds {
		bad("binds", "at most %d", MaxBinds)
	}
	if len(p.Links) > MaxLinks {
		bad("links", "at most %d", MaxLinks)
	}
	if p.WorkspaceReadOnly && !p.Workspace {
		bad("workspace_read_only", "needs workspace: true")
	}

	// spec-2: a mount point may only ever lie on the private root. A target
	// inside another bind would have to be created in the host's directory.
	taken := []string{WorkspaceDir, PackageDir, ProgramFile, TmpDir, DevDir, ProcDir}
	for i, b := range p.Binds {
		field := fmt.Sprintf("binds[%d]", i)
		if !CleanPath(b.Source) {
			bad(field+".source", "want a clean absolute path, not %q", b.Source)
		}
		if b.Target != "" && !CleanPath(b.Target) {
			bad(field+".target", "want a clean absolute path, not %q", b.Target)
			continue
		}
		for _, other := range taken {
			if Inside(b.At(), other) || Inside(other, b.At()) {
				bad(field, "%q overlaps %q", b.At(), other)
			}
		}
		taken = append(taken, b.At())
	}
	for i, l := range p.Links {
		field := fmt.Sprintf("links[%d]", i)
		if !CleanPath(l.Path) {
			bad(field+".path", "want a clean absolute path, not %q", l.Path)
			continue
		}
		if l.To == "" || len(l.To) > MaxPath || strings.ContainsRune(l.To, 0) {
			bad(field+".to", "want a path of at most %d bytes", MaxPath)
		}
		for _, other := range taken {
			if Inside(l.Path, other) || Inside(other, l.Path) {
				bad(field, "%q overlaps %q", l.Path, other)
			}
		}
		taken = append(taken, l.Path)
	}

	size := 0
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		size += len(name) + len(p.Env[name])
		if !ValidEnvName(name) || strings.ContainsRune(p.Env[name], 0) {
			bad("env", "%q is not a name and value a process can have", name)
		}
	}
	if len(p.Env) > MaxEnv || size > MaxEnvBytes {
		bad("env", "at most %d names and %d bytes", MaxEnv, MaxEnvBytes)
	}

	if len(p.Seccomp.Groups) == 0 {
		bad("seccomp.groups", "a program needs some system calls")
	}
	for i, g := range p.Seccomp.Groups {
		field := fmt.Sprintf("seccomp.groups[%d]", i)
		if g.Name == "" || g.Reason == "" || len(g.Calls) == 0 {
			bad(field, "want a name, a reason and calls")
		}
	}
	for i, r := range p.Seccomp.Rules {
		field := fmt.Sprintf("seccomp.rules[%d]", i)
		if r.Call == "" || r.Reason == "" || len(r.When) == 0 {
			bad(field, "want a call, a reason and at least one condition")
		}
		for _, c := range r.When {
			if c.Arg > 5 {
				bad(field+".when", "a call has arguments 0 to 5, not %d", c.Arg)
			}
			if mask := c.EffectiveMask(); c.Value&^mask != 0 {
				bad(field+".when", "value %#x has bits outside mask %#x: it never holds", c.Value, mask)
			}
		}
	}
	p.validateCalls(bad)
	if p.Landlock.ABI < 6 {
		bad("landlock.abi", "want at least 6, not %d", p.Landlock.ABI)
	}

	l := p.Limits
	if l.MemoryBytes < MinMemory {
		bad("limits.memory", "want at least %d bytes", MinMemory)
	}
	if l.PidsMax < 1 || l.PidsMax > MaxPids {
		bad("limits.pids", "want 1 to %d", MaxPids)
	}
	if l.CPUPercent < 1 || l.CPUPercent > 100*1024 {
		bad("limits.cpu_percent", "want 1 to %d", 100*1024)
	}
	if l.Nofile < 32 || l.Nofile > MaxNofile {
		bad("limits.nofile", "want 32 to %d", MaxNofile)
	}
	if l.FsizeBytes < 0 {
		bad("limits.fsize", "want 0 or more bytes")
	}
	if l.TmpBytes < 0 || l.TmpInodes < 0 || (l.TmpBytes > 0) != (l.TmpInodes > 0) {
		bad("limits.tmp", "want both a size and a number of files, or neither")
	}
	if l.ShmBytes < 0 || l.ShmBytes > 0 && !p.Devices {
		bad("limits.shm", "want 0 or more bytes, and devices: true, because it lies in /dev")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"idle", p.Idle}, {"stop_grace", p.StopGrace}, {"start_timeout", p.StartTimeout}} {
		if d.value <= 0 {
			bad(d.field, "want a positive duration")
		}
	}
	for _, b := range []struct {
		field              string
		value, least, most int64
		want               string
	}{
		{"mcp.call_time", int64(p.MCP.CallTime), int64(time.Second), int64(time.Hour), "want 1s to 1h"},
		{"mcp.call_most", int64(p.MCP.CallMost), int64(time.Second), int64(24 * time.Hour), "want 1s to 24h"},
		{"mcp.calls", int64(p.MCP.Calls), 1, 256, "want 1 to 256"},
		{"mcp.line", p.MCP.Line, 4 << 10, 16 << 20, "want 4KiB to 16MiB"},
		{"mcp.depth", int64(p.MCP.Depth), 8, 512, "want 8 to 512"},
		{"mcp.blocks", int64(p.MCP.Blocks), 1, 65536, "want 1 to 65536"},
		{"mcp.stderr", p.MCP.Stderr, 1 << 10, 256 << 10, "want 1KiB to 256KiB"},
		{"mcp.pages", int64(p.MCP.Pages), 1, 1000, "want 1 to 1000"},
		{"mcp.session_calls", int64(p.MCP.SessionCalls), 1, 64, "want 1 to 64"},
		{"mcp.queue", p.MCP.Queue, 64 << 10, 20 << 20, "want 64KiB to 20MiB"},
		{"mcp.items", int64(p.MCP.Items), 1, 2000, "want 1 to 2000"},
		{"mcp.definition", p.MCP.Definition, 1 << 10, 256 << 10, "want 1KiB to 256KiB"},
		{"mcp.line_wait", int64(p.MCP.LineWait), int64(time.Second), int64(time.Hour), "want 1s to 1h"},
		{"mcp.definitions", p.MCP.Definitions, 4 << 10, 8 << 20, "want 4KiB to 8MiB"},
	} {
		if b.value != 0 && (b.value < b.least || b.value > b.most) {
			bad(b.field, "%s", b.want)
		}
	}
	return found
}

// EffectiveMask returns the mask that c compares under.
func (c Condition) EffectiveMask() uint64 {
	if c.Mask == 0 {
		return 0xffffffff
	}
	return c.Mask
}

// ValidName reports whether s can be the name of a profile.
func ValidName(s string) bool {
	if s == "" || len(s) > 32 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// ValidEnvName reports whether s can be the name of an environment variable.
func ValidEnvName(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsAny(s, "=\x00")
}

// CleanPath reports whether s is absolute, in its shortest form and not the
// root itself. It looks at the text only.
func CleanPath(s string) bool {
	return len(s) > 1 && len(s) <= MaxPath && path.IsAbs(s) && path.Clean(s) == s && !strings.ContainsRune(s, 0)
}

// Inside reports whether clean path p is dir or lies below it.
func Inside(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}
