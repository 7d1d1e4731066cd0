package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/pairing"
	"postern/supervisor/registry"
)

// unknown is somebody of the rig's channel whom the policy does not name.
const unknown = "+5511900001111"

// pair makes somebody of whatsapp paired, by a code.
func (r *rig) pair(identity string) {
	r.t.Helper()
	code := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"}).Code
	must[api.PairedRow](r.as(host), api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:" + identity, Code: code})
}

// notesAfter are the records made since the last time.
func (r *rig) notesAfter() (out []gate.Note) {
	r.on(func() { out, r.notes = r.notes, nil })
	return out
}

// From a stranger to somebody who reads, and back: what each step gives, on the real
// loop, with a session and an open call.
func TestC7_ACodePairsAStrangerWhoThenReadsAndNeverMore(t *testing.T) {
	r := newRig(t)
	con := api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows"}}
	must[api.ConnectionResult](r.as(root), api.ConnectionGrant, con)
	task := api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:" + unknown}
	if _, code := r.as(host).ask(api.TaskNew, task); code != refusal.PrincipalRefused {
		t.Fatalf("a stranger: %q", string(code))
	}
	made := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"})
	if d := time.Until(time.UnixMilli(made.Expires)); made.Usable != 1 || d > pairing.DefaultTTL || d < pairing.DefaultTTL-time.Minute {
		t.Errorf("%d codes, for %v", made.Usable, d)
	}
	// The identity has one spelling, and it is that one which is paired.
	row := must[api.PairedRow](r.as(host), api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:55 11 90000-1111", Code: strings.ToLower(made.Code)})
	if row.Principal != "whatsapp:"+unknown || row.Host != "agent" || row.Kind != "paired" {
		t.Errorf("%+v", row)
	}
	if _, code := r.as(host).ask(api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:+5511900003333", Code: made.Code}); code != refusal.PairingRefused {
		t.Errorf("a used code: %q", string(code))
	}
	if _, code := r.as(host).ask(api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:group/1@g.us/" + unknown}); code != refusal.PrincipalRefused {
		t.Errorf("in a group: %q", string(code))
	}
	got := must[api.TaskResult](r.as(host), api.TaskNew, task)
	if got.Mode != "search" {
		t.Errorf("its widest mode is %q", got.Mode)
	}
	b, s := r.session(owner, got.Token)
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatalf("reading: %q", string(code))
	}
	if _, code := b.admit(s, r.conn, "write_rows"); code != refusal.AccessRefused && code != refusal.AccessAndMode {
		t.Errorf("writing: %q", string(code))
	}
	x := must[api.ExplainResult](r.as(root), api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Task: got.Task}, Tool: "read_rows"})
	if text := fmt.Sprint(x.Rules); !strings.Contains(text, "paired, ceiling read") || !strings.Contains(text, `a pairing code, used through host "agent"`) {
		t.Errorf("explain: %s", text)
	}
	list := must[api.PairedResult](r.as(root), api.AccessPaired, none{})
	if len(list.Paired) != 1 || list.Paired[0].Principal != "whatsapp:"+unknown || list.Paired[0].Level == nil || *list.Paired[0].Level != "read" || len(list.Usable) != 0 {
		t.Errorf("%+v", list)
	}
	// It is in the file, and so outlives a restart; codes do not.
	r.on(func() {
		again, err := registry.Load(r.s)
		if err != nil || !again.Paired(access.Principal{Channel: "whatsapp", ID: unknown}) {
			t.Errorf("after a restart: %v", err)
		}
	})
	cut := must[api.RevokeResult](r.as(root), api.AccessUnpair, api.UnpairParams{Principal: "whatsapp:" + unknown})
	if len(cut.Stands) != 1 || cut.Stands[0].Call != string(call) || !cut.Stands[0].CancelSent || cut.Sessions != 1 {
		t.Errorf("%+v", cut)
	}
	if _, code := b.admit(s, r.conn, "read_rows"); code == "" {
		t.Error("it calls on")
	}
	if _, code := r.as(host).ask(api.TaskNew, task); code != refusal.PrincipalRefused {
		t.Errorf("unpaired: %q", string(code))
	}
}

