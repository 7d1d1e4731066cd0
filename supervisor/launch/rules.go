package launch

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"postern/ids"
	"postern/jail"
	"postern/jail/spec"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// reserved is what no account may be: root, whoever this kernel cannot name, the
// authority, a host, and the jails.
type reserved struct {
	authority uint32
	hosts     []order.Host
	uids      order.Range
}

func (r reserved) check(uid uint32) error {
	switch {
	case uid == 0:
		return fmt.Errorf("uid 0 is nobody's account")
	case uid == 65534 || uid == ^uint32(0):
		return fmt.Errorf("uid %d stands for users that have no name here", uid)
	case uid == r.authority:
		return fmt.Errorf("uid %d is the authority's", uid)
	case within(uid, r.uids):
		return fmt.Errorf("uid %d lies in the jails' range %s", uid, rangeText(r.uids))
	}
	for _, h := range r.hosts {
		if h.UID == uid {
			return fmt.Errorf("uid %d is host %q's", uid, h.ID)
		}
	}
	return nil
}

func within(uid uint32, r order.Range) bool {
	return uid >= r.First && uint64(uid) < uint64(r.First)+uint64(r.Count)
}

func rangeText(r order.Range) string {
	return fmt.Sprintf("%d-%d", r.First, uint64(r.First)+uint64(r.Count)-1)
}

// addAccount makes an account of uids that are nobody's yet. The uids of a deleted
// account are free again.
func (f Facts) addAccount(p api.AccountAddParams, r reserved, now time.Time) (Facts, order.Account, *api.Refusal) {
	refuse := func(c refusal.Code, format string, args ...any) (Facts, order.Account, *api.Refusal) {
		return Facts{}, order.Account{}, api.Refuse(c, format, args...)
	}
	if !accountName.MatchString(p.Name) {
		return refuse(refusal.BadRequest, "An account's name matches %s, %q does not.", accountName, p.Name)
	}
	if len(p.UIDs) == 0 || len(p.UIDs) > maxUIDs {
		return refuse(refusal.BadRequest, "An account has 1 to %d uids.", maxUIDs)
	}
	if len(f.Accounts) >= maxAccounts {
		return refuse(refusal.Busy, "There are %d accounts already.", maxAccounts)
	}
	for i, uid := range p.UIDs {
		if err := r.check(uid); err != nil {
			return refuse(refusal.BadRequest, "%v.", err)
		}
		if slices.Contains(p.UIDs[:i], uid) {
			return refuse(refusal.BadRequest, "uid %d is named twice.", uid)
		}
		if other, taken := f.accountOf(uid); taken {
			return refuse(refusal.AlreadyExists, "uid %d belongs to account %q.", uid, other.Name)
		}
	}
	for _, a := range f.Accounts {
		if !a.Deleted && a.Name == p.Name {
			return refuse(refusal.AlreadyExists, "Account %q is %s.", a.Name, a.ID)
		}
	}
	a := order.Account{ID: newID[ids.Account](now), Name: p.Name, UIDs: slices.Clone(p.UIDs)}
	g := f.next()
	g.Accounts = append(g.Accounts, a)
	return g, a, nil
}

func (f Facts) deleteAccount(sel string) (Facts, order.Account, *api.Refusal) {
	i, refused := f.findAccount(sel)
	if refused != nil {
		return Facts{}, order.Account{}, refused
	}
	g := f.next()
	g.Accounts[i].Deleted = true
	return g, g.Accounts[i], nil
}

// addProject takes what the directory's check found; it holds the rules that need
// only the facts.
func (f Facts) addProject(p api.ProjectAddParams, now time.Time) (Facts, *Project, order.Account, *api.Refusal) {
	refuse := func(c refusal.Code, format string, args ...any) (Facts, *Project, order.Account, *api.Refusal) {
		return Facts{}, nil, order.Account{}, api.Refuse(c, format, args...)
	}
	if !projectName.MatchString(p.Label) {
		return refuse(refusal.BadRequest, "A project's label matches %s, %q does not.", projectName, p.Label)
	}
	if _, err := ids.Parse[ids.Project](p.Label); err == nil {
		return refuse(refusal.BadRequest, "The label %q has the form of a project's id; a selector could mean either.", p.Label)
	}
	if len(f.Projects) >= maxProjects {
		return refuse(refusal.Busy, "There are %d projects already.", maxProjects)
	}
	if !spec.CleanPath(p.Workspace) {
		return refuse(refusal.WorkspaceRefused, "The workspace is an absolute path in its shortest form, %q is not.", p.Workspace)
	}
	i, refused := f.findAccount(p.Owner)
	if refused != nil {
		return Facts{}, nil, order.Account{}, refused
	}
	owner := f.Accounts[i]
	for _, other := range f.Projects {
		if !other.Deleted && other.Owner == owner.ID && other.Label == p.Label {
			return refuse(refusal.AlreadyExists, "%q already has a project %q: %s.", owner.Name, p.Label, other.ID)
		}
	}
	g := f.next()
	g.Projects = append(g.Projects, Project{Project: order.Project{ID: newID[ids.Project](now), Label: p.Label, Owner: owner.ID, Workspace: p.Workspace,
		ExecutionProfile: policy.ProfileStandard, Created: now.UnixMilli()}})
	return g, &g.Projects[len(g.Projects)-1], owner, nil
}

