package workers

import (
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

func TestWhatARevisionSpeaksIsRememberedAsAHint(t *testing.T) {
	w := &Workers{eras: map[ids.Revision]string{}, gate: newRig(t).g}
	rev := id[ids.Revision](files)
	for i, step := range []struct{ era, failure, want string }{
		{"legacy", "", "legacy"},
		{"modern", "", "modern"},
		{"modern", "it ended", ""},
		{"legacy", "it ended", "modern"}, // the other way next time
		{"modern", "it ended", ""},
		{"both", "", "both"},
		{"modern", "", "both"}, // it was started as one of the two
		{"legacy", "", "both"},
		{"modern", "it ended", ""},
	} {
		w.learn(rev, wire.Catalogue{Era: step.era, Error: step.failure})
		if w.eras[rev] != step.want {
			t.Errorf("step %d: %q, want %q", i, w.eras[rev], step.want)
		}
	}
}

// What a probe found is the hint for the starts of every later life, until one says
// otherwise.
func TestWhatAProbeFoundIsTheHintAfterARestart(t *testing.T) {
	r := newRig(t)
	rev := id[ids.Revision](files)
	r.apply(r.g.Registry().PutCatalogue(rev, time.Now(), "", "both", nil))
	again, err := registry.Load(r.s) // what the next life reads
	if err != nil {
		t.Fatal(err)
	}
	g := gate.New(gate.Config{Registry: again, Store: r.s})
	if era := g.Era(rev); era != "both" {
		t.Errorf("after a restart it is %q", era)
	}
	w := &Workers{eras: map[ids.Revision]string{}, gate: g}
	w.learn(rev, wire.Catalogue{Era: "modern"})
	if w.era(rev) != "both" {
		t.Errorf("after a start in one of both it is %q", w.era(rev))
	}
	w.learn(rev, wire.Catalogue{Era: "modern", Error: "it ended"})
	if w.era(rev) != "" {
		t.Errorf("after a start that failed it is %q", w.era(rev))
	}
	// A probe that fails says nothing about it.
	r.apply(r.g.Registry().PutCatalogue(rev, time.Now(), "no answer", "modern", nil))
	if era := r.g.Era(rev); era != "both" {
		t.Errorf("after a probe that failed it is %q", era)
	}
}
