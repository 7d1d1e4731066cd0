package profiles

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"postern/jail/spec"
	"postern/near"
)

// Mistake is one thing wrong with a file.
type Mistake struct {
	File string
	Line int // from 1; 0 where no line is to blame
	Key  string
	Want string
}

func (m Mistake) Error() string {
	where := m.File
	if m.Line > 0 {
		where = fmt.Sprintf("%s:%d", m.File, m.Line)
	}
	if m.Key != "" {
		where += ": " + m.Key
	}
	return where + ": " + m.Want
}

// Decode reads one profile. file is only for the mistakes, which are all
// reported at once, joined, in the order of lines.
func Decode(file string, raw []byte) (spec.Profile, error) { return decode(file, "", raw) }

// decode is Decode for a file whose name says what the profile's is.
func decode(file, want string, raw []byte) (spec.Profile, error) {
	d := &decoder{file: file, lines: map[string]int{}}
	p := d.decode(raw)
	if whole := len(d.mistakes); !d.unread {
		for _, m := range p.Validate() {
			if !d.about(m.Field, whole) {
				d.bad(d.lineOf(m.Field), m.Field, "%s", m.Want)
			}
		}
		if want != "" && p.Name != want && !d.about("name", whole) {
			d.bad(d.lineOf("name"), "name", "%q is to stand in a file called %s.yaml, not %s", p.Name, p.Name, filepath.Base(file))
		}
	}
	if len(d.mistakes) > 0 {
		slices.SortStableFunc(d.mistakes, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
		var all []error
		for _, m := range d.mistakes {
			all = append(all, m)
		}
		return spec.Profile{}, errors.Join(all...)
	}
	canonical, err := spec.Canonical(p)
	if err != nil {
		return spec.Profile{}, err
	}
	sum := sha256.Sum256(canonical)
	p.Digest = hex.EncodeToString(sum[:])
	return p, nil
}

// about tells whether one of the first n mistakes is about a field, or about what it
// lies in or what lies in it: then its value is not what the file says, and no more
// can be said of it.
func (d *decoder) about(field string, n int) bool {
	within := func(a, b string) bool {
		rest, ok := strings.CutPrefix(a, b)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return slices.ContainsFunc(d.mistakes[:n], func(m Mistake) bool { return within(field, m.Key) || within(m.Key, field) })
}

func (d *decoder) decode(raw []byte) spec.Profile {
	var p spec.Profile
	d.unread = true
	if len(raw) > MaxFile {
		d.bad(0, "", "at most %d bytes", MaxFile)
		return p
	}
	if mark := near.Mark(raw); mark != "" {
		d.bad(1, "", "%s", mark)
		return p
	}
	// Duplicate keys are let through here, so that they are one mistake among
	// the others and not the end of reading.
	file, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return p
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		d.bad(0, "", "want exactly one document")
		return p
	}
	d.unread = false
	d.mapping(file.Docs[0].Body, "", fields{
		"name":                {d.text(&p.Name), true},
		"never_register":      {d.truth(&p.NeverRegister), false},
		"fork":                {d.truth(&p.Fork), true},
		"workspace":           {d.truth(&p.Workspace), true},
		"workspace_read_only": {d.truth(&p.WorkspaceReadOnly), false},
		"package_exec":        {d.truth(&p.PackageExec), false},
		"devices":             {d.truth(&p.Devices), true},
		"proc":                {d.truth(&p.Proc), true},
		"loopback":            {d.truth(&p.Loopback), false},
		"binds":               {d.binds(&p.Binds), false},
		"links":               {d.links(&p.Links), false},
		"env":                 {d.env(&p.Env), true},
		"seccomp":             {d.seccomp(&p.Seccomp), true},
		"landlock": {d.within(fields{
			"abi": {d.integer(&p.Landlock.ABI), true},
		}), true},
		"limits": {d.within(fields{
			"memory":      {d.bytes(&p.Limits.MemoryBytes), true},
			"pids":        {d.integer(&p.Limits.PidsMax), true},
			"cpu_percent": {d.integer(&p.Limits.CPUPercent), true},
			"nofile":      {d.integer(&p.Limits.Nofile), true},
			"fsize":       {d.bytes(&p.Limits.FsizeBytes), true},
			"tmp":         {d.bytes(&p.Limits.TmpBytes), false},
			"tmp_inodes":  {d.integer(&p.Limits.TmpInodes), false},
			"shm":         {d.bytes(&p.Limits.ShmBytes), false},
		}), true},
		"idle":          {d.duration(&p.Idle), true},
		"stop_grace":    {d.duration(&p.StopGrace), true},
		"start_timeout": {d.duration(&p.StartTimeout), true},
		"mcp": {d.within(fields{
			"call_time":     {d.duration(&p.MCP.CallTime), false},
			"call_most":     {d.duration(&p.MCP.CallMost), false},
			"calls":         {d.integer(&p.MCP.Calls), false},
			"line":          {d.bytes(&p.MCP.Line), false},
			"depth":         {d.integer(&p.MCP.Depth), false},
			"blocks":        {d.integer(&p.MCP.Blocks), false},
			"stderr":        {d.bytes(&p.MCP.Stderr), false},
			"pages":         {d.integer(&p.MCP.Pages), false},
			"session_calls": {d.integer(&p.MCP.SessionCalls), false},
			"queue":         {d.bytes(&p.MCP.Queue), false},
			"items":         {d.integer(&p.MCP.Items), false},
			"definition":    {d.bytes(&p.MCP.Definition), false},
			"line_wait":     {d.duration(&p.MCP.LineWait), false},
			"definitions":   {d.bytes(&p.MCP.Definitions), false},
		}), false},
	})
	return p
}

func (d *decoder) binds(to *[]spec.Bind) take {
	return d.list(Sections, func(n ast.Node, key string) {
		var b spec.Bind
		d.mapping(n, key, fields{
			"source":   {d.text(&b.Source), true},
			"target":   {d.text(&b.Target), false},
			"optional": {d.truth(&b.Optional), false},
			"exec":     {d.truth(&b.Exec), false},
		})
		*to = append(*to, b)
	})
}

func (d *decoder) links(to *[]spec.Link) take {
	return d.list(Sections, func(n ast.Node, key string) {
		var l spec.Link
		d.mapping(n, key, fields{
			"path": {d.text(&l.Path), true},
			"to":   {d.text(&l.To), true},
		})
		*to = append(*to, l)
	})
}

// env takes any name; what a name may be is the profile's Validate to say.
func (d *decoder) env(to *map[string]string) take {
	return take{Named, func(n ast.Node, key string) {
		values := map[string]string{}
		d.each(n, key, func(name string, value ast.Node, key string) {
			var s string
			d.text(&s).node(value, key)
			values[name] = s
		})
		*to = values
	}}
}

func (d *decoder) seccomp(to *spec.Seccomp) take {
	return d.within(fields{
		"groups": {d.list(Sections, func(n ast.Node, key string) {
			var g spec.SyscallGroup
			d.mapping(n, key, fields{
				"name":   {d.text(&g.Name), true},
				"reason": {d.text(&g.Reason), true},
				"calls": {d.list(Texts, func(n ast.Node, key string) {
					var call string
					d.text(&call).node(n, key)
					g.Calls = append(g.Calls, call)
				}), true},
			})
			to.Groups = append(to.Groups, g)
		}), true},
		"rules": {d.list(Sections, func(n ast.Node, key string) {
			var r spec.SyscallRule
			d.mapping(n, key, fields{
				"call":   {d.text(&r.Call), true},
				"reason": {d.text(&r.Reason), true},
				"when": {d.list(Sections, func(n ast.Node, key string) {
					var c spec.Condition
					d.mapping(n, key, fields{
						"arg":   {d.unsigned(&c.Arg), true},
						"mask":  {d.unsigned64(&c.Mask), false},
						"value": {d.unsigned64(&c.Value), true},
					})
					r.When = append(r.When, c)
				}), true},
			})
			to.Rules = append(to.Rules, r)
		}), false},
	})
}