func (f Facts) setProject(p api.ProjectSetParams) (Facts, Project, *api.Refusal) {
	i, refused := f.findProject(p.Project)
	if refused != nil {
		return Facts{}, Project{}, refused
	}
	if p.PersonBind == nil && p.ExecutionProfile == nil && p.RecordArguments == nil && len(p.OpenNames) == 0 && len(p.CloseNames) == 0 {
		return Facts{}, Project{}, api.Refuse(refusal.BadRequest, "Nothing to set.")
	}
	names, refused := openNames(f.Projects[i].OpenNames, p.OpenNames, p.CloseNames)
	if refused != nil {
		return Facts{}, Project{}, refused
	}
	g := f.next()
	g.Projects[i].OpenNames = names
	if p.PersonBind != nil {
		g.Projects[i].PersonBind = *p.PersonBind
	}
	if p.ExecutionProfile != nil {
		if !policy.KnownProfile(*p.ExecutionProfile) {
			return Facts{}, Project{}, api.Refuse(refusal.BadRequest, "There is no execution profile %.64q; there are %q and %q.", *p.ExecutionProfile, policy.ProfileStandard, policy.ProfileIsolatedPod)
		}
		g.Projects[i].ExecutionProfile = *p.ExecutionProfile
	}
	if p.RecordArguments != nil {
		g.Projects[i].RecordArguments = *p.RecordArguments
	}
	if reflect.DeepEqual(g.Projects[i], f.Projects[i]) {
		return f, f.Projects[i], nil
	}
	return g, g.Projects[i], nil
}

// moveProject gives a project another directory, or the same path anew; which one it is,
// is written by whoever opens it. Its id, owner, grants and records stay.
func (f Facts) moveProject(p api.ProjectMoveParams, now time.Time) (Facts, *Project, order.Account, *api.Refusal) {
	i, refused := f.findProject(p.Project)
	if refused != nil {
		return Facts{}, nil, order.Account{}, refused
	}
	if !spec.CleanPath(p.Workspace) {
		return Facts{}, nil, order.Account{}, api.Refuse(refusal.WorkspaceRefused, "The workspace is an absolute path in its shortest form, %q is not.", p.Workspace)
	}
	owner, ok := f.accountByID(f.Projects[i].Owner)
	if !ok || owner.Deleted {
		return Facts{}, nil, order.Account{}, api.Refuse(refusal.AccountDeleted, "It owned %s.", f.Projects[i].ID)
	}
	g := f.next()
	x := &g.Projects[i]
	x.Workspace, x.Moved = p.Workspace, max(now.UnixMilli(), x.Moved+1)
	return g, x, owner, nil
}

// maxOpenNames bounds the protected names that a project may have open.
const maxOpenNames = 16

// openNames is what is open after a change, sorted. Only what is protected can be opened.
func openNames(now, open, closed []string) ([]string, *api.Refusal) {
	protected := jail.DefaultProtect()
	for _, name := range slices.Concat(open, closed) {
		if !slices.Contains(protected, name) {
			return nil, api.Refuse(refusal.BadRequest, "%.64q is not a protected name; they are %s.", name, strings.Join(protected, ", "))
		}
		if slices.Contains(open, name) && slices.Contains(closed, name) {
			return nil, api.Refuse(refusal.BadRequest, "%q cannot be opened and closed at once.", name)
		}
	}
	out := slices.DeleteFunc(slices.Concat(now, open), func(name string) bool { return slices.Contains(closed, name) })
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > maxOpenNames {
		return nil, api.Refuse(refusal.BadRequest, "At most %d names can be open, not %d.", maxOpenNames, len(out))
	}
	return out, nil
}

// protectedIn are the names that stay read-only in a project's workspace; never nil,
// which would mean all of them.
func protectedIn(p Project) []string {
	return slices.DeleteFunc(jail.DefaultProtect(), func(name string) bool { return slices.Contains(p.OpenNames, name) })
}

