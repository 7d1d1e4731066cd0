package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/control"
	"postern/supervisor/store"
)

var binary string // the built program, under the name it is installed with

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "postern-cli")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "postern")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	if err := os.Chmod(dir, 0o755); err != nil { // one test runs it as another user
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	status := 1
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
	} else {
		status = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(status)
}

// fake serves both CLI sockets of one run directory with prepared answers. It
// decodes requests exactly as the real servers do, so that a request they would
// not accept is refused here too.
type fake struct {
	mu       sync.Mutex
	answers  map[api.Action][]string // lines without their id; "hang up" ends the connection
	requests bytes.Buffer
}

// strict holds the parameter type of each action: what does not decode into it
// is refused as the real servers refuse it.
var strict = map[api.Action]func(raw []byte) error{
	api.AccountAdd: as[api.AccountAddParams], api.AccountDelete: as[api.Selected], api.ProjectAdd: as[api.ProjectAddParams], api.ProjectSet: as[api.ProjectSetParams], api.ProjectMove: as[api.ProjectMoveParams],
	api.ServerAdd: as[api.ServerParams], api.ServerUpdate: as[api.ServerParams], api.ServerDelete: as[api.Selected], api.ServerList: as[api.PageParams], api.ServerShow: as[api.Selected],
	api.ServerDiff: as[api.ServerDiffParams], api.ServerGC: as[struct{}],
	api.RootStatus: as[struct{}], api.Status: as[struct{}], api.AccountList: as[api.PageParams], api.AccountShow: as[api.Selected], api.AccountSuspend: as[api.Selected],
	api.AccountActivate: as[api.Selected], api.ProjectList: as[api.ProjectListParams], api.ProjectShow: as[api.Selected], api.ProjectDelete: as[api.Selected],
	api.MemberAdd: as[api.MemberParams], api.MemberRemove: as[api.MemberParams], api.ServerProbe: as[api.ServerProbeParams], api.ServerCatalogue: as[api.Selected],
	api.ConnectionAdd: as[api.ConnectionParams], api.ConnectionList: as[api.ListParams], api.ConnectionShow: as[api.ConnectionParams], api.ConnectionGrant: as[api.ConnectionParams],
	api.ConnectionRevoke: as[api.ConnectionParams], api.ConnectionAccept: as[api.ConnectionParams], api.ConnectionEnable: as[api.ConnectionParams], api.ConnectionDisable: as[api.ConnectionParams],
	api.TaskNew: as[api.TaskNewParams], api.TaskToken: as[api.TaskParams], api.TaskList: as[api.ListParams], api.TaskShow: as[api.TaskParams], api.TaskRevoke: as[api.TaskParams],
	api.Drain: as[api.DrainParams], api.ReadOnlySet: as[api.ReadOnlyParams], api.Backup: as[struct{}], api.RootBackup: as[struct{}],
	api.Ps: as[api.ListParams], api.Logs: as[api.LogsParams], api.Metrics: as[struct{}], api.Quota: as[api.QuotaParams], api.Activity: as[api.ActivityParams], api.ArtifactList: as[api.ArtifactListParams], api.ArtifactGet: as[api.ArtifactGetParams],
	api.Explain: as[api.ExplainParams], api.Capabilities: as[api.CapabilitiesParams], api.ActivityShow: as[api.RecordParams], api.Check: as[api.CheckParams],
	api.CredentialAdd: as[api.CredentialParams], api.CredentialRotate: as[api.CredentialParams], api.CredentialRevoke: as[api.Selected], api.CredentialList: as[api.PageParams],
	api.AccessShow: as[struct{}], api.AccessMatrix: as[api.AccessMatrixParams], api.AccessEdit: as[api.AccessEditParams],
	api.AccessPair: as[api.PairParams], api.AccessRedeem: as[api.RedeemParams], api.AccessUnpair: as[api.UnpairParams], api.AccessPaired: as[struct{}],
}

