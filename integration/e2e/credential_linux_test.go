package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/ids"
	"postern/supervisor/api"
)

const theSecret, nextSecret = "xQ7-the-secret-of-alice-Zk", "xQ7-the-next-secret-of-alice-Zk"

func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// needing registers the fixture as needing a credential, handed over as the arguments
// say, and connects project a to it.
func (w *world) needing(label, by string, how ...string) {
	w.t.Helper()
	w.must(append(append([]string{"server", "add", label, "--profile", "static", "--package", filepath.Join(built.fixtures, "secret"), "--credential", "required"}, how...), "--", "/package/secret", by)...)
	w.must("connection", "add", "a", label)
}

// fromFile runs a command of root's that reads a secret from a file, which is gone then.
func (w *world) fromFile(secret string, args ...string) string {
	w.t.Helper()
	file := filepath.Join(w.Dir, "secret-of-a-test")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	defer os.Remove(file)
	return w.must(append(args, "--from-file", file)...)
}

// instances are the processes of a server's instances.
func (w *world) instances(label string) (pids []int) {
	w.t.Helper()
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{}, &ps); err != nil {
		w.t.Fatal(err)
	}
	for _, row := range ps.Rows {
		if row.Kind == "server" && row.Label == label && row.PID != 0 {
			pids = append(pids, row.PID)
		}
	}
	return pids
}

// readable is what of a process's memory can be read.
func readable(pid int) (out []byte) {
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	const most = 64 << 20 // of one region
	for line := range strings.Lines(string(maps)) {
		span, rest, _ := strings.Cut(line, " ")
		from, to, _ := strings.Cut(span, "-")
		a, _ := strconv.ParseUint(from, 16, 63)
		b, _ := strconv.ParseUint(to, 16, 63)
		if !strings.HasPrefix(rest, "r") || strings.Contains(rest, "[v") || b-a > most {
			continue
		}
		buf := make([]byte, b-a)
		n, _ := mem.ReadAt(buf, int64(a))
		out = append(out, buf[:n]...)
	}
	return out
}

