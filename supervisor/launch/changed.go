package launch

import (
	"fmt"
	"reflect"
	"slices"

	"postern/ids"
	"postern/supervisor/audit"
	"postern/supervisor/order"
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
	target, before, after = firstChanged(f.Accounts, g.Accounts, func(x order.Account) (string, string) {
		return string(x.ID), fmt.Sprintf("name %q, uids %v, deleted %v", x.Name, x.UIDs, x.Deleted)
	})
	if target != "" {
		return target, before, after
	}
	target, before, after = firstChanged(f.Projects, g.Projects, func(x Project) (string, string) {
		return string(x.ID), fmt.Sprintf("label %q, owner %s, workspace %q, moved %d, person_bind %v, execution profile %s, record_arguments %v, open names %q, deleted %v", x.Label, x.Owner, x.Workspace, x.Moved, x.PersonBind, x.ExecutionProfile, x.RecordArguments, x.OpenNames, x.Deleted)
	})
	if target != "" {
		return target, before, after
	}
	target, before, after = firstChanged(f.Servers, g.Servers, func(x Server) (string, string) {
		v := x.Current()
		return string(x.ID), fmt.Sprintf("label %q, revision %s, digest %s, profile %s, scope %s, credential %s by %s, deleted %v", x.Label, v.ID, v.Digest, v.Profile, v.Scope, v.Credential, v.delivery(), x.Deleted)
	})
	if target != "" {
		return target, before, after
	}
	if target, before, after = changedCredential(f, g); target != "" {
		return target, before, after
	}
	return changedMode(f, g)
}

// firstChanged finds the first row whose text is another one, or that is new: rows are
// added at the end and never removed. A row that is as it was costs no text, for there
// may be tens of thousands.
func firstChanged[T any](f, g []T, says func(T) (id, text string)) (target, before, after string) {
	for i, n := range g {
		if i < len(f) && reflect.DeepEqual(n, f[i]) {
			continue
		}
		before = "none"
		if i < len(f) {
			_, before = says(f[i])
		}
		if target, after = says(n); after != before {
			return target, before, after
		}
	}
	return "", "", ""
}

// changedCredential is the same for a credential, which may also be gone.
func changedCredential(f, g Facts) (target, before, after string) {
	text := func(a Facts, id ids.Credential) string {
		i := slices.IndexFunc(a.Credentials, func(c Credential) bool { return c.ID == id })
		if i < 0 {
			return "none"
		}
		x := a.Credentials[i]
		return fmt.Sprintf("label %q, project %s, server %s, source %q, generation %d", x.Label, x.Project, x.Server, x.source(), x.Generation)
	}
	for _, c := range slices.Concat(f.Credentials, g.Credentials) {
		if b, a := text(f, c.ID), text(g, c.ID); b != a {
			return string(c.ID), b, a
		}
	}
	return "", "", ""
}