func as[P any](raw []byte) error {
	_, err := api.DecodeParams[P](raw)
	return err
}

func serveFake(dir string, answers map[api.Action][]string) (*fake, func(), error) {
	f := &fake{answers: answers}
	var listeners []net.Listener
	stop := func() {
		for _, ln := range listeners {
			ln.Close()
		}
	}
	for _, s := range []api.Socket{api.RootSocket, api.ControlSocket} {
		ln, err := net.Listen("unix", filepath.Join(dir, string(s)))
		if err != nil {
			stop()
			return nil, nil, err
		}
		listeners = append(listeners, ln)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go f.serve(s, c)
			}
		}()
	}
	return f, stop, nil
}

func (f *fake) serve(s api.Socket, c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		req, err := api.DecodeRequest(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return
		}
		id := req.ID
		req.ID = 0
		record, _ := api.Encode(req)
		f.mu.Lock()
		fmt.Fprintf(&f.requests, "%s %s", s, bytes.Replace(record, []byte(`"id":0,`), nil, 1))
		lines, ok := f.answers[req.Action]
		f.mu.Unlock()
		if !ok || api.ServedBy(req.Action) != s || strict[req.Action](req.Params) != nil {
			refused, _ := api.Encode(api.Refuse(refusal.BadRequest, "%s on %s", req.Action, s))
			lines = []string{`{"refusal":` + strings.TrimSpace(string(refused)) + `}`}
		}
		for _, l := range lines {
			if l == "hang up" {
				return
			}
			fmt.Fprintf(c, "{\"id\":%d,%s\n", id, strings.TrimPrefix(l, "{"))
		}
	}
}

func (f *fake) asked() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests.String()
}

// TestScripts runs testdata/*.txt against the built program. `serve FILE` starts
// the fake with the answers in FILE (an action, a space, one answer line without
// its id), `asked FILE` compares what it was asked so far.
func TestScripts(t *testing.T) {
	recording, records := t.TempDir(), t.TempDir()
	for _, dir := range []string{recording, filepath.Dir(recording)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(records, 0o777); err != nil { // one script runs the program as another user
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(recording, "postern"), []byte(recorder), 0o755); err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("test.run").Value.String() == "" { // else some of the scripts are not run
		t.Cleanup(func() { checkRecords(t, records) })
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", recording+":"+filepath.Dir(binary)+":"+e.Getenv("PATH"))
			e.Setenv("RECORDS", records)
			e.Setenv("TZ", "UTC")
			e.Setenv("PROGRAM", binary)
			e.Setenv("HOME", e.WorkDir)
			return os.Mkdir(filepath.Join(e.WorkDir, "run"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": func(ts *testscript.TestScript, _ bool, args []string) {
				answers := map[api.Action][]string{}
				for line := range strings.Lines(ts.ReadFile(args[0])) {
					action, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
					answers[api.Action(action)] = append(answers[api.Action(action)], answer)
				}
				f, stop, err := serveFake(ts.MkAbs("run"), answers)
				ts.Check(err)
				ts.Defer(stop)
				fakes.Store(ts.MkAbs("."), f)
			},
			"asked": func(ts *testscript.TestScript, _ bool, args []string) {
				f, _ := fakes.Load(ts.MkAbs("."))
				if got, want := f.(*fake).asked(), strings.ReplaceAll(ts.ReadFile(args[0]), "$WORK", ts.Getenv("WORK")); got != want {
					ts.Fatalf("asked:\n%s\nwanted:\n%s", got, want)
				}
			},
			"status": func(ts *testscript.TestScript, _ bool, args []string) { // status N PROGRAM ARGS…
				err := ts.Exec(args[1], args[2:]...)
				got := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					got = exit.ExitCode()
				} else {
					ts.Check(err)
				}
				if fmt.Sprint(got) != args[0] {
					ts.Fatalf("exit status %d, wanted %s", got, args[0])
				}
			},
		},
	})
}

