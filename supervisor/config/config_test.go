package config

import (
	"errors"
	"strings"
	"testing"

	"postern/supervisor/audit"
	"postern/supervisor/order"
)

const good = `uid_range: {first: 200000, count: 64}
hosts:
  - id: runner
    uid: 900
    accounts: ["*"]
    projects: [prj_019c8a54-5400-7000-8000-000000000001]
    channels: [whatsapp]
activity: {keep_days: 30, keep_mib: 64}
artifacts: {keep_days: 1}
audit: {file_kib: 64, old_files: 3}
drain_seconds: 0
sessions: {requests: 1, line_kib: 16384, line_wait_seconds: 3600, depth: 8, queue_kib: 64}
`

func decodeOne(raw string) (File, error) { return Decode(Source{"postern.yaml", []byte(raw)}) }

func TestAFileIsReadStrictly(t *testing.T) {
	c, err := decodeOne(good)
	if err != nil {
		t.Fatal(err)
	}
	if c.UIDs != (order.Range{First: 200000, Count: 64}) || len(c.Hosts) != 1 || c.Hosts[0].UID != 900 || c.Hosts[0].Accounts[0] != "*" || len(c.Hosts[0].Projects) != 1 || c.Hosts[0].Channels[0] != "whatsapp" ||
		c.Keep != (order.Keep{Days: 30, MiB: 64}) || c.Audit != (Audit{64, 3}) || c.Drain == nil || *c.Drain != 0 || c.Artifacts != (order.KeepArtifacts{Days: 1, MiB: 4096, ProjectMiB: 1024}) ||
		c.Sessions != (order.Sessions{Requests: 1, LineKiB: 16384, LineWaitSeconds: 3600, Depth: 8, QueueKiB: 64}) {
		t.Fatalf("%+v", c)
	}
	for _, empty := range []string{"", "# nothing\n", "hosts: []\n", "{}\n"} {
		if f, err := decodeOne(empty); err != nil || f.Drain != nil || f.Artifacts != Defaults().Artifacts {
			t.Errorf("%q: %v", empty, err)
		}
	}
	if f, err := Decode(); err != nil || f.Artifacts.Days == 0 {
		t.Errorf("no file: %+v, %v", f, err)
	}
}

