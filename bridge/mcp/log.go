package mcp

import (
	"slices"

	"postern/refusal"
)

// Level is how urgent a log message is; the zero value is none.
type Level int

var levels = [...]string{"", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// ParseLevel returns the level called s.
func ParseLevel(s string) (Level, bool) {
	for i, name := range levels {
		if i > 0 && name == s {
			return Level(i), true
		}
	}
	return 0, false
}

// String returns the level's name, "" for none.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levels) {
		return ""
	}
	return levels[l]
}

// SetsLevel reads the level of a logging/setLevel.
func (m *Message) SetsLevel() (Level, *Fault) { return readLevel(m.Param("level"), "level") }

// WantsLevel reads the level from which a modern request asks for log messages; none
// where it does not.
func (m *Message) WantsLevel() (Level, *Fault) {
	raw := m.MetaValue(MetaLogLevel)
	if raw == nil {
		return 0, nil
	}
	return readLevel(raw, MetaLogLevel)
}

func readLevel(raw Value, what string) (Level, *Fault) {
	s, _ := text(raw, what)
	l, ok := ParseLevel(s)
	if !ok {
		return 0, fault(CodeInvalidParams, refusal.BadRequest, "%s is not debug, info, notice, warning, error, critical, alert or emergency", what)
	}
	return l, nil
}

// LogMessage reads the params of a notifications/message.
func LogMessage(params Value) (Level, []Member, bool) {
	members, ok := Members(params)
	if !ok {
		return 0, nil, false
	}
	s, f := text(Find(members, "level"), "level")
	l, known := ParseLevel(s)
	return l, members, f == nil && known
}

// AppendNoteWith appends a notification of a server: its params, without the keys that
// only Postern may write, and with the id of the subscription it belongs to, if any.
func AppendNoteWith(dst []byte, method string, members []Member, subscription Value) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","method":`...)}
	j.dst = quote(j.dst, method)
	j.comma = true
	j.name("params")
	j.open()
	var meta Value
	for _, v := range members {
		if v.Name == "_meta" {
			meta = v.Value
			continue
		}
		j.raw(v.Name, v.Value)
	}
	kept, _ := Members(meta)
	kept = slices.DeleteFunc(kept, func(v Member) bool { return v.Name == MetaSubscription || own(v.Name) })
	if subscription != nil || len(kept) > 0 {
		j.name("_meta")
		j.open()
		for _, v := range kept {
			j.raw(v.Name, v.Value)
		}
		if subscription != nil {
			j.raw(MetaSubscription, subscription)
		}
		j.shut()
	}
	j.shut()
	return append(j.dst, '}', '\n')
}
