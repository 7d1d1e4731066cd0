package access

import (
	"postern/policy"
	"postern/policy/class"
)

// Level is how much a principal may use, before write is looked at.
type Level uint8

// The levels. NoLevel is declared nowhere: whoever has none has no ceiling.
const (
	NoLevel Level = iota
	Chat
	Read
	Full
)

var levels = [...]string{"", "chat", "read", "full"}

// String returns the level's name, "" for no level.
func (l Level) String() string {
	if int(l) >= len(levels) {
		return ""
	}
	return levels[l]
}

// ParseLevel returns the level called s.
func ParseLevel(s string) (Level, bool) {
	for l := Chat; l <= Full; l++ {
		if levels[l] == s {
			return l, true
		}
	}
	return NoLevel, false
}

// The ceilings, one of each level and write. chat has no tools. read takes what only
// reads and denies what acts, so that no mode's list of names gives it back. full has
// no restriction of its own. write is about files and servers' data alone: it opens
// neither programs nor devices, messages, memory or schedules.
var (
	writing = class.SetOf(class.FilesystemWrite, class.MCPWrite)
	acting  = class.SetOf(class.ProcessExecute, class.DeviceExecute, class.MessageSend, class.MemoryWrite, class.Scheduling)

	chat      = Ceiling{Name: "chat", Policy: &policy.ToolPolicy{NoTools: true}}
	read      = Ceiling{Name: "read", Policy: &policy.ToolPolicy{Whitelist: true, AllowedClasses: sets(class.Read()), DeniedClasses: sets(acting)}}
	readWrite = Ceiling{Name: "read with write", Policy: &policy.ToolPolicy{Whitelist: true, AllowedClasses: sets(class.Read() | writing), DeniedClasses: sets(acting)}}
	full      = Ceiling{Name: "full without write", Policy: &policy.ToolPolicy{DeniedClasses: sets(writing)}}
	fullWrite = Ceiling{Name: "full", Policy: &policy.ToolPolicy{}}
)

func sets(s class.Set) *class.Set { return &s }

// CeilingOf compiles a level. chat with write is chat. No level reaches nothing: that
// there is none is said by Unlimited, not by a level.
func CeilingOf(l Level, write bool) Ceiling {
	switch {
	case l == Chat:
		return chat
	case l == Read && write:
		return readWrite
	case l == Read:
		return read
	case l == Full && write:
		return fullWrite
	case l == Full:
		return full
	}
	return Ceiling{}
}

// Presets are names for a level with write, which alone are written down: a preset
// that is changed here changes nobody's policy.
var presets = []struct {
	name  string
	level Level
	write bool
}{
	{"chat_only", Chat, false}, {"read", Read, false}, {"developer", Full, true}, {"full_pod", Full, true},
}

// Presets lists the names.
func Presets() []string {
	var out []string
	for _, p := range presets {
		out = append(out, p.name)
	}
	return out
}

// ParsePreset returns what the preset called s stands for.
func ParsePreset(s string) (l Level, write, ok bool) {
	for _, p := range presets {
		if p.name == s {
			return p.level, p.write, true
		}
	}
	return NoLevel, false, false
}

// PresetOf names a level with write as people see it: full for both presets that mean
// it, custom where no preset does, and "" for whoever has no ceiling.
func PresetOf(l Level, write bool) string {
	switch {
	case l == NoLevel:
		return ""
	case l == Full && write:
		return "full"
	}
	for _, p := range presets {
		if p.level == l && p.write == write {
			return p.name
		}
	}
	return "custom"
}
