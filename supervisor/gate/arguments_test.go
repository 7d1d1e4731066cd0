package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// given asks for read_rows as alice, with arguments; sent is what the bridge sends of them.
func (w *world) given(args, sent string) Decision {
	sum := sha256.Sum256([]byte(args))
	m := wire.Admit{Session: w.ses, Connection: w.conn, Tool: "read_rows", RequestID: "7", Digest: hex.EncodeToString(sum[:]), Size: int64(len(args))}
	if sent != "" {
		m.Args = []byte(sent)
	}
	return w.g.Admit(shopSet, m, w.running(w.conn), Seen{})
}

// recorded are the arguments of the newest record.
func (w *world) recorded() store.Arguments {
	w.t.Helper()
	w.commit()
	rec := w.records()[0]
	of, err := w.s.ArgumentsOf([]store.Call{rec})
	if err != nil {
		w.t.Fatal(err)
	}
	return of[rec.Seq]
}

func (w *world) recording(on bool, secret ...string) {
	w.root(func(r *registry.Root) {
		p := r.Projects[shopSet.Project]
		p.RecordArguments = on
		r.Projects[p.ID] = p
		s := r.Servers[w.reg().Connection(w.conn).Server]
		s.Revisions[w.running(w.conn)].Secret = secret
	})
}

func TestGate9_ArgumentsAreRecordedWhereRootSaysSo(t *testing.T) {
	w := newWorld(t)
	const args = `{"path":"a","pin":"s3cret","deep":[{"Pin":{"x":"s3cret"}}]}`
	viewed := func() (all int) {
		for _, tool := range w.g.View(shopSet, w.ses) {
			if tool.Args {
				all++
			}
		}
		return all
	}
	recordedIs := func(says, value, missing string) {
		t.Helper()
		if got := w.recorded(); got.Value != value || got.Missing != missing || strings.Contains(got.Missing, "s3cret") {
			t.Errorf("%s: %+v", says, got)
		}
	}
	// Off: whatever a bridge sends is not kept, and it is not asked for.
	w.admitted("off", w.given(args, args))
	recordedIs("off", "", "")
	if n := viewed(); n != 0 {
		t.Errorf("off: %d tools say that their arguments are recorded", n)
	}
	w.recording(true, "pin")
	if n := viewed(); n != 2 {
		t.Errorf("on: %d tools say that their arguments are recorded", n)
	}
	w.admitted("on", w.given(args, args))
	recordedIs("on", `{"path":"a","pin":"[masked]","deep":[{"Pin":"[masked]"}]}`, "")
	w.admitted("without any", w.g.Admit(shopSet, wire.Admit{Session: w.ses, Connection: w.conn, Tool: "read_rows", Digest: strings.Repeat("ab", 32)}, w.running(w.conn), Seen{}))
	recordedIs("without any", "", "")
	w.admitted("not sent", w.given(args, ""))
	recordedIs("not sent", "", "the bridge did not send them")
	w.admitted("others", w.given(args, `{"path":"b"}`))
	recordedIs("others", "", "what the bridge sent is not what was called with")
	w.admitted("no JSON", w.given(`{"pin":s3cret}`, `{"pin":s3cret}`))
	recordedIs("no JSON", "", "they are not one JSON value")
	long := `{"path":"` + strings.Repeat("s3cret", wire.MaxArgs/6) + `"}`
	w.admitted("too long to send", w.given(long, ""))
	recordedIs("too long to send", "", "they have more than 8192 bytes")
	w.admitted("too long to keep", w.given(long[:6000]+`"}`, long[:6000]+`"}`))
	recordedIs("too long to keep", "", "they have more than 4096 bytes")
	// A field that is secret from now on is so before its revision is accepted.
	w.root(func(r *registry.Root) {
		id := w.reg().Connection(w.conn).Server
		s := r.Servers[id]
		next := *s.Revisions[s.Current]
		next.ID, next.Secret = "rev_next", []string{"path"}
		s.Revisions[next.ID], s.Current = &next, next.ID
		r.Servers[id] = s
	})
	was := w.given(args, args)
	if was.Code != refusal.ServerRevisionChanged {
		t.Fatalf("%+v", was)
	}
	recordedIs("denied", `{"path":"[masked]","pin":"[masked]","deep":[{"Pin":"[masked]"}]}`, "")
	if got := w.given(args, `{}`); got.Code != refusal.ServerRevisionChanged {
		t.Fatalf("%+v", got)
	}
	recordedIs("denied, of others", "", "")
}

// Off again: nothing is recorded from the next call on, by a view from before too; what
// was stays. Nothing of arguments stays in memory.
func TestGate9_SwitchingOffHoldsFromTheNextCallOn(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, class.Observe, "list_dir")
	w.recording(true)
	c := w.admitted("on", w.given(`{"path":"a"}`, `{"path":"a"}`))
	if got := w.g.open[c].rec.Args; got != (store.Arguments{}) {
		t.Errorf("an open call still holds %+v", got)
	}
	w.recording(false)
	w.admitted("off", w.given(`{"path":"b"}`, `{"path":"b"}`))
	w.commit()
	all := w.records()
	of, err := w.s.ArgumentsOf(all)
	if err != nil || len(of) != 1 || of[all[1].Seq].Value != `{"path":"a"}` {
		t.Errorf("%+v, %v", of, err)
	}
}
