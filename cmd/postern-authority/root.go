package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"postern/ids"
	"postern/policy/access"
	"postern/policy/class"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

// every is the word in a host's entry that means all.
const every = "*"

const day = 24 * time.Hour

// rootOf turns the document of posternd into what the registry decides on. A class
// or tier that this build does not know is an error: it must not decide as none.
//
// was is what decides now, or nil: an access policy that has not changed is not read
// again, for whoever reads it holds every admission up.
func rootOf(r order.Root, was *registry.Root) (*registry.Root, error) {
	out := &registry.Root{Version: r.Version, Accounts: map[ids.Account]registry.RootAccount{}, Projects: map[ids.Project]registry.RootProject{},
		Servers: map[ids.Server]registry.RootServer{}, Hosts: map[string]registry.RootHost{}, Assigned: map[registry.Assignment]registry.Credential{},
		MetricsUID: r.MetricsUID, ReadOnly: r.ReadOnly,
		FirstUID: r.UIDs.First, UIDs: r.UIDs.Count, Access: accessOf(r.Access, was),
		AccessFile: registry.AccessFile{Path: r.Access.Path, Digest: r.Access.Digest, Error: r.Access.Error, At: r.Access.At},
		KeepAge:    time.Duration(r.Keep.Days) * day, KeepBytes: int64(r.Keep.MiB) << 20,
		Sessions: registry.SessionBounds{Requests: int(r.Sessions.Requests), Line: int64(r.Sessions.LineKiB) << 10, LineWait: time.Duration(r.Sessions.LineWaitSeconds) * time.Second,
			Depth: int(r.Sessions.Depth), Queue: int64(r.Sessions.QueueKiB) << 10},
		Artifacts: registry.KeepArtifacts{Age: time.Duration(r.Artifacts.Days) * day, Bytes: int64(r.Artifacts.MiB) << 20, Project: int64(r.Artifacts.ProjectMiB) << 20}}
	for _, a := range r.Accounts {
		out.Accounts[a.ID] = registry.RootAccount{ID: a.ID, Name: a.Name, UIDs: a.UIDs, Deleted: a.Deleted}
	}
	for _, p := range r.Projects {
		out.Projects[p.ID] = registry.RootProject{ID: p.ID, Label: p.Label, Owner: p.Owner, Workspace: p.Workspace, PersonBind: p.PersonBind,
			ExecutionProfile: p.ExecutionProfile, RecordArguments: p.RecordArguments, OpenNames: p.OpenNames, Created: p.Created, Moved: p.Moved, Deleted: p.Deleted}
	}
	for _, s := range r.Servers {
		srv := registry.RootServer{ID: s.ID, Label: s.Label, Current: s.Current().ID, Revisions: map[ids.Revision]*registry.RootRevision{}, Deleted: s.Deleted}
		for _, v := range s.Revisions {
			rev, err := revisionOf(v)
			if err != nil {
				return nil, fmt.Errorf("server %s: %w", s.ID, err)
			}
			srv.Revisions[v.ID] = rev
		}
		out.Servers[s.ID] = srv
	}
	for _, c := range r.Credentials {
		out.Assigned[registry.Assignment{Project: c.Project, Server: c.Server}] = registry.Credential{ID: c.ID, Generation: c.Generation}
	}
	for _, h := range r.Hosts {
		host := registry.RootHost{ID: h.ID, UID: h.UID, Accounts: map[ids.Account]bool{}, Projects: map[ids.Project]bool{}, Channels: h.Channels}
		for _, a := range h.Accounts {
			host.AllAccounts = host.AllAccounts || a == every
			host.Accounts[ids.Account(a)] = true
		}
		for _, p := range h.Projects {
			host.AllProjects = host.AllProjects || p == every
			host.Projects[ids.Project(p)] = true
		}
		out.Hosts[h.ID] = host
	}
	return out, nil
}

// accessOf reads the access policy. One that posternd could not read denies everyone,
// and so does one that is not what its digest says.
func accessOf(a order.Access, was *registry.Root) *access.Policy {
	switch {
	case a.Error != "":
		return access.Unreadable(access.Mistake{Want: a.Error})
	case !a.Present:
		return nil
	case was != nil && was.Access != nil && was.AccessFile.Error == "" && was.AccessFile.Digest == a.Digest:
		return was.Access
	}
	if sum := sha256.Sum256(a.Document); hex.EncodeToString(sum[:]) != a.Digest {
		return access.Unreadable(access.Mistake{Want: "the document is not the one that was announced"})
	}
	p, _ := access.Parse(a.Document)
	return p
}

func revisionOf(v order.Revision) (*registry.RootRevision, error) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	rev := &registry.RootRevision{ID: v.ID, Digest: v.Digest, Profile: v.Profile, Fork: v.Fork, Required: v.Credential != "none", PerTask: v.Scope == "task", Writes: v.Writes,
		Classes: map[string]class.Set{}, Tiers: map[string]class.Tier{}, Secret: v.SecretFields, Created: v.Created, Call: ms(v.CallMs), Start: ms(v.StartMs), Idle: ms(v.IdleMs), Stop: ms(v.StopMs),
		CallMost: ms(v.CallMostMs), Calls: v.Calls, Line: v.Line, Depth: v.Depth, Blocks: v.Blocks, Stderr: v.Stderr, Pages: v.Pages, Queue: v.Queue, PerSession: v.PerSession,
		Items: v.Items, Definition: v.Definition, Definitions: v.Listing, LineWait: ms(v.LineWaitMs)}
	for tool, names := range v.Classes {
		for _, n := range names {
			c, ok := class.Parse(n)
			if !ok {
				return nil, fmt.Errorf("class %q of tool %q is not known", n, tool)
			}
			rev.Classes[tool] |= class.SetOf(c)
		}
	}
	for tool, name := range v.Tiers {
		t, ok := class.ParseTier(name)
		if !ok {
			return nil, fmt.Errorf("tier %q of tool %q is not known", name, tool)
		}
		rev.Tiers[tool] = t
	}
	return rev, nil
}
