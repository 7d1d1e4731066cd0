package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"postern/refusal"
	"postern/supervisor/api"
)

// planted stands in every text of an answer or a file that is nobody's but its owner's.
const planted = "PLANTED-xQ7"

// unpacked reads a bundle.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil || h.Typeflag != tar.TypeReg || h.Mode != 0o600 || h.Uid != 0 || filepath.Dir(h.Name) != "postern-debug" {
			t.Fatalf("%+v %v", h, err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(h.Name)] = string(raw)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root makes a bundle")
		}
		t.Skip("only root makes a bundle")
	}
}

// hiding are answers with what a bundle takes, and planted in all that it leaves out.
func hiding() map[api.Action][]string {
	p := planted
	out := map[api.Action][]string{}
	for action, result := range map[api.Action]string{
		api.RootStatus:     `{"version":"v1","instance":"ins_1","cgroup":"v2","pid":1,"authority_pid":1,"jails":2,"goroutines":77,"warnings":["a warning of ours"],"access":{"state":"denying","error":"` + p + `","mistakes":[{"line":7,"key":"` + p + `","text":"` + p + `"}]},"config":{"file":"","error":"` + p + `"}}`,
		api.Status:         `{"version":"v1","state":"serving","access":"denying","incarnation":3,"facts":9,"reason":"` + p + `","access_error":"` + p + `","access_unmatched":["` + p + `"],"sessions":1,"goroutines":88,"policy_schema":3,"activity_schema":5}`,
		api.ProjectList:    `{"projects":[{"project":"prj_1","label":"shop","workspace":"/dev/shm","owner":"acc_1","warnings":["` + p + `"]}]}`,
		api.AccountList:    `{"accounts":[{"account":"acc_1","name":"ana","uids":[1000],"status":"active"}]}`,
		api.ServerList:     `{"servers":[{"server":"srv_1","label":"files","digest":"d","profile":"static","credential":"required","credential_env":"` + p + `","command":["/package/x","--key","` + p + `"],"classes":{"` + p + `":["` + p + `"]},"tiers":{"` + p + `":"observe"},"secret_fields":["` + p + `"],"recorded":["` + p + `"],"warnings":["` + p + `"]}]}`,
		api.ConnectionList: `{"connections":[{"connection":"con_1","project":"prj_1","server":"srv_1","label":"files","enabled":true,"readiness":"ready","reason":"` + p + `","notice":"` + p + `","tools":[{"tool":"` + p + `"}]}]}`,
		api.CredentialList: `{"credentials":[{"credential":"crd_1","label":"` + p + `","source":"` + p + `","delivery":"` + p + `","generation":4,"state":"unreadable: ` + p + `"}]}`,
		api.Ps:             `{"rows":[{"kind":"server","label":"files","jail":"jal_1","pid":9,"state":"ready","memory":5,"last_error":"` + p + `"}]}`,
		api.Metrics:        `{"version":"v1","state":"serving","admitted":9}`,
		api.Activity: `{"rows":[{"call":"cal_1","tool":"read","state":"completed","principal":"` + p + `","host":"` + p + `","request_id":"` + p + `","args_digest":"` + p + `","reason":"` + p + `","arguments":{"` + p + `":"` + p + `"},"artifacts_not_kept":["` + p + `"]},` +
			`{"call":"cal_2","tool":"` + p + `","state":"denied","code":"tool_unknown"}],"cursor":"` + p + `"}`,
	} {
		out[action] = []string{`{"result":` + result + `}`}
	}
	return out
}