// A good code is no use to whoever is not the channel's host, nor for whom the policy
// names or blocks, nor in a channel that is not there; and it stays good.
func TestC7_WhoMakesAndWhoUsesACode(t *testing.T) {
	r := newRig(t)
	made := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp", TTLMs: pairing.MaxTTL.Milliseconds()})
	before := r.stored()
	redeem := func(uid uint32, principal string, want refusal.Code) {
		t.Helper()
		detail, code := r.as(uid).ask(api.AccessRedeem, api.RedeemParams{Principal: principal, Code: made.Code})
		if code != want || strings.Contains(string(detail), made.Code) {
			t.Errorf("%s by %d: %q %s, want %q", principal, uid, string(code), detail, string(want))
		}
	}
	for _, uid := range []uint32{root, owner, member, viewer, other, stranger} {
		redeem(uid, "whatsapp:"+unknown, refusal.HostUnknown)
		if uid != root {
			if _, code := r.as(uid).ask(api.AccessPair, api.PairParams{Channel: "whatsapp"}); code != refusal.NotPermitted {
				t.Errorf("a code for %d: %q", uid, string(code))
			}
		}
	}
	redeem(host, "sms:+5511900001111", refusal.HostNotAssigned)
	redeem(host, "mail:ann@example.org", refusal.PrincipalRefused) // the host's, and not declared
	redeem(host, "whatsapp:+5511777776666", refusal.PrincipalBlocked)
	redeem(host, "whatsapp:+5511999998888", refusal.AlreadyExists)
	redeem(host, "local:"+string(r.conn), refusal.PrincipalRefused)
	redeem(host, "whatsapp:group/1@g.us/"+unknown, refusal.PrincipalRefused)
	redeem(host, "whatsapp:*", refusal.PrincipalRefused)
	redeem(host, "whatsapp", refusal.PrincipalRefused)
	for what, p := range map[string]api.PairParams{"not declared": {Channel: "mail"}, "local": {Channel: "local"}, "no channel": {Channel: "What's up"}, "too short": {Channel: "whatsapp", TTLMs: pairing.MinTTL.Milliseconds() - 1},
		"too long": {Channel: "whatsapp", TTLMs: pairing.MaxTTL.Milliseconds() + 1}, "negative": {Channel: "whatsapp", TTLMs: -1}, "more than fits": {Channel: "whatsapp", TTLMs: 1 << 62}} {
		if _, code := r.as(root).ask(api.AccessPair, p); code != refusal.BadRequest && code != refusal.PrincipalRefused {
			t.Errorf("%s: %q", what, string(code))
		}
	}
	policy := func(text string) {
		p, _ := access.Parse([]byte(text))
		next := facts()
		next.Access = p
		r.on(func() {
			if err := r.g.SetRoot(next); err != nil {
				t.Error(err)
			}
		})
	}
	policy("channels: {whatsapp: {enabled: false}}")
	redeem(host, "whatsapp:"+unknown, refusal.PrincipalRefused)
	policy("channels: {whatsapp: {nonsense: 1}}")
	redeem(host, "whatsapp:"+unknown, refusal.AccessUnavailable)
	if r.stored() != before {
		t.Error("something was stored")
	}
	// In an open channel an unknown becomes paired, which is more than chat.
	policy("channels: {whatsapp: {access: {admission: open}}}")
	redeem(host, "whatsapp:"+unknown, "")
	// Declared, blocked and off: each beats being paired, and none of them ends it.
	now := func() api.PairedRow {
		return must[api.PairedResult](r.as(root), api.AccessPaired, none{}).Paired[0]
	}
	for text, want := range map[string]string{"access: {users: {\"+5511900001111\": {blocked: true}}}": "blocked refused", "access: {users: {\"+5511900001111\": {level: chat}}}": "user chat",
		"enabled: false": "stranger refused", "access: {admission: restricted}": "paired read", "access: {users: {\"*\": {blocked: true}}}": "stranger refused", "default_mode: nonsense": "stranger refused"} {
		policy("channels: {whatsapp: {" + text + "}}")
		got := now()
		says := got.Kind + " refused"
		if got.Admitted {
			says = got.Kind + " " + *got.Level
		}
		if says != want {
			t.Errorf("%s: %s, want %s", text, says, want)
		}
	}
}

// A code that is wrong is worth nothing, is answered like one that was, and five of them
// end what could be guessed.
func TestC7_GuessingACodeEndsThem(t *testing.T) {
	r := newRig(t)
	try := func(code string, opts ...option) refusal.Code {
		t.Helper()
		_, got := r.as(host).ask(api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:" + unknown, Code: code}, opts...)
		return got
	}
	for range 2 * pairing.MaxWrong { // nothing to guess: nothing counts, and nothing is recorded
		if code := try("00000-00000"); code != refusal.PairingRefused {
			t.Fatalf("%q", string(code))
		}
	}
	made := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"})
	second := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"})
	if made.Code == second.Code || second.Usable != 2 {
		t.Errorf("%+v", second)
	}
	r.notesAfter()
	for range 2 * pairing.MaxWrong { // a trial run looks at no code
		if code := try("00000-00000", dry); code != "" {
			t.Fatalf("a trial run: %q", string(code))
		}
	}
	for range pairing.MaxWrong {
		if code := try("00000-00000"); code != refusal.PairingRefused {
			t.Fatalf("%q", string(code))
		}
	}
	notes := r.notesAfter()
	if len(notes) != pairing.MaxWrong || !strings.HasSuffix(notes[len(notes)-1].After, "2 usable codes of the channel ended") || notes[0].Target != "whatsapp:+55…11" {
		t.Errorf("%+v", notes)
	}
	for _, code := range []string{made.Code, second.Code} {
		if got := try(code); got != refusal.PairingRefused {
			t.Errorf("a code that ended: %q", string(got))
		}
	}
	if _, code := r.as(root).ask(api.AccessPair, api.PairParams{Channel: "whatsapp"}); code != refusal.Busy {
		t.Errorf("in the pause: %q", string(code))
	}
	r.booted.Add(int64(pairing.Pause))
	third := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"})
	r.booted.Add(int64(pairing.DefaultTTL))
	if got := try(third.Code); got != refusal.PairingRefused {
		t.Errorf("a code whose time is over: %q", string(got))
	}
	last := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"})
	if got := try(last.Code); got != "" {
		t.Errorf("a good one: %q", string(got))
	}
	// No code is anywhere but in the one answer.
	all := r.log.String() + r.stored() + fmt.Sprintf("%+v", append(notes, r.notesAfter()...))
	for _, code := range []string{made.Code, second.Code, third.Code, last.Code} {
		if strings.Contains(all, code) || strings.Contains(all, strings.ReplaceAll(code, "-", "")) {
			t.Errorf("%s is in a log, the file or a record", code)
		}
	}
	for n := range pairing.MaxCodes + 1 {
		_, code := r.as(root).ask(api.AccessPair, api.PairParams{Channel: "whatsapp"})
		if want := n == pairing.MaxCodes; (code == refusal.Busy) != want {
			t.Errorf("the code number %d: %q", n+1, string(code))
		}
	}
}