var fakes sync.Map // working directory of a script → its *fake

// result is what one run of the program left behind.
type result struct {
	status      int
	stdout, err string
}

func postern(t *testing.T, args ...string) result {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// commands has a command line for each action that the program asks.
var commands = map[api.Action][]string{
	api.AccountAdd: {"account", "add", "ana", "--uid", "1000"}, api.AccountDelete: {"account", "delete", "ana"}, api.AccountList: {"account", "list"},
	api.AccountShow: {"account", "show", "ana"}, api.AccountSuspend: {"account", "suspend", "ana"}, api.AccountActivate: {"account", "activate", "ana"},
	api.ProjectAdd: {"project", "add", "demo", "--workspace", "/w", "--owner", "ana"}, api.ProjectSet: {"project", "set", "demo", "--person-bind", "off"}, api.ProjectMove: {"project", "move", "demo", "/w"},
	api.ProjectList: {"project", "list"}, api.ProjectShow: {"project", "show", "demo"}, api.ProjectDelete: {"project", "delete", "demo"},
	api.MemberAdd: {"project", "member", "add", "demo", "ben"}, api.MemberRemove: {"project", "member", "remove", "demo", "ben"},
	api.ServerAdd: {"server", "add", "fs", "--profile", "node", "--", "/usr/bin/node"}, api.ServerUpdate: {"server", "update", "fs", "--profile", "node", "--", "/usr/bin/node"},
	api.ServerDelete: {"server", "delete", "fs"}, api.ServerList: {"server", "list"}, api.ServerDiff: {"server", "diff", "fs"}, api.ServerGC: {"server", "gc"}, api.ServerShow: {"server", "show", "fs"}, api.ServerProbe: {"server", "probe", "fs"},
	api.ServerCatalogue: {"server", "show", "fs"},
	api.ConnectionAdd:   {"connection", "add", "demo", "fs"}, api.ConnectionList: {"connection", "list", "demo"}, api.ConnectionShow: {"connection", "show", "demo", "fs"},
	api.ConnectionGrant: {"connection", "grant", "demo", "fs", "read"}, api.ConnectionRevoke: {"connection", "revoke", "demo", "fs"}, api.ConnectionAccept: {"connection", "accept", "demo", "fs"},
	api.ConnectionEnable: {"connection", "enable", "demo", "fs"}, api.ConnectionDisable: {"connection", "disable", "demo", "fs"},
	api.TaskNew: {"task", "new", "--project", "demo", "--for-uid", "1000", "--token-file"}, api.TaskToken: {"task", "token", "t", "--token-file"}, api.TaskList: {"task", "list"},
	api.TaskShow: {"task", "show", "t"}, api.TaskRevoke: {"task", "revoke", "t"}, api.Ps: {"ps"}, api.Logs: {"logs", "p"}, api.Metrics: {"status"}, api.Quota: {"quota"}, api.Activity: {"activity"},
	api.Explain: {"explain", "--task", "t", "read"}, api.Capabilities: {"capabilities", "--project", "demo"}, api.ActivityShow: {"activity", "show", "cal_1"}, api.Check: {"check", "--task", "t", "WebFetch"},
	api.AccessShow: {"access", "show"}, api.AccessMatrix: {"access", "matrix"}, api.AccessEdit: {"access", "set", "w", "x", "read"},
	api.AccessPair: {"access", "pair", "w"}, api.AccessRedeem: {"access", "redeem", "w:1", "x"}, api.AccessUnpair: {"access", "unpair", "w:1"}, api.AccessPaired: {"access", "show"},
	api.CredentialAdd: {"credential", "add", "tok", "--project", "demo", "--server", "fs", "--systemd", "key"}, api.CredentialRotate: {"credential", "rotate", "tok", "--systemd", "key"},
	api.CredentialRevoke: {"credential", "revoke", "tok"}, api.CredentialList: {"credential", "list"},
	api.Drain: {"drain"}, api.ReadOnlySet: {"readonly", "on"},
	api.Status: {"doctor"}, api.RootStatus: {"doctor"},
	api.ArtifactList: {"artifact", "list"}, api.ArtifactGet: {"artifact", "get", "art_1", "--out", newDirectory},
	api.Backup: {"backup", newDirectory}, api.RootBackup: {"backup", newDirectory},
}

// newDirectory stands for a path at which there is nothing yet.
const newDirectory = "NEW"

// oneDocument fails unless s is exactly one JSON document and a newline.
func oneDocument(t *testing.T, what, s string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s))
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Errorf("%s: %v in %q", what, err, s)
	} else if _, err := dec.Token(); !errors.Is(err, io.EOF) || strings.Count(s, "\n") != 1 || !strings.HasSuffix(s, "\n") {
		t.Errorf("%s: more than one document: %q", what, s)
	}
}

