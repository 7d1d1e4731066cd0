package bridge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
)

// words asks once and returns what each instance wrote.
func words(a *authority, seq uint64) map[ids.Jail]wire.Stderr {
	a.t.Helper()
	a.tell(wire.ReadStderr{Seq: seq})
	awaitIf(a, func(m wire.Stderr) bool { return m.Seq == seq && m.Last })
	out := map[ids.Jail]wire.Stderr{}
	for _, m := range a.all() {
		if m, ok := m.(wire.Stderr); ok && m.Seq == seq && !m.Last {
			whole := out[m.Instance]
			if whole.Data == nil {
				whole = m
			} else {
				whole.Data = append(whole.Data, m.Data...)
			}
			out[m.Instance] = whole
		}
	}
	return out
}

func TestStderrIsToldOfWhatRunsAndOfWhatRanBefore(t *testing.T) {
	a := newAuthority(t)
	const wrote, kept = 5000*len("banner ") + 1, 34 << 10 // more than one piece, less than all
	a.serverBounds.Stderr = kept
	conn := a.server([]string{"noisy"}, "echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.wantText("1", "{}")
	first := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" }).Instance
	whole := func(m wire.Stderr) bool { return len(m.Data) == kept && m.At == uint64(wrote-kept) }
	seq := uint64(0)
	// told asks until what is told of is whole: a server's stderr has a reader of its own.
	told := func(instances ...ids.Jail) (got map[ids.Jail]wire.Stderr) {
		for end := time.Now().Add(patience); time.Now().Before(end); logPause() {
			seq++
			got = words(a, seq)
			if !slices.ContainsFunc(instances, func(id ids.Jail) bool { return !whole(got[id]) }) {
				break
			}
		}
		return got
	}
	got := told(first)
	if m := got[first]; len(got) != 1 || m.Ended || m.Connection != conn || len(m.Data) != kept || m.At != uint64(wrote-kept) || !strings.HasSuffix(string(m.Data), "banner banner \n") {
		t.Errorf("%d of %+v, which ends %q", len(m.Data), m.At, m.Data[max(0, len(m.Data)-30):])
	}
	var ended chan struct{}
	a.set(func() { ended = a.ends[conn] })
	a.kill(conn)
	<-ended
	a.forgotten(conn)
	c.call("2", "echo", `{}`)
	c.wantText("2", "{}")
	second := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "2" }).Instance
	if got = told(first, second); len(got) != 2 || !got[first].Ended || len(got[first].Data) != kept || got[second].Ended || len(got[second].Data) != kept {
		t.Errorf("after a restart: %d; the first %v with %d bytes of %d, the second %v with %d of %d", len(got), got[first].Ended, len(got[first].Data), got[first].At, got[second].Ended, len(got[second].Data), got[second].At)
	}
	// A bridge without servers answers too.
	if got := words(newAuthority(t), 1); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
