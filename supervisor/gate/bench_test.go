package gate

import (
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/store"
)

func BenchmarkAdmit(b *testing.B) {
	m := func(w *world) wire.Admit {
		return wire.Admit{Session: w.ses, Connection: w.conn, Tool: "read_rows", RequestID: "7", Digest: strings.Repeat("ab", 32), Size: 2}
	}
	b.Run("decision", func(b *testing.B) {
		w := memoryWorld(b)
		s := w.g.sessions[w.ses]
		b.ReportAllocs()
		for b.Loop() {
			w.g.question(s, w.conn, "read_rows", id1)
			if v := policy.Decide(&w.g.facts); !v.Allow {
				b.Fatal(v)
			}
		}
	})
	run := func(b *testing.B, w *world, each int) {
		adm := m(w)
		var calls []ids.Call
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			d := w.g.Admit(shopSet, adm, id1, Seen{})
			if d.Code != "" {
				b.Fatal(d.Code)
			}
			if calls = append(calls, d.Call); len(calls) < each {
				continue
			}
			if err := w.g.Commit(); err != nil {
				b.Fatal(err)
			}
			for _, c := range calls {
				w.g.end(w.g.open[c], store.Outcome{State: store.Completed})
			}
			calls = calls[:0]
		}
	}
	b.Run("memory", func(b *testing.B) { run(b, memoryWorld(b), 1) })
	b.Run("durable", func(b *testing.B) { run(b, newWorld(b), 1) })
	b.Run("durable, 16 at a time", func(b *testing.B) { run(b, newWorld(b), 16) })
	b.Run("refused", func(b *testing.B) {
		w := memoryWorld(b)
		adm := m(w)
		adm.Tool = "write_rows"
		for b.Loop() {
			if d := w.g.Admit(shopSet, adm, id1, Seen{}); d.Code != refusal.ToolNotGranted {
				b.Fatal(d)
			}
		}
	})
}

var id1 = id[ids.Revision](files)
