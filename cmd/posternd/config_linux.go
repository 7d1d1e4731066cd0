package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"postern/ids"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

// Bounds of postern.yaml.
const (
	maxConfig = 1 << 20
	maxHosts  = 1024

	maxKeepDays = 36_500
	minKeepMiB  = 64 // less would remove records that a folded denial still counts on
	maxKeepMiB  = 16 << 20
)

// configFile is what postern.yaml says.
type configFile struct {
	uids  order.Range
	hosts []order.Host
	keep  order.Keep
	audit auditKeep
}

// auditKeep is how much of the logs of changes is kept; 0 is not said.
type auditKeep struct{ kib, files uint32 }

// readConfig reads postern.yaml strictly. The error joins every mistake, each with
// file, line, key and what was expected.
func readConfig(path string) (configFile, error) {
	raw, err := readOwned(path)
	if err != nil {
		return configFile{}, err
	}
	return decodeConfig(path, raw)
}

// readOwned refuses a file that anybody but root could have written.
func readOwned(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Whoever may write the directory can put another file in its place.
	switch dir, err := os.Stat(filepath.Dir(path)); {
	case err != nil:
		return nil, err
	case dir.Sys().(*syscall.Stat_t).Uid != 0 || dir.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s: its directory must be root's and writable by nobody else; it belongs to uid %d with mode %v", path, dir.Sys().(*syscall.Stat_t).Uid, dir.Mode())
	}
	if st := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s: must be a file of root's that nobody else may write; it belongs to uid %d with mode %v", path, st.Uid, info.Mode())
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(raw) > maxConfig {
		err = fmt.Errorf("%s: more than %d bytes", path, maxConfig)
	}
	return raw, err
}

func decodeConfig(path string, raw []byte) (configFile, error) {
	d := decoder{path: path}
	var c configFile
	file, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return c, fmt.Errorf("%s:%d: %s", path, at.GetToken().Position.Line, at.GetMessage())
		}
		return c, fmt.Errorf("%s: %.200s", path, err)
	}
	if len(file.Docs) > 1 {
		return c, fmt.Errorf("%s: want one document", path)
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return c, nil // nothing is said
	}
	d.mapping(file.Docs[0].Body, "", map[string]func(ast.Node, string){
		"uid_range": func(n ast.Node, key string) {
			d.mapping(n, key, map[string]func(ast.Node, string){
				"first": d.number(&c.uids.First),
				"count": d.number(&c.uids.Count),
			}, "first", "count")
		},
		"activity": func(n ast.Node, key string) {
			d.mapping(n, key, map[string]func(ast.Node, string){
				"keep_days": d.between(&c.keep.Days, 1, maxKeepDays),
				"keep_mib":  d.between(&c.keep.MiB, minKeepMiB, maxKeepMiB),
			})
		},
		"audit": func(n ast.Node, key string) {
			d.mapping(n, key, map[string]func(ast.Node, string){
				"file_kib":  d.between(&c.audit.kib, audit.MinBytes>>10, audit.MostBytes>>10),
				"old_files": d.between(&c.audit.files, 1, audit.MostKeep),
			})
		},
		"hosts": func(n ast.Node, key string) {
			d.list(n, key, maxHosts, func(n ast.Node, key string) {
				var h order.Host
				d.mapping(n, key, map[string]func(ast.Node, string){
					"id":       d.text(&h.ID),
					"uid":      d.number(&h.UID),
					"accounts": d.ids(&h.Accounts, checkID[ids.Account]),
					"projects": d.ids(&h.Projects, checkID[ids.Project]),
					"channels": d.ids(&h.Channels, nil),
				}, "id", "uid", "accounts", "projects")
				c.hosts = append(c.hosts, h)
			})
		},
	})
	return c, errors.Join(d.mistakes...)
}

func checkID[T ids.ID](s string) error { _, err := ids.Parse[T](s); return err }

// decoder walks the tree by hand, because a library's strict mode ends at the first
// unknown key.
type decoder struct {
	path     string
	mistakes []error
}

func (d *decoder) bad(n ast.Node, key, format string, args ...any) {
	line := 0
	if n != nil && n.GetToken() != nil {
		line = n.GetToken().Position.Line
	}
	if key == "" {
		key = "the file"
	}
	d.mistakes = append(d.mistakes, fmt.Errorf("%s:%d: %s: %s", d.path, line, key, fmt.Sprintf(format, args...)))
}

func under(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func (d *decoder) mapping(n ast.Node, key string, known map[string]func(ast.Node, string), needed ...string) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.bad(n, key, "want a mapping")
		return
	}
	seen := map[string]bool{}
	for _, v := range values {
		name := v.Key.String()
		full := under(key, name)
		take := known[name]
		switch {
		case take == nil:
			d.bad(v.Key, full, "is not a key here")
		case seen[name]:
			d.bad(v.Key, full, "is given twice")
		default:
			take(v.Value, full)
		}
		seen[name] = true
	}
	for _, name := range needed {
		if !seen[name] {
			d.bad(n, under(key, name), "is missing")
		}
	}
}

func (d *decoder) list(n ast.Node, key string, most int, take func(ast.Node, string)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok || len(s.Values) > most {
		d.bad(n, key, "want a list of at most %d", most)
		return
	}
	for i, v := range s.Values {
		take(v, fmt.Sprintf("%s[%d]", key, i))
	}
}

func (d *decoder) number(to *uint32) func(ast.Node, string) {
	return func(n ast.Node, key string) {
		if i, ok := n.(*ast.IntegerNode); ok {
			if v, err := strconv.ParseUint(i.GetToken().Value, 10, 32); err == nil {
				*to = uint32(v)
				return
			}
		}
		d.bad(n, key, "want a number from 0 to %d", ^uint32(0))
	}
}

func (d *decoder) between(to *uint32, least, most uint32) func(ast.Node, string) {
	return func(n ast.Node, key string) {
		if i, ok := n.(*ast.IntegerNode); ok {
			if v, err := strconv.ParseUint(i.GetToken().Value, 10, 32); err == nil && uint32(v) >= least && uint32(v) <= most {
				*to = uint32(v)
				return
			}
		}
		d.bad(n, key, "want a number from %d to %d", least, most)
	}
}

func (d *decoder) text(to *string) func(ast.Node, string) {
	return func(n ast.Node, key string) {
		s, ok := n.(*ast.StringNode)
		if !ok || s.Value == "" || len(s.Value) > 64 {
			d.bad(n, key, "want text of 1 to 64 bytes")
			return
		}
		*to = s.Value
	}
}

// ids reads a list of ids, or of "*" alone. Without check it is a list of names, where
// "*" is none.
func (d *decoder) ids(to *[]string, check func(string) error) func(ast.Node, string) {
	return func(n ast.Node, key string) {
		d.list(n, key, 10_000, func(n ast.Node, key string) {
			var s string
			d.text(&s)(n, key)
			switch {
			case s == "":
			case s == "*" && check == nil:
				d.bad(n, key, "\"*\" is no name")
			case s != "*" && check != nil && check(s) != nil:
				d.bad(n, key, "want an id or \"*\": %v", check(s))
			default:
				*to = append(*to, s)
			}
		})
		if len(*to) > 1 && (*to)[0] == "*" {
			d.bad(n, key, "\"*\" stands alone")
		}
	}
}
