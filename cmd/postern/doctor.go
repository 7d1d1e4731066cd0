package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// State of one layer.
const (
	layerOK       = "ok"
	layerDegraded = "degraded" // Postern works, with less than it could have
	layerMissing  = "missing"  // no jail starts, or not this part of it
)

// layer is one thing that this host can or cannot enforce.
type layer struct {
	Layer   string `json:"layer"`
	State   string `json:"state"`          // ok, degraded (Postern works, with less than it could have) or missing
	Found   string `json:"found"`          // what there is
	Meaning string `json:"meaning"`        // what it is for
	Cure    string `json:"cure,omitempty"` // set unless the state is ok
}

type doctorDocument struct {
	State  string  `json:"state"`  // the worst of the layers
	Layers []layer `json:"layers"` // what the host can and cannot enforce
}

func (a *app) doctorCommand() *cobra.Command {
	var stateDir, libexec, uids string
	cmd := &cobra.Command{Use: "doctor", Short: "what this host can and cannot enforce, and why", Args: exactly(),
		Long: "Looks at each layer that the jails need, and at the supervisor at --run-dir, which says where its files and programs are. Some can be tried as root only. Exit status 1 if one is missing."}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "a `directory` on a file system that is tried beside those of the workspaces (default: the running supervisor's, or "+defaultRootDir+")")
	cmd.Flags().StringVar(&libexec, "libexec", "", "`directory` of the other programs (default: the running supervisor's; or beside this one, ../libexec/postern from there, or /usr/libexec/postern)")
	cmd.Flags().StringVar(&uids, "uid-range", "", "`FIRST:COUNT` of the uids that jails lease (default: the running supervisor's, or posternd's own default)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r := defaultUIDs
		root := a.instance(cmd.Context())
		if root.UIDCount > 0 {
			r = uidRange{uint64(root.UIDFirst), uint64(root.UIDCount)}
		}
		stateDir, libexec = cmp.Or(stateDir, root.RootDir, defaultRootDir), cmp.Or(libexec, root.Libexec)
		if uids != "" {
			var err error
			if r, err = parseUIDs(uids); err != nil {
				return err
			}
		}
		layers := hostLayers(append([]string{existing(stateDir)}, a.workspaces(cmd.Context())...))
		doc := judged(append(layers, uidLayer(r), userLayer(root), programsLayer(libexec), a.supervisorLayer(cmd.Context(), root)))
		if err := a.show(doc, func(t *table) { doctorTable(t, doc.Layers) }); err != nil {
			return err
		}
		var missing []string
		for _, l := range doc.Layers {
			if l.State == layerMissing {
				missing = append(missing, l.Layer)
			}
		}
		if missing != nil {
			return &shown{status: refusal.Of(refusal.LayerMissing).Exit, text: "missing: " + list(missing)}
		}
		return nil
	}
	return cmd
}

// judged takes the worst of the layers for the whole.
func judged(layers []layer) doctorDocument {
	doc := doctorDocument{State: layerOK, Layers: layers}
	for _, l := range layers {
		if l.State == layerMissing || l.State == layerDegraded && doc.State == layerOK {
			doc.State = l.State
		}
	}
	return doc
}

func doctorTable(t *table, layers []layer) {
	t.row("LAYER", "STATE", "FOUND")
	for _, l := range layers {
		t.line("%s\t%s\t%s", l.Layer, l.State, l.Found) // whole: what was found may be several paths
	}
	for _, l := range layers {
		if l.State != layerOK {
			t.line("\n%s is %s: %s\n  cure: %s", l.Layer, l.State, l.Meaning, l.Cure)
		}
	}
}

// judge makes a layer: ok if good, else what bad says.
func judge(name string, good bool, bad, found, meaning, cure string) layer {
	l := layer{Layer: name, State: layerOK, Found: found, Meaning: meaning}
	if !good {
		l.State, l.Cure = bad, cure
	}
	return l
}

// existing returns the nearest directory at or above path that exists.
func existing(path string) string {
	for !exists(path) && path != "/" && path != "." {
		path = filepath.Dir(path)
	}
	return path
}

// defaultRootDir is where an installed posternd keeps what is root's.
const defaultRootDir = "/var/lib/postern-root"

// instance is what the supervisor at --run-dir says of itself to root; zero where it
// does not run, or the asker is somebody else. A second one beside an installed one has
// directories, programs and a user of its own.
func (a *app) instance(ctx context.Context) api.RootStatusResult {
	root, err := ask[api.RootStatusResult](ctx, a, api.RootStatus, struct{}{}, client.Options{})
	if err != nil {
		return api.RootStatusResult{}
	}
	return root
}

func userLayer(root api.RootStatusResult) layer {
	if root.AuthorityUID != 0 {
		return judge("user postern", true, "", fmt.Sprintf("uid %d runs the authority", root.AuthorityUID), "the authority runs as this user and no other", "")
	}
	u, err := user.Lookup("postern")
	found := "no such user"
	if err == nil {
		found = "uid " + u.Uid
	}
	return judge("user postern", err == nil, layerMissing, found, "the authority runs as this user and no other", "make install, or: useradd --system --no-create-home --shell /usr/sbin/nologin postern")
}

// programDirs is where the programs are looked for: beside this one, where make install
// puts them under the same PREFIX, and where they are without one.
func programDirs(self string) []string {
	dirs := []string{"/usr/libexec/postern"}
	if self == "" {
		return dirs
	}
	beside := filepath.Dir(self)
	return slices.Compact([]string{beside, filepath.Join(filepath.Dir(beside), "libexec/postern"), dirs[0]})
}

