package registry

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"postern/ids"
	"postern/supervisor/store"
)

// large fills a store with connections and granted tools.
func large(tb testing.TB, dir string, connections, tools int) {
	tb.Helper()
	s, err := store.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	c := Change{}
	for i := range connections {
		p, con := id[ids.Project](1000+i), id[ids.Connection](1000+i)
		c.Put = append(c.Put, Connection{ID: con, Project: p, Server: id[ids.Server](fs), Accepted: firstRevision, Enabled: true, Credential: Keyless, Version: 2, Created: 1})
		for n := range tools {
			name := fmt.Sprintf("tool_%d", n)
			c.Put = append(c.Put, store.Served{Project: p, Name: name, Connection: con, Tool: name},
				Grant{ID: id[ids.Grant](i*tools + n + 1), Project: p, Connection: con, Tool: name, Served: name, By: "uid 0", At: 1, Revision: firstRevision, Pin: sha256.Sum256([]byte(name))})
		}
	}
	if err := s.Apply(c); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	large(b, dir, 10_000, 10)
	for b.Loop() {
		began := time.Now()
		s, err := store.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		opened := time.Since(began)
		r, err := Load(s)
		if err != nil || len(r.views) != 10_000 {
			b.Fatal(err)
		}
		b.ReportMetric(opened.Seconds(), "s-open")
		b.ReportMetric((time.Since(began) - opened).Seconds(), "s-load")
		s.Close()
	}
}
