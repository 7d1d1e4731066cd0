package launch

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"postern/ids"
	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// factsFormat is the number of this layout of facts.json.
const factsFormat = 1

// Bounds of the root facts.
const (
	maxAccounts  = 100_000
	maxProjects  = 100_000
	maxServers   = 10_000
	maxUIDs      = 64   // of one account
	maxRevisions = 64   // kept of one server; older ones are forgotten
	maxTools     = 4096 // with a declared class or tier, of one server
	maxArgs      = 256
	maxArgBytes  = 64 << 10 // of a whole command
)

// Facts is what posternd keeps in facts.json: order.Root and what stays on this side
// of the socketpair. A Facts value is never changed in place: rules return a new one,
// so that a change that cannot be written never happened.
type Facts struct {
	Format   int             `json:"format"`
	Version  uint64          `json:"version"`
	Instance ids.Instance    `json:"instance"`
	Accounts []order.Account `json:"accounts"`
	Projects []Project       `json:"projects"`
	Servers  []Server        `json:"servers"`

	Credentials []Credential `json:"credentials,omitempty"`

	// ReadOnly is since when nothing is changed, milliseconds since the epoch; 0: changes
	// are made.
	ReadOnly int64 `json:"read_only_since,omitzero"`
}

// Project adds to the authority's view which directory it is.
type Project struct {
	order.Project
	OwnerUID  uint32    `json:"owner_uid"`
	Directory Directory `json:"directory"`
}

// Server is a registration with everything that would run.
type Server struct {
	ID        ids.Server `json:"id"`
	Label     string     `json:"label"`
	Revisions []Revision `json:"revisions"`
	Deleted   bool       `json:"deleted,omitempty"`
}

// Revision is one state of a registration; it is never changed.
type Revision struct {
	ID            ids.Revision        `json:"id"`
	Digest        string              `json:"digest"`
	Created       int64               `json:"created"` // milliseconds since the epoch
	Transport     string              `json:"transport"`
	Command       []string            `json:"command"`
	Profile       string              `json:"profile"`
	ProfileDigest string              `json:"profile_digest"`
	Package       string              `json:"package,omitempty"` // digest of the ingested copy
	Scope         string              `json:"scope"`
	Credential    string              `json:"credential"`
	CredentialEnv string              `json:"credential_env,omitempty"` // the variable it is handed over as
	CredentialFD  int                 `json:"credential_fd,omitzero"`   // or the descriptor
	Classes       map[string][]string `json:"classes,omitempty"`
	Tiers         map[string]string   `json:"tiers,omitempty"`
	SecretFields  []string            `json:"secret_fields,omitempty"` // of arguments, which no record shows
	Recorded      []string            `json:"recorded,omitempty"`      // system files, not pinned
}

// Current returns the newest revision.
func (s Server) Current() Revision { return s.Revisions[len(s.Revisions)-1] }