func programsLayer(dir string) layer {
	dirs := []string{dir}
	if dir == "" {
		self, _ := os.Executable()
		dirs = programDirs(self)
	}
	var found, missing []string
	for _, program := range []string{"posternd", "postern-authority", "postern-bridge", "postern-jail"} {
		missing = append(missing, program)
		for _, d := range dirs {
			path := filepath.Join(d, program)
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				found, missing = append(found, path), missing[:len(missing)-1]
				break
			}
		}
	}
	l := judge("programs", len(missing) == 0, layerMissing, list(found), "posternd starts the others by their paths", "make install, or name their directory with --libexec")
	if len(missing) > 0 {
		l.Found = fmt.Sprintf("not in %s: %s", list(dirs), list(missing))
	}
	return l
}

// workspaces are those that a running supervisor knows; each may lie on a file
// system of its own.
func (a *app) workspaces(ctx context.Context) []string {
	all, err := a.allProjects(ctx, "")
	if err != nil {
		return nil
	}
	var dirs []string
	for _, p := range all.Projects {
		dirs = append(dirs, p.Workspace)
	}
	return dirs
}

// supervisorLayer tells what a running supervisor says of itself, all of it; none running
// is no fault of the host. root is what posternd itself answered, zero where it does not.
func (a *app) supervisorLayer(ctx context.Context, root api.RootStatusResult) layer {
	const name, meaning = "supervisor", "projects are reachable while it serves"
	s, err := ask[api.StatusResult](ctx, a, api.Status, struct{}{}, client.Options{})
	var r *api.Refusal
	switch {
	case errors.As(err, &r) && r.Code != refusal.Unreachable:
		return judge(name, true, "", "serves, and tells you no more: "+r.Sentence, meaning, "")
	case err != nil:
		return judge(name, false, layerDegraded, "does not serve "+a.runDir, meaning, "start posternd, or name its directory with --run-dir")
	}
	found, why := fmt.Sprintf("%s, version %s", s.State, s.Version), "root is told"
	if s.ReadOnly != 0 {
		found += ", read-only"
	}
	if s.StatusCounts != nil {
		found, why = found+fmt.Sprintf(", %d sessions, %d bridges", s.Sessions, s.Bridges), s.Reason
	}
	if root.Version != "" {
		found += fmt.Sprintf(", cgroup %s, uids %d–%d", root.Cgroup, root.UIDFirst, uint64(root.UIDFirst)+uint64(root.UIDCount)-1)
	}
	var wrong troubles
	switch {
	case s.State != "serving":
		wrong.add("", meaning, strings.TrimSpace(stateCure(s.State)+": "+why))
	case a.storeFree(ctx) < leastFree:
		wrong.add("the disk of the state directory is almost full", "calls go on while they can be recorded, and are denied when they cannot", stateCure("denying"))
	}
	broken := "root is told"
	if s.StatusCounts != nil {
		broken = s.AccessError
	}
	switch s.Access {
	case "denying":
		wrong.add("the access policy cannot be read", meaning+"; everyone the policy governs is denied", "mend the file, see postern access show: "+broken)
	case "mistaken":
		wrong.add("the access policy has a mistake", "whom it is about is denied, and nobody else", "mend the entry, see postern access show: "+broken)
	}
	if s.StatusCounts != nil && len(s.Unmatched) > 0 {
		wrong.add("a denial of the access policy matches no tool", strings.Join(s.Unmatched, "; "), "write the tool's own name, server/tool or */operation; postern server show lists what servers have")
	}
	if root.Config.Error != "" {
		wrong.add("the configuration has mistakes", "what postern.yaml and the profiles said before still holds", "mend it, it is read again by itself: "+root.Config.Error)
	}
	if len(root.Config.Restart) > 0 {
		wrong.add("the configuration waits for a restart", "postern.yaml says something else than what runs: "+strings.Join(root.Config.Restart, "; "), "start posternd again, or take it back")
	}
	if len(root.Warnings) > 0 {
		wrong.add("", strings.Join(root.Warnings, "; "), "mend what it names; postern credential list and postern server list have the rest")
	}
	if wrong.meanings == nil {
		return judge(name, true, "", found, meaning, "")
	}
	return judge(name, false, layerDegraded, strings.Join(append([]string{found}, wrong.found...), ", "), strings.Join(wrong.meanings, "; also: "), strings.Join(wrong.cures, "; also: "))
}

// troubles are all that is wrong with one layer: whoever mends the first of them must
// not have to ask again to learn of the next.
type troubles struct{ found, meanings, cures []string }

func (t *troubles) add(found, meaning, cure string) {
	if found != "" {
		t.found = append(t.found, found)
	}
	t.meanings, t.cures = append(t.meanings, meaning), append(t.cures, cure)
}

// leastFree is what the authority itself leaves to its records.
const leastFree = 64 << 20

// storeFree is the room that is left for records; much where nobody tells.
func (a *app) storeFree(ctx context.Context) int64 {
	m, err := ask[api.MetricsResult](ctx, a, api.Metrics, struct{}{}, client.Options{})
	if err != nil {
		return leastFree
	}
	return m.FreeBytes
}

// stateCure is what helps where no calls are taken.
func stateCure(state string) string {
	if state == "denying" {
		return "make room in the state directory's file system, or mend it; then it serves by itself"
	}
	return "start posternd again, or postern drain --cancel"
}
