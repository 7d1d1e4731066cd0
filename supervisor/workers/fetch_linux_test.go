package workers

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/artifact"
	"postern/supervisor/order"
	"postern/supervisor/store"
)

// names sends that the artifact is a file.
func (b *bridge) names(c ids.Call, n int, path string) {
	b.send(wire.Piece{Call: c, N: n, Last: true, Type: "text/plain", Name: "file://" + path, Path: path})
}

func (r *rig) onFetches(f func(order.Fetch) (raw, why string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onFetch = f
}

func (r *rig) allFetches() []order.Fetch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return only[order.Fetch](r)
}

func TestWorkers10_E4_AFileThatAResultNamesIsKeptAsItsCallsOwn(t *testing.T) {
	if order.MaxFetched != wire.MaxArtifact {
		t.Fatal("a file and an artifact have different bounds")
	}
	r := newRig(t)
	r.onFetches(func(m order.Fetch) (string, string) {
		if strings.Contains(m.Path, "link") {
			return "", "there is a symbolic link in its path"
		}
		return "bytes of " + m.Path, ""
	})
	b, s, inst := r.ready(r.socket(shop))
	c := b.owes(s, inst, 5)
	b.names(c, 0, "/workspace/a")
	b.brings(c, 1, []byte("its own bytes"), "", "")
	b.names(c, 2, "/workspace/link")
	b.names(c, 3, "/workspace/a")
	b.send(wire.Piece{Call: c, N: 4, Last: true, Name: "file://else/a", Why: wire.WhyURI})
	got := map[string]int{}
	for _, x := range r.artifacts(c, 5) {
		got[fmt.Sprint(x.Name, " ", x.Size, " ", x.Type, " ", x.Missing, " ", x.Digest == sha256.Sum256([]byte("bytes of /workspace/a")))]++
		if x.Project != id[ids.Project](shop) || x.Call != c || x.Task == "" {
			t.Errorf("%+v", x)
		}
	}
	for row, n := range map[string]int{
		"file:///workspace/a 21 text/plain; charset=utf-8  true": 2, " 13 application/octet-stream  false": 1,
		"file:///workspace/link 0  artifact not kept: there is a symbolic link in its path false": 1,
		"file://else/a 0  artifact not kept: what names it is not the path of a file false":       1,
	} {
		if got[row] != n {
			t.Errorf("%d of %q: %v", got[row], row, got)
		}
	}
	for _, f := range r.allFetches() {
		if f.Jail != inst {
			t.Errorf("it is asked for in %s, not %s", f.Jail, inst)
		}
	}
	r.record(c, store.Completed)
	b.alive("after files")
	if err := r.do(func() error { return r.keeper.Reserve(id[ids.Project](shop), artifact.MaxShare) }); err != nil {
		t.Errorf("it still holds room: %v", err)
	}
}

// One file of a project is on its way at a time, and no other project waits for it; too
// many are refused, and posternd's silence costs an artifact and no more.
func TestWorkers10_FilesWaitForTheirTurnAndNobodyForThem(t *testing.T) {
	r := newRig(t)
	r.onFetches(func(order.Fetch) (string, string) { return "", string(held) })
	b, s, inst := r.ready(r.socket(shop))
	var calls []ids.Call
	for range MaxFetches/wire.MaxArtifacts + 1 {
		c := b.owes(s, inst, wire.MaxArtifacts)
		for n := range wire.MaxArtifacts {
			b.names(c, n, "/workspace/x")
		}
		calls = append(calls, c)
	}
	// One is asked for, MaxFetches wait, and what is beyond is refused at once.
	last := calls[len(calls)-1]
	for _, x := range r.artifacts(last, wire.MaxArtifacts-1) {
		if x.Missing != "artifact not kept: too much was waiting to be written" {
			t.Errorf("%+v", x)
		}
	}
	if n := len(r.allFetches()); n != 1 {
		t.Errorf("%d are asked for", n)
	}
	other, os_ := r.session(r.socket(blog), blog)
	oinst, code := other.start(os_, r.conn[blog], "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	foreign, code := other.admit(os_, r.conn[blog], oinst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	other.send(wire.Ended{Call: foreign, Outcome: wire.Completed, Artifacts: 1})
	other.names(foreign, 0, "/workspace/theirs")
	r.await("the other project's", func() bool { return len(only[order.Fetch](r)) == 2 })
	r.fetched(r.allFetches()[1].Seq, "theirs", "")
	if x := r.artifacts(foreign, 1)[0]; x.Missing != "" || x.Size != 6 || x.Project != id[ids.Project](blog) {
		t.Errorf("%+v", x)
	}
	// The bridge is gone: what its calls named is still fetched, as calls ended before.
	b.close()
	r.onFetches(func(order.Fetch) (string, string) { return "late", "" })
	begin := time.Now()
	first := r.artifacts(calls[0], wire.MaxArtifacts)
	if time.Since(begin) < FetchWait-2*time.Second {
		t.Error("the one without an answer was not waited for")
	}
	missing := 0
	for _, x := range first {
		if x.Missing != "" {
			missing++
		}
	}
	if missing != 1 || first[len(first)-1].Missing != "artifact not kept: nobody could look for it in time" {
		t.Errorf("%d of %d are missing: %+v", missing, len(first), first[len(first)-1])
	}
	// An answer that comes too late is nobody's, and its file is closed.
	r.fetched(r.allFetches()[0].Seq, "too late", "")
	for _, c := range calls[1 : len(calls)-1] {
		r.artifacts(c, wire.MaxArtifacts)
	}
	if n := len(r.artifacts(calls[0], wire.MaxArtifacts)); n != wire.MaxArtifacts {
		t.Errorf("%d rows", n)
	}
}
