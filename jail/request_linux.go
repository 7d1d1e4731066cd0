package jail

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"postern/jail/cgroup"
	"postern/jail/spec"
)

// Request is one launch. The caller keeps every *os.File in it and may close
// them when Launch has returned.
type Request struct {
	// Name is the control group's: fresh, [a-z0-9_-]{1,64}.
	Name    string
	Profile spec.Profile
	// UID and GID are leased: nobody else has them now.
	UID, GID uint32
	// Argv[0] is an absolute path in the jail.
	Argv []string
	// Env are name=value, added to the profile's and winning over them.
	Env []string
	// Dir is the working directory in the jail; empty is /workspace where
	// there is one, else /.
	Dir string
	// Program is a static program shown at /program; nil for none.
	Program *os.File
	// Package is a directory (O_PATH suffices) shown at /package; nil for none.
	Package *os.File
	// Workspace is needed exactly where the profile has one.
	Workspace *Workspace
	// Stdin, Stdout and Stderr are the program's; nil is /dev/null.
	Stdin, Stdout, Stderr *os.File
	// Extra become descriptors 3, 4, … of the program; where one is nil, the program has
	// none of that number. The last one is not nil.
	Extra []*os.File
	// Secret is a file whose content, 1 to spec.MaxSecret bytes without a NUL, becomes the
	// value of the variable SecretEnv. It is read in the jail; nil for none.
	Secret    *os.File
	SecretEnv string
	// Limits are within the profile's; zero fields are the profile's.
	Limits spec.Limits
	// Proceed is asked once, when all that can wait for a file system is done and nothing
	// of the program has run; an error of it ends the launch. It answers at once, because
	// every other launch may wait for it. nil is yes.
	Proceed func() error
}

// Workspace is a directory of the host that a jail may write.
//
// Ids are mapped on the mount: the program, running as Request.UID and
// Request.GID, is the owner there, and what it makes belongs on disk to UID and
// to the first of GIDs that is not root's. The other gids are mapped to numbers
// that nobody has: their files can be used by the owner, and the group itself
// is lent to nobody. Files of any other uid or gid cannot be written, deleted
// or renamed over.
type Workspace struct {
	// Dir is the directory itself; it is mounted by this descriptor.
	Dir *os.File
	// UID is the owner on disk; never 0.
	UID uint32
	// GIDs are, on disk, the directory's gid and then the owner's primary gid.
	// Both are needed: in a directory whose own group is not mapped nothing
	// can be made.
	GIDs []uint32
	// ReadOnly takes writing away.
	ReadOnly bool
	// Protect are relative names that are read-only; nil is DefaultProtect, an
	// empty slice is none. Where a name is absent it is occupied while a jail may
	// write the workspace, see occupy. If somebody outside puts another file in the
	// place of one, the kernel lets go of the mount, and the jail is ended.
	Protect []string
}

// DefaultProtect returns the names that programs outside the jail execute or
// obey, relative to a workspace.
func DefaultProtect() []string {
	return []string{
		".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/modules", ".git/info", ".gitmodules",
		".envrc", ".mcp.json", ".claude", ".codex", ".cursor", ".gemini", ".vscode", ".idea", ".devcontainer",
	}
}

const (
	maxGIDs    = 4
	maxProtect = 64
	// strangerGID is the first of the numbers to which a workspace's further
	// groups are mapped. It lies far above every range that people, services
	// or leases use.
	strangerGID = 0x7fff0000
)

// check returns the request's mistakes, and r with what is implied filled in.
func (r Request) check() (Request, error) {
	switch {
	case !cgroup.ValidName(r.Name):
		return r, fmt.Errorf("name %q: want [a-z0-9_-]{1,64}", r.Name)
	case r.UID == 0 || r.GID == 0:
		return r, fmt.Errorf("uid %d, gid %d: a jail is never root", r.UID, r.GID)
	case r.UID >= strangerGID || r.GID >= strangerGID:
		return r, fmt.Errorf("uid %d, gid %d: beyond %d", r.UID, r.GID, strangerGID-1)
	case len(r.Argv) == 0 || !spec.CleanPath(r.Argv[0]):
		return r, fmt.Errorf("argv %q: the program is a clean absolute path", r.Argv)
	case len(r.Extra) > MaxExtra:
		return r, fmt.Errorf("%d extra descriptors: at most %d", len(r.Extra), MaxExtra)
	case len(r.Extra) > 0 && r.Extra[len(r.Extra)-1] == nil:
		return r, fmt.Errorf("the last extra descriptor is missing")
	case (r.Secret != nil) != (r.SecretEnv != ""), r.SecretEnv != "" && !spec.ValidEnvName(r.SecretEnv):
		return r, fmt.Errorf("secret: want a file and the name of a variable, or neither")
	case r.Profile.Workspace != (r.Workspace != nil):
		return r, fmt.Errorf("profile %q has workspace: %t, the request has one: %t", r.Profile.Name, r.Profile.Workspace, r.Workspace != nil)
	}
	if mistakes := r.Profile.Validate(); len(mistakes) > 0 {
		return r, fmt.Errorf("profile %q: %w", r.Profile.Name, mistakes[0])
	}
	for _, s := range append(slices.Clone(r.Argv), r.Env...) {
		if strings.ContainsRune(s, 0) {
			return r, fmt.Errorf("%q holds a NUL", s)
		}
	}
	if r.Dir == "" {
		r.Dir = "/"
		if r.Workspace != nil {
			r.Dir = spec.WorkspaceDir
		}
	}
	if r.Dir != "/" && !spec.CleanPath(r.Dir) || spec.Inside(r.Dir, spec.ProcDir) {
		return r, fmt.Errorf("directory %q: want a clean absolute path outside /proc", r.Dir)
	}
	if r.Workspace != nil {
		ws, err := r.Workspace.check()
		if err != nil {
			return r, fmt.Errorf("workspace: %w", err)
		}
		ws.ReadOnly = ws.ReadOnly || r.Profile.WorkspaceReadOnly
		r.Workspace = &ws
	}
	var err error
	if r.Limits, err = r.Limits.Within(r.Profile.Limits); err != nil {
		return r, err
	}
	r.Env, err = environment(r.Profile.Env, r.Env)
	if r.SecretEnv != "" && slices.ContainsFunc(r.Env, func(e string) bool { return strings.HasPrefix(e, r.SecretEnv+"=") }) {
		return r, fmt.Errorf("environment: %q is the secret's and is named twice", r.SecretEnv)
	}
	return r, err
}

