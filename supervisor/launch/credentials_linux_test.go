package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

const envSecret, fdSecret = "env-s3cret-of-alice", "fd-s3cret-of-alice\x00with a NUL"

// needing registers the test's server as one that needs a credential.
func (r *rig) needing(label string, how api.ServerParams) (ids.Server, ids.Revision) {
	r.t.Helper()
	r.server(label)
	how.Label, how.Profile, how.Credential, how.Package, how.Command = label, "static", "required", filepath.Join(r.dir, "pkg-"+label), []string{"/package/server"}
	m := r.must(api.ServerUpdate, how)
	return ids.Server(m["server"].(string)), ids.Revision(m["revision"].(string))
}

func (r *rig) credential(label, project, server, secret string) map[string]any {
	r.t.Helper()
	return r.must(api.CredentialAdd, api.CredentialParams{Label: label, Project: project, Server: server, Secret: api.SecretOf([]byte(secret))})
}

func (r *rig) secretFiles() []string {
	r.t.Helper()
	all, err := os.ReadDir(filepath.Join(r.cfg.RootDir, secretsDir))
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

func dry(r *api.Request) { r.DryRun = true }

// A secret reaches the jail of its project and server, as its registration says, and
// nobody else's: not another project's instance of the same server, not another server of
// the same project, not a bridge; and no answer, log, record or fact has it.
func TestLaunch12_ASecretReachesItsServerAlone(t *testing.T) {
	r := start(t, newConfig(t))
	alice, _ := r.project("alice", 1000)
	bob, _ := r.project("bob", 1001)
	byEnv, byEnvRev := r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	byFD, byFDRev := r.needing("byfd", api.ServerParams{CredentialFD: 5})
	plain, plainRev := r.server("plain")
	d := r.drive()
	run := func(p ids.Project, s ids.Server, v ids.Revision) said {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: s, Revision: v})
		_, files := d.launched()
		defer func() {
			for _, f := range files {
				f.Close()
			}
			expect[order.Exited](d)
		}()
		return hear(t, files[1])
	}
	refused := func(p ids.Project, s ids.Server, v ids.Revision) order.NotLaunched {
		t.Helper()
		d.give(order.LaunchServer{Seq: 2, Project: p, Server: s, Revision: v})
		return d.notLaunched(refusal.CredentialMissing)
	}
	refused(alice, byEnv, byEnvRev)

	var answers []any
	answers = append(answers, r.credential("tok", "alice", "byenv", envSecret+"\n"), r.credential("key", "alice", "byfd", fdSecret))
	before := run(alice, plain, plainRev)
	s := run(alice, byEnv, byEnvRev)
	if !slices.Contains(s.Env, "API_TOKEN="+envSecret) || s.Passed != "" || !slices.Equal(s.FDs, before.FDs) {
		t.Errorf("by variable: %+v", s)
	}
	s = run(alice, byFD, byFDRev)
	if s.Passed != fdSecret || !s.Sealed || !slices.Equal(s.FDs, append(slices.Clone(before.FDs), "5")) || !slices.Equal(s.Env, before.Env) {
		t.Errorf("by descriptor: %+v, without it %+v", s, before)
	}
	said := refused(bob, byEnv, byEnvRev)
	refused(bob, byFD, byFDRev)
	r.credential("bobs", "bob", "byenv", "another")
	if s := run(bob, byEnv, byEnvRev); !slices.Contains(s.Env, "API_TOKEN=another") {
		t.Errorf("bob's: %v", s.Env)
	}

	// A probe is given the secret of the project that is named, and of none where none is
	// needed.
	probe := func(p ids.Project, s ids.Server, v ids.Revision) {
		t.Helper()
		d.give(order.LaunchProbe{Seq: 3, Project: p, Server: s, Revision: v})
	}
	probe(alice, byEnv, byEnvRev)
	_, files := d.launched()
	if s := hear(t, files[2]); !slices.Contains(s.Env, "API_TOKEN="+envSecret) {
		t.Errorf("a probe: %+v", s)
	}
	for _, f := range files {
		f.Close()
	}
	expect[order.Exited](d)
	expect[order.Exited](d)
	probe("", byEnv, byEnvRev)
	d.notLaunched(refusal.ProjectUnknown)
	probe(bob, byFD, byFDRev)
	d.notLaunched(refusal.CredentialMissing)
	probe(alice, plain, plainRev)
	d.notLaunched(refusal.BadRequest)

	answers = append(answers, said, r.must(api.CredentialList, struct{}{}), r.must(api.ServerList, struct{}{}), r.must(api.RootStatus, struct{}{}),
		r.must(api.CredentialRotate, api.CredentialParams{Selector: "tok", Secret: api.SecretOf([]byte("next-s3cret"))}))
	for _, name := range []string{factsName, "audit.log"} {
		raw, err := os.ReadFile(filepath.Join(r.cfg.RootDir, name))
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(raw))
	}
	for _, a := range append(answers, r.log.String()) {
		if text := fmt.Sprint(a); strings.Contains(text, "s3cret") {
			t.Errorf("a secret stands in %q", text)
		}
	}
	if text := fmt.Sprint(said); strings.Contains(text, "tok") || strings.Contains(text, r.cfg.RootDir) {
		t.Errorf("the authority hears %q", text)
	}
	if !strings.Contains(fmt.Sprint(answers), "generation 1; ") && !strings.Contains(fmt.Sprint(answers), `"tok`) {
		t.Error("the twin: the audit does not name the credential")
	}
}

