package mcp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"postern/item"
)

// ListPage is one page of a tool server's list.
type ListPage struct {
	Items []Value
	Next  string // "" on the last page
}

// ReadList reads the result of a list: the array is the member called name. Only the
// page's own shape is checked.
func (a *Answer) ReadList(name string) (ListPage, error) {
	var page ListPage
	items := Find(a.Members, name)
	if items.Kind() != '[' {
		return page, fmt.Errorf("%s is not an array", name)
	}
	var p Parser
	p.reset(items, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := p.dec.ReadToken(); err != nil {
		return page, fmt.Errorf("%s is not an array", name)
	}
	for p.dec.PeekKind() != ']' {
		v, f := p.value()
		if f != nil {
			return page, fmt.Errorf("%s is not an array", name)
		}
		if page.Items = append(page.Items, v); len(page.Items) > MaxTools {
			return page, fmt.Errorf("more than %d %s", MaxTools, name)
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
//
// A definition has at most so many bytes, where that is less than MaxToolBytes; 0 for
// none.
func CheckTools(raw []Value, most int) (good []Definition, bad []Quarantined) {
	return checkAll(raw, most, CheckTool)
}

// CheckPrompts is CheckTools for prompts; what is kept out is named by its item's key.
func CheckPrompts(raw []Value, most int) (good []Definition, bad []Quarantined) {
	good, bad = checkAll(raw, most, CheckPrompt)
	for i := range bad {
		if bad[i].Name != "" {
			bad[i].Name = item.Prompt.Key(bad[i].Name)
		}
	}
	return good, bad
}

func checkAll(raw []Value, most int, check func(Value) (string, error)) (good []Definition, bad []Quarantined) {
	count := map[string]int{}
	names := make([]string, len(raw))
	errs := make([]error, len(raw))
	for i, r := range raw {
		names[i], errs[i] = check(r)
		if errs[i] == nil && most > 0 && len(r) > most {
			errs[i] = tooBig(len(r), most)
		}
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

func tooBig(size, most int) error {
	return fmt.Errorf("the definition has %d bytes, more than %d", size, most)
}

// CheckTool returns the tool's name and why its definition is not acceptable.
func CheckTool(raw Value) (string, error) {
	name, members, err := checkDefinition(raw, toolNames)
	if err != nil {
		return name, err
	}
	schema := Find(members, "inputSchema")
	if s, ok := Members(schema); !ok || string(Find(s, "type")) != `"object"` {
		return name, errors.New(`inputSchema is not an object with "type":"object"`)
	}
	return name, nil
}

// CheckPrompt returns the prompt's name and why its definition is not acceptable.
func CheckPrompt(raw Value) (string, error) {
	name, _, err := checkDefinition(raw, promptNames)
	return name, err
}

func checkDefinition(raw Value, known []string) (string, []Member, error) {
	if raw.Kind() != '{' {
		return "", nil, errors.New("the definition is not an object")
	}
	members, ok := Members(raw)
	if !ok {
		return "", nil, errors.New("the definition is not an object")
	}
	name, f := text(Find(members, "name"), "name")
	if f != nil || !toolName(name) {
		return "", nil, fmt.Errorf("the name is not 1 to %d of A-Z a-z 0-9 _ . / -", MaxToolName)
	}
	if len(raw) > MaxToolBytes {
		return name, nil, tooBig(len(raw), MaxToolBytes)
	}
	if !raw.IsValid() { // strict: no repeated names, whole UTF-8
		return name, nil, errors.New("the definition repeats a member or is not UTF-8")
	}
	var seen []string
	for _, v := range members {
		if f := admitName(&seen, v.Name, known, "the definition"); f != nil {
			return name, nil, errors.New(f.Reason)
		}
		if !toolMember(v) {
			return name, nil, fmt.Errorf("%s is not of its type", v.Name)
		}
	}
	return name, members, nil
}

var toolNames = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta"}

var promptNames = []string{"name", "title", "description", "arguments", "icons", "_meta"}

// toolMember checks a member whose type is known; others pass.
func toolMember(v Member) bool {
	switch v.Name {
	case "title", "description":
		return v.Value.Kind() == '"'
	case "inputSchema", "outputSchema", "execution", "_meta":
		return v.Value.Kind() == '{'
	case "icons", "arguments":
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
