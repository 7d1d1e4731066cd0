// Command demo shows the main path on real parts: a private Postern, published
// tool servers in real jails, and a client library that nobody here wrote, which
// drives postern connect. Each step says what was expected and what came; any
// difference makes it exit with status 1.
//
// It needs root. With -up it only sets everything up and waits, to try by hand.
// It is no test of details: those are beside the packages and in integration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// personUID is the demo's person: the owner of the project and of its directory.
const personUID = 61001

type demo struct {
	rig       *rig.Rig
	workspace string
	project   api.ProjectResult
	step      int
	failed    int
}

func main() {
	up := flag.Bool("up", false, "set up, print how to connect, and wait")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *up); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, up bool) (err error) {
	began := time.Now()
	repo, err := rig.Repository()
	if err != nil {
		return err
	}
	for _, line := range rig.Sweep() {
		fmt.Println("left by a demo that was killed, removed:", line)
	}
	modules, err := rig.NPM(repo, filepath.Join(repo, "out"))
	if err != nil {
		return err
	}
	r, err := rig.Start(rig.Config{Bin: filepath.Join(repo, "bin")})
	if err != nil {
		return err
	}
	d := &demo{rig: r}
	defer func() {
		if e := r.Close(); e != nil {
			err = errors.Join(err, e)
		}
		if left := r.Left(); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("left behind: %s", strings.Join(left, ", ")))
		} else {
			fmt.Println("nothing is left behind")
		}
	}()
	if err := d.setUp(modules); err != nil {
		return fmt.Errorf("%w\n%s", err, r.Log)
	}
	if up {
		return d.wait(ctx)
	}
	if err := d.steps(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, r.Log)
	}
	d.show("ps")
	d.show("activity")
	if d.failed > 0 {
		return fmt.Errorf("%d of %d steps came out otherwise\n%s", d.failed, d.step, r.Log)
	}
	fmt.Printf("all %d steps as expected, in %.0f s\n", d.step, time.Since(began).Seconds())
	return nil
}

// cli runs the command as root and stops the demo where it fails.
func (d *demo) cli(args ...string) error {
	fmt.Println("  # postern", strings.Join(args, " "))
	if out, errb, exit := d.rig.CLI(0, args...); exit != 0 {
		return fmt.Errorf("postern %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errb)
	}
	return nil
}

func (d *demo) show(args ...string) {
	out, errb, _ := d.rig.CLI(0, args...)
	fmt.Printf("\n# postern %s\n%s%s", strings.Join(args, " "), out, errb)
}

func (d *demo) setUp(modules string) error {
	d.workspace = filepath.Join(d.rig.Dir, "demo")
	if err := os.Mkdir(d.workspace, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.workspace, "hello.txt"), []byte("hello from the workspace\n"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(d.workspace, "way-out")); err != nil {
		return err
	}
	for _, p := range []string{d.workspace, filepath.Join(d.workspace, "hello.txt")} {
		if err := os.Chown(p, personUID, personUID); err != nil {
			return err
		}
	}
	node, err := rig.Node()
	if err != nil {
		return err
	}
	// The server is told that everything is allowed, so that only the jail says no.
	steps := [][]string{
		{"account", "add", "demo-person", "--uid", fmt.Sprint(personUID)},
		{"project", "add", "demo", "--workspace", d.workspace, "--owner", "demo-person"},
		{"project", "set", "demo", "--person-bind=true"},
		{"server", "add", "files", "--profile", "node", "--package", modules, "--tier", "write_file=reversible", "--",
			node, "/package/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "/"},
		{"server", "add", "everything", "--profile", "node", "--package", modules, "--",
			node, "/package/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"},
		{"connection", "add", "demo", "files"},
		{"connection", "add", "demo", "everything"},
		{"connection", "grant", "demo", "files", "read_text_file", "list_directory"},
		{"connection", "grant", "demo", "everything", "trigger-long-running-operation"},
	}
	fmt.Println("setting up a private Postern below", d.rig.Dir)
	for _, s := range steps {
		if err := d.cli(s...); err != nil {
			return err
		}
	}
	var list api.ProjectListResult
	if err := d.rig.Call(api.ProjectList, nil, &list); err != nil {
		return err
	}
	d.project = list.Projects[0]
	return nil
}

func (d *demo) wait(ctx context.Context) error {
	fmt.Printf("\nIt is up. As uid %d, a runtime connects by\n\n", personUID)
	d.show("client-config", "--project", "demo", "--for", "claude")
	fmt.Printf("\nBy hand:\n  setpriv --reuid %d --regid %d --clear-groups %s --run-dir %s connect --project demo\n  %s --run-dir %s ps\n\nCtrl-C ends it and removes everything.\n",
		personUID, personUID, filepath.Join(d.rig.Bin, "postern"), d.rig.RunDir, filepath.Join(d.rig.Bin, "postern"), d.rig.RunDir)
	return d.rig.Wait(ctx)
}

// connect starts postern connect as the person and speaks MCP through it.
func (d *demo) connect(ctx context.Context) (*mcp.ClientSession, error) {
	c := exec.Command(filepath.Join(d.rig.Bin, "postern"), "--run-dir", d.rig.RunDir, "connect", "--project", d.project.Project)
	c.SysProcAttr = rig.As(personUID)
	c.Env, c.Dir, c.Stderr = []string{"PATH=/usr/bin:/bin"}, "/", d.rig.Log
	client := mcp.NewClient(&mcp.Implementation{Name: "postern-demo", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return client.Connect(ctx, &mcp.CommandTransport{Command: c}, nil)
}

// check prints one step.
func (d *demo) check(what, expected, came string, ok bool) {
	d.step++
	mark := "ok"
	if !ok {
		mark = "DIFFERENT"
		d.failed++
	}
	fmt.Printf("%2d. %s\n    expected: %s\n    came:     %s   [%s]\n", d.step, what, expected, strings.ReplaceAll(came, "\n", "⏎ "), mark)
}