// What is missing, empty, too open, a link or not whole is refused before a process
// exists; the twin is that it starts again once it is right.
func TestLaunch12_WhatCannotBeReadStartsNothing(t *testing.T) {
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	r.credential("tok", "alice", "byenv", envSecret)
	file := filepath.Join(r.cfg.RootDir, secretsDir, r.secretFiles()[0])
	d := r.drive()
	state := func() string {
		all := r.must(api.CredentialList, struct{}{})["credentials"].([]any)
		return all[0].(map[string]any)["state"].(string)
	}
	away := file + "-away"
	for name, spoil := range map[string]struct {
		do, undo func() error
		says     string
	}{
		"missing":    {func() error { return os.Rename(file, away) }, func() error { return os.Rename(away, file) }, "no such file"},
		"open":       {func() error { return os.Chmod(file, 0o640) }, func() error { return os.Chmod(file, 0o600) }, "mode 0640"},
		"another's":  {func() error { return os.Chown(file, 1000, 0) }, func() error { return os.Chown(file, 0, 0) }, "uid 1000"},
		"two names":  {func() error { return os.Link(file, away) }, func() error { return os.Remove(away) }, "2 names"},
		"a link":     {func() error { return errors.Join(os.Rename(file, away), os.Symlink(away, file)) }, func() error { return os.Rename(away, file) }, "symbolic link"},
		"empty":      {func() error { return os.Truncate(file, 0) }, func() error { return os.WriteFile(file, []byte(envSecret), 0o600) }, "0 bytes"},
		"a line end": {func() error { return os.WriteFile(file, []byte("\n"), 0o600) }, func() error { return os.WriteFile(file, []byte(envSecret), 0o600) }, ""},
		"too long":   {func() error { return os.Truncate(file, 1<<20) }, func() error { return os.WriteFile(file, []byte(envSecret), 0o600) }, "1048576 bytes"},
		"a NUL":      {func() error { return os.WriteFile(file, []byte("a\x00b"), 0o600) }, func() error { return os.WriteFile(file, []byte(envSecret), 0o600) }, ""},
	} {
		if err := spoil.do(); err != nil {
			t.Fatal(err)
		}
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
		if n := d.notLaunched(refusal.CredentialMissing); strings.Contains(n.Text, file) {
			t.Errorf("%s: the authority hears %q", name, n.Text)
		}
		if s := state(); spoil.says != "" && !(strings.HasPrefix(s, "unreadable: ") && strings.Contains(s, spoil.says)) {
			t.Errorf("%s: state %q", name, s)
		}
		if spoil.says != "" {
			if err := errors.Join(r.cfg.CheckFiles()...); err == nil || !strings.Contains(err.Error(), spoil.says) {
				t.Errorf("%s: posternd -check says %v", name, err)
			}
		}
		if err := spoil.undo(); err != nil {
			t.Fatal(err)
		}
		d.give(order.LaunchServer{Seq: 2, Project: p, Server: server, Revision: rev})
		_, files := d.launched()
		if s := hear(t, files[1]); !slices.Contains(s.Env, "API_TOKEN="+envSecret) {
			t.Errorf("%s: afterwards %+v", name, s)
		}
		for _, f := range files {
			f.Close()
		}
		expect[order.Exited](d)
	}
	if s := state(); s != "ok" {
		t.Errorf("the twin: state %q", s)
	}
	if err := errors.Join(r.cfg.CheckFiles()...); err != nil {
		t.Errorf("the twin: posternd -check says %v", err)
	}
}

