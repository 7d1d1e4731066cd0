package registry

import (
	"cmp"
	"fmt"

	"postern/policy"
	"postern/policy/class"
)

// Unmatched tells of each denial in the access policy that matches no tool anybody
// knows: none of a registered server's that was probed, no known operation, no runtime's
// own. Such a one is a slip of whoever wrote it, and denies nothing.
func (r *Registry) Unmatched() []string {
	var out []string
	for _, d := range r.root.Access.Denials() {
		if !r.matched(d.Pattern) {
			out = append(out, fmt.Sprintf("%s:%d: %s: %q matches no tool that is known, and so denies nothing", cmp.Or(r.root.AccessFile.Path, "access.yaml"), d.At.Line, d.At.Key, d.Pattern))
		}
	}
	return out
}

func (r *Registry) matched(pattern string) bool {
	if _, known := class.Paths(pattern); known {
		return true
	}
	for _, n := range class.Natives() {
		if policy.Matches(pattern, "", n.Name) {
			return true
		}
	}
	for _, srv := range r.root.Servers {
		if srv.Deleted {
			continue
		}
		if pattern == srv.Label+"/*" {
			return true // whatever it will offer
		}
		for rev := range srv.Revisions {
			cat := r.probes[rev]
			if cat == nil {
				continue
			}
			for tool := range cat.Tools {
				if policy.Matches(pattern, srv.Label, tool) {
					return true
				}
			}
		}
	}
	return false
}
