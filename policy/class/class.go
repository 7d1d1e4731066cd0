// Package class knows the capability classes of tools, where a tool's classes
// come from, and the tier of a call.
//
// It is pure. The operator's declaration is trusted; names and annotations come
// from tool servers and are hostile: they are claims, and Source says so.
//
// Invariants:
//   - class-1: the set of classes is closed; text that is not one of them never parses.
//   - class-2: the operator's declaration decides alone; without one, no claim of a server takes away a write class.
//   - class-3: a name alone never proves reading: a contradicting annotation turns it into mcp.write.
//   - class-4: an owner's mark raises the operator's tier and never lowers it.
//
// It decides no call: that is package policy.
package class

import "strings"

// Class is one capability. The zero value is none of them.
type Class uint8

// The closed classes.
const (
	FilesystemRead Class = iota + 1
	FilesystemWrite
	ProcessExecute
	NetworkRead
	MessageSend
	DeviceRead
	DeviceExecute
	MemoryRead
	MemoryWrite
	RuntimeInspect
	Scheduling
	MCPRead
	MCPWrite

	last = MCPWrite
)

var names = [last + 1]string{
	"", "filesystem.read", "filesystem.write", "process.execute", "network.read", "message.send", "device.read",
	"device.execute", "memory.read", "memory.write", "runtime.inspect", "scheduling", "mcp.read", "mcp.write",
}

// String returns the class's name, "" for what is not a class.
func (c Class) String() string {
	if c > last {
		return ""
	}
	return names[c]
}

// Parse returns the class called s.
func Parse(s string) (Class, bool) {
	for c := FilesystemRead; c <= last; c++ {
		if names[c] == s {
			return c, true
		}
	}
	return 0, false
}

// Set holds classes. The zero value holds none, which no class list admits.
type Set uint16

const (
	all    Set = (1<<(last+1) - 1) &^ 1
	read   Set = 1<<FilesystemRead | 1<<NetworkRead | 1<<DeviceRead | 1<<MemoryRead | 1<<RuntimeInspect | 1<<MCPRead
	effect Set = 1<<ProcessExecute | 1<<DeviceExecute | 1<<MessageSend
)

// SetOf makes a set of classes; what is not a class is left out.
func SetOf(cs ...Class) Set {
	var s Set
	for _, c := range cs {
		s |= 1 << c
	}
	return s & all
}

// Read is the set of the classes that only read.
func Read() Set { return read }

// Count is how many classes there are.
const Count = int(last)

// All is the set of every class.
func All() Set { return all }

// Has tells whether c is in s.
func (s Set) Has(c Class) bool { return s&(1<<c)&all != 0 }

// Empty tells whether s holds no class.
func (s Set) Empty() bool { return s&all == 0 }

// Within tells whether s is not empty and every class of s is in o.
func (s Set) Within(o Set) bool { return !s.Empty() && s&all&^o == 0 }

// Meets tells whether s and o have a class in common.
func (s Set) Meets(o Set) bool { return s&o&all != 0 }

// Strings lists the names of s in the fixed order of the classes.
func (s Set) Strings() []string {
	var out []string
	for c := FilesystemRead; c <= last; c++ {
		if s.Has(c) {
			out = append(out, names[c])
		}
	}
	return out
}

// String joins the names by a comma.
func (s Set) String() string { return strings.Join(s.Strings(), ",") }

// ParseSet reads what String writes. One unknown name refuses the whole.
func ParseSet(s string) (Set, bool) {
	if s == "" {
		return 0, true
	}
	var out Set
	for n := range strings.SplitSeq(s, ",") {
		c, ok := Parse(n)
		if !ok {
			return 0, false
		}
		out |= 1 << c
	}
	return out, true
}
