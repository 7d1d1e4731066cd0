package gate

import (
	"cmp"
	"fmt"
	"strings"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/registry"
)

// policyPlace says where the access policy decides about a task's principal.
func (g *Gate) policyPlace(t *registry.Task) string {
	r := g.Resolved(t)
	root, from := g.reg.Root(), r.From
	switch {
	case r.Kind == access.Paired:
		who, _ := access.ParsePrincipal(t.Principal)
		row, _ := g.reg.PairedRow(who)
		return fmt.Sprintf("a pairing code, used through host %q", row.Host)
	case root.Access == nil:
		return cmp.Or(from.Key, "the built-in rule for the account's own tasks")
	case from.Line > 0:
		return fmt.Sprintf("%s:%d: %s", cmp.Or(root.AccessFile.Path, "access.yaml"), from.Line, from.Key) + g.mistakeText(r)
	}
	return strings.TrimSuffix(cmp.Or(root.AccessFile.Path, "access.yaml")+": "+from.Key, ": ") + g.mistakeText(r)
}

// mistakeText says what is wrong where a mistake of the policy decides, and only there:
// what a person of the policy is refused for must not read as what it says of them.
func (g *Gate) mistakeText(r access.Resolved) string {
	root := g.reg.Root()
	if _, denying := root.Access.Broken(); denying || r.Code != refusal.AccessUnavailable {
		return ""
	}
	m, found := root.Access.Wrong(r.From)
	if !found {
		return fmt.Sprintf("; it has a mistake in the entry at line %d", r.From.Line)
	}
	return fmt.Sprintf("; it has a mistake in the entry at line %d: %s", m.Line, m.Want)
}

// ceilingText names the ceiling of a task's principal, and what it is to the policy.
func (g *Gate) ceilingText(t *registry.Task) string {
	r := g.Resolved(t)
	switch {
	case !r.Admitted:
		return "none can be told: " + string(r.Code)
	case r.Ceiling.Unlimited:
		return r.Kind.String() + ", no ceiling"
	}
	return r.Kind.String() + ", ceiling " + r.Ceiling.Name
}

// modeText is a task's mode beside the widest that its principal may have.
func (g *Gate) modeText(t *registry.Task) string {
	floor := g.Resolved(t).Floor
	text := cmp.Or(t.Mode, "none") + "; the widest is " + cmp.Or(floor.Mode, "none")
	if floor.Mode != "" && !floor.Execute {
		text += ", without running programs"
	}
	return text
}
