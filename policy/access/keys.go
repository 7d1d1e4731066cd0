package access

import (
	"maps"

	"github.com/goccy/go-yaml/ast"

	"postern/near"
)

// sections are the keys of the document, for the hints; * stands for a name.
var sections = near.Sections{
	"":                           {"modes", "channels"},
	"modes.*":                    {"allowed", "denied", "allowed_capabilities", "denied_capabilities", "no_tools", "whitelist_mode"},
	"channels.*":                 {"enabled", "type", "default_mode", "allow", "owners", "reply_in_groups", "access"},
	"channels.*.access":          {"admission", "default", "users", "groups"},
	"channels.*.access.users.*":  {"level", "write", "role", "blocked"},
	"channels.*.access.default":  {"level", "write"},
	"channels.*.access.groups":   {"enabled", "default", "default_mode"},
	"channels.*.access.groups.*": {"level", "write"},
}

// Keys are the keys of the document by their section, for whoever describes it; * stands
// for a name.
func Keys() near.Sections { return maps.Clone(sections) }

// unknown tells a key that the section does not take, which was probably meant, and what
// follows from it.
func (r *reader) unknown(n ast.Node, key, section, typed, follows string) {
	r.bad(n, key, "%s%s", sections.Key(section, typed), follows)
}
