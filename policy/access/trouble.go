package access

import (
	"fmt"
	"strings"
)

// The states of a policy, as every surface tells them.
const (
	StateNone     = "none"     // there is no document
	StateRead     = "read"     // nobody is denied for a mistake
	StateMistaken = "mistaken" // whom its mistakes are about are denied, and nobody else
	StateDenying  = "denying"  // everyone is denied
)

// State says in one word what the policy's document is like.
func (p *Policy) State() string {
	switch {
	case p == nil:
		return StateNone
	case p.broken != nil:
		return StateDenying
	case p.Trouble("") != "":
		return StateMistaken
	}
	return StateRead
}

// Trouble is the first mistake of the document that denies anybody, with file, line and
// key, and how many others do; "" where none does. What only warns is none.
func (p *Policy) Trouble(file string) string {
	var first string
	more := 0
	for _, m := range p.Mistakes() {
		switch {
		case m.Warn:
		case first == "":
			first = m.In(file)
		default:
			more++
		}
	}
	if more > 0 {
		first += fmt.Sprintf(" (and %d more)", more)
	}
	return first
}

// In is the mistake with the name of its file, as editors take it.
func (m Mistake) In(file string) string {
	if m.Line == 0 {
		file += ": "
	} else {
		file += ":"
	}
	return file + m.String()
}

// Wrong is the mistake for which whoever a place decides about is denied: the first at
// the place or beneath it.
func (p *Policy) Wrong(at Place) (Mistake, bool) {
	key := shown(at.Key)
	for _, m := range p.Mistakes() {
		rest, under := strings.CutPrefix(m.Key, key)
		if !m.Warn && under && key != "" && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return m, true
		}
	}
	return Mistake{}, false
}