// C160: what systemd gives is named and looked up at each start; a name that it does not
// give is refused by its name.
func TestC160_ASystemdReference(t *testing.T) {
	cfg := newConfig(t)
	cfg.Credentials = filepath.Join(newDir(t), "given")
	if err := errors.Join(os.Mkdir(cfg.Credentials, 0o500), os.WriteFile(filepath.Join(cfg.Credentials, "api-key"), []byte(envSecret+"\n"), 0o400)); err != nil {
		t.Fatal(err)
	}
	r := start(t, cfg)
	p, _ := r.project("alice", 1000)
	server, rev := r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	add := api.CredentialParams{Label: "tok", Project: "alice", Server: "byenv", Systemd: "api-key"}
	for _, name := range []string{"no-such-key", "../passwd", ".", "a/b"} {
		bad := add
		bad.Systemd = name
		code := refusal.BadRequest
		if name == "no-such-key" {
			code = refusal.CredentialMissing
		}
		if no := r.refused(code, api.CredentialAdd, bad); !strings.Contains(no.Detail, name) {
			t.Errorf("%q: %s", name, no.Detail)
		}
	}
	r.must(api.CredentialAdd, add)
	d := r.drive()
	runs := func(want string) {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
		_, files := d.launched()
		if s := hear(t, files[1]); !slices.Contains(s.Env, "API_TOKEN="+want) {
			t.Errorf("%+v", s)
		}
		for _, f := range files {
			f.Close()
		}
		expect[order.Exited](d)
	}
	runs(envSecret)
	if err := errors.Join(os.Remove(filepath.Join(cfg.Credentials, "api-key")), os.WriteFile(filepath.Join(cfg.Credentials, "api-key"), []byte("renewed"), 0o400)); err != nil {
		t.Fatal(err)
	}
	runs("renewed") // at the next start, as stated
	if err := os.Truncate(filepath.Join(cfg.Credentials, "api-key"), 0); err != nil {
		t.Fatal(err)
	}
	d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
	d.notLaunched(refusal.CredentialMissing)
	if !strings.Contains(r.log.String(), "api-key") || strings.Contains(r.log.String(), "s3cret") {
		t.Error("the log does not name the reference alone")
	}
	if len(r.secretFiles()) != 0 {
		t.Errorf("files %v", r.secretFiles())
	}
}

