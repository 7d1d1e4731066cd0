package mcp

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"postern/item"
	"postern/refusal"
)

// A List is one of the lists that both sides have.
type List struct {
	Method string
	Member string // of the result, the array
	key    string // of an element: what names it
}

// The lists.
var (
	Tools     = List{MethodToolsList, "tools", "name"}
	Prompts   = List{MethodPromptsList, "prompts", "name"}
	Resources = List{MethodResources, "resources", "uri"}
	Templates = List{MethodTemplates, "resourceTemplates", "uriTemplate"}
)

// Served is one element as it is listed to a runtime.
type Served struct {
	Name       string // replaces the definition's own name, or is its URI
	Definition Value
}

// Element returns what names one element of a server's list of resources or templates,
// and whether it is acceptable: an object, strict, with a URI that has one spelling. Of
// a template what stands before its first variable is returned.
func (l List) Element(raw Value) (uri, literal string, ok bool) {
	members, is := Members(raw)
	if !is || len(raw) > MaxToolBytes || !raw.IsValid() {
		return "", "", false
	}
	uri, f := text(Find(members, l.key), l.key)
	if f != nil || uri == "" || len(uri) > item.MaxURI {
		return "", "", false
	}
	literal = uri
	if l.key == Templates.key {
		for i := range uri {
			if uri[i] == '{' {
				literal = uri[:i]
				break
			}
		}
	}
	return uri, literal, item.CheckURI(literal) == nil
}

// ErrCursor is returned by ListResult for a cursor that names no place in the list.
var ErrCursor = errors.New("cursor is not one of ours")

// CursorFault is the answer to ErrCursor.
func CursorFault() *Fault {
	return fault(CodeInvalidParams, refusal.BadRequest, "the cursor is not one of ours")
}

// ListResult builds one page of a list's result. The cursor holds the last name of the
// page before and where that stood, so it survives a list that changed, also where that
// very name is gone, and carries no authority.
func (p Peer) ListResult(l List, all []Served, cursor Value) (Value, error) {
	from := 0
	if cursor != nil {
		s, f := text(cursor, "cursor")
		raw, err := base64.RawURLEncoding.DecodeString(s)
		where, last, ok := strings.Cut(string(raw), " ")
		at, aterr := strconv.Atoi(where)
		if f != nil || err != nil || aterr != nil || !ok || at < 0 {
			return nil, ErrCursor
		}
		from = min(at, len(all)) // what came next has moved up
		for i := range all {
			if all[i].Name == last {
				from = i + 1
			}
		}
	}
	j := &joiner{}
	j.open()
	j.name(l.Member)
	j.dst = append(j.dst, '[')
	n := 0
	for ; from < len(all) && n < MaxPageTools && len(j.dst) < MaxPageBytes; from++ {
		if l == Tools && appOnly(all[from].Definition) {
			continue
		}
		if n++; n > 1 {
			j.dst = append(j.dst, ',')
		}
		p.appendElement(j, l, all[from])
	}
	j.dst = append(j.dst, ']')
	j.comma = true
	if from < len(all) {
		j.name("nextCursor")
		j.dst = quote(j.dst, base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(from-1)+" "+all[from-1].Name)))
	}
	if p.Modern {
		j.raw("resultType", []byte(`"complete"`))
		p.cache(j)
		p.serverMeta(j)
	}
	j.shut()
	return j.dst, nil
}

// appendElement writes a definition under its served name. Legacy runtimes drop the
// whole list over one outputSchema that is no object's, so they do not get it.
func (p Peer) appendElement(j *joiner, l List, t Served) {
	members, _ := Members(t.Definition)
	j.comma = false
	j.open()
	for _, v := range members {
		switch {
		case v.Name == "name" && l.key == "name":
			j.name("name")
			j.dst = quote(j.dst, t.Name)
		case v.Name == "outputSchema":
			s, ok := Members(v.Value)
			if p.Modern || (ok && string(Find(s, "type")) == `"object"`) {
				j.raw(v.Name, v.Value)
			}
		case v.Name == "icons":
			if v.Value.Kind() == '[' {
				appendIcons(j, v.Value)
			}
		case v.Name == "_meta":
			Peer{}.appendResultMeta(j, v.Value)
		default:
			j.raw(v.Name, v.Value)
		}
	}
	j.shut()
}