// P7, C112: a secret is in the memory of its server, and in no argument, environment,
// file, record, log or answer of anything else; nor in the memory of bridge and authority.
func TestP7_C112_ASecretIsItsServersAlone(t *testing.T) {
	w := newWorld(t)
	w.needing("byenv", "API_TOKEN", "--credential-env", "API_TOKEN")
	w.needing("byfd", "7", "--credential-fd", "7")
	var answers []string
	for _, label := range []string{"byenv", "byfd"} {
		answers = append(answers, w.fromFile(theSecret, "credential", "add", "tok-"+label, "--project", "a", "--server", label),
			w.must("server", "probe", label, "--project", "a"), w.must("connection", "accept", "a", label, "--yes"), w.must("connection", "grant", "a", label, "digest", "die", "wait"))
	}
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for _, tool := range []string{"digest", "byfd.digest"} {
		m := r.call(tool, `{}`)
		if m.text() != digestOf(theSecret) {
			t.Fatalf("%s: %s", tool, m.raw)
		}
		answers = append(answers, m.raw)
	}
	r.call("echo", `{}`) // the twin of another server, which is handed nothing
	if env := r.call("env", `{}`); strings.Contains(env.raw, "API_TOKEN") {
		t.Errorf("another server has it: %s", env.raw)
	}

	holders := append(w.instances("byenv"), w.instances("byfd")...)
	if len(holders) != 2 {
		t.Fatalf("instances %v", holders)
	}
	needle := []byte(theSecret)
	for _, pid := range holders {
		if !bytes.Contains(readable(pid), needle) {
			t.Errorf("the twin: process %d, which was handed the secret, does not have it", pid)
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil || !strings.Contains(string(limits), "Max core file size        1                    1") {
			t.Errorf("process %d may leave a core: %s %v", pid, limits, err)
		}
	}
	var status api.RootStatusResult
	if err := w.Call(api.RootStatus, nil, &status); err != nil {
		t.Fatal(err)
	}
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{}, &ps); err != nil {
		t.Fatal(err)
	}
	looked := []int{status.Authority}
	for _, row := range ps.Rows {
		if !slices.Contains(holders, row.PID) {
			looked = append(looked, row.PID)
		}
	}
	if len(looked) < 3 { // authority, bridge, the other server
		t.Fatalf("processes %v", looked)
	}
	for _, pid := range looked {
		if mem := readable(pid); len(mem) == 0 || bytes.Contains(mem, needle) {
			t.Errorf("process %d: %d bytes of memory, with the secret: %v", pid, len(mem), bytes.Contains(mem, needle))
		}
	}
	found := 0
	for _, kind := range []string{"environ", "cmdline"} {
		all, _ := filepath.Glob("/proc/[0-9]*/" + kind)
		for _, f := range all {
			raw, err := os.ReadFile(f)
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if err != nil || !bytes.Contains(raw, needle) {
				continue
			}
			if found++; !slices.Contains(holders, pid) {
				t.Errorf("%s has the secret", f)
			}
		}
	}
	if found != 1 {
		t.Errorf("the secret is in %d environments, want the one server's", found)
	}

	r.call("die", `{}`)
	for _, args := range [][]string{{"credential", "list"}, {"server", "show", "byenv"}, {"server", "list"}, {"doctor"}, {"ps"}, {"activity"}, {"connection", "show", "a", "byenv"}, {"connection", "list", "a"}, {"explain", "--project", "a", "--principal", "local:x", "digest"}} {
		for _, form := range [][]string{nil, {"--json"}} {
			out, errb, _ := w.CLI(0, append(form, args...)...)
			answers = append(answers, out+errb)
		}
	}
	answers = append(answers, w.Log.String())
	for _, a := range answers {
		if strings.Contains(a, theSecret) {
			t.Errorf("the secret stands in %.300q", a)
		}
	}
	own := filepath.Join(w.RootDir, "credentials")
	files := 0
	for _, dir := range []string{w.RootDir, w.StateDir, w.RunDir, w.a.workspace} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && filepath.Dir(path) != own {
				files++
				if raw, err := os.ReadFile(path); err == nil && bytes.Contains(raw, needle) {
					t.Errorf("%s has the secret", path)
				}
			}
			return nil
		})
	}
	if kept, _ := os.ReadDir(own); files < 6 || len(kept) != 2 {
		t.Errorf("%d files were looked through, %d secrets are kept", files, len(kept))
	}
	backup := filepath.Join(w.Dir, "backup")
	w.must("backup", backup)
	all, _ := os.ReadDir(backup)
	for _, e := range all {
		if raw, _ := os.ReadFile(filepath.Join(backup, e.Name())); len(raw) == 0 || bytes.Contains(raw, needle) {
			t.Errorf("%s of a backup: %d bytes", e.Name(), len(raw))
		}
	}
	audit, _ := os.ReadFile(filepath.Join(w.RootDir, "audit.log"))
	for _, want := range []string{`credential.add`, `tok-byenv`, `generation 1`} {
		if !bytes.Contains(audit, []byte(want)) {
			t.Errorf("the twin: the audit does not say %q", want)
		}
	}
}

