package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"postern/refusal"
)

// ListPage is one page of a tool server's tools/list.
type ListPage struct {
	Tools []Value
	Next  string // "" on the last page
}

// ReadList reads the result of a tools/list. Only the page's own shape is checked.
func (a *Answer) ReadList() (ListPage, error) {
	var page ListPage
	tools := Find(a.Members, "tools")
	if tools.Kind() != '[' {
		return page, errors.New("tools is not an array")
	}
	var p Parser
	p.reset(tools, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := p.dec.ReadToken(); err != nil {
		return page, errors.New("tools is not an array")
	}
	for p.dec.PeekKind() != ']' {
		v, f := p.value()
		if f != nil {
			return page, errors.New("tools is not an array")
		}
		if page.Tools = append(page.Tools, v); len(page.Tools) > MaxTools {
			return page, fmt.Errorf("more than %d tools", MaxTools)
		}
	}
	if next := Find(a.Members, "nextCursor"); next != nil && next.Kind() != 'n' {
		b, err := jsontext.AppendUnquote(nil, next)
		if next.Kind() != '"' || err != nil || len(b) > 64<<10 {
			return page, errors.New("nextCursor is not a string")
		}
		page.Next = string(b)
	}
	return page, nil
}

// Cursor is the member that asks for the page after next.
func Cursor(next string) string {
	if next == "" {
		return ""
	}
	return `"cursor":` + string(quote(nil, next))
}

// Definition is one tool whose definition was found in order.
type Definition struct {
	Name string
	Raw  Value
}

// Quarantined is one tool that is kept out.
type Quarantined struct {
	Name   string // "" where the definition has none that can be shown
	Reason string
}

// CheckTools divides what a server listed. Of tools that share a name none is kept:
// a call goes by name, and could mean either.
func CheckTools(raw []Value) (good []Definition, bad []Quarantined) {
	count := map[string]int{}
	names := make([]string, len(raw))
	errs := make([]error, len(raw))
	for i, r := range raw {
		names[i], errs[i] = CheckTool(r)
		if names[i] != "" {
			count[names[i]]++
		}
	}
	for i, r := range raw {
		if errs[i] == nil && count[names[i]] > 1 {
			errs[i] = errors.New("the name is listed more than once")
		}
		if errs[i] != nil {
			bad = append(bad, Quarantined{names[i], errs[i].Error()})
			continue
		}
		good = append(good, Definition{names[i], r})
	}
	return good, bad
}

// CheckTool returns the tool's name and why its definition is not acceptable.
func CheckTool(raw Value) (string, error) {
	if raw.Kind() != '{' {
		return "", errors.New("the definition is not an object")
	}
	members, ok := Members(raw)
	if !ok {
		return "", errors.New("the definition is not an object")
	}
	name, f := text(Find(members, "name"), "name")
	if f != nil || !toolName(name) {
		return "", fmt.Errorf("the name is not 1 to %d of A-Z a-z 0-9 _ . / -", MaxToolName)
	}
	if len(raw) > MaxToolBytes {
		return name, fmt.Errorf("the definition has %d bytes, more than %d", len(raw), MaxToolBytes)
	}
	if !raw.IsValid() { // strict: no repeated names, whole UTF-8
		return name, errors.New("the definition repeats a member or is not UTF-8")
	}
	var seen []string
	for _, v := range members {
		if f := admitName(&seen, v.Name, toolNames, "the definition"); f != nil {
			return name, errors.New(f.Reason)
		}
		if !toolMember(v) {
			return name, fmt.Errorf("%s is not of its type", v.Name)
		}
	}
	schema := Find(members, "inputSchema")
	if s, ok := Members(schema); !ok || string(Find(s, "type")) != `"object"` {
		return name, errors.New(`inputSchema is not an object with "type":"object"`)
	}
	return name, nil
}

var toolNames = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta"}

// toolMember checks a member whose type is known; others pass.
func toolMember(v Member) bool {
	switch v.Name {
	case "title", "description":
		return v.Value.Kind() == '"'
	case "inputSchema", "outputSchema", "execution", "_meta":
		return v.Value.Kind() == '{'
	case "icons":
		return v.Value.Kind() == '['
	case "annotations":
		hints, ok := Members(v.Value)
		for _, h := range hints {
			switch h.Name {
			case "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint":
				ok = ok && (h.Value.Kind() == 't' || h.Value.Kind() == 'f')
			case "title":
				ok = ok && h.Value.Kind() == '"'
			}
		}
		return ok
	}
	return true
}

func toolName(s string) bool {
	if s == "" || len(s) > MaxToolName {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_./-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// Served is one tool as it is listed to a runtime.
type Served struct {
	Name       string
	Definition Value
}

// ErrCursor is returned by ListResult for a cursor that names no place in the list.
var ErrCursor = errors.New("cursor is not one of ours")

// ListResult builds one page of a tools/list result. The cursor holds the last name
// of the page before, so it survives a list that changed and carries no authority.
func (p Peer) ListResult(tools []Served, cursor Value) (Value, error) {
	from := 0
	if cursor != nil {
		s, f := text(cursor, "cursor")
		last, err := base64.RawURLEncoding.DecodeString(s)
		if f != nil || err != nil {
			return nil, ErrCursor
		}
		for i := range tools {
			if tools[i].Name == string(last) {
				from = i + 1
			}
		}
		if from == 0 {
			return nil, ErrCursor
		}
	}
	j := &joiner{}
	j.open()
	j.name("tools")
	j.dst = append(j.dst, '[')
	n := 0
	for ; from < len(tools) && n < MaxPageTools && len(j.dst) < MaxPageBytes; from++ {
		if appOnly(tools[from].Definition) {
			continue
		}
		if n++; n > 1 {
			j.dst = append(j.dst, ',')
		}
		p.appendTool(j, tools[from])
	}
	j.dst = append(j.dst, ']')
	j.comma = true
	if from < len(tools) {
		j.name("nextCursor")
		j.dst = quote(j.dst, base64.RawURLEncoding.EncodeToString([]byte(tools[from-1].Name)))
	}
	if p.Modern {
		j.raw("resultType", []byte(`"complete"`))
		p.cache(j)
		p.serverMeta(j)
	}
	j.shut()
	return j.dst, nil
}

// appendTool writes a definition under its served name. Legacy runtimes drop the
// whole list over one outputSchema that is no object's, so they do not get it.
func (p Peer) appendTool(j *joiner, t Served) {
	members, _ := Members(t.Definition)
	j.comma = false
	j.open()
	for _, v := range members {
		switch v.Name {
		case "name":
			j.name("name")
			j.dst = quote(j.dst, t.Name)
		case "outputSchema":
			s, ok := Members(v.Value)
			if p.Modern || (ok && string(Find(s, "type")) == `"object"`) {
				j.raw(v.Name, v.Value)
			}
		case "icons":
			appendIcons(j, v.Value)
		case "_meta":
			Peer{}.appendResultMeta(j, v.Value)
		default:
			j.raw(v.Name, v.Value)
		}
	}
	j.shut()
}

// appendIcons keeps the icons whose source is https or data: nothing else may make a
// runtime fetch.
func appendIcons(j *joiner, raw Value) {
	var p Parser
	p.reset(raw)
	var kept []Value
	all := true
	if _, err := p.dec.ReadToken(); err != nil {
		return
	}
	for p.dec.PeekKind() != ']' {
		v, f := p.value()
		if f != nil {
			return
		}
		icon, _ := Members(v)
		src, f := text(Find(icon, "src"), "src")
		if f == nil && (strings.HasPrefix(src, "https:") || strings.HasPrefix(src, "data:")) {
			kept = append(kept, v)
		} else {
			all = false
		}
	}
	if all {
		j.raw("icons", raw)
		return
	}
	j.name("icons")
	j.dst = append(j.dst, '[')
	for i, v := range kept {
		if i > 0 {
			j.dst = append(j.dst, ',')
		}
		j.dst = append(j.dst, v...)
	}
	j.dst = append(j.dst, ']')
}

// appOnly tells whether a tool is meant for an app's own page and not for the model.
func appOnly(def Value) bool {
	members, _ := Members(def)
	meta, _ := Members(Find(members, "_meta"))
	ui, _ := Members(Find(meta, "ui"))
	v := Find(ui, "visibility")
	return v.Kind() == '[' && strings.Contains(string(v), `"app"`) && !strings.Contains(string(v), `"model"`)
}

// CursorFault is the answer to ErrCursor.
func CursorFault() *Fault {
	return fault(CodeInvalidParams, refusal.BadRequest, "the cursor is not one of ours")
}
