package workers

import (
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/supervisor/artifact"
	"postern/supervisor/store"
)

// A bridge that begins an artifact and does not go on holds its room for so long, and no
// longer; one that is in time is left alone.
func TestWorkers9_WhoDoesNotFinishAnArtifactIsEnded(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c := b.owes(s, inst, 1)
	b.send(wire.Piece{Call: c, Size: 9, Data: []byte("x")})
	b.view(s)
	begun := func(ago time.Duration) (seen bool) {
		if err := r.do(func() error {
			for _, set := range r.w.sets {
				if set.arriving != nil {
					set.arriving.since, seen = time.Now().Add(-ago), true
				}
			}
			r.w.tick(time.Now())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if !begun(PieceWait / 2) {
		t.Fatal("nothing has begun")
	}
	b.alive("in time")
	begun(PieceWait + time.Second)
	b.isGone("too late")
	r.record(c, store.Completed)
	if err := r.do(func() error { return r.keeper.Reserve("prj", artifact.MaxShare) }); err != nil {
		t.Errorf("it still holds room: %v", err)
	}
}