// Rotating and revoking end what was handed the former secret before they answer, and
// nothing else; a start that began before does not slip through, and the files of former
// secrets are gone.
func TestLaunch13_NothingHoldsAFormerSecret(t *testing.T) {
	r := start(t, newConfig(t))
	alice, _ := r.project("alice", 1000)
	bob, _ := r.project("bob", 1001)
	server, rev := r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	r.credential("tok", "alice", "byenv", envSecret)
	r.credential("bobs", "bob", "byenv", "bobs")
	d := r.drive()
	launch := func(p ids.Project) (order.Launched, []*os.File) {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev})
		l, files := d.launched()
		t.Cleanup(func() { // or it would end with its pipes
			for _, f := range files {
				f.Close()
			}
		})
		return l, files
	}
	alive := func(l order.Launched) bool { return !gone(fmt.Sprintf("/proc/%d", l.PID)) }
	his, _ := launch(bob)
	one, _ := launch(alice)

	was := r.secretFiles()
	if m := r.must(api.CredentialRotate, api.CredentialParams{Selector: "tok", Secret: api.SecretOf([]byte("next"))}, dry); m["instances_ended"] != 1.0 || !alive(one) {
		t.Errorf("a dry run ended something: %v", m)
	}
	if now := r.secretFiles(); !slices.Equal(now, was) {
		t.Errorf("a dry run left %v, there was %v", now, was)
	}
	m := r.must(api.CredentialRotate, api.CredentialParams{Selector: "tok", Secret: api.SecretOf([]byte("next"))})
	if alive(one) || !alive(his) || m["instances_ended"] != 1.0 || m["generation"] != 2.0 {
		t.Errorf("rotated: the former is alive: %v, bob's: %v, %v", alive(one), alive(his), m)
	}
	expect[order.Exited](d)
	if now := r.secretFiles(); len(now) != 2 || slices.Equal(now, was) {
		t.Errorf("files %v", now)
	}
	two, files := launch(alice)
	if s := hear(t, files[1]); !slices.Contains(s.Env, "API_TOKEN=next") {
		t.Errorf("after rotating: %v", s.Env)
	}
	if m := r.must(api.CredentialRevoke, api.Selected{Selector: "tok"}, dry); m["instances_ended"] != 1.0 || !alive(two) {
		t.Errorf("a dry run ended something: %v", m)
	}
	m = r.must(api.CredentialRevoke, api.Selected{Selector: "tok"})
	if alive(two) || !alive(his) || m["instances_ended"] != 1.0 || m["state"] != "revoked" {
		t.Errorf("revoked: %v, %v, %v", alive(two), alive(his), m)
	}
	expect[order.Exited](d)
	d.give(order.LaunchServer{Seq: 1, Project: alice, Server: server, Revision: rev})
	d.notLaunched(refusal.CredentialMissing)
	r.refused(refusal.NotFound, api.CredentialRevoke, api.Selected{Selector: "tok"})

	// Deleting the server takes bob's too.
	r.must(api.ServerDelete, api.Selected{Selector: "byenv"})
	if alive(his) || len(r.secretFiles()) != 0 {
		t.Errorf("a deleted server's: alive %v, files %v", alive(his), r.secretFiles())
	}
}

// However starts and rotations interleave, what is alive after a rotation has the secret
// of that rotation or a later one.
func TestLaunch13_AStartDoesNotSlipPastARotation(t *testing.T) {
	const rotations = 8
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	r.credential("tok", "alice", "byenv", "n0")
	d := r.drive()
	for n := 1; n <= rotations; n++ {
		for i := range 3 {
			d.give(order.LaunchServer{Seq: uint64(i), Project: p, Server: server, Revision: rev})
		}
		r.must(api.CredentialRotate, api.CredentialParams{Selector: "tok", Secret: api.SecretOf(fmt.Append(nil, "n", n))})
		left, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range left {
			raw, err := os.ReadFile(f)
			if err == nil && strings.Contains(string(raw), fmt.Sprintf("API_TOKEN=n%d\x00", n-1)) {
				t.Fatalf("%s has the secret before rotation %d", f, n)
			}
		}
		for range 3 { // a launch that was late is refused by name or has the new one
			m, files := d.answer()
			t.Cleanup(func() {
				for _, f := range files {
					f.Close()
				}
			})
			if len(files) == 0 {
				if no, ok := m.(order.NotLaunched); ok && no.Code != refusal.CredentialMissing && no.Code != refusal.ServerUnavailable {
					t.Errorf("%+v", no)
				}
			}
		}
	}
}

