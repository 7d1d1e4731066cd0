package registry

import (
	"encoding/hex"
	"fmt"
	"strings"

	"postern/ids"
	"postern/policy/access"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// maxDescribed bounds how many rows of a change are told one by one.
const maxDescribed = 8

// Describe says for a record of changes what c is about, how that is now and how it
// will be. It holds no token and no definition, and of an identity not the middle.
func (r *Registry) Describe(c Change) (target, before, after string) {
	var targets, was, will []string
	n := 0
	note := func(what, old, is string) {
		if n++; n > maxDescribed {
			return
		}
		targets, was, will = append(targets, what), append(was, old), append(will, is)
	}
	for _, row := range c.Delete {
		if what, old, ok := r.now(row); ok {
			note(what, old, "none")
		}
	}
	for _, row := range c.Put {
		if what, old, ok := r.now(row); ok {
			note(what, old, rowText(row))
		}
	}
	if more := n - maxDescribed; more > 0 {
		targets = append(targets, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(targets, "; "), strings.Join(was, "; "), strings.Join(will, "; ")
}

// now names what a row is about, and says how it is before the change. Rows that only
// follow from others (names, definitions) are left out.
func (r *Registry) now(row store.Row) (target, text string, ok bool) {
	text = "none"
	switch row := row.(type) {
	case store.Account:
		if old, is := r.accounts[row.ID]; is {
			text = rowText(old)
		}
		return string(row.ID), text, true
	case store.Member:
		if v := r.views[row.Project]; v != nil && v.Members[row.Account] != "" {
			text = rowText(store.Member{Role: v.Members[row.Account]})
		}
		return string(row.Project) + " " + string(row.Account), text, true
	case store.Connection:
		if old := r.connected(row.Project, row.ID); old != nil {
			text = rowText(old.Connection)
		}
		return string(row.ID), text, true
	case store.Grant:
		if old := r.connected(row.Project, row.Connection); old != nil && old.Grants[row.Tool] != nil {
			text = rowText(*old.Grants[row.Tool])
		}
		return string(row.Connection) + " " + row.Tool, text, true
	case store.Probe:
		if old := r.probes[row.Revision]; old != nil {
			text = fmt.Sprintf("%d tools", len(old.Tools))
		}
		return string(row.Revision), text, true
	case store.Task:
		if old := r.tasks[row.ID]; old != nil {
			text = rowText(*old)
		}
		return string(row.ID), text, true
	case store.Token:
		if old := r.tokens[token.Digest(row.Digest)]; old != nil {
			text = "a token"
		}
		return string(row.Task), text, true
	case store.Paired:
		if old, is := r.paired[person{row.Channel, row.Identity}]; is {
			text = rowText(old)
		}
		return row.Channel + ":" + access.Mask(row.Identity), text, true
	}
	return "", "", false
}

func (r *Registry) connected(p ids.Project, c ids.Connection) *Connected {
	if v := r.views[p]; v != nil {
		return v.Connections[c]
	}
	return nil
}

func rowText(row store.Row) string {
	switch row := row.(type) {
	case store.Account:
		if row.Suspended {
			return "suspended"
		}
		return "active"
	case store.Member:
		return "role " + row.Role
	case store.Connection:
		return fmt.Sprintf("project %s, server %s, accepted %s, enabled %v, %s", row.Project, row.Server, row.Accepted, row.Enabled, row.Credential)
	case store.Grant:
		return fmt.Sprintf("granted as %q at %s, definition %s, tier mark %d", row.Served, row.Revision, hex.EncodeToString(row.Pin[:6]), row.Tier)
	case store.Probe:
		return fmt.Sprintf("%d tools", len(row.Pins))
	case store.Task:
		who := "a principal"
		if p, err := access.ParsePrincipal(row.Principal); err == nil {
			who = p.Channel + ":" + access.Mask(p.ID)
		}
		text := fmt.Sprintf("live, account %s, host %q, project %s, principal %s, mode %s", row.Account, row.Host, row.Project, who, row.Mode)
		if row.Ended != 0 {
			text = "ended: " + row.Reason
		}
		return text
	case store.Token:
		if row.Ended {
			return "token ended"
		}
		return fmt.Sprintf("a token for uid %d, %d binds", row.UID, row.Binds)
	case store.Paired:
		return fmt.Sprintf("paired through host %q", row.Host)
	}
	return ""
}