// environment joins the profile's names with the request's, sorted, each once.
func environment(profile map[string]string, added []string) ([]string, error) {
	all := maps.Clone(profile)
	if all == nil {
		all = map[string]string{}
	}
	for _, e := range added {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !spec.ValidEnvName(name) {
			return nil, fmt.Errorf("environment %q: want name=value", name)
		}
		all[name] = value
	}
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env, nil
}

func (w Workspace) check() (Workspace, error) {
	if w.Dir == nil {
		return w, fmt.Errorf("no directory")
	}
	if w.UID == 0 {
		// Mapping root would let the program make root's files.
		return w, fmt.Errorf("it must not belong to root")
	}
	if len(w.GIDs) == 0 || len(w.GIDs) > maxGIDs || slices.Max(w.GIDs) == 0 {
		return w, fmt.Errorf("groups %v: want 1 to %d, one of them not root's", w.GIDs, maxGIDs)
	}
	if w.UID >= strangerGID || slices.Max(w.GIDs) >= strangerGID {
		return w, fmt.Errorf("uid %d, groups %v: beyond %d", w.UID, w.GIDs, strangerGID-1)
	}
	if w.Protect == nil {
		w.Protect = DefaultProtect()
	}
	if len(w.Protect) > maxProtect {
		return w, fmt.Errorf("%d protected names: at most %d", len(w.Protect), maxProtect)
	}
	for _, name := range w.Protect {
		if !filepath.IsLocal(name) || path.Clean(name) != name || name == "." || len(name) > spec.MaxPath {
			return w, fmt.Errorf("protected name %q: want a clean relative path", name)
		}
	}
	return w, nil
}

// rules are the Landlock rules that follow from what r mounts.
func (r Request) rules() []spec.PathRule {
	var rules []spec.PathRule
	if r.Profile.Workspace {
		// What is mounted here is the jail's to list: programs that resolve a path by
		// themselves read the directories above it, the root among them.
		rules = append(rules, spec.PathRule{Path: "/", List: true})
	}
	for _, b := range r.Profile.Binds {
		rules = append(rules, spec.PathRule{Path: b.At(), Read: true, Exec: b.Exec, Optional: b.Optional})
	}
	if r.Package != nil {
		rules = append(rules, spec.PathRule{Path: spec.PackageDir, Read: true, Exec: r.Profile.PackageExec})
	}
	if r.Program != nil {
		rules = append(rules, spec.PathRule{Path: spec.ProgramFile, Read: true, Exec: true})
	}
	if r.Workspace != nil {
		rules = append(rules, spec.PathRule{Path: spec.WorkspaceDir, Read: true, Write: !r.Workspace.ReadOnly})
	}
	if r.Limits.TmpBytes > 0 {
		rules = append(rules, spec.PathRule{Path: spec.TmpDir, Read: true, Write: true})
	}
	if r.Limits.ShmBytes > 0 {
		rules = append(rules, spec.PathRule{Path: spec.ShmDir, Read: true, Write: true})
	}
	if r.Profile.Devices {
		rules = append(rules, spec.PathRule{Path: spec.DevDir, Read: true})
		for _, name := range []string{"null", "zero", "full"} {
			rules = append(rules, spec.PathRule{Path: path.Join(spec.DevDir, name), Read: true, Write: true})
		}
	}
	if r.Profile.Proc {
		rules = append(rules, spec.PathRule{Path: spec.ProcDir, Read: true})
	}
	return rules
}

// identities are the two maps of a workspace's mount: on disk → in the jail.
func (r Request) identities() (uids, gids []idPair) {
	uids = []idPair{{r.Workspace.UID, r.UID}}
	stranger := uint32(strangerGID)
	own := false
	var seen []uint32
	for _, gid := range r.Workspace.GIDs {
		if slices.Contains(seen, gid) {
			continue
		}
		seen = append(seen, gid)
		if gid != 0 && !own {
			gids, own = append(gids, idPair{gid, r.GID}), true
			continue
		}
		gids = append(gids, idPair{gid, stranger})
		stranger++
	}
	return uids, gids
}

type idPair struct{ disk, jail uint32 }

// fd returns the number of f, -1 for nil.
func fd(f *os.File) int {
	if f == nil {
		return -1
	}
	return int(f.Fd())
}

// isDir and isFile look at what a descriptor is.
func isKind(fd int, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind {
		return fmt.Errorf("is of type %#o, not %#o", st.Mode&unix.S_IFMT, kind)
	}
	return nil
}
