package launch

import (
	"fmt"

	"postern/supervisor/audit"
)

// record is the audit record of one request of root.
func record(r request, target, before, after string, version uint64) audit.Record {
	return audit.Record{Actor: fmt.Sprintf("uid %d", r.peer.UID), Origin: fmt.Sprintf("root.sock, process %d", r.peer.PID), Action: string(r.Action),
		Target: target, Before: before, After: after, Version: version, Request: r.RequestID}
}

// changed says what differs between two versions of the facts: the one thing a change is
// about, before and after. It holds no command, which may have a secret in it; the
// digest tells which it was.
func changed(f, g Facts) (target, before, after string) {
	for i, n := range g.Accounts {
		text := func(a Facts) string {
			if i >= len(a.Accounts) {
				return "none"
			}
			x := a.Accounts[i]
			return fmt.Sprintf("name %q, uids %v, deleted %v", x.Name, x.UIDs, x.Deleted)
		}
		if b, a := text(f), text(g); b != a {
			return string(n.ID), b, a
		}
	}
	for i, n := range g.Projects {
		text := func(a Facts) string {
			if i >= len(a.Projects) {
				return "none"
			}
			x := a.Projects[i]
			return fmt.Sprintf("label %q, owner %s, workspace %q, person_bind %v, execution profile %s, open names %q, deleted %v", x.Label, x.Owner, x.Workspace, x.PersonBind, x.ExecutionProfile, x.OpenNames, x.Deleted)
		}
		if b, a := text(f), text(g); b != a {
			return string(n.ID), b, a
		}
	}
	for i, n := range g.Servers {
		text := func(a Facts) string {
			if i >= len(a.Servers) {
				return "none"
			}
			x := a.Servers[i]
			v := x.Current()
			return fmt.Sprintf("label %q, revision %s, digest %s, profile %s, scope %s, credential %s, deleted %v", x.Label, v.ID, v.Digest, v.Profile, v.Scope, v.Credential, x.Deleted)
		}
		if b, a := text(f), text(g); b != a {
			return string(n.ID), b, a
		}
	}
	return "", "", ""
}
