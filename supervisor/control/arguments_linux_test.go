package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

// recordArguments switches recording on in shop.
func (r *rig) recordArguments() {
	r.t.Helper()
	root := *facts()
	root.Version = 2
	p := root.Projects[id[ids.Project](shop)]
	p.RecordArguments = true
	root.Projects[p.ID] = p
	r.on(func() {
		if err := r.g.SetRoot(&root); err != nil {
			r.t.Error(err)
		}
	})
}

// given makes one call of a session with arguments.
func (r *rig) given(b *bridge, s ids.Session, args string) string {
	r.t.Helper()
	sum := sha256.Sum256([]byte(args))
	r.mu.Lock()
	seq := uint64(len(b.answers) + 1000)
	in := b.started[r.conn]
	r.mu.Unlock()
	b.send(wire.Admit{Seq: seq, Session: s, Connection: r.conn, Instance: in.Instance, Tool: "read_rows", Digest: hex.EncodeToString(sum[:]), Size: int64(len(args)), RequestID: "1", Args: []byte(args)})
	r.await("an answer", func() bool { return b.answers[seq] != nil })
	m, ok := b.answers[seq].(wire.Admitted)
	if !ok {
		r.t.Fatalf("%+v", b.answers[seq])
	}
	b.send(wire.Ended{Call: m.Call, Outcome: wire.Completed})
	return string(m.Call)
}

func TestE1_WhoMaySeeWhichArguments(t *testing.T) {
	r := newRig(t)
	r.recordArguments()
	b, s := r.session(owner, "")
	alices := r.given(b, s, `{"of":"\u202ealice","token":"s3cret"}`)
	bb, bs := r.session(member, "")
	bobs := r.given(bb, bs, `{"of":"bob"}`)
	const alice, bob = `{"of":"\u202ealice","token":"[masked]"}`, `{"of":"bob"}`
	for _, row := range []struct {
		who        string
		uid        uint32
		asks       refusal.Code // with their arguments
		alice, bob string       // what it sees of each
		records    int          // that it sees without
	}{
		{"root", root, refusal.NotPermitted, "", "", 2},
		{"the host that made a task", host, refusal.NotPermitted, "", "", 0},
		{"nobody's user", stranger, refusal.NotPermitted, "", "", 0},
		{"the owner", owner, "", alice, bob, 2},
		{"a member, of its own tasks", member, "", "", bob, 1},
		{"a viewer", viewer, "", alice, bob, 2},
		{"another account", other, "", "", "", 0},
	} {
		c := r.as(row.uid)
		raw, code := c.ask(api.Activity, api.ActivityParams{Arguments: true})
		if code != row.asks {
			t.Errorf("%s: %q", row.who, string(code))
		}
		shown := map[string]string{}
		if code == "" {
			got, err := api.DecodeResult[api.ActivityResult](raw)
			if err != nil || len(got.Rows) != row.records {
				t.Errorf("%s: %d records, %v", row.who, len(got.Rows), err)
			}
			for _, x := range got.Rows {
				shown[x.Call] = string(x.Arguments)
			}
		}
		if shown[alices] != row.alice || shown[bobs] != row.bob {
			t.Errorf("%s sees %q", row.who, shown)
		}
		for call, want := range map[string]string{alices: row.alice, bobs: row.bob} {
			raw, code := c.ask(api.ActivityShow, api.RecordParams{Record: call, Arguments: true})
			got, _ := api.DecodeResult[api.RecordResult](raw)
			if row.asks != "" && code != row.asks || row.asks == "" && (want == "") != (code == refusal.NotFound) || string(got.Arguments) != want {
				t.Errorf("%s, %s: %q, %s", row.who, call, string(code), got.Arguments)
			}
		}
		// Who does not ask is shown none, an administrator as little as the owner.
		plain, code := c.ask(api.Activity, api.ActivityParams{})
		if strings.Contains(string(plain), "alice\"") || strings.Contains(string(plain), "arguments") || code != "" && row.records > 0 {
			t.Errorf("%s, who did not ask: %q %s", row.who, string(code), plain)
		}
	}
	if text := r.stored(); strings.Contains(text, "s3cret") {
		t.Error("a secret is stored")
	}
	if strings.Contains(fmt.Sprint(r.log), "s3cret") || strings.Contains(fmt.Sprint(r.log), "of\":\"bob") {
		t.Error("arguments are logged")
	}
}

// Where nothing is recorded, whoever asks for arguments is told that it is so, and
// whoever does not ask is told nothing.
func TestE1_NoArgumentsSayWhy(t *testing.T) {
	r := newRig(t)
	b, s := r.session(owner, "")
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	why := func(uid uint32, ask bool) [2]string {
		t.Helper()
		rows := must[api.ActivityResult](r.as(uid), api.Activity, api.ActivityParams{Arguments: ask}).Rows
		shown := must[api.RecordResult](r.as(uid), api.ActivityShow, api.RecordParams{Record: string(call), Arguments: ask})
		return [2]string{rows[len(rows)-1].NotRecorded, shown.NotRecorded}
	}
	if got := why(owner, true); got != [2]string{recordsNone, recordsNone} {
		t.Errorf("%q", got)
	}
	if got := why(owner, false); got != [2]string{} {
		t.Errorf("who did not ask: %q", got)
	}
	r.recordArguments()
	if got := why(owner, true); got != [2]string{} {
		t.Errorf("where it is on by now: %q", got)
	}
}

// A page whose records all have as much as there may be is one line.
func TestE1_APageWithArgumentsIsOneAnswer(t *testing.T) {
	r := newRig(t)
	r.recordArguments()
	b, s := r.session(owner, "")
	full := `["` + strings.Repeat("x", 4090) + `"]`
	for range MaxWithArgs + 1 {
		r.given(b, s, full)
	}
	got := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{Arguments: true})
	if len(got.Rows) != MaxWithArgs || !got.More || string(got.Rows[0].Arguments) != full {
		t.Errorf("%d rows, more %v", len(got.Rows), got.More)
	}
}
