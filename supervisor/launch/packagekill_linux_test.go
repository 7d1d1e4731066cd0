package launch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/supervisor/api"
)

// tree makes a package of many files, which takes a while to copy and to remove.
func (r *rig) tree(name string, files, salt int) string {
	r.t.Helper()
	pkg := filepath.Join(r.dir, "pkg-"+name)
	os.RemoveAll(pkg)
	raw, err := os.ReadFile(filepath.Join(r.cfg.Libexec, "server"))
	if err != nil {
		r.t.Fatal(err)
	}
	for n := range files {
		dir := filepath.Join(pkg, fmt.Sprint("d", n/32))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", n)), bytes.Repeat([]byte{byte(salt)}, 4096), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(pkg, "server"), raw, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return pkg
}

// say gives root's socket a request and does not wait for its end: whoever is asked is
// about to be killed.
func (r *rig) say(a api.Action, params any) {
	c, err := net.Dial("unix", filepath.Join(r.cfg.RunDir, rootSocket))
	if err != nil {
		r.t.Error(err)
		return
	}
	raw, _ := json.Marshal(params)
	line, _ := api.Encode(api.Request{ID: 1, Action: a, Params: raw})
	c.Write(line)
	go func() { // until the kill
		defer c.Close()
		c.Read(make([]byte, 1))
	}()
}

// posternd is killed at any instant of copying a package, of replacing one, of deleting
// its registration and of collecting what nothing needs. What a registration needs is
// whole afterwards, and nothing else is left once the next posternd has swept.
func TestP3_AKillWhilePackagesComeAndGoLeavesWhatIsNeededWhole(t *testing.T) {
	cfg := newConfig(t)
	r := &rig{t: t, dir: filepath.Dir(cfg.RunDir), cfg: cfg, log: &buffer{}}
	raw, err := json.Marshal(document{cfg.RootDir, cfg.StateDir, cfg.RunDir, cfg.Libexec, cfg.LockDir, cfg.Cgroup, cfg.UIDs})
	if err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(r.dir, "config.json")
	if err := os.WriteFile(doc, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(cfg.RootDir, packageDir)
	params := func(label, pkg string) api.ServerParams {
		return api.ServerParams{Label: label, Profile: "static", Package: pkg, Command: []string{"/package/server"}}
	}
	halves, olds := 0, 0
	for round := range max(9, killRounds(t)/2) {
		c := exec.Command("/proc/self/exe")
		c.Env = []string{"POSTERN_LAUNCH_ROLE=posternd", "POSTERN_LAUNCH_DIR=" + doc}
		c.Stderr = r.log
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if n, _ := out.Read(make([]byte, 1)); n != 1 {
			t.Fatalf("round %d: not ready\n%s", round, r.log)
		}
		r.whole(round, store)
		kept, left := r.tree("kept", 40, round), r.tree("left", 600, round)
		if round == 0 {
			r.must(api.ServerAdd, params("kept", kept))
		}
		goes := fmt.Sprint("goes", round)
		began := time.Now()
		switch round % 3 {
		case 0: // while it is copied
			r.say(api.ServerAdd, params(goes, left))
		case 1: // while a revision is replaced, and the former copy taken away
			r.must(api.ServerAdd, params(goes, left))
			began = time.Now()
			r.say(api.ServerUpdate, params("kept", kept))
			r.say(api.ServerDelete, api.Selected{Selector: goes})
		case 2: // while everything that is unneeded is collected
			r.must(api.ServerAdd, params(goes, left))
			began = time.Now()
			r.say(api.ServerDelete, api.Selected{Selector: goes})
			r.say(api.ServerGC, struct{}{})
		}
		for wait := rand.N(200 * time.Millisecond); time.Since(began) < wait; { // the instant itself is what is tried
			time.Sleep(time.Millisecond)
		}
		c.Process.Signal(syscall.SIGKILL)
		c.Wait()
		for _, name := range namesIn(t, store) {
			if strings.HasPrefix(name, halfPrefix) {
				halves++
			}
			if strings.HasPrefix(name, oldPrefix) {
				olds++
			}
		}
	}
	t.Logf("%d halves of copies and %d that were being removed were found after kills", halves, olds)
	s := start(t, cfg)
	s.whole(-1, store)
	needed := map[string]bool{}
	for _, x := range s.listed() {
		needed[x.Package] = true
	}
	waitFor(t, "nothing else is left", func() bool {
		for _, name := range namesIn(t, store) {
			if !strings.HasSuffix(name, formSuffix) && !strings.HasSuffix(name, listSuffix) && !needed[name] {
				return false
			}
		}
		return true
	})
	s.must(api.ServerAdd, params("after", s.tree("after", 40, 99)))
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// listed are the registrations.
func (r *rig) listed() []api.ServerResult {
	r.t.Helper()
	raw, err := json.Marshal(r.must(api.ServerList, struct{}{}))
	if err != nil {
		r.t.Fatal(err)
	}
	var all api.ServerListResult
	if err := json.Unmarshal(raw, &all); err != nil {
		r.t.Fatal(err)
	}
	return all.Servers
}

// whole checks that the copy of every registration is there, is what it is called, and
// has each file that its list names.
func (r *rig) whole(round int, store string) {
	r.t.Helper()
	for _, x := range r.listed() {
		raw, err := os.ReadFile(filepath.Join(store, x.Package+listSuffix))
		if sum := sha256.Sum256(raw); err != nil || hex.EncodeToString(sum[:]) != x.Package {
			r.t.Fatalf("round %d: %s: its list is none: %v", round, x.Label, err)
		}
		entries := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		for i := 0; i+2 < len(entries); i += 3 {
			kind, at, want := entries[i], entries[i+1], entries[i+2]
			if kind != "f" && kind != "x" {
				continue
			}
			content, err := os.ReadFile(filepath.Join(store, x.Package, at))
			if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != want {
				r.t.Fatalf("round %d: %s: %q is not what was registered: %v", round, x.Label, at, err)
			}
		}
	}
}