func TestCLI1_OneDocumentWhateverHappens(t *testing.T) {
	dir := t.TempDir()
	answers := map[api.Action][]string{}
	for _, action := range api.Actions() {
		answers[action] = []string{`{"event":{"text":"working"}}`, `{"result":{}}`}
		if commands[action] == nil {
			t.Errorf("no command asks %s", action)
		}
	}
	for _, asks := range []api.Action{api.Explain, api.Check} { // else they end with 65, after their document
		answers[asks] = []string{`{"result":{"allowed":true}}`}
	}
	answers[api.ArtifactGet] = []string{`{"result":{"digest":"` + hex.EncodeToString(sha256.New().Sum(nil)) + `"}}`} // of nothing
	answers[api.Backup], answers[api.RootBackup] = wholeBackup()
	f, stop, err := serveFake(dir, answers)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for action, args := range commands {
		if i := slices.Index(args, newDirectory); i >= 0 {
			args = slices.Clone(args)
			args[i] = filepath.Join(t.TempDir(), "backup")
		}
		r := postern(t, append([]string{"--json", "--run-dir", dir}, args...)...)
		if r.status != 0 && args[0] != "doctor" {
			t.Errorf("%q: status %d: %s", args, r.status, r.err)
		}
		oneDocument(t, fmt.Sprintf("%q", args), r.stdout)
		if !strings.Contains(f.asked(), `{"action":"`+string(action)+`"`) {
			t.Errorf("%q did not ask %s", args, action)
		}
		if last := args[len(args)-1]; filepath.Base(last) == "backup" && filepath.IsAbs(last) {
			os.RemoveAll(last)
		}
		r = postern(t, append([]string{"--json", "--run-dir", filepath.Join(dir, "none")}, args...)...)
		if want := refusal.ExitUnreachable; r.status != want && args[0] != "doctor" {
			t.Errorf("%q: status %d with no supervisor, wanted %d", args, r.status, want)
		}
		oneDocument(t, fmt.Sprintf("%q unreachable", args), r.stdout)
	}
	for _, args := range [][]string{{"version"}, {"nonsense"}, {"account"}, {"account", "add"}, {"ps", "--nonsense"}, {"ps", "extra"}, {"server", "add", "x"}, {"task", "new"},
		{"client-config", "--project", "prj_01a00000-0000-7000-8000-000000000000", "--for", "codex"}} {
		r := postern(t, append(args, "--json")...)
		oneDocument(t, fmt.Sprintf("%q", args), r.stdout)
	}
}

