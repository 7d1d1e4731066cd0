package gate

import (
	"fmt"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/registry"
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
	// The same of a principal with a ceiling in a mode with lists, beside so many grants of
	// other connections.
	for _, grants := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("decision with ceiling and mode, %d grants", grants), func(b *testing.B) {
			w := memoryWorld(b)
			for c, left := 0, grants; left > 0; c++ {
				n := min(left, 1000)
				left -= n
				row := store.Connection{ID: id[ids.Connection](1000 + c), Project: id[ids.Project](shop), Server: id[ids.Server](10 + c), Accepted: id1, Enabled: true, Credential: registry.Keyless}
				change := registry.Change{Put: []store.Row{row}}
				for i := range n {
					tool := fmt.Sprintf("tool_%d_%d", c, i)
					change.Put = append(change.Put, store.Grant{ID: id[ids.Grant](100_000 + c*1000 + i), Project: row.Project, Connection: row.ID, Tool: tool, Served: tool})
				}
				w.reg().Apply(change)
			}
			w.write(two("{level: read}", "{level: full}"))
			at := w.session(w.taskFor(contact, "search"))
			s := w.g.sessions[at.ses]
			b.ReportAllocs()
			for b.Loop() {
				w.g.question(s, w.conn, "read_rows", id1)
				if v := policy.Decide(&w.g.facts); !v.Allow {
					b.Fatal(v)
				}
			}
		})
	}
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
