package suites

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// personUID owns every project here and connects without a token.
const personUID = 61001

// everything is the complete server of the Go SDK, which the conformance suite knows.
const everything = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

var built struct {
	dir, bin, repo string
	clients, node  string // the pinned clients, and the Node that they run on
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "the suites need root")
			return 1
		}
		fmt.Println("the suites need root; none was run")
		return 0
	}
	dir, err := os.MkdirTemp("/tmp", "suites-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func prepare(dir string) (err error) {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	built.dir, built.bin = dir, filepath.Join(dir, "bin")
	if built.repo, err = rig.Repository(); err != nil {
		return err
	}
	if err := rig.Build(built.repo, built.bin); err != nil {
		return err
	}
	for _, name := range []string{"weird", "modern", "count"} {
		if _, err := rig.BuildServer(built.repo, dir, name); err != nil {
			return err
		}
	}
	c := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "everything/everything"), everything)
	c.Dir, c.Env = built.repo, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", everything, err, out)
	}
	built.clients, built.node, err = rig.Clients(built.repo, filepath.Join(built.repo, "out"))
	return err
}

// upstream is one tool server, by itself and behind the bridge.
type upstream struct {
	label  string
	direct []string // its command line here
	pkg    string   // its package
	jailed []string // its command line in the jail
	under  []string // the prefixes of its resources
}

// fixture is a server of one static program, in a directory of its name.
func fixture(name string) upstream {
	pkg := filepath.Join(built.dir, name)
	return upstream{label: name, direct: []string{filepath.Join(pkg, name)}, pkg: pkg, jailed: []string{"/package/" + name}}
}

// published is a pinned server of npm, with an argument here and in the jail.
func published(t *testing.T, name, here, jailed string) upstream {
	t.Helper()
	modules, err := rig.NPM(built.repo, filepath.Join(built.repo, "out"))
	if err != nil {
		t.Fatal(err)
	}
	node, err := rig.Node()
	if err != nil {
		t.Fatal(err)
	}
	script := "node_modules/@modelcontextprotocol/" + name + "/dist/index.js"
	return upstream{label: name, pkg: modules, direct: []string{node, filepath.Join(modules, script), here}, jailed: []string{node, "/package/" + script, jailed}}
}

// world is one private Postern in which each upstream has a project of its own.
type world struct {
	*rig.Rig
	t *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Rig: rig.ForTest(t, rig.Config{Bin: built.bin}), t: t}
	w.must("account", "add", "person", "--uid", fmt.Sprint(personUID))
	return w
}

// must runs the command as root.
func (w *world) must(args ...string) {
	w.t.Helper()
	if out, errb, exit := w.CLI(0, args...); exit != 0 {
		w.t.Fatalf("postern %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errb)
	}
}

// behind registers the server, connects it to a project of its own with every tool it
// lists granted, its prompts and its resources too, and returns the command that reaches it, for anyone who runs as root.
func (w *world) behind(u upstream) []string {
	w.t.Helper()
	ws := filepath.Join(w.Dir, "ws-"+u.label)
	if err := os.Mkdir(ws, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chown(ws, personUID, personUID); err != nil {
		w.t.Fatal(err)
	}
	var added api.ProjectResult
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: u.label, Workspace: ws, Owner: "person"}, &added); err != nil {
		w.t.Fatal(err)
	}
	profile := "static"
	if len(u.jailed) > 1 {
		profile = "node"
	}
	w.must("project", "set", u.label, "--person-bind=true")
	w.must(append([]string{"server", "add", u.label, "--profile", profile, "--package", u.pkg, "--"}, u.jailed...)...)
	w.must("connection", "add", u.label, u.label)
	var cat api.CatalogueResult
	if err := w.Call(api.ServerCatalogue, api.Selected{Selector: u.label}, &cat); err != nil {
		w.t.Fatal(err)
	}
	var names, prompts []string
	for _, tool := range cat.Tools {
		if prompt, ok := strings.CutPrefix(tool.Tool, "prompt:"); ok {
			prompts = append(prompts, prompt)
			continue
		}
		if tool.State == "quarantined" {
			if documentedTools[tool.Tool].gone {
				continue
			}
			w.t.Errorf("%s of %s is quarantined: %s", tool.Tool, u.label, tool.Reason)
			continue
		}
		names = append(names, tool.Tool)
	}
	if len(names) == 0 {
		w.t.Fatalf("%s has no tools", u.label)
	}
	if err := w.Call(api.ConnectionGrant, api.ConnectionParams{Project: u.label, Server: u.label, Tools: names, Prompts: prompts, Resources: u.under, Tier: "reversible"}, nil); err != nil {
		w.t.Fatal(err)
	}
	return w.connect(added.Project)
}

// connect is the command of a runtime of the person, for anyone who runs as root.
func (w *world) connect(project string) []string {
	id := fmt.Sprint(personUID)
	return []string{"/usr/bin/setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups",
		filepath.Join(w.Bin, "postern"), "--run-dir", w.RunDir, "connect", "--project", project}
}
