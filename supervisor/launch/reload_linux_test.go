package launch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// What postern.yaml and profiles.d say is taken while posternd runs, as one change with
// one record; what cannot be is named; and one mistake leaves everything as it was.
func TestC8_PosternYamlAndProfilesAreTakenAsTheyChange(t *testing.T) {
	cfg := newConfig(t)
	cfg.File, cfg.FileFound, cfg.ProfileDir = filepath.Join(filepath.Dir(cfg.RunDir), "postern.yaml"), true, filepath.Join(filepath.Dir(cfg.RunDir), "profiles.d")
	touch := func() {
		t.Helper()
		if err := os.WriteFile(cfg.File, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch()
	hangup := make(chan os.Signal, 1)
	cfg.Hangup = hangup
	base := cfg
	var mu sync.Mutex
	next, wrong := base, error(nil)
	cfg.Reload = func() (Config, error) { mu.Lock(); defer mu.Unlock(); return next, wrong }
	r := start(t, cfg)
	says := func(c Config, err error) {
		mu.Lock()
		next, wrong = c, err
		mu.Unlock()
		hangup <- syscall.SIGHUP
	}
	state := func() map[string]any { return r.must(api.RootStatus, struct{}{})["config"].(map[string]any) }
	records := func() int {
		raw, _ := os.ReadFile(filepath.Join(cfg.RootDir, "audit.log"))
		return strings.Count(string(raw), `"config reload"`)
	}
	logged := func(text string) {
		t.Helper()
		waitFor(t, text, func() bool { return strings.Contains(r.log.String(), text) })
	}
	uid := uint32(64411)
	if _, refused := r.ask(api.AccountAdd, api.AccountAddParams{Name: "one", UIDs: []uint32{uid}}); refused != nil {
		t.Fatal(refused)
	}

	more := base
	more.Hosts = append(append([]order.Host{}, base.Hosts...), order.Host{ID: "bot", UID: 64401, Accounts: []string{"*"}, Projects: []string{"*"}, Channels: []string{"w"}})
	more.Keep = order.Keep{Days: 3, MiB: 100}
	more.Artifacts = order.KeepArtifacts{Days: 2, MiB: 300, ProjectMiB: 70}
	more.Audit.Keep = 2
	more.Sessions = order.Sessions{Requests: 9}
	says(more, nil)
	logged(`key=hosts.bot before=none`)
	logged("key=activity")
	logged("key=artifacts")
	logged("key=audit")
	logged("key=sessions")
	r.refused(refusal.BadRequest, api.AccountAdd, api.AccountAddParams{Name: "two", UIDs: []uint32{64401}}) // a host's from now on
	if n := records(); n != 1 {
		t.Errorf("%d records of one reload", n)
	}

	// Whatever is wrong leaves what holds, is shown, and heals.
	taken := base
	taken.Hosts = []order.Host{{ID: "thief", UID: uid, Accounts: []string{"*"}, Projects: []string{"*"}}}
	gone := base
	gone.FileFound, gone.Hosts = false, nil
	for want, do := range map[string]func(){
		"postern.yaml:7: hosts":   func() { says(base, errors.New("postern.yaml:7: hosts: want a list")) },
		fmt.Sprint("uid ", uid):   func() { says(taken, nil) },
		"was there and is gone":   func() { says(gone, nil) },
		`profiles: "bridge" is m`: func() { c := base; c.Profiles = nil; says(c, nil) },
	} {
		do()
		waitFor(t, want, func() bool { e, _ := state()["error"].(string); return strings.Contains(e, want) })
		r.refused(refusal.BadRequest, api.AccountAdd, api.AccountAddParams{Name: "two", UIDs: []uint32{64401}})
		says(more, nil)
		waitFor(t, "it heals", func() bool { return state()["error"] == nil })
	}
	if n := records(); n != 1 {
		t.Errorf("%d records, one reload was taken", n)
	}

	// What needs a restart says so; the rest of the same file is taken. Nobody hangs up.
	mu.Lock()
	next, wrong = base, nil
	next.UIDs.Count /= 2
	mu.Unlock()
	touch()
	waitFor(t, "restart", func() bool { return strings.Contains(fmt.Sprint(state()["restart_needed"]), "uid_range: ") })
	if _, refused := r.ask(api.AccountAdd, api.AccountAddParams{Name: "two", UIDs: []uint32{64401}}); refused != nil {
		t.Errorf("a removed host still has its uid: %v", refused)
	}
	if m := r.must(api.RootStatus, struct{}{}); m["uid_count"].(float64) != float64(base.UIDs.Count) {
		t.Errorf("the range changed while jails lease from it: %v", m["uid_count"])
	}
}

// What is looked at for changes: postern.yaml, its drop-ins and the profiles.
func TestC8_DropInsAreWatched(t *testing.T) {
	dir := t.TempDir()
	file, dropIns, profiles := dir+"/postern.yaml", dir+"/postern.yaml.d", dir+"/profiles.d"
	last := fingerprint(file, dropIns, profiles)
	for _, do := range []func() error{
		func() error { return os.Mkdir(dropIns, 0o755) },
		func() error { return os.WriteFile(dropIns+"/10.yaml", []byte("hosts: []"), 0o600) },
		func() error { return os.WriteFile(dropIns+"/10.yaml", []byte("hosts: [ ]"), 0o600) },
		func() error { return os.Remove(dropIns + "/10.yaml") },
		func() error { return os.WriteFile(file, nil, 0o600) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		now := fingerprint(file, dropIns, profiles)
		if now == last {
			t.Error("a change is not seen")
		}
		last = now
	}
	if now := fingerprint(file, dropIns, profiles); now != last {
		t.Error("a change is seen where there is none")
	}
	// Beside them, a file that was meant to be read counts and no other does.
	s := &Supervisor{cfg: Config{File: file, DropInDir: dropIns, ProfileDir: profiles, Access: dir + "/access.yaml"}}
	for _, row := range []struct {
		name string
		seen bool
	}{{"access.yml", true}, {"postern.conf", true}, {"access.yaml.lock", false}, {"notes", false}, {"access.yaml.new", false}} {
		before := s.fingerprint()
		if err := os.WriteFile(filepath.Join(dir, row.name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if now := s.fingerprint(); (now != before) != row.seen {
			t.Errorf("%s: seen %v", row.name, now != before)
		}
	}
}

// A revision starts under the very profile that it was made with, and the refusal says
// which of the two is missing.
func TestARevisionWithoutItsProfile(t *testing.T) {
	s := &Supervisor{live: settings{profiles: newConfig(t).Profiles}}
	for name, want := range map[string]string{"gone": `There is no profile "gone" any more: put its file back`, "static": `Profile "static" is another than this revision was made with`} {
		_, _, err := s.launchServer(nil, "", Project{}, Revision{Profile: name, ProfileDigest: "x"}, handover{}, nil)
		var r *api.Refusal
		if !errors.As(err, &r) || r.Code != refusal.ProfileUnknown || !strings.Contains(r.Detail, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A profile that changes makes a new revision of what is registered with it, at once.
func TestC8_AChangedProfileMakesANewRevision(t *testing.T) {
	cfg := newConfig(t)
	cfg.Profiles = maps.Clone(cfg.Profiles)
	own := cfg.Profiles["static"]
	own.Name, own.Digest = "own", strings.Repeat("1", 64)
	cfg.Profiles["own"] = own
	cfg.File = filepath.Join(filepath.Dir(cfg.RunDir), "postern.yaml")
	hangup := make(chan os.Signal, 1)
	cfg.Hangup = hangup
	next := cfg
	next.Profiles = maps.Clone(cfg.Profiles)
	own.Digest = strings.Repeat("2", 64)
	next.Profiles["own"] = own
	// The first look is posternd's own, and would take what is next before it is registered.
	base, changed := cfg, make(chan struct{})
	cfg.Reload = func() (Config, error) {
		select {
		case <-changed:
			return next, nil
		default:
			return base, nil
		}
	}
	r := start(t, cfg)
	r.server("s")
	p := api.ServerParams{Label: "mine", Profile: "own", Package: filepath.Join(r.dir, "pkg-s"), Command: []string{"/package/server"}}
	first := r.must(api.ServerAdd, p)["revision"]
	close(changed)
	hangup <- syscall.SIGHUP
	waitFor(t, "a new revision", func() bool { return r.must(api.ServerShow, api.Selected{Selector: "mine"})["revision"] != first })
}
