package control

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"postern/item"
	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

// Bounds of a difference that is shown.
const (
	MaxWords      = 2000      // words of one member that are compared; longer ones are replaced as a whole
	MaxPiece      = 8 << 10   // bytes of one piece of text, escaped
	MaxDifference = 192 << 10 // bytes of all pieces of one answer
	contextWords  = 6         // unchanged words shown around a change
)

// changed is an item that the current revision lists otherwise, with the two
// definitions, which nobody changes.
type changed struct {
	api.Change
	old, now []byte
}

// changes finds what is granted of a connection and differs in what the current
// revision of its server lists, and after it what is not granted and differs from what
// the accepted one listed. It runs on the loop; comparing word by word does not.
func (a *actions) changes(c *registry.Connected) []changed {
	cat := a.reg.Catalogue(a.reg.Root().Servers[c.Server].Current)
	if cat == nil || cat.Error != "" {
		return nil
	}
	names := make([]string, 0, len(c.Grants))
	for name := range c.Grants {
		if kind, _ := item.Split(name); kind != item.Resource {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []changed
	for _, name := range names {
		pin, grant := cat.Tools[name], c.Grants[name]
		ch := changed{Change: api.Change{Tool: name, Kind: kindOf(name)}}
		switch {
		case pin == nil:
			ch.State = "gone"
		case pin.Quarantine != "":
			ch.State, ch.Reason = "quarantined", pin.Quarantine
		case pin.Digest == grant.Pin:
			continue
		default:
			ch.State, ch.Pin = "changed", pinText(pin)
			ch.old, ch.now = a.reg.Definition(grant.Pin), pin.Raw
			if ch.old == nil {
				ch.Reason = "the definition that was granted was not kept"
			}
		}
		out = append(out, ch)
	}
	return append(out, a.ungranted(c, cat)...)
}

// ungranted are the changes between the catalogues of two revisions of what is not
// granted: whoever accepts sees what the server has become.
func (a *actions) ungranted(c *registry.Connected, cat *registry.Catalogue) (out []changed) {
	old := a.reg.Catalogue(c.Accepted)
	if old == nil || old == cat || old.Error != "" {
		return nil
	}
	add := func(name, state string, was, is *registry.Pin) {
		ch := changed{Change: api.Change{Tool: name, Kind: kindOf(name), Ungranted: true, State: state}}
		if was != nil {
			ch.old = was.Raw
		}
		if is != nil {
			ch.now, ch.Pin = is.Raw, pinText(is)
		}
		if state == "quarantined" {
			ch.now, ch.Pin, ch.Reason = nil, "", is.Quarantine
		}
		out = append(out, ch)
	}
	for _, name := range cat.Order {
		was, is := old.Tools[name], cat.Tools[name]
		switch {
		case c.Grants[name] != nil || was != nil && was.Digest == is.Digest && was.Quarantine == is.Quarantine:
		case is.Quarantine != "":
			add(name, "quarantined", was, is)
		case was == nil || was.Quarantine != "":
			add(name, "new", nil, is)
		default:
			add(name, "changed", was, is)
		}
	}
	for _, name := range old.Order {
		if c.Grants[name] == nil && cat.Tools[name] == nil {
			add(name, "gone", old.Tools[name], nil)
		}
	}
	return out
}

// described compares the definitions.
func described(all []changed) []api.Change {
	var out []api.Change
	left := MaxDifference
	for _, ch := range all {
		if ch.now != nil {
			ch.Members, left = differences(ch.old, ch.now, left)
		}
		out = append(out, ch.Change)
	}
	return out
}

// differences compares two definitions member by member, within left bytes of text.
func differences(old, now []byte, left int) ([]api.MemberChange, int) {
	was, is := texts(old), texts(now)
	var names []string
	for name := range was {
		names = append(names, name)
	}
	for name := range is {
		if _, both := was[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []api.MemberChange
	for _, name := range names {
		if was[name] == is[name] {
			continue
		}
		m := api.MemberChange{Member: activity.Clean(name, 64)}
		for _, p := range wordDiff(words(was[name]), words(is[name])) {
			p.Text = activity.Clean(p.Text, min(MaxPiece, left))
			left -= len(p.Text)
			m.Pieces = append(m.Pieces, p)
			if left <= 0 {
				m.Cut = true
				return append(out, m), 0
			}
		}
		out = append(out, m)
	}
	return out, left
}

// texts are the members of a definition as text: strings as they read, the rest as it
// was written.
func texts(raw []byte) map[string]string {
	out := map[string]string{}
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return out
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return out
		}
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return out
		}
		s := string(v)
		if v.Kind() == '"' {
			_ = json.Unmarshal(v, &s)
		}
		out[key] = s
	}
	return out
}

// words divides text so that the pieces joined are the text: at white space, and at
// what divides JSON.
func words(s string) []string {
	var out []string
	from := 0
	for i, r := range s {
		if strings.ContainsRune(" \t\r\n,:{}[]", r) {
			if i > from {
				out = append(out, s[from:i])
			}
			out, from = append(out, s[i:i+1]), i+1
		}
	}
	if from < len(s) {
		out = append(out, s[from:])
	}
	return out
}

// wordDiff is the shortest way from a to b as pieces of text that stay ("="), go ("-")
// and come ("+"). Of what stays only the words beside a change are kept; "…" stands for
// the others.
func wordDiff(a, b []string) []api.Piece {
	var out []api.Piece
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	add := func(op, text string) {
		if n := len(out); n > 0 && out[n-1].Op == op {
			out[n-1].Text += text
		} else if text != "" {
			out = append(out, api.Piece{Op: op, Text: text})
		}
	}
	before := a[:head]
	if len(before) > contextWords {
		add("=", "…")
		before = before[len(before)-contextWords:]
	}
	add("=", strings.Join(before, ""))
	middle(a[head:len(a)-tail], b[head:len(b)-tail], add)
	after := a[len(a)-tail:]
	if len(after) > contextWords {
		add("=", strings.Join(after[:contextWords], "")+"…")
	} else {
		add("=", strings.Join(after, ""))
	}
	return out
}

// middle compares by the longest common subsequence.
func middle(a, b []string, add func(op, text string)) {
	if len(a) > MaxWords || len(b) > MaxWords || len(a) == 0 || len(b) == 0 {
		add("-", strings.Join(a, ""))
		add("+", strings.Join(b, ""))
		return
	}
	common := make([][]uint16, len(a)+1)
	for i := range common {
		common[i] = make([]uint16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			add("=", a[i])
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			add("-", a[i])
			i++
		default:
			add("+", b[j])
			j++
		}
	}
	add("-", strings.Join(a[i:], ""))
	add("+", strings.Join(b[j:], ""))
}