func TestABundleHoldsNamedMembersAlone(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	_, stop, err := serveFake(dir, hiding())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const id = "prj_01997d5e-0000-7000-8000-000000000000"
	write("etc/postern.yaml", "# "+planted+"\ndrain_seconds: 33\n"+planted+": 1\nhosts:\n  - {id: agents, uid: 1500, accounts: [\"*\"], projects: ["+id+"], channels: ["+planted+"]}\n")
	write("etc/postern.yaml.d/10.yaml", "metrics_uid: "+planted+"\n")
	write("etc/profiles.d/own.yaml", "name: own\nenv: {KEY: "+planted+"}\n")
	write("root/audit.log", `{"at":"2026-01-02T03:04:05Z","actor":"uid 0","origin":"root.sock, process 5","action":"project.set","target":"`+id+`","before":"`+planted+`","after":"`+planted+`","version":4,"request":"`+planted+`"}`+"\n"+
		planted+"\n"+`{"at":"`+planted+`","actor":"uid 0","origin":"x","action":"y"}`+"\n"+
		`{"at":"2026-01-02T03:04:06Z","actor":"uid 0","origin":"root.sock, process 5","action":"access.edit","target":"sms:`+planted+`","failed":"`+planted+`"}`+"\n")
	write("state/audit.log", `{"at":"2026-01-02T03:04:05Z","actor":"`+planted+"\t"+`","origin":"","action":"drain"}`+"\n")
	out := filepath.Join(dir, "b.tar.gz")
	args := []string{"--run-dir", dir, "--json", "debug", "bundle", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state"), "--config", filepath.Join(dir, "etc/postern.yaml"), "-o", out}
	r := postern(t, args...)
	var said bundleResult
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil || r.status != 0 {
		t.Fatalf("status %d: %s%s", r.status, r.stdout, r.err)
	}
	info, err := os.Stat(out)
	if err != nil || info.Mode() != 0o600 || info.Size() != int64(said.Bytes) {
		t.Errorf("%v %v, said %+v", info, err, said)
	}
	files := unpacked(t, out)
	if len(files) != len(said.Files)+1 {
		t.Errorf("%d files, said %+v", len(files), said.Files)
	}
	for name, text := range files {
		if strings.Contains(text, planted) {
			t.Errorf("%s: %s", name, text)
		}
	}
	if strings.Contains(r.stdout+r.err, planted) {
		t.Errorf("%s%s", r.stdout, r.err)
	}
	// Its twin: what is to be there, is.
	for name, wants := range map[string][]string{
		"versions.json":    {`"posternd":"v1"`, `"policy_schema":3`, `"activity_schema":5`, `"instance":"ins_1"`},
		"doctor.json":      {`"layer":"kernel"`, `"layer":"supervisor","state":"degraded","found":""`},
		"status.json":      {`"state":"serving"`, `"admitted":9`, `"config_mistaken":true`},
		"config.json":      {`"drain_seconds":33`, `"key":"drain_seconds"`, `"accounts":-1`, `"projects":1`, `"channels":1`, `"line":3`, `10.yaml","line":1`},
		"accounts.json":    {`"name":"ana"`},
		"projects.json":    {`"label":"shop"`, `"workspace":"/dev/shm"`},
		"servers.json":     {`"label":"files"`, `"command_words":3`, `"classes":1`, `"credential":"required"`},
		"connections.json": {`"connection":"con_1"`, `"readiness":"ready"`},
		"credentials.json": {`"credential":"crd_1"`, `"generation":4`, `"readable":false`},
		"ps.json":          {`"jail":"jal_1"`, `"failed":true`},
		"activity.json":    {`"tool":"read"`, `"code":"tool_unknown"`},
		"audit.json":       {`"target":"` + id + `"`, `"action":"access.edit","failed":true`},
		"warnings.json":    {"a warning of ours", `"access_mistaken_lines":[7]`},
		"processes.json":   {`"goroutines":77`, `"goroutines":88`, `"Threads":`, `"Max open files":`},
		"kernel.json":      {`"release":`, `"MemTotal":`},
		"filesystems.json": {`"/dev/shm"`, `"type":"tmpfs"`},
		bundleReadme:       {"kernel.json", "profiles.json", "Not in it, and why:"},
	} {
		for _, want := range wants {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s: no %s in %s", name, want, files[name])
			}
		}
	}
	// A profile with a mistake hides them all, and its text is not told.
	if i := slices.IndexFunc(said.Missing, func(m bundleMissing) bool { return m.Name == "profiles.json" }); i < 0 || said.Missing[i].Why != "it could not be read" {
		t.Errorf("%+v", said.Missing)
	}
	// A file that is there is kept as it is.
	if r := postern(t, args...); r.status != refusal.Of(refusal.AlreadyExists).Exit || !strings.Contains(r.err, "exists") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if again, err := os.Stat(out); err != nil || again.Size() != info.Size() || !again.ModTime().Equal(info.ModTime()) {
		t.Error("the file that was there is another")
	}
}

