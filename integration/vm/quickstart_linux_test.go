//go:build vm

package vm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"postern/integration/rig"
)

const quickstart = "../../docs/quickstart.md"

// notTyped are the lines of the quickstart that a guest cannot do, and why. Those after
// npm are run by integration/docs, on what npm fetches.
var notTyped = map[string]string{
	"sudo make deps install":                       "another way to install",
	"claude mcp list":                              "no such program in a guest",
	"codex mcp list":                               "no such program in a guest",
	"gemini mcp list":                              "no such program in a guest",
	"sudo apt install nodejs npm":                  "no network",
	"sudo npm install --prefix /srv/mcp":           "no network",
	"sudo postern server add published":            "npm fetches it",
	"sudo postern connection add shop published":   "npm fetches it",
	"sudo postern connection grant shop published": "npm fetches it",
	callLine("search_files"):                       "npm fetches it",
}

// shows is what the page says of single lines: what they show, and their status.
var shows = map[string]struct {
	text   string
	status int
}{
	"sudo postern doctor":                       {"landlock", 0},
	"postern server show files":                 {"write_file", 0},
	callLine("read_text_file path=/workspace/"): {"hello from the workspace\n", 0},
	callLine("write_file "):                     {"written", 0},
	"ls -l /srv/shop/note.txt":                  {" ana ana 17 ", 0},
	callLine("read_text_file path=/etc/shadow"): {"path_outside", 1},
	"postern activity --project shop":           {"path_outside", 0},
	"postern explain --project shop write_file": {"tool_not_granted", 65},
}

func callLine(args string) string {
	return "python3 /usr/share/postern/examples/call.py shop " + args
}

// row finds what a table has for a line: the row that it begins with.
func row[V any](table map[string]V, line string) (begins string, v V, ok bool) {
	for begins, v := range table {
		if strings.HasPrefix(line, begins) {
			return begins, v, true
		}
	}
	return "", v, false
}

// A machine that never had Postern gets from the package to a tool's answer out of a jail
// by what the page says, typed as it stands by a person who may use sudo. Put in is only
// the version of the package that lies there.
func TestTheQuickstartLeadsToAJailedServer(t *testing.T) {
	if state := installed(t); state != "" {
		t.Fatalf("the package is here already: %s", state)
	}
	page, err := os.ReadFile(quickstart)
	if err != nil {
		t.Fatal(err)
	}
	home := person(t, "ana")
	command(t, "cp", one(t, "0.0.1"), home)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("journalctl", "-u", "postern", "--no-pager", "-n", "60", "-o", "cat").CombinedOutput()
			t.Logf("%s", out)
		}
		exec.Command("dpkg", "--purge", "postern").Run()
		os.RemoveAll("/srv/shop")
	})

	met := map[string]bool{}
	for _, line := range rig.Commands(string(page), func(string) bool { return true }) {
		if begins, _, ok := row(notTyped, line); ok {
			met[begins] = true
			continue
		}
		begins, want, _ := row(shows, line)
		met[begins] = true
		began := time.Now()
		out, status := types(t, "ana", home, strings.ReplaceAll(line, "VERSION", "0.0.1"))
		t.Logf("%s: %v", line, time.Since(began).Round(100*time.Millisecond))
		if status != want.status || !strings.Contains(out, want.text) {
			t.Fatalf("%s\nstatus %d, want %d and %q\n%s", line, status, want.status, want.text, out)
		}
	}
	for _, table := range []map[string]bool{keys(notTyped), keys(shows)} {
		for begins := range table {
			if !met[begins] {
				t.Errorf("the page has no line %q", begins)
			}
		}
	}
	if len(leased(t)) == 0 {
		t.Error("nothing runs under a leased uid, so that what answered was in no jail")
	}
	command(t, "systemctl", "stop", "postern")
	if left := leased(t); len(left) != 0 {
		t.Errorf("after the stop these run: %v", left)
	}
	if _, err := os.Stat("/run/postern"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the stop there is /run/postern (%v)", err)
	}
}

func keys[V any](table map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range table {
		out[k] = true
	}
	return out
}

// person makes a user who may use sudo, as the one is who installed a Debian.
func person(t *testing.T, name string) (home string) {
	t.Helper()
	command(t, "useradd", "--create-home", "--shell", "/bin/bash", name)
	rule := filepath.Join("/etc/sudoers.d", name)
	t.Cleanup(func() {
		os.Remove(rule)
		exec.Command("userdel", "--remove", name).Run()
	})
	if err := os.WriteFile(rule, []byte(name+" ALL=(ALL) NOPASSWD: ALL\n"), 0o440); err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/home", name)
}

// types runs a line in a shell of the user's, at home, and returns what was shown and the
// status.
func types(t *testing.T, name, home, line string) (string, int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "/bin/bash", "-c", line)
	c.Dir, c.SysProcAttr = home, rig.As(uid)
	c.Env = []string{"HOME=" + home, "USER=" + name, "LOGNAME=" + name, "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"}
	c.Stdin = strings.NewReader("y\n") // apt asks whether to go on
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	return string(out), c.ProcessState.ExitCode()
}
