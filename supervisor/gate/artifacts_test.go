package gate

import (
	"errors"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/artifact"
	"postern/supervisor/store"
)

func TestGate8_AnArtifactIsItsCallsAndComesInItsTurn(t *testing.T) {
	w := newWorld(t)
	keeper, err := artifact.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.g.keeper = keeper
	c := w.admitted("a call", w.call())
	w.commit()
	begins := func(says string, c ids.Call, set Set, n int, ok, broken bool) {
		t.Helper()
		if _, got, err := w.g.Brings(set, wire.Piece{Call: c, N: n}); got != ok || (err != nil) != broken {
			t.Errorf("%s: %v, %v", says, got, err)
		}
	}
	begins("before the call has ended", c, shopSet, 0, false, false)
	if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: wire.Completed, Artifacts: 2}); err != nil {
		t.Fatal(err)
	}
	begins("another bridge's", c, Set{shopSet.Project, shopSet.Number + 1}, 0, false, true)
	begins("out of its turn", c, shopSet, 1, false, true)
	begins("a call that there is not", id[ids.Call](99), shopSet, 0, false, false)
	begins("the first", c, shopSet, 0, true, false)
	w.g.Keep(w.g.Brought(wire.Piece{Call: c, Name: "a\nb", Size: 7}), artifact.Kept{Digest: artifact.Digest{1}, Type: artifact.Bytes})
	begins("the first again", c, shopSet, 0, false, true)
	begins("the second", c, shopSet, 1, true, false)
	w.g.Keep(w.g.Brought(wire.Piece{Call: c, N: 1}), artifact.Kept{Err: errors.New("why\nnot")})
	begins("one more than was said", c, shopSet, 2, false, false)
	if err := w.g.Leave(); err != nil {
		t.Fatal(err)
	}
	rec := w.record(c)
	of, err := w.s.ArtifactsOf([]store.Call{rec})
	if got := of[rec.Seq]; err != nil || len(got) != 2 || got[0].Name != `a\nb` || got[0].Size != 7 || got[0].Missing != "" || got[1].Missing != `artifact not kept: why\nnot` {
		t.Errorf("%+v, %v", of, err)
	}
	// It owes for a while, and as long as its bridge lives.
	for says, end := range map[string]func(){
		"after a while":   func() { w.g.TickFates(w.now.Add(2 * OweWait)) },
		"its bridge gone": func() { w.g.forgive(shopSet) },
	} {
		c := w.admitted("a call", w.call())
		w.commit()
		if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: wire.Completed, Artifacts: 1}); err != nil {
			t.Fatal(err)
		}
		end()
		begins(says, c, shopSet, 0, false, false)
	}
}