// After a crash the facts name a secret that is there, and nothing else is.
func TestLaunch2_SecretsOfUnmadeChangesAreSwept(t *testing.T) {
	cfg := newConfig(t)
	r := start(t, cfg)
	r.project("alice", 1000)
	r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	r.credential("tok", "alice", "byenv", envSecret)
	kept := r.secretFiles()
	r.down()
	stray := filepath.Join(cfg.RootDir, secretsDir, string(newID[ids.Credential](time.Now()))+".1")
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = start(t, cfg)
	if now := r.secretFiles(); !slices.Equal(now, kept) {
		t.Errorf("files %v, want %v", now, kept)
	}
	r.down()
	if err := os.Chmod(filepath.Join(cfg.RootDir, secretsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Log, cfg.Stderr = r.cfg.Log, r.log
	if err := Run(context.Background(), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "0755") {
		t.Errorf("a directory that others can read was taken: %v", err)
	}
}

func TestCredentialRules(t *testing.T) {
	r := start(t, newConfig(t))
	r.project("alice", 1000)
	r.server("plain")
	r.needing("byenv", api.ServerParams{CredentialEnv: "API_TOKEN"})
	good := api.CredentialParams{Label: "tok", Project: "alice", Server: "byenv", Secret: api.SecretOf([]byte("s3cret"))}
	for name, x := range map[string]struct {
		code   refusal.Code
		change func(*api.CredentialParams)
	}{
		"a bad name":            {refusal.BadRequest, func(p *api.CredentialParams) { p.Label = "Tok!" }},
		"no project":            {refusal.ProjectUnknown, func(p *api.CredentialParams) { p.Project = "none" }},
		"no server":             {refusal.ServerUnknown, func(p *api.CredentialParams) { p.Server = "none" }},
		"a keyless server":      {refusal.RegistrationWrong, func(p *api.CredentialParams) { p.Server = "plain" }},
		"no secret":             {refusal.BadRequest, func(p *api.CredentialParams) { p.Secret = api.Secret{} }},
		"an empty secret":       {refusal.BadRequest, func(p *api.CredentialParams) { p.Secret = api.SecretOf([]byte("\n")) }},
		"too much":              {refusal.BadRequest, func(p *api.CredentialParams) { p.Secret = api.SecretOf([]byte(strings.Repeat("s3cret", 11_000))) }},
		"a NUL":                 {refusal.BadRequest, func(p *api.CredentialParams) { p.Secret = api.SecretOf([]byte("s3cret\x00")) }},
		"two sources":           {refusal.BadRequest, func(p *api.CredentialParams) { p.Systemd = "key" }},
		"systemd gives nothing": {refusal.CredentialMissing, func(p *api.CredentialParams) { p.Secret, p.Systemd = api.Secret{}, "key" }},
		"a selector":            {refusal.BadRequest, func(p *api.CredentialParams) { p.Selector = "tok" }},
	} {
		p := good
		x.change(&p)
		if no := r.refused(x.code, api.CredentialAdd, p); strings.Contains(no.Detail, "s3c") {
			t.Errorf("%s: %q", name, no.Detail)
		}
	}
	if no := r.refused(refusal.BadRequest, api.CredentialAdd, map[string]any{"label": "tok", "secret": "s3cret is no base64!"}); strings.Contains(no.Detail, "s3c") {
		t.Errorf("a refusal shows what was sent: %q", no.Detail)
	}
	if m := r.must(api.CredentialAdd, good, dry); m["label"] != "tok" || len(r.secretFiles()) != 0 {
		t.Errorf("dry run: %v, files %v", m, r.secretFiles())
	}
	good.Secret = api.SecretOf([]byte("s3cret"))
	r.must(api.CredentialAdd, good)
	good.Secret = api.SecretOf([]byte("s3cret"))
	r.refused(refusal.AlreadyExists, api.CredentialAdd, good)
	other := good
	other.Label, other.Secret = "other", api.SecretOf([]byte("s3cret"))
	r.refused(refusal.AlreadyExists, api.CredentialAdd, other)
	r.refused(refusal.BadRequest, api.CredentialRotate, good)
	r.refused(refusal.NotFound, api.CredentialRotate, api.CredentialParams{Selector: "none", Secret: api.SecretOf([]byte("x"))})

	for name, how := range map[string]api.ServerParams{
		"no way": {}, "two ways": {CredentialEnv: "A", CredentialFD: 5}, "a standard stream": {CredentialFD: 2}, "beyond": {CredentialFD: 10},
		"no name": {CredentialEnv: "A B"}, "the linker's": {CredentialEnv: "LD_PRELOAD"}, "the profile's": {CredentialEnv: "HOME"},
		"without need": {CredentialEnv: "A", Credential: "none"},
	} {
		how.Label, how.Profile, how.Package, how.Command, how.Credential = "x", "static", filepath.Join(r.dir, "pkg-plain"), []string{"/package/server"}, orElse(how.Credential, "required")
		if no := r.refused(refusal.RegistrationWrong, api.ServerAdd, how); no.Detail == "" {
			t.Errorf("%s: %v", name, no)
		}
	}
}