// retire leaves a tombstone: the id is never used again and nothing of it opens.
func (f Facts) retire(id ids.Project) (Facts, *api.Refusal) {
	i := f.projectAt(id)
	if i < 0 {
		return Facts{}, api.Refuse(refusal.ProjectUnknown, "%q", id)
	}
	if f.Projects[i].Deleted {
		return f, nil
	}
	g := f.next().without(func(c Credential) bool { return c.Project == id })
	g.Projects[i].Deleted = true
	return g, nil
}

// checkServer holds the rules of a registration that need no file.
func checkServer(p api.ServerParams, profiles map[string]spec.Profile) (Revision, *api.Refusal) {
	refuse := func(c refusal.Code, format string, args ...any) (Revision, *api.Refusal) {
		return Revision{}, api.Refuse(c, format, args...)
	}
	if !serverLabel.MatchString(p.Label) {
		return refuse(refusal.BadRequest, "A server's label matches %s, %q does not.", serverLabel, p.Label)
	}
	profile, ok := profiles[p.Profile]
	switch {
	case !ok:
		return refuse(refusal.ProfileUnknown, "%q; there are %s.", p.Profile, strings.Join(registrable(profiles), ", "))
	case profile.NeverRegister:
		return refuse(refusal.ProfileUnknown, "%q is for Postern's own programs.", p.Profile)
	}
	scope := orElse(p.Scope, "project")
	if scope != "project" && scope != "task" {
		return refuse(refusal.BadRequest, "scope is project or task, not %q.", p.Scope)
	}
	if refused := checkDelivery(p, profile); refused != nil {
		return Revision{}, refused
	}
	if len(p.Command) == 0 || len(p.Command) > maxArgs {
		return refuse(refusal.RegistrationWrong, "A command has 1 to %d words.", maxArgs)
	}
	size := 0
	for _, a := range p.Command {
		if size += len(a) + 1; size > maxArgBytes || strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return refuse(refusal.RegistrationWrong, "A command has at most %d bytes of UTF-8 and no NUL.", maxArgBytes)
		}
	}
	program := p.Command[0]
	switch {
	case !path.IsAbs(program) || path.Clean(program) != program:
		return refuse(refusal.RegistrationWrong, "The command is an absolute path in its shortest form, %q is not; no PATH is searched, so name the file (command -v finds it).", program)
	case spec.Inside(program, spec.PackageDir) && p.Package == "":
		return refuse(refusal.RegistrationWrong, "%q lies under %s, and no package directory was given.", program, spec.PackageDir)
	}
	for _, own := range []string{spec.WorkspaceDir, spec.TmpDir, spec.ProcDir, spec.DevDir, spec.ProgramFile} {
		if spec.Inside(program, own) {
			return refuse(refusal.RegistrationWrong, "%q lies under %s, which others write; a command comes from the system or from %s.", program, own, spec.PackageDir)
		}
	}
	if !spec.Inside(program, spec.PackageDir) && !executable(profile, program) {
		return refuse(refusal.RegistrationWrong, "Profile %q has no executable %q.", p.Profile, program)
	}
	if spec.Inside(program, spec.PackageDir) && !profile.PackageExec {
		return refuse(refusal.RegistrationWrong, "Profile %q does not execute files of %s; name the interpreter first.", p.Profile, spec.PackageDir)
	}
	if len(p.Classes) > maxTools || len(p.Tiers) > maxTools {
		return refuse(refusal.BadRequest, "At most %d tools can be declared.", maxTools)
	}
	for _, tool := range slices.Sorted(maps.Keys(p.Classes)) {
		if tool == "" || len(tool) > api.MaxSelector {
			return refuse(refusal.BadRequest, "%.64q is not a tool's name.", tool)
		}
		for _, c := range p.Classes[tool] {
			if _, ok := class.Parse(c); !ok {
				return refuse(refusal.BadRequest, "%.64q is no class (tool %q).", c, tool)
			}
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(p.Tiers)) {
		if _, ok := class.ParseTier(p.Tiers[tool]); !ok || tool == "" || len(tool) > api.MaxSelector {
			return refuse(refusal.BadRequest, "%.64q is no tier (tool %.64q).", p.Tiers[tool], tool)
		}
	}
	secret, refused := secretFields(p.SecretFields)
	if refused != nil {
		return Revision{}, refused
	}
	return Revision{Transport: "stdio", Command: slices.Clone(p.Command), Profile: p.Profile, ProfileDigest: profile.Digest, Scope: scope, Credential: orElse(p.Credential, credentialNone), CredentialEnv: p.CredentialEnv, CredentialFD: p.CredentialFD,
		Classes: p.Classes, Tiers: p.Tiers, SecretFields: secret}, nil
}

// Bounds of what a registration calls secret in arguments.
const (
	maxSecretFields = 64
	maxSecretField  = 256 // bytes of one
)

