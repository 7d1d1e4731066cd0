package integration

import (
	"debug/elf"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// links returns every package that a program of this module links, and those of
// them that hold cgo.
func links(t *testing.T, program string) (all, cgo []string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}{{if .CgoFiles}} cgo{{end}}", "./cmd/"+program)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // so that cgo shows, wherever it is possible
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, isCgo := strings.CutSuffix(strings.TrimSpace(line), " cgo")
		all = append(all, pkg)
		if isCgo {
			cgo = append(cgo, pkg)
		}
	}
	if len(all) < 20 {
		t.Fatalf("%s links %d packages: the list is not whole", program, len(all))
	}
	return all, cgo
}

// What a program must not reach it must not link: the whole list of what it
// depends on is walked, so that no import three packages away is overlooked.
func TestWhatTheProgramsLink(t *testing.T) {
	sources(t) // makes the test cache know every file that go list reads below
	const (
		libseccomp = "github.com/seccomp/libseccomp-golang"
		sqlite     = "github.com/ncruces/go-sqlite3"
	)
	for _, row := range []struct {
		program     string
		needs, bans []string
	}{
		{"posternd", []string{"postern/jail/seccomp", libseccomp}, []string{"net/http", sqlite, "postern/bridge/mcp", "postern/supervisor/store", "postern/supervisor/gate"}},
		{"postern-authority", []string{"postern/supervisor/gate", sqlite}, []string{"net/http", "os/exec", "postern/jail", "postern/jail/seccomp", libseccomp, "postern/supervisor/launch"}},
		{"postern-bridge", []string{"postern/bridge/mcp"}, []string{"net/http", "os/exec", "postern/jail/seccomp", libseccomp, sqlite, "postern/policy", "postern/supervisor/gate"}},
		{"postern-jail", []string{"postern/jail/stage"}, []string{"net/http", "net", "os/exec", "postern/jail/seccomp", libseccomp, sqlite}},
		{"postern-metrics", []string{"postern/supervisor/client", "net/http"}, []string{"os/exec", libseccomp, sqlite, "postern/jail", "postern/policy", "postern/supervisor/gate"}},
		{"postern", []string{"postern/supervisor/client"}, []string{"net/http", libseccomp, sqlite, "postern/jail", "postern/supervisor/gate"}},
	} {
		t.Run(row.program, func(t *testing.T) {
			all, cgo := links(t, row.program)
			for _, pkg := range row.needs {
				if !slices.Contains(all, pkg) {
					t.Errorf("%s does not link %s", row.program, pkg)
				}
			}
			for _, pkg := range row.bans {
				if slices.Contains(all, pkg) {
					t.Errorf("%s links %s", row.program, pkg)
				}
			}
			for _, pkg := range cgo {
				ours := !slices.Contains([]string{"net", "os/user", "runtime/cgo"}, pkg) // these have a form without cgo
				if ours && row.program != "posternd" {
					t.Errorf("%s links %s, which holds cgo", row.program, pkg)
				}
			}
		})
	}
}

// The authority starts no process: it does not link os/exec, and none of our
// packages that it links calls what os/exec calls.
func TestTheAuthorityStartsNoProcess(t *testing.T) {
	all, _ := links(t, "postern-authority")
	for _, s := range sources(t) {
		if s.test || !slices.Contains(all, module+s.pkg) && s.pkg != "cmd/postern-authority" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"StartProcess", "ForkExec", "Exec"}, sel.Sel.Name) {
				if x, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"os", "syscall", "unix"}, x.Name) {
					t.Errorf("%s: the authority must not call %s.%s", s.at(n), x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// The programs that run inside a jail find no loader and no library there.
func TestJailedProgramsAreStatic(t *testing.T) {
	sources(t)
	for _, program := range []string{"postern-jail", "postern-bridge"} {
		bin := filepath.Join(t.TempDir(), program)
		cmd := exec.Command("go", "build", "-trimpath", "-o", bin, "./cmd/"+program)
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		f, err := elf.Open(bin)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, prog := range f.Progs {
			if prog.Type == elf.PT_INTERP {
				t.Errorf("%s asks for a loader", program)
			}
		}
		if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
			t.Errorf("%s asks for %q", program, libs)
		}
	}
}
