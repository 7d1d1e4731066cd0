// Package packages tests what `make deb rpm` makes: what is inside, with which modes, that a
// second build elsewhere has the same bytes, and that Debian's own checker finds nothing.
//
// It builds as whoever runs it and installs nothing; that is done in a virtual machine, by
// integration/vm. Nothing hostile comes in.
//
// It is not where packages are made: scripts/package is.
package packages

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"postern/integration/rig"
)

const version = "0.0.7~test"

// needs finds a program of Debian's that the checks run.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: make deps installs it", program)
		}
		t.Skipf("%s is missing: make deps installs it", program)
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// build makes both packages of a copy of the tree and gives the directory they are in.
func build(t *testing.T) string {
	t.Helper()
	repo, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	tree, out := t.TempDir(), t.TempDir()
	run(t, repo, nil, "bash", "-c", `git ls-files -zco --exclude-standard | xargs -0 cp --parents -t "$0"`, tree)
	run(t, tree, []string{"VERSION=" + version, "SOURCE_DATE_EPOCH=1700000000"}, "scripts/package", out)
	return out
}

func read(t *testing.T, dir, pattern string) (path string, content []byte) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, pattern))
	if len(found) != 1 {
		t.Fatalf("%s in %s: %q", pattern, dir, found)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return found[0], content
}

// What the package of either kind holds: a path and its mode, as tar and rpm print it.
var held = map[string]string{
	"/usr/bin/postern":                                  "-rwxr-xr-x",
	"/usr/libexec/postern/posternd":                     "-rwxr-xr-x",
	"/usr/libexec/postern/postern-authority":            "-rwxr-xr-x",
	"/usr/libexec/postern/postern-bridge":               "-rwxr-xr-x",
	"/usr/libexec/postern/postern-jail":                 "-rwxr-xr-x",
	"/usr/libexec/postern/postern-metrics":              "-rwxr-xr-x",
	"/usr/lib/systemd/system/postern.service":           "-rw-r--r--",
	"/usr/lib/systemd/system/postern-metrics.service":   "-rw-r--r--",
	"/usr/lib/sysusers.d/postern.conf":                  "-rw-r--r--",
	"/usr/lib/tmpfiles.d/postern.conf":                  "-rw-r--r--",
	"/usr/share/man/man1/postern-connect.1.gz":          "-rw-r--r--",
	"/usr/share/man/man1/postern-connection-grant.1.gz": "-rw-r--r--",
	"/usr/share/man/man8/posternd.8.gz":                 "-rw-r--r--",
	"/usr/share/man/man8/postern-metrics.8.gz":          "-rw-r--r--",
	"/usr/share/man/man5/postern.yaml.5.gz":             "-rw-r--r--",
	"/usr/share/postern/postern.schema.json":            "-rw-r--r--",
	"/usr/share/postern/profile.schema.json":            "-rw-r--r--",
	"/usr/share/postern/access.schema.json":             "-rw-r--r--",
	"/usr/share/postern/examples/call.py":               "-rw-r--r--",
	"/usr/share/postern/examples/files/files.py":        "-rw-r--r--",
	"/usr/share/bash-completion/completions/postern":    "-rw-r--r--",
	"/usr/share/zsh/vendor-completions/_postern":        "-rw-r--r--",
	"/usr/share/fish/vendor_completions.d/postern.fish": "-rw-r--r--",
	"/usr/share/doc/postern/sbom/posternd.cdx.json":     "-rw-r--r--",
	"/usr/share/doc/postern/copyright":                  "-rw-r--r--",
	"/usr/share/doc/postern/docs/operators.md":          "-rw-r--r--",
}

// setID is a mode with one of the bits that nothing of ours may have.
var setID = regexp.MustCompile(`^...[sS]|^......[sS]|^........w`)

func holds(t *testing.T, what, listing string) {
	t.Helper()
	modes := map[string]string{}
	for line := range strings.Lines(listing) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		path := f[len(f)-1]
		if i := strings.Index(line, "/usr"); i >= 0 {
			path = strings.TrimSpace(line[i:])
		}
		modes[strings.TrimPrefix(path, ".")] = f[0]
		if setID.MatchString(f[0]) {
			t.Errorf("%s: %s", what, line)
		}
		if !strings.Contains(line, "root/root") && !strings.Contains(line, "root     root") {
			t.Errorf("%s: not root's: %s", what, line)
		}
	}
	for path, mode := range held {
		if modes[path] != mode {
			t.Errorf("%s: %s has mode %q, want %q", what, path, modes[path], mode)
		}
	}
}

func TestPackages_SameBytesElsewhereAndNothingToComplainOf(t *testing.T) {
	for _, program := range []string{"lintian", "rpm", "dpkg-deb"} {
		needs(t, program)
	}
	first, second := build(t), build(t)
	var deb, rpm string
	for _, kind := range []string{"*.deb", "*.rpm"} {
		a, one := read(t, first, kind)
		_, two := read(t, second, kind)
		if !bytes.Equal(one, two) {
			t.Errorf("two builds of %s differ", filepath.Base(a))
		}
		if kind == "*.deb" {
			deb = a
		} else {
			rpm = a
		}
	}

	holds(t, "deb", run(t, first, nil, "dpkg-deb", "-c", deb))
	holds(t, "rpm", run(t, first, nil, "rpm", "-qplv", rpm))
	if got := strings.TrimSpace(run(t, first, nil, "dpkg-deb", "-f", deb, "Version")); got != version {
		t.Errorf("the version is %q", got)
	}

	// One that nothing is wrong with, and one that lacks its copyright file: so that a
	// checker that finds nothing in anything would be noticed.
	if said := run(t, first, nil, "lintian", "--fail-on", "none", "--allow-root", deb); strings.TrimSpace(said) != "" {
		t.Errorf("lintian:\n%s", said)
	}
	inside := filepath.Join(t.TempDir(), "inside")
	run(t, first, nil, "dpkg-deb", "-R", deb, inside)
	if err := os.Remove(filepath.Join(inside, "usr/share/doc/postern/copyright")); err != nil {
		t.Fatal(err)
	}
	worse := filepath.Join(t.TempDir(), "worse.deb")
	run(t, first, nil, "dpkg-deb", "--root-owner-group", "-Zgzip", "-b", inside, worse)
	if said := run(t, first, nil, "lintian", "--fail-on", "none", "--allow-root", worse); !strings.Contains(said, "no-copyright-file") {
		t.Errorf("lintian does not miss the copyright file:\n%s", said)
	}

	// What is inside each program is listed beside it.
	for _, program := range rig.Binaries {
		raw, err := os.ReadFile(filepath.Join(inside, "usr/share/doc/postern/sbom", program+".cdx.json"))
		if err != nil {
			t.Error(err)
			continue
		}
		var bom struct {
			Format     string `json:"bomFormat"`
			Components []struct{ Name, Version, PURL string }
		}
		if err := json.Unmarshal(raw, &bom); err != nil || bom.Format != "CycloneDX" {
			t.Errorf("%s: %q, %v", program, bom.Format, err)
		}
		listed := map[string]bool{}
		for _, c := range bom.Components {
			listed[c.Name+" "+c.Version] = true
		}
		binary := filepath.Join(inside, "usr/libexec/postern", program)
		if program == "postern" {
			binary = filepath.Join(inside, "usr/bin/postern")
		}
		for line := range strings.Lines(run(t, first, nil, "go", "version", "-m", binary)) {
			if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" && !listed[f[1]+" "+f[2]] {
				t.Errorf("the list of %s lacks %s %s", program, f[1], f[2])
			}
		}
	}
}
