package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Somebody whom the policy does not name writes a code that root made; the channel's host
// hands it in. What then reaches a tool server in a jail, what does not, what is left of
// it after a restart, and how it ends.
func TestC7_ACodeLetsAStrangerReadAndNothingElse(t *testing.T) {
	w := newWorld(t)
	const who = "sms:+5511900001111"
	w.must("access", "set", "sms", "--admission", "restricted")
	// A server of one's own for each task: people of channels share no directory.
	w.must("server", "add", "own", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--scope", "task", "--tier", "write=reversible", "--", "/package/count")
	w.must("connection", "add", "a", "own")
	w.must("connection", "grant", "a", "own", "echo", "slow", "write")
	if _, _, errb, exit := w.tryToken(w.a, runtimeUID, "--principal", who); exit == 0 || !strings.Contains(errb, "principal_refused") {
		t.Fatalf("a stranger: exit %d\n%s", exit, errb)
	}
	code := func() string {
		t.Helper()
		var made struct{ Code string }
		if err := json.Unmarshal([]byte(w.must("--json", "access", "pair", "sms", "--ttl", "5m")), &made); err != nil || made.Code == "" {
			t.Fatal(err)
		}
		return made.Code
	}
	redeem := func(uid int, code string, args ...string) string {
		t.Helper()
		_, errb, exit := w.CLI(uid, append([]string{"access", "redeem", who, code}, args...)...)
		if exit == 0 {
			return "ok"
		}
		return errb
	}
	good := code()
	if got := redeem(aliceUID, good); !strings.Contains(got, "host_unknown") {
		t.Errorf("an account: %s", got)
	}
	if got := redeem(hostUID, good, "--dry-run"); got != "ok" {
		t.Errorf("a trial run: %s", got)
	}
	if _, errb, exit := w.CLI(hostUID, "access", "pair", "sms"); exit == 0 || !strings.Contains(errb, "not_permitted") {
		t.Errorf("a host made a code: %s", errb)
	}
	if got := redeem(hostUID, strings.ToLower(good)); got != "ok" {
		t.Fatalf("the host: %s", got)
	}
	w.must("access", "unpair", who)
	if got := redeem(hostUID, good); !strings.Contains(got, "pairing_refused") {
		t.Errorf("a used code: %s", got)
	}
	if got := redeem(hostUID, code()); got != "ok" {
		t.Fatal(got)
	}
	kept := code()
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if show := w.must("access", "show"); !strings.Contains(show, who) || strings.Contains(show, "can be used") {
		t.Errorf("after a restart: %s", show)
	}
	tok, task := w.token(w.a, runtimeUID, "--principal", who)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("own.echo", `{"x":1}`); got.outcome() != "ok" {
		t.Fatalf("reading: %s", got.raw)
	}
	if got := r.call("write", `{"path":"/workspace/new.txt","text":"x"}`).outcome(); got != "access_refused" && got != "access_and_mode_refused" {
		t.Errorf("writing: %s", got)
	}
	if got := strings.Join(r.tools(), " "); strings.Contains(got, "write") || !strings.Contains(got, "own.echo") {
		t.Errorf("listed: %s", got)
	}
	if got := w.must("explain", "--task", task, "own.echo"); !strings.Contains(got, "paired, ceiling read") {
		t.Errorf("%s", got)
	}
	c := r.expect("77")
	r.send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"own.slow","arguments":{"ms":20000}}}`)
	until(t, "the call is admitted", func() bool {
		for _, x := range w.records(w.a) {
			if x.Tool == "slow" && x.State == "admitted" {
				return true
			}
		}
		return false
	})
	if got := w.must("access", "unpair", who, "--dry-run"); !strings.Contains(got, "Without --dry-run") {
		t.Errorf("%s", got)
	}
	if got := w.must("access", "unpair", who); !strings.Contains(got, "sessions closed: 1") || !strings.Contains(got, "slow") {
		t.Errorf("%s", got)
	}
	if got := r.wait(c).outcome(); got == "ok" {
		t.Error("the open call ended as if nothing had been")
	}
	if _, _, errb, exit := w.tryToken(w.a, runtimeUID, "--principal", who); exit == 0 || !strings.Contains(errb, "principal_refused") {
		t.Errorf("unpaired: exit %d\n%s", exit, errb)
	}
	if got := redeem(hostUID, kept); !strings.Contains(got, "pairing_refused") {
		t.Errorf("a code of before the restart: %s", got)
	}
	for _, name := range []string{"state", "root"} {
		raw, err := os.ReadFile(filepath.Join(w.Dir, name, "audit.log"))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(raw); strings.Contains(text, good) || strings.Contains(text, kept) || strings.Contains(text, "900001111") ||
			name == "state" && (strings.Count(text, `"action":"access.redeem"`) != 2 || strings.Count(text, `"action":"access.unpair"`) != 2 || strings.Count(text, `"action":"access.pair"`) != 3) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