// digest covers everything that decides what runs and what it may; identity, time
// and what is only recorded stay out.
func (r Revision) digest() (string, error) {
	r.ID, r.Digest, r.Created, r.Recorded = "", "", 0, nil
	raw, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("digest of a revision: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

func newID[T ids.ID](now time.Time) T {
	var b [10]byte
	rand.Read(b[:]) // never fails: it ends the process where the kernel gives no randomness
	return ids.New[T](now, b)
}

func newFacts(now time.Time) Facts {
	return Facts{Format: factsFormat, Version: 1, Instance: newID[ids.Instance](now)}
}

// next is a copy that a rule may append to and replace elements of.
func (f Facts) next() Facts {
	f.Version++
	f.Accounts = slices.Clone(f.Accounts)
	f.Projects = slices.Clone(f.Projects)
	f.Servers = slices.Clone(f.Servers)
	f.Credentials = slices.Clone(f.Credentials)
	return f
}

// decodeFacts reads facts.json strictly and checks what every rule relies on.
func decodeFacts(raw []byte) (Facts, error) {
	var f Facts
	if err := json.Unmarshal(raw, &f, json.RejectUnknownMembers(true)); err != nil {
		return Facts{}, err
	}
	if f.Format != factsFormat {
		return Facts{}, fmt.Errorf("format %d, this program reads %d", f.Format, factsFormat)
	}
	if _, err := ids.Parse[ids.Instance](string(f.Instance)); err != nil {
		return Facts{}, err
	}
	owner := map[uint32]ids.Account{}
	for _, a := range f.Accounts {
		if _, err := ids.Parse[ids.Account](string(a.ID)); err != nil {
			return Facts{}, err
		}
		for _, u := range a.UIDs {
			if other, taken := owner[u]; taken && !a.Deleted {
				return Facts{}, fmt.Errorf("uid %d belongs to %s and to %s", u, other, a.ID)
			}
			if !a.Deleted {
				owner[u] = a.ID
			}
		}
	}
	for _, p := range f.Projects {
		if _, err := ids.Parse[ids.Project](string(p.ID)); err != nil {
			return Facts{}, err
		}
	}
	for _, s := range f.Servers {
		if _, err := ids.Parse[ids.Server](string(s.ID)); err != nil {
			return Facts{}, err
		}
		if len(s.Revisions) == 0 {
			return Facts{}, fmt.Errorf("server %s has no revision", s.ID)
		}
	}
	if err := f.checkCredentials(); err != nil {
		return Facts{}, err
	}
	return f, nil
}

func (f Facts) encode() ([]byte, error) { return json.Marshal(f, json.Deterministic(true)) }

var (
	accountName = regexp.MustCompile(`^[a-z_][a-z0-9_.-]{0,31}$`)
	serverLabel = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	projectName = regexp.MustCompile(`^[\pL\pN][\pL\pN ._-]{0,63}$`)
)

func (f Facts) accountByID(id ids.Account) (order.Account, bool) {
	i := slices.IndexFunc(f.Accounts, func(a order.Account) bool { return a.ID == id })
	if i < 0 {
		return order.Account{}, false
	}
	return f.Accounts[i], true
}

// accountOf returns the live account that uid is.
func (f Facts) accountOf(uid uint32) (order.Account, bool) {
	i := slices.IndexFunc(f.Accounts, func(a order.Account) bool { return !a.Deleted && slices.Contains(a.UIDs, uid) })
	if i < 0 {
		return order.Account{}, false
	}
	return f.Accounts[i], true
}

// findAccount, findProject and findServer resolve a selector: an id, or a label that
// means exactly one live thing.
func (f Facts) findAccount(sel string) (int, *api.Refusal) {
	return find("account", f.Accounts, sel, refusal.NotFound, refusal.AccountDeleted,
		func(a order.Account) (string, string, bool) { return string(a.ID), a.Name, a.Deleted })
}

// projectAt is where a project stands in the list, deleted or not; -1 is nowhere.
func (f Facts) projectAt(id ids.Project) int {
	return slices.IndexFunc(f.Projects, func(p Project) bool { return p.ID == id })
}

func (f Facts) findProject(sel string) (int, *api.Refusal) {
	return find("project", f.Projects, sel, refusal.ProjectUnknown, refusal.ProjectDeleted,
		func(p Project) (string, string, bool) { return string(p.ID), p.Label, p.Deleted })
}

func (f Facts) findServer(sel string) (int, *api.Refusal) {
	return find("server", f.Servers, sel, refusal.ServerUnknown, refusal.ServerUnknown,
		func(s Server) (string, string, bool) { return string(s.ID), s.Label, s.Deleted })
}

func find[T any](what string, all []T, sel string, unknown, deleted refusal.Code, of func(T) (id, label string, gone bool)) (int, *api.Refusal) {
	found := -1
	for i, x := range all {
		id, label, gone := of(x)
		switch {
		case id == sel && gone:
			return 0, api.Refuse(deleted, "The %s %q.", what, sel)
		case id == sel:
			return i, nil
		case label != sel || gone:
		case found >= 0:
			return 0, api.Refuse(refusal.StaleSelector, "%q means more than one; use the id.", sel)
		default:
			found = i
		}
	}
	if found < 0 {
		return 0, api.Missing(unknown, what, sel)
	}
	return found, nil
}

// root is the authority's view. A deleted account has no uid any more: whoever gets
// one of them next opens nothing of the former's.
func (f Facts) root(hosts []order.Host, uids order.Range, profiles map[string]spec.Profile) order.Root {
	r := order.Root{Version: f.Version, Instance: f.Instance, Hosts: hosts, UIDs: uids, ReadOnly: f.ReadOnly}
	for _, a := range f.Accounts {
		if a.Deleted {
			a.UIDs = nil
		}
		r.Accounts = append(r.Accounts, a)
	}
	for _, p := range f.Projects {
		r.Projects = append(r.Projects, p.Project)
	}
	for _, s := range f.Servers {
		out := order.Server{ID: s.ID, Label: s.Label, Deleted: s.Deleted}
		for _, v := range s.Revisions {
			p, known := profiles[v.Profile]
			if known && p.Digest == v.ProfileDigest {
				out.Revisions = append(out.Revisions, view(v, p))
				continue
			}
			out.Revisions = append(out.Revisions, view(v, spec.Profile{Name: v.Profile}))
			if !known && !s.Deleted && v.ID == s.Current().ID {
				r.Warnings = append(r.Warnings, fmt.Sprintf("server %q names profile %q, which is not there any more: it does not run", s.Label, v.Profile))
			}
		}
		r.Servers = append(r.Servers, out)
	}
	for _, c := range f.Credentials {
		r.Credentials = append(r.Credentials, c.Credential)
	}
	for _, h := range hosts {
		r.Warnings = append(r.Warnings, f.unknownOf(h)...)
	}
	return r
}

func view(v Revision, p spec.Profile) order.Revision {
	limit := callLimit
	if p.MCP.CallTime > 0 {
		limit = p.MCP.CallTime
	}
	return order.Revision{ID: v.ID, Digest: v.Digest, Profile: v.Profile, Fork: p.Fork, Credential: v.Credential, Scope: v.Scope, Writes: p.Workspace && !p.WorkspaceReadOnly, Classes: v.Classes, Tiers: v.Tiers, SecretFields: v.SecretFields,
		Created: v.Created, CallMs: limit.Milliseconds(), StartMs: p.StartTimeout.Milliseconds(), IdleMs: p.Idle.Milliseconds(), StopMs: p.StopGrace.Milliseconds(),
		CallMostMs: p.MCP.CallMost.Milliseconds(), Calls: p.MCP.Calls, Line: p.MCP.Line, Depth: p.MCP.Depth, Blocks: p.MCP.Blocks, Stderr: p.MCP.Stderr, Pages: p.MCP.Pages, Queue: p.MCP.Queue, PerSession: p.MCP.SessionCalls,
		Items: p.MCP.Items, Definition: p.MCP.Definition, Listing: p.MCP.Definitions, LineWaitMs: p.MCP.LineWait.Milliseconds()}
}

func (f Facts) unknownOf(h order.Host) (out []string) {
	for _, id := range h.Accounts {
		if _, ok := f.accountByID(ids.Account(id)); !ok && id != "*" {
			out = append(out, fmt.Sprintf("host %q names account %s, which is not there", h.ID, id))
		}
	}
	for _, id := range h.Projects {
		if _, refused := f.findProject(id); refused != nil && id != "*" {
			out = append(out, fmt.Sprintf("host %q names project %s, which is not there", h.ID, id))
		}
	}
	return out
}
