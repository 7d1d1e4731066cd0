package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/refusal"
	"postern/supervisor/order"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs root")
	}
	t.Skip("this test needs root")
}

const good = `uid_range: {first: 200000, count: 64}
hosts:
  - id: runner
    uid: 900
    accounts: ["*"]
    projects: [prj_019c8a54-5400-7000-8000-000000000001]
    channels: [whatsapp]
activity: {keep_days: 30, keep_mib: 64}
audit: {file_kib: 64, old_files: 3}
`

// twice has hosts that cannot be told apart, or are somebody else.
const twice = `hosts:
  - {id: a, uid: 900, accounts: ["*"], projects: ["*"], channels: [Whats App]}
  - {id: a, uid: 901, accounts: ["*"], projects: ["*"]}
  - {id: b, uid: 900, accounts: ["*"], projects: ["*"]}
  - {id: d, uid: 0, accounts: ["*"], projects: ["*"]}
  - {id: c, uid: 200001, accounts: ["*"], projects: ["*"]}
`

func TestConfig_IsReadStrictly(t *testing.T) {
	c, err := decodeConfig("postern.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if c.uids != (order.Range{First: 200000, Count: 64}) || len(c.hosts) != 1 || c.hosts[0].UID != 900 || c.hosts[0].Accounts[0] != "*" || len(c.hosts[0].Projects) != 1 || c.keep != (order.Keep{Days: 30, MiB: 64}) || c.audit != (auditKeep{64, 3}) {
		t.Fatalf("%+v", c)
	}
	for _, empty := range []string{"", "# nothing\n", "hosts: []\n"} {
		if _, err := decodeConfig("postern.yaml", []byte(empty)); err != nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestPosternd1_EveryMistakeWithFileLineAndKey(t *testing.T) {
	_, err := decodeConfig("postern.yaml", []byte(`uid_range: {first: many, count: 64, last: 3}
host: []
hosts:
  - id: a
    uid: -1
    accounts: [acc_1]
    projects: ["*", prj_019c8a54-5400-7000-8000-000000000001]
  - uid: 5
    accounts: x
    projects: []
    channels: ["*"]
hosts: []
activity:
  keep_days: 0
  keep_mib: 63
  keep: 5
`))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"postern.yaml:1: uid_range.first: ", "postern.yaml:1: uid_range.last: is not a key here", "postern.yaml:2: host: is not a key here",
		"postern.yaml:5: hosts[0].uid: ", "postern.yaml:6: hosts[0].accounts[0]: ", "postern.yaml:7: hosts[0].projects: ", "hosts[1].id: is missing",
		"postern.yaml:9: hosts[1].accounts: ", "postern.yaml:11: hosts[1].channels[0]: ", "postern.yaml:12: hosts: is given twice",
		"postern.yaml:14: activity.keep_days: want a number from 1 to ", "postern.yaml:15: activity.keep_mib: want a number from 64 to ", "postern.yaml:16: activity.keep: is not a key here",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if _, err := decodeConfig("postern.yaml", []byte("hosts: [\n")); err == nil || !strings.Contains(err.Error(), "postern.yaml:") {
		t.Errorf("%v", err)
	}
	if _, err := decodeConfig("postern.yaml", []byte("hosts: []\n---\nhosts: []\n")); err == nil {
		t.Error("two documents were accepted")
	}
}

func TestPosternd1_NothingIsStartedAndTheStatusIs78(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/tmp", "pd") // short: the paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "postern.yaml")
	if err := os.WriteFile(config, []byte("hots: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(more ...string) []string {
		return append([]string{"--config", config, "--root-dir", dir + "/root", "--state-dir", dir + "/state", "--run-dir", dir + "/run", "--authority-user", "64321:64321"}, more...)
	}
	for name, c := range map[string]struct {
		args   []string
		prep   func()
		status int
		says   []string
	}{
		"mistakes of a file and of flags at once": {at("--uid-range", "1-2", "--authority-user", "no such user"), nil, refusal.ExitConfig,
			[]string{"postern.yaml:1: hots", "uid-range: want FIRST:COUNT", "authority-user: "}},
		"a range that is root's":  {at("--uid-range", "0:10"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"uid-range"}},
		"a file others may write": {at(), func() { os.Chmod(config, 0o666) }, refusal.ExitConfig, []string{"must be a file of root's", config}},
		"who is who, beside other mistakes": {at("--uid-range", "200000:64"), func() { os.WriteFile(config, []byte("hots: []\n"+twice), 0o600) }, refusal.ExitConfig,
			[]string{"postern.yaml:1: hots", `two have the id "a"`, `"b" has the uid 900 of "a"`, `"d" has uid 0; root is no host`, `"c" has uid 200001 of the jails' range`, `"Whats App" is no channel`}},
		"an authority in the range":    {at("--authority-user", "1879048200:5"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"authority-user: uid 1879048200 lies in the jails' range"}},
		"an authority that is root":    {at("--authority-user", "0:0"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"authority-user: uid 0 is root's"}},
		"a group that is no path":      {at("--cgroup", "/postern"), func() { os.WriteFile(config, nil, 0o600) }, refusal.ExitConfig, []string{"cgroup: want a path relative"}},
		"a directory others may write": {at(), func() { os.WriteFile(config, nil, 0o600); os.Chmod(dir, 0o777) }, refusal.ExitConfig, []string{"its directory must be root's", config}},
		"nothing is a mapping":         {at(), func() { os.WriteFile(config, []byte("- a\n"), 0o600) }, refusal.ExitConfig, []string{"postern.yaml:1: the file: want a mapping"}},
		"a file that is missing":       {at("--config", dir+"/none"), nil, refusal.ExitConfig, []string{"none"}},
		"an argument":                  {at("start"), nil, refusal.ExitUsage, []string{"start"}},
		"an unknown flag":              {at("--insecure"), nil, refusal.ExitUsage, []string{"insecure"}},
	} {
		os.WriteFile(config, []byte("hots: []\n"), 0o600)
		os.Chmod(config, 0o600)
		os.Chmod(dir, 0o700)
		if c.prep != nil {
			c.prep()
		}
		var out bytes.Buffer
		if got := run(t.Context(), c.args, &out); got != c.status {
			t.Errorf("%s: status %d, want %d\n%s", name, got, c.status, &out)
		}
		for _, want := range c.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, &out)
			}
		}
	}
	os.Chmod(dir, 0o700)
	// The permitted twin of all of these: --check, which makes nothing either.
	os.WriteFile(config, []byte(good), 0o600)
	os.Chmod(config, 0o600)
	var out bytes.Buffer
	if got := run(t.Context(), at("--check"), &out); got != 0 {
		t.Errorf("--check: %d\n%s", got, &out)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("something was made: %v", left)
	}
	// It reads the facts where there are some, and refuses what is not root's alone.
	os.MkdirAll(dir+"/root", 0o700)
	os.WriteFile(dir+"/root/facts.json", []byte("{}"), 0o644)
	out.Reset()
	if got := run(t.Context(), at("--check"), &out); got != refusal.ExitConfig || !strings.Contains(out.String(), "0644") {
		t.Errorf("--check with facts others may read: %d\n%s", got, &out)
	}
}

func TestFlags_UserAndRange(t *testing.T) {
	if uid, gid, err := lookUp("123:456"); err != nil || uid != 123 || gid != 456 {
		t.Errorf("%d:%d, %v", uid, gid, err)
	}
	if uid, _, err := lookUp("nobody"); err != nil || uid == 0 {
		t.Errorf("%d, %v", uid, err)
	}
	for _, bad := range []string{"", "1", "1:", ":1", "a:b", "-1:5", "1:99999999999"} {
		if r, err := parseRange(bad); err == nil {
			t.Errorf("%q is %v", bad, r)
		}
	}
}

func TestPosternd2_C113_TheEnvironmentIsForgotten(t *testing.T) {
	for _, k := range []string{"AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "NOTIFY_SOCKET", "PATH"} {
		t.Setenv(k, "/x")
	}
	run(t.Context(), []string{"--no-such-flag"}, &bytes.Buffer{})
	if left := os.Environ(); len(left) != 0 {
		t.Errorf("%q stays", left)
	}
}