// secretFields are the fields in one order, each once.
func secretFields(fields []string) ([]string, *api.Refusal) {
	if len(fields) > maxSecretFields {
		return nil, api.Refuse(refusal.RegistrationWrong, "A registration has at most %d secret fields.", maxSecretFields)
	}
	for _, f := range fields {
		if f == "" || len(f) > maxSecretField || !utf8.ValidString(f) || strings.HasPrefix(f, "/") && slices.Contains(strings.Split(f[1:], "/"), "") {
			return nil, api.Refuse(refusal.RegistrationWrong, "A secret field is a name, or a path like /auth/key, of at most %d bytes; %.64q is not.", maxSecretField, f)
		}
	}
	out := slices.Compact(slices.Sorted(slices.Values(fields)))
	if len(out) == 0 {
		return nil, nil // as it is read back
	}
	return out, nil
}

// executable tells whether the jail shows program as something it may execute, also
// through one of the profile's links.
func executable(p spec.Profile, program string) bool {
	for _, l := range p.Links {
		if spec.Inside(program, l.Path) {
			to := l.To
			if !path.IsAbs(to) {
				to = path.Join(path.Dir(l.Path), to)
			}
			program = path.Join(to, strings.TrimPrefix(program, l.Path))
			break
		}
	}
	return slices.ContainsFunc(p.Binds, func(b spec.Bind) bool { return b.Exec && spec.Inside(program, b.At()) })
}

func registrable(profiles map[string]spec.Profile) (names []string) {
	for _, n := range slices.Sorted(maps.Keys(profiles)) {
		if !profiles[n].NeverRegister {
			names = append(names, n)
		}
	}
	return names
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// addServer registers a new label; a label of a deleted server is free, and the
// newcomer has its own id: it inherits no trust.
func (f Facts) addServer(label string, v Revision, now time.Time) (Facts, Server, *api.Refusal) {
	for _, s := range f.Servers {
		if !s.Deleted && s.Label == label {
			return Facts{}, Server{}, api.Refuse(refusal.AlreadyExists, "Server %q is %s.", label, s.ID)
		}
	}
	if len(f.Servers) >= maxServers {
		return Facts{}, Server{}, api.Refuse(refusal.Busy, "There are %d servers already.", maxServers)
	}
	v, err := stamp(v, now)
	if err != nil {
		return Facts{}, Server{}, api.Refuse(refusal.Internal, "%v", err)
	}
	g := f.next()
	g.Servers = append(g.Servers, Server{ID: newID[ids.Server](now), Label: label, Revisions: []Revision{v}})
	return g, g.Servers[len(g.Servers)-1], nil
}

// updateServer appends a revision, unless nothing that runs has changed.
func (f Facts) updateServer(i int, v Revision, now time.Time) (Facts, Server, *api.Refusal) {
	v, err := stamp(v, now)
	if err != nil {
		return Facts{}, Server{}, api.Refuse(refusal.Internal, "%v", err)
	}
	s := f.Servers[i]
	if s.Current().Digest == v.Digest {
		return f, s, nil
	}
	s.Revisions = append(slices.Clone(s.Revisions), v)
	if over := len(s.Revisions) - maxRevisions; over > 0 {
		s.Revisions = s.Revisions[over:]
	}
	g := f.next()
	g.Servers[i] = s
	return g, s, nil
}

func (f Facts) deleteServer(sel string) (Facts, Server, *api.Refusal) {
	i, refused := f.findServer(sel)
	if refused != nil {
		return Facts{}, Server{}, refused
	}
	g := f.next().without(func(c Credential) bool { return c.Server == f.Servers[i].ID })
	g.Servers[i].Deleted = true
	return g, g.Servers[i], nil
}

func stamp(v Revision, now time.Time) (Revision, error) {
	var err error
	v.ID, v.Created = newID[ids.Revision](now), now.UnixMilli()
	v.Digest, err = v.digest()
	return v, err
}

// followProfiles gives every server whose profile has new content a new revision:
// what it may do has changed, so what was accepted is no longer what would run.
func (f Facts) followProfiles(profiles map[string]spec.Profile, now time.Time) (Facts, bool, error) {
	g, changed := f.next(), false
	for i, s := range g.Servers {
		v := s.Current()
		p, ok := profiles[v.Profile]
		if s.Deleted || !ok || p.Digest == v.ProfileDigest {
			continue
		}
		v.ProfileDigest = p.Digest
		v, err := stamp(v, now)
		if err != nil {
			return f, false, err
		}
		s.Revisions = append(slices.Clone(s.Revisions), v)
		g.Servers[i], changed = s, true
	}
	if !changed {
		return f, false, nil
	}
	return g, true, nil
}