// Every code of the table ends every command with the table's status, and with
// one line that says why.
func TestCLI2_StatusOfEveryRefusal(t *testing.T) {
	for _, row := range refusal.Table() {
		dir := t.TempDir()
		raw, err := api.Encode(api.Refuse(row.Code, "Particulars of %q.", "x"))
		if err != nil {
			t.Fatal(err)
		}
		_, stop, err := serveFake(dir, map[api.Action][]string{api.ConnectionGrant: {`{"refusal":` + strings.TrimSpace(string(raw)) + `}`}, api.ProjectList: {`{"refusal":` + strings.TrimSpace(string(raw)) + `}`}})
		if err != nil {
			t.Fatal(err)
		}
		r := postern(t, "--run-dir", dir, "connection", "grant", "demo", "fs", "read")
		if r.status != row.Exit || r.stdout != "" || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: status %d, wanted %d; %q %q", row.Code, r.status, row.Exit, r.stdout, r.err)
		}
		for _, want := range []string{row.Sentence, `Particulars of "x".`, row.Code.Help()} {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: %q does not say %q", row.Code, r.err, want)
			}
		}
		r = postern(t, "--run-dir", dir, "--json", "connection", "grant", "demo", "fs", "read")
		var doc struct{ Refusal api.Refusal }
		if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc.Refusal.Code != row.Code || doc.Refusal.Sentence != row.Sentence || doc.Refusal.Help != row.Code.Help() || r.status != row.Exit {
			t.Errorf("%s: status %d, %v, %q", row.Code, r.status, err, r.stdout)
		}
		r = postern(t, "--run-dir", dir, "connect", "--project", "demo")
		if r.status != 1 || !strings.Contains(r.stdout, `"code":-32000`) || !strings.Contains(r.stdout, string(row.Code)) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("connect, %s: status %d %q %q", row.Code, r.status, r.stdout, r.err)
		}
		stop()
	}
	for _, args := range [][]string{{"connect"}, {"connect", "--nonsense"}, {"connect", "--project", "p", "--token-fd", "9"}, {"connect", "--project", "p", "--token-fd", "3", "--token-file", "x"}} {
		if r := postern(t, args...); r.status != 1 || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%q: status %d %q", args, r.status, r.err)
		} else {
			oneDocument(t, fmt.Sprintf("%q", args), r.stdout)
		}
	}
}

// TestC175_AProgramReadsOneDocument: standard output is one JSON document, of errors
// too, whatever else is said goes to standard error, the status tells of a failure, and
// a format that does not exist is refused.
func TestC175_AProgramReadsOneDocument(t *testing.T) {
	dir := t.TempDir()
	answers := map[api.Action][]string{api.ServerProbe: {`{"event":{"text":"starting\u001b[2J fs"}}`, `{"result":{"server":"srv_1","tools":[]}}`}, api.ConnectionShow: {`{"result":{"label":"fs"}}`}}
	_, stop, err := serveFake(dir, answers)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, row := range []struct {
		args   []string
		status int
	}{
		{[]string{"--run-dir", dir, "connection", "show", "demo", "fs", "--json"}, 0},
		{[]string{"--run-dir", dir, "server", "probe", "fs", "--json"}, 0},
		{[]string{"--run-dir", filepath.Join(dir, "none"), "connection", "show", "demo", "fs", "--json"}, refusal.ExitUnreachable},
		{[]string{"--run-dir", dir, "ps", "--json"}, refusal.ExitUsage}, // what it is answered is a refusal
		{[]string{"ps", "--json", "--output", "xml"}, refusal.ExitUsage},
		{[]string{"ps", "--json", "--output=JSON"}, refusal.ExitUsage},
		{[]string{"explain", "--json", "x"}, refusal.ExitUsage},
		{[]string{"check", "--json", "--task", "t"}, refusal.ExitUsage},
		{[]string{"profile", "check", "--json", filepath.Join(dir, "none.yaml")}, refusal.ExitConfig},
	} {
		r := postern(t, row.args...)
		if r.status != row.status {
			t.Errorf("%q: status %d, want %d: %s", row.args, r.status, row.status, r.err)
		}
		oneDocument(t, fmt.Sprintf("%q", row.args), r.stdout)
		if row.status != 0 && r.err == "" {
			t.Errorf("%q: nothing is said to a person", row.args)
		}
	}
	for _, args := range [][]string{{"ps", "--json=maybe"}, {"ps", "--output", "xml"}, {"ps", "-o", "json"}} {
		if r := postern(t, args...); r.status != refusal.ExitUsage || r.err == "" {
			t.Errorf("%q: status %d, %q", args, r.status, r.err)
		}
	}
}