// P5, P7, C160: without a credential nothing is started, whatever is missing; with it the
// same call succeeds. A secret that is rotated while its server runs is the next start's,
// and the former instance does not outlive the command.
func TestP7_C160_WhatIsMissingIsNotContacted(t *testing.T) {
	w := newWorld(t)
	w.needing("byenv", "API_TOKEN", "--credential-env", "API_TOKEN")
	if _, errb, exit := w.CLI(0, "server", "probe", "byenv", "--project", "a"); exit != 65 || !strings.Contains(errb, "byenv") {
		t.Errorf("a probe without a credential: %d %s", exit, errb)
	}
	if _, _, exit := w.CLI(0, "server", "probe", "byenv"); exit != 65 {
		t.Errorf("a probe without a project: %d", exit)
	}
	w.fromFile(theSecret, "credential", "add", "tok", "--project", "a", "--server", "byenv")
	w.must("server", "probe", "byenv", "--project", "a")
	w.must("connection", "accept", "a", "byenv", "--yes")
	w.must("connection", "grant", "a", "byenv", "digest", "wait")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	call := func(want string) {
		t.Helper()
		if m := r.call("digest", `{}`); m.outcome() != want && m.text() != want {
			t.Fatalf("want %s, got %s", want, m.raw)
		}
	}
	missing := func(what string) {
		t.Helper()
		for range 3 { // also the later ones: nothing was tried, so nothing pauses
			call("credential_missing")
		}
		if pids := w.instances("byenv"); len(pids) != 0 {
			t.Errorf("%s: started as %v", what, pids)
		}
	}
	all, err := filepath.Glob(filepath.Join(w.RootDir, "credentials", "*"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := os.Chmod(all[0], 0o644); err != nil {
		t.Fatal(err)
	}
	missing("too open")
	if out := w.must("credential", "list"); !strings.Contains(out, "unreadable: ") || !strings.Contains(out, "0644") {
		t.Errorf("list: %s", out)
	}
	if out := w.must("--json", "doctor"); !strings.Contains(out, `credential \"tok\" is unreadable`) {
		t.Errorf("doctor: %s", out)
	}
	if !strings.Contains(w.Log.String(), all[0]) {
		t.Error("the log does not name the file")
	}
	if err := os.Chmod(all[0], 0o600); err != nil {
		t.Fatal(err)
	}
	call(digestOf(theSecret))

	pids := w.instances("byenv")
	if len(pids) != 1 {
		t.Fatalf("instances %v", pids)
	}
	out := w.fromFile(nextSecret, "credential", "rotate", "tok")
	if !gonePID(pids[0]) || !strings.Contains(out, "instances ended: 1") {
		t.Errorf("after rotating, process %d: %s", pids[0], out)
	}
	call(digestOf(nextSecret))

	// A keyless registration, and the way back.
	w.must("server", "update", "byenv", "--profile", "static", "--package", filepath.Join(built.fixtures, "secret"), "--", "/package/secret", "API_TOKEN")
	call("server_revision_changed")
	w.must("connection", "accept", "a", "byenv", "--yes")
	call(digestOf(""))
	if out := w.must("connection", "show", "a", "byenv"); !strings.Contains(out, "keyless") {
		t.Errorf("accepting a keyless revision: %s", out)
	}
	w.must("server", "update", "byenv", "--profile", "static", "--package", filepath.Join(built.fixtures, "secret"), "--credential", "required", "--credential-env", "API_TOKEN", "--", "/package/secret", "API_TOKEN")
	w.must("server", "probe", "byenv", "--project", "a")
	w.must("connection", "accept", "a", "byenv", "--yes")
	call(digestOf(nextSecret))
}

func gonePID(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || bytes.Contains(b, []byte("\nState:\tZ"))
}

// P7, A2: when revoking has returned, the next call is refused, what held the secret has
// ended, and the calls that were open are named. Rotating names what it ended too.
func TestP7_A2_RevokingACredential(t *testing.T) {
	w := newWorld(t)
	w.needing("byenv", "API_TOKEN", "--credential-env", "API_TOKEN")
	w.fromFile(theSecret, "credential", "add", "tok", "--project", "a", "--server", "byenv")
	w.must("server", "probe", "byenv", "--project", "a")
	w.must("connection", "accept", "a", "byenv", "--yes")
	w.must("connection", "grant", "a", "byenv", "digest", "wait")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	slow := func(id string) chan message {
		t.Helper()
		c := r.expect(id)
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"wait","arguments":{"ms":60000}}}`)
		until(t, "the call is open", func() bool {
			return slices.ContainsFunc(w.records(w.a), func(a api.ActivityRow) bool {
				return a.RequestID == id && (a.State == "admitted" || a.State == "started")
			})
		})
		return c
	}
	other := r.call("echo", `{}`)
	if other.outcome() != "ok" {
		t.Fatal(other.raw)
	}
	untouched := w.instances("count")

	open := slow("9001")
	pids := w.instances("byenv")
	var ended api.CredentialEndResult
	if err := json.Unmarshal([]byte(w.fromFile(nextSecret, "--json", "credential", "rotate", "tok")), &ended); err != nil {
		t.Fatal(err)
	}
	if !gonePID(pids[0]) || ended.Ended != 1 || len(ended.Stands) != 1 || ended.Stands[0].Tool != "wait" || ended.Stands[0].Call == "" {
		t.Errorf("rotated: %+v, process %d gone: %v", ended, pids[0], gonePID(pids[0]))
	}
	if m := r.wait(open); m.outcome() == "ok" {
		t.Errorf("the open call ended with %s", m.raw)
	}
	if m := r.call("digest", `{}`); m.text() != digestOf(nextSecret) {
		t.Errorf("after rotating: %s", m.raw)
	}

	open = slow("9002")
	pids = w.instances("byenv")
	if out := w.must("credential", "revoke", "tok", "--dry-run"); gonePID(pids[0]) || !strings.Contains(out, "instances ended: 1") {
		t.Errorf("a dry run: %s", out)
	}
	ended = api.CredentialEndResult{}
	if err := json.Unmarshal([]byte(w.must("--json", "credential", "revoke", "tok")), &ended); err != nil {
		t.Fatal(err)
	}
	if m := r.call("digest", `{}`); m.outcome() != "credential_missing" {
		t.Errorf("the next call: %s", m.raw)
	}
	if !gonePID(pids[0]) || len(w.instances("byenv")) != 0 || len(ended.Stands) != 1 || !ended.Stands[0].CancelSent || ended.Stands[0].AgeMs <= 0 || ended.State != "revoked" {
		t.Errorf("revoked: %+v, process %d gone: %v", ended, pids[0], gonePID(pids[0]))
	}
	if m := r.wait(open); m.outcome() == "ok" {
		t.Errorf("the open call ended with %s", m.raw)
	}
	for _, a := range w.records(w.a) {
		if a.State == "admitted" || a.State == "started" {
			t.Errorf("open after the end: %+v", a)
		}
	}
	if now := w.instances("count"); !slices.Equal(now, untouched) || r.call("echo", `{}`).outcome() != "ok" {
		t.Errorf("the twin: another server of the session was %v, is %v", untouched, now)
	}
	if left, _ := os.ReadDir(filepath.Join(w.RootDir, "credentials")); len(left) != 0 {
		t.Errorf("left of secrets: %v", left)
	}
	// Durable: it is so after a crash of everything.
	w.Kill9()
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if out := w.must("--json", "credential", "list"); strings.TrimSpace(out) != `{"credentials":[]}` {
		t.Errorf("after a crash: %s", out)
	}
}

// reads is how each action of control.sock is asked that changes nothing; changes are
// the others.
var changes = []api.Action{api.AccountSuspend, api.AccountActivate, api.ProjectDelete, api.MemberAdd, api.MemberRemove, api.ServerProbe, api.ConnectionAdd, api.ConnectionGrant, api.ConnectionRevoke,
	api.ConnectionAccept, api.ConnectionEnable, api.ConnectionDisable, api.TaskNew, api.TaskToken, api.TaskRevoke, api.AccessPair, api.AccessRedeem, api.AccessUnpair, api.Drain, api.Backup}

// asUID asks control.sock on a thread that is another user, and returns the whole answer.
func (w *world) asUID(uid int, action api.Action, params any) string {
	w.t.Helper()
	raw, err := api.EncodeValue(params)
	if err != nil {
		w.t.Fatal(err)
	}
	line, err := api.Encode(api.Request{ID: 1, Action: action, Params: raw})
	if err != nil {
		w.t.Fatal(err)
	}
	answer := make(chan string, 1)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends as that user
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			answer <- errno.Error()
			return
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			answer <- errno.Error()
			return
		}
		c, err := net.Dial("unix", w.Socket(action))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(answerWait))
		c.Write(line)
		var out strings.Builder
		in := bufio.NewReader(c)
		for {
			got, err := in.ReadBytes('\n')
			out.Write(got)
			res, bad := api.DecodeResponse(bytes.TrimSpace(got))
			if err != nil || bad != nil || res.Event == nil {
				break
			}
		}
		answer <- out.String()
	}()
	return <-answer
}

// U1, P7: whoever is not root learns of a registration its label and its tools, and of a
// credential whether one is assigned; by no read of control.sock more than that.
func TestU1_P7_NothingOfARegistrationReachesOthers(t *testing.T) {
	w := newWorld(t)
	w.must("account", "add", "member", "--uid", "61003")
	w.must("account", "add", "viewer", "--uid", "61004")
	w.must("project", "member", "add", "a", "member", "--role", "member")
	w.must("project", "member", "add", "a", "viewer", "--role", "viewer")
	w.must("server", "add", "vault", "--profile", "static", "--package", filepath.Join(built.fixtures, "secret"), "--credential", "required", "--credential-env", "HIDDEN_VARIABLE", "--", "/package/secret", "HIDDEN_VARIABLE", "hidden-argument")
	w.must("connection", "add", "a", "vault")
	show := w.asUID(aliceUID, api.ConnectionShow, api.ConnectionParams{Project: "a", Server: "vault"})
	if !strings.Contains(show, `"credential_state":"missing"`) || !strings.Contains(show, "no credential is assigned") {
		t.Errorf("the owner does not see that it is missing: %s", show)
	}
	w.fromFile(theSecret, "credential", "add", "hidden-label", "--project", "a", "--server", "vault")
	w.must("server", "probe", "vault", "--project", "a")
	w.must("connection", "accept", "a", "vault", "--yes")
	w.must("connection", "grant", "a", "vault", "digest")
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if m := r.call("digest", `{}`); m.text() != digestOf(theSecret) {
		t.Fatal(m.raw)
	}
	call := w.records(w.a)[0].Call
	list := w.must("--json", "credential", "list")
	var listed api.CredentialListResult
	if err := json.Unmarshal([]byte(list), &listed); err != nil || len(listed.Credentials) != 1 {
		t.Fatalf("%v: %s", err, list)
	}
	hidden := []string{theSecret, "HIDDEN_VARIABLE", "hidden-argument", "hidden-label", "/package/secret", listed.Credentials[0].Credential}

	asker := api.AskerParams{Task: task}
	connection := api.ConnectionParams{Project: "a", Server: "vault"}
	reads := map[api.Action][]any{
		api.Status: {nil}, api.AccountList: {nil}, api.AccountShow: {api.Selected{Selector: "alice"}}, api.ProjectList: {nil}, api.ProjectShow: {api.Selected{Selector: "a"}},
		api.ServerCatalogue: {api.Selected{Selector: "vault"}}, api.ConnectionList: {api.ProjectParams{Project: "a"}}, api.ConnectionShow: {connection},
		api.TaskList: {api.ProjectParams{Project: "a"}}, api.TaskShow: {api.TaskParams{Task: task}}, api.AccessPaired: {nil},
		api.Explain:      {api.ExplainParams{AskerParams: asker, Tool: "digest"}},
		api.Capabilities: {api.CapabilitiesParams{AskerParams: asker}}, api.Check: {api.CheckParams{Task: task, Tool: "WebFetch"}},
		api.ActivityShow: {api.RecordParams{Record: call}}, api.Ps: {api.ProjectParams{}, api.ProjectParams{Project: "a"}},
		api.Activity: {api.ActivityParams{Project: "a"}, api.ActivityParams{Project: "a", Export: true}},
		api.Quota:    {api.QuotaParams{}, api.QuotaParams{Project: "a"}}, api.Metrics: {nil}, api.Logs: {api.LogsParams{Project: "a"}}, api.ArtifactList: {api.ArtifactListParams{Project: "a"}}, api.ArtifactGet: {api.ArtifactGetParams{Artifact: string(ids.New[ids.Artifact](time.Now(), [10]byte{}))}},
	}
	answered := map[int]int{}
	for _, action := range api.Actions() {
		if api.ServedBy(action) != api.ControlSocket || slices.Contains(changes, action) {
			continue
		}
		if len(reads[action]) == 0 {
			t.Errorf("%s is neither asked here nor among the changes", action)
		}
		for _, params := range reads[action] {
			for who, uid := range map[string]int{"owner": aliceUID, "member": 61003, "viewer": 61004, "another account": bobUID, "a host": hostUID, "a runtime": runtimeUID} {
				got := w.asUID(uid, action, params)
				for _, h := range hidden {
					if strings.Contains(got, h) {
						t.Errorf("%s as %s shows %q: %s", action, who, h, got)
					}
				}
				if strings.Contains(got, `"result"`) {
					answered[uid]++
				}
			}
		}
	}
	for _, uid := range []int{aliceUID, 61003, 61004} { // the twin: they were answered, and by more than refusals
		if answered[uid] < 10 {
			t.Errorf("uid %d had %d answers", uid, answered[uid])
		}
	}
	if show := w.asUID(61004, api.ConnectionShow, connection); !strings.Contains(show, `"credential_state":"assigned"`) {
		t.Errorf("a viewer does not see that one is assigned: %s", show)
	}
	if all := w.must("--json", "server", "show", "vault"); !strings.Contains(all, "HIDDEN_VARIABLE") || !strings.Contains(all, "hidden-argument") {
		t.Error("the twin: root does not see the registration")
	}
}
