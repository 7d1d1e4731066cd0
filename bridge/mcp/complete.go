package mcp

import (
	"strings"

	"postern/item"
	"postern/refusal"
)

// Completion is what a completion/complete asks about: values for an argument of a
// prompt, or for a variable of a template of resources.
type Completion struct {
	Kind item.Kind
	Name string // of the prompt, or the URI beneath which everything that is offered lies
	URI  string // the template, as its server knows it
}

// Completes reads what a completion/complete asks about.
func (m *Message) Completes() (c Completion, f *Fault) {
	ref, ok := Members(m.Param("ref"))
	if !ok {
		return c, fault(CodeInvalidParams, refusal.BadRequest, "ref is not an object")
	}
	argument, ok := Members(m.Param("argument"))
	if !ok || Find(argument, "name").Kind() != '"' || Find(argument, "value").Kind() != '"' {
		return c, fault(CodeInvalidParams, refusal.BadRequest, "argument is not an object with a name and a value")
	}
	switch kind := string(Find(ref, "type")); kind {
	case `"ref/prompt"`:
		c.Kind = item.Prompt
		c.Name, f = text(Find(ref, "name"), "the name in ref")
	case `"ref/resource"`:
		c.Kind = item.Resource
		if c.URI, f = text(Find(ref, "uri"), "the uri in ref"); f == nil && len(c.URI) > item.MaxURI {
			f = fault(CodeInvalidParams, refusal.BadRequest, "the uri in ref may have %d bytes", item.MaxURI)
		}
		c.Name = above(c.URI)
	default:
		f = fault(CodeInvalidParams, refusal.BadRequest, "ref has the type %.40q", kind)
	}
	if f == nil && c.Name == "" {
		f = fault(CodeInvalidParams, refusal.BadRequest, "ref names nothing")
	}
	return c, f
}

// above is what everything lies beneath that a template may stand for, by whole segments:
// file:///docs/ for file:///docs/re{rest}. A URI without a variable is itself.
func above(template string) string {
	literal, _, variable := strings.Cut(template, "{")
	if !variable {
		return literal
	}
	return literal[:strings.LastIndexByte(literal, '/')+1]
}

// Ref writes the ref that goes to a server, where it calls the prompt name.
func (c Completion) Ref(name string) Value {
	j := &joiner{}
	j.open()
	if c.Kind == item.Prompt {
		j.raw("type", []byte(`"ref/prompt"`))
		j.name("name")
		j.dst = quote(j.dst, name)
	} else {
		j.raw("type", []byte(`"ref/resource"`))
		j.name("uri")
		j.dst = quote(j.dst, c.URI)
	}
	j.shut()
	return j.dst
}

// Asked are the bytes of a completion/complete of which the record keeps a digest.
func (c Completion) Asked(m *Message) Value {
	j := &joiner{}
	j.open()
	j.raw("ref", c.Ref(c.Name))
	j.raw("argument", m.Param("argument"))
	if context := m.Param("context"); context != nil {
		j.raw("context", context)
	}
	j.shut()
	return j.dst
}