func TestCLI4_NoControlCharacters(t *testing.T) {
	hostile := "a\x1b[31m\u202eb\nc\td\x00"
	raw, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := string(raw)
	_, stop, err := serveFake(dir, map[api.Action][]string{
		api.ProjectList:     {`{"result":{"projects":[{"label":` + s + `,"workspace":` + s + `}]}}`},
		api.ServerShow:      {`{"result":{"label":` + s + `,"command":[` + s + `],"tiers":{` + s + `:"observe"}}}`},
		api.ServerCatalogue: {`{"result":{"probed":1,"error":` + s + `,"tools":[{"tool":` + s + `,"description":` + s + `}]}}`},
		api.ServerProbe:     {`{"event":{"text":` + s + `}}`, `{"result":{"probed":1,"error":` + s + `}}`},
		api.ConnectionShow:  {`{"result":{"label":` + s + `,"notice":` + s + `,"reason":` + s + `}}`},
		api.ProjectAdd:      {`{"result":{"label":` + s + `,"warnings":[` + s + `]}}`},
		api.Ps:              {`{"result":{"rows":[{"label":` + s + `,"last_error":` + s + `}]}}`},
		api.Activity:        {`{"result":{"rows":[{"tool":` + s + `,"principal":` + s + `}],"cursor":` + s + `,"more":true}}`},
		api.ServerDiff:      {`{"result":{"label":` + s + `,"from":"a","to":"b","members":[{"member":` + s + `,"was":[` + s + `]},{"member":"command","is":[` + s + `]}],"files":{"names_added":[` + s + `]},"notes":[` + s + `]}}`},
		api.TaskRevoke:      {`{"result":{"note":` + s + `,"admitted_before":[{"tool":` + s + `}]}}`},
		api.AccountList:     {`{"refusal":{"code":"busy","sentence":` + s + `,"detail":` + s + `,"help":` + s + `}}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, args := range [][]string{{"project", "list"}, {"server", "show", "x"}, {"server", "diff", "x"}, {"server", "probe", "x"}, {"connection", "show", "a", "b"}, commands[api.ProjectAdd], {"ps"}, {"activity"}, {"task", "revoke", "t"}, {"account", "list"}, {"account", hostile[:len(hostile)-1]}, {"ps", "--" + hostile[:len(hostile)-1]}} {
		r := postern(t, append([]string{"--run-dir", dir}, args...)...)
		for _, text := range []string{r.stdout, r.err} {
			if strings.ContainsAny(text, "\x1b\u202e\x00") || strings.Contains(text, "b\nc") || strings.Contains(text, "c\td") {
				t.Errorf("%q let control characters through: %q", args, text)
			}
		}
		if !strings.Contains(r.stdout+r.err, `\x1b[31m`) {
			t.Errorf("%q does not show the name at all: %q %q", args, r.stdout, r.err)
		}
	}
}

// A follow has no end of its own: an interrupt is an ordinary one.
func TestFollowEndsWithAnInterrupt(t *testing.T) {
	dir := t.TempDir()
	_, stop, err := serveFake(dir, map[api.Action][]string{api.Activity: {`{"event":{"tool":"read_file"}}`}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	cmd := exec.Command(binary, "--run-dir", dir, "--json", "activity", "--follow", "--cursor", "f1.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != `{"tool":"read_file"}`+"\n" {
		t.Errorf("%q %v", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A follow that loses its connection goes on behind the last record it had, whatever
// ended the connection, and a refusal ends it.
func TestAFollowResumesBehindTheLastRecord(t *testing.T) {
	for says, args := range map[string][]string{"follow": {"--follow"}, "export": {"export", "--cursor", "f5.1-x"}} {
		t.Run(says, func(t *testing.T) {
			dir := t.TempDir()
			answers := [][]string{
				{`{"event":{"tool":"one","cursor":"f6.1-x"}}`},
				{},
				{`{"event":{"tool":"two","cursor":"f7.1-x"}}`, `{"refusal":{"code":"project_unknown","sentence":"Gone."}}`},
			}
			if says == "follow" {
				answers = append([][]string{{`{"result":{"rows":[],"cursor":"p1-x","more":false,"follow":"f5.1-x"}}`}}, answers...)
			}
			ln, err := net.Listen("unix", filepath.Join(dir, "control.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			asked := make(chan string, 8)
			go func() {
				for _, lines := range answers {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					in := bufio.NewReader(c)
					line, _ := in.ReadString('\n')
					asked <- line
					for _, l := range lines {
						c.Write([]byte(`{"id":1,` + l[1:] + "\n"))
					}
					c.Close()
				}
			}()
			r := postern(t, append([]string{"--run-dir", dir, "--json", "activity"}, args...)...)
			var tools []string
			for line := range strings.Lines(r.stdout) {
				var row struct{ Tool string }
				if json.Unmarshal([]byte(line), &row) == nil && row.Tool != "" {
					tools = append(tools, row.Tool)
				}
			}
			if !slices.Equal(tools, []string{"one", "two"}) || r.status != refusal.ExitRefused || strings.Count(r.err, "goes on where it was") != 2 {
				t.Errorf("%v, status %d\n%s\n%s", tools, r.status, r.stdout, r.err)
			}
			if says == "follow" {
				if first := <-asked; strings.Contains(first, `"follow"`) {
					t.Errorf("the first question is %s", first)
				}
			}
			for _, want := range []string{`"cursor":"f5.1-x"`, `"cursor":"f6.1-x"`, `"cursor":"f6.1-x"`} {
				if got := <-asked; !strings.Contains(got, want) {
					t.Errorf("asked %s, want %s", got, want)
				}
			}
		})
	}
}

// root.sock is not open to people: the kernel says so, and the status is 77.
func TestNotRoot(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_, stop, err := serveFake(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "root.sock"), 0)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--run-dir", dir, "--json", "account", "delete", "ana")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 31234, Gid: 31234}}
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != refusal.ExitNotAllowed || !bytes.Contains(out, []byte(`"code":"not_permitted"`)) || !bytes.Contains(exit.Stderr, []byte("run this as root")) {
		t.Fatalf("%v %s", err, out)
	}
}

// Whom Postern does not know is told so beside an empty answer; whom it knows is not.
func TestAnEmptyAnswerToSomebodyUnknown(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("root is needed to become another user")
		}
		t.Skip("root is needed to become another user")
	}
	for want, accounts := range map[int]string{1: `{"result":{"accounts":[]}}`, 0: `{"result":{"accounts":[{"name":"ana"}]}}`} {
		dir, err := os.MkdirTemp("", "p")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		_, stop, err := serveFake(dir, map[api.Action][]string{api.AccountList: {accounts}, api.ProjectList: {`{"result":{}}`}, api.Ps: {`{"result":{}}`}, api.Activity: {`{"result":{}}`}})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "control.sock"), 0o666)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"project", "list"}, {"ps"}, {"activity"}, {"account", "list"}} {
			cmd := exec.Command(binary, append([]string{"--run-dir", dir}, args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 31234, Gid: 31234}}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			if err := cmd.Run(); err != nil {
				t.Errorf("%q: %v", args, err)
			}
			if got := strings.Count(errs.String(), "no account belongs to uid 31234; root adds it with: postern account add\n"); got != want {
				t.Errorf("%q with %s: %q", args, accounts, errs.String())
			}
		}
	}
}

// The values that the program names are those that are accepted: it may not
// import who knows them, its test may.
func TestDoctorLooksWhereInstallPutsThem(t *testing.T) {
	for self, want := range map[string][]string{
		"":                        {"/usr/libexec/postern"},
		"/usr/bin/postern":        {"/usr/bin", "/usr/libexec/postern"},
		"/usr/local/bin/postern":  {"/usr/local/bin", "/usr/local/libexec/postern", "/usr/libexec/postern"},
		"/tmp/d/usr/bin/postern":  {"/tmp/d/usr/bin", "/tmp/d/usr/libexec/postern", "/usr/libexec/postern"},
		"/home/x/postern/bin/pos": {"/home/x/postern/bin", "/home/x/postern/libexec/postern", "/usr/libexec/postern"},
	} {
		if got := programDirs(self); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", self, got, want)
		}
	}
}

// Whoever reads a policy that cannot be read at all sees no empty line number or key.
func TestWhereAMistakeOfThePolicyIs(t *testing.T) {
	for want, m := range map[string]api.AccessMistake{
		"f: gone":          {Text: "gone"},
		"f:2: no YAML":     {Line: 2, Text: "no YAML"},
		"f:4: a.b: a list": {Line: 4, Key: "a.b", Text: "a list"},
	} {
		if got := accessMistake("f", m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheNamedValuesAreAll(t *testing.T) {
	var classes, tiers []string
	for c := class.Class(1); c.String() != ""; c++ {
		classes = append(classes, c.String())
	}
	for _, x := range []class.Tier{class.Observe, class.Reversible, class.Destructive} {
		tiers = append(tiers, x.String())
	}
	if !slices.Equal(classes, classNames) || !slices.Equal(tiers, tierNames) || activityMax != control.MaxActivity {
		t.Errorf("%q %q %d", classes, tiers, control.MaxActivity)
	}
	for _, s := range activityStates {
		if _, ok := store.ParseState(s); !ok {
			t.Errorf("%q is no state", s)
		}
	}
}

// A server that says forever that there is more is not asked forever.
func TestListsTurnPagesForwardOnly(t *testing.T) {
	dir := t.TempDir()
	f, stop, err := serveFake(dir, map[api.Action][]string{
		api.ProjectList:    {`{"result":{"projects":[{"label":"onerow","project":"prj_b"}],"next":"b"}}`},
		api.AccountList:    {`{"result":{"accounts":[{"name":"onerow","account":"acc_b"}],"next":"b"}}`},
		api.ServerList:     {`{"result":{"servers":[{"label":"onerow","server":"srv_b"}],"next":"b"}}`},
		api.CredentialList: {`{"result":{"credentials":[{"label":"onerow","credential":"crd_b"}],"next":"b"}}`},
		api.ConnectionList: {`{"result":{"connections":[{"label":"onerow","connection":"con_b"}],"next":"b"}}`},
		api.TaskList:       {`{"result":{"tasks":[{"host":"onerow","task":"tsk_b"}],"next":"b"}}`},
		api.Ps:             {`{"result":{"rows":[{"label":"onerow","jail":"jal_b"}],"next":"b"}}`}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, args := range [][]string{{"project", "list"}, {"account", "list"}, {"server", "list"}, {"credential", "list"}, {"connection", "list", "shop"}, {"task", "list"}, {"ps"}} {
		if r := postern(t, append([]string{"--run-dir", dir}, args...)...); r.status != 0 || strings.Count(r.stdout, "onerow") != 2 {
			t.Errorf("%v: status %d, %q%q", args, r.status, r.stdout, r.err)
		}
	}
	if asked := f.asked(); strings.Count(asked, `"after":"b"`) != 7 || strings.Count(asked, `{"project":"shop","after":"b"}`) != 1 {
		t.Errorf("the second pages: %s", asked)
	}
}
