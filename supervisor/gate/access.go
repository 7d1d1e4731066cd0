package gate

import (
	"postern/policy/access"
	"postern/supervisor/registry"
)

// policyPlace says where the access policy decides about a task's principal.
func (g *Gate) policyPlace(t *registry.Task) string {
	return "the built-in rule for the account's own tasks"
}

// ceilingText names the ceiling of a task's principal.
func (g *Gate) ceilingText(t *registry.Task) string {
	c, code := access.Resolve(t.Principal, t.Account)
	switch {
	case code != "":
		return "none can be told: " + string(code)
	case c.Unlimited:
		return "no ceiling"
	}
	return "ceiling " + c.Name
}