// Lists are cut and say so, a file that is longer than may be is left out, and a record of
// changes is read from its end.
func TestABundleIsBounded(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	answers := hiding()
	var many, long []string
	for i := range bundleRows + 7 {
		many = append(many, fmt.Sprintf(`{"kind":"server","jail":"jal_%d"}`, i))
		if i < 100 {
			long = append(long, `{"server":"`+strings.Repeat("x", 3500)+`"}`)
		}
	}
	answers[api.Ps] = []string{`{"result":{"rows":[` + strings.Join(many, ",") + `]}}`}
	answers[api.ProjectList] = []string{`{"result":{"projects":[{"project":"prj_1"},{"project":"prj_2"},{"project":"prj_3"}]}}`}
	answers[api.ConnectionList] = []string{`{"result":{"connections":[` + strings.Join(long, ",") + `]}}`}
	_, stop, err := serveFake(dir, answers)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	line := `{"at":"2026-01-02T03:04:05Z","actor":"uid 0","origin":"root.sock, process 5","action":"project.set","version":%d}` + "\n"
	var log strings.Builder
	for i := range 10 * bundleRecords {
		fmt.Fprintf(&log, line, i)
	}
	if log.Len() <= bundleTail {
		t.Fatalf("the record has %d bytes, which are all read", log.Len())
	}
	if err := os.WriteFile(filepath.Join(dir, "audit.log"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "state")
	if err := errors.Join(os.Mkdir(fifo, 0o700), syscall.Mkfifo(filepath.Join(fifo, "audit.log"), 0o600)); err != nil { // nobody will ever write into it
		t.Fatal(err)
	}
	out := filepath.Join(dir, "b.tar.gz")
	r := postern(t, "--run-dir", dir, "debug", "bundle", "--root-dir", dir, "--state-dir", fifo, "-o", out)
	if r.status != 0 {
		t.Fatalf("status %d: %s", r.status, r.err)
	}
	files := unpacked(t, out)
	if !strings.Contains(files["ps.json"], `"more":7`) || strings.Count(files["ps.json"], `"jail"`) != bundleRows {
		t.Errorf("%d rows of ps", strings.Count(files["ps.json"], `"jail"`))
	}
	// 300 rows of 3,500 bytes are more than a file may have.
	if files["connections.json"] != "" || !strings.Contains(files[bundleReadme], "connections.json   it is longer than 1048576 bytes") || !strings.Contains(r.stdout, "not in it: connections.json: it is longer than") {
		t.Errorf("%d bytes of connections; %s", len(files["connections.json"]), files[bundleReadme])
	}
	if n := strings.Count(files["audit.json"], `"action"`); n != bundleRecords || !strings.Contains(files["audit.json"], fmt.Sprintf(`"version":%d}`, 10*bundleRecords-1)) {
		t.Errorf("%d records of changes", n)
	}
	if !strings.Contains(files["audit.json"], `"unread":"it could not be read"`) {
		t.Errorf("a FIFO was read: %.300s", files["audit.json"])
	}
}

// While posternd is down the bundle holds what can be had without it, and names the rest.
func TestABundleWithoutASupervisor(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "b.tar.gz")
	r := postern(t, "--run-dir", filepath.Join(dir, "none"), "--json", "debug", "bundle", "--root-dir", dir, "--state-dir", dir, "--config", filepath.Join(dir, "postern.yaml"), "-o", out)
	var said bundleResult
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil || r.status != 0 {
		t.Fatalf("status %d: %s%s", r.status, r.stdout, r.err)
	}
	files := unpacked(t, out)
	var missing []string
	for _, m := range said.Missing {
		missing = append(missing, m.Name)
		if m.Why != string(refusal.Unreachable) {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"status.json", "accounts.json", "projects.json", "servers.json", "connections.json", "credentials.json", "ps.json", "activity.json", "warnings.json", "processes.json"}; !slices.Equal(missing, want) {
		t.Errorf("missing %v", missing)
	}
	for _, s := range bundleSections {
		if (files[s.name] != "") == slices.Contains(missing, s.name) || !strings.Contains(files[bundleReadme], s.name) {
			t.Errorf("%s: %q", s.name, files[s.name])
		}
	}
	// Nobody but root, and nothing is left of a bundle that was not written.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(binary, "debug", "bundle", "-o", filepath.Join(dir, "other"))
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	if raw, _ := other.CombinedOutput(); other.ProcessState.ExitCode() != refusal.Of(refusal.NotPermitted).Exit {
		t.Errorf("another user: %s", raw)
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); err == nil {
		t.Error("another user made a bundle")
	}
}