func told(t *testing.T, err error, wants ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

func TestConfig1_EveryMistakeWithFileLineAndKey(t *testing.T) {
	_, err := decodeOne(`uid_range: {first: many, count: 64, last: 3}
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
sessions: {requests: 65, line_kib: 3, line_wait_seconds: 0, depth: 513, queue_kib: 20481, lines: 1}
`)
	told(t, err,
		"postern.yaml:1: uid_range.first: want a number from 65536", "postern.yaml:1: uid_range.last: is not a key here", "postern.yaml:2: host: is not a key here; did you mean hosts?",
		"postern.yaml:5: hosts[0].uid: ", "postern.yaml:6: hosts[0].accounts[0]: ", "postern.yaml:7: hosts[0].projects: ", "hosts[1].id: is missing",
		"postern.yaml:9: hosts[1].accounts: ", "postern.yaml:11: hosts[1].channels[0]: ", "postern.yaml:12: hosts: is given twice",
		"postern.yaml:14: activity.keep_days: want a number from 1 to ", "postern.yaml:15: activity.keep_mib: want a number from 64 to ", "postern.yaml:16: activity.keep: is not a key here",
		"postern.yaml:17: sessions.requests: want a number from 1 to 64", "postern.yaml:17: sessions.line_kib: want a number from 4 to 16384",
		"postern.yaml:17: sessions.line_wait_seconds: want a number from 1 to 3600", "postern.yaml:17: sessions.depth: want a number from 8 to 512",
		"postern.yaml:17: sessions.queue_kib: want a number from 64 to 20480", "postern.yaml:17: sessions.lines: is not a key here")
	for raw, want := range map[string]string{
		"hosts: [\n": "postern.yaml:", "hosts: []\n---\nhosts: []\n": "want one document", "- a\n": "postern.yaml:1: the file: want a mapping", "activity:\n": "postern.yaml:1: activity: want a mapping",
		"hosts: {}\n": "postern.yaml:1: hosts: want a list, of which each entry begins with a hyphen", "hosts: none\n": "postern.yaml:1: hosts: want a list of at most", "hosts: [{id: a, uid: 998, accounts: \"*\"}]\n": `hosts[0].accounts: want a list of ids of accounts, or ["*"]`, "drain_seconds: 1.5\n": "want a number", "drain_seconds: '5'\n": "want a number", "drain_seconds: 0x10\n": "want a number",
		"uid_range: {first: 70000}\n": "uid_range.count: is missing; want a number", "activity: &a {keep_days: 1}\n": "want a mapping", "hosts: !!seq []\n": "want a list",
		"\ufeffdrain_seconds: 5\n": "postern.yaml:1: begins with a byte order mark of UTF-8", "\xff\xfed\x00": "postern.yaml:1: begins with a byte order mark of UTF-16",
		strings.Repeat("# ", MaxFile): "at most", "activity: {keep_days: 1, keep_days: 2}": "activity.keep_days: is given twice",
	} {
		_, err := decodeOne(raw)
		told(t, err, want)
	}
}

// C156: what is misspelt, and what lies in the wrong section, at every level.
func TestConfig2_C156_UnknownKeysAtEveryLevel(t *testing.T) {
	_, err := decodeOne(`enviroment: {}
keep_days: 3
activity:
  keep_dyas: 5
  drain_seconds: 4
  deeper:
    keep_days: 1
hosts:
  - {id: a, uid: 5, acounts: ["*"], accounts: ["*"], projects: ["*"], read_only: true}
`)
	told(t, err,
		"postern.yaml:1: enviroment: is not a key here; want one of uid_range, activity",
		"postern.yaml:2: keep_days: is not a key here; it belongs there: activity.keep_days, artifacts.keep_days",
		"postern.yaml:4: activity.keep_dyas: is not a key here; did you mean keep_days?",
		"postern.yaml:5: activity.drain_seconds: is not a key here; it belongs there: drain_seconds",
		"postern.yaml:6: activity.deeper: is not a key here",
		"postern.yaml:9: hosts[0].acounts: is not a key here; did you mean accounts?",
		"postern.yaml:9: hosts[0].read_only: is not a key here; want one of id, uid, accounts, projects, channels")
}

// C157: of two that differ in case alone, in one file or in two, which is meant is unknown.
func TestConfig2_C157_FilesAddUpAndNoneOverrides(t *testing.T) {
	host := func(id, uid string) string {
		return "  - {id: " + id + ", uid: " + uid + ", accounts: ['*'], projects: ['*']}\n"
	}
	f, err := Decode(Source{"postern.yaml", []byte("activity: {keep_days: 5}\nhosts:\n" + host("a", "901"))}, Source{"d/10.yaml", []byte("activity: {keep_mib: 64}\nhosts:\n" + host("b", "902"))}, Source{"d/20.yaml", nil})
	if err != nil || f.Keep != (order.Keep{Days: 5, MiB: 64}) || len(f.Hosts) != 2 || f.Hosts[1].UID != 902 {
		t.Fatalf("%+v, %v", f, err)
	}
	_, err = Decode(Source{"postern.yaml", []byte("activity: {keep_days: 5}\ndrain_seconds: 3\nhosts:\n" + host("a", "901") + host("A", "903"))},
		Source{"d/10.yaml", []byte("\nactivity: {keep_days: 5}\nhosts:\n" + host("b", "902") + host("a", "904"))}, Source{"d/20.yaml", []byte("drain_seconds: 4\nhosts: [\n")}, Source{"d/30.yaml", []byte("drain_seconds: 4\n")})
	told(t, err,
		`postern.yaml:5: hosts[1].id: "A" is the id of the host at postern.yaml:4 already; ids that differ in case alone are the same`,
		"d/10.yaml:2: activity.keep_days: is set at postern.yaml:1 already", `d/10.yaml:5: hosts[1].id: "a" is the id of the host at postern.yaml:4 already`,
		"d/20.yaml:", "d/30.yaml:1: drain_seconds: is set at postern.yaml:2 already")
	var m Mistake
	if !errors.As(err, &m) || m.File == "" {
		t.Errorf("%T", err)
	}
}

func TestConfig3_WhatIsWrittenIsWhatIsChecked(t *testing.T) {
	// That the files are what the tables make, and what the schemas say, is tested beside
	// what writes them, in gen.
	if _, err := decodeOne(Example()); err != nil {
		t.Errorf("the example of the page: %v\n%s", err, Example())
	}
	for _, k := range Keys() {
		if k.Text == "" || !k.Needed && k.Default == "" || (k.to == nil) != (k.Type == Section || k.Type == Sections) || (k.Example == "") != (k.to == nil) {
			t.Errorf("%+v says too little", k)
		}
	}
	if minAuditKiB != audit.MinBytes>>10 || maxAuditKiB != audit.MostBytes>>10 || maxAuditOld != audit.MostKeep {
		t.Error("the bounds of the audit are not its own")
	}
}

// Nothing that stands in a file ends posternd.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("hosts: [{id: a"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, err := Decode(Source{"x", raw}); err == nil && c.Artifacts.Days == 0 {
			t.Error("a bound is gone")
		}
	})
}
