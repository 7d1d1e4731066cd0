package workers

import (
	"testing"

	"postern/bridge/wire"
	"postern/ids"
)

func TestWhatARevisionSpeaksIsRememberedAsAHint(t *testing.T) {
	w := &Workers{eras: map[ids.Revision]string{}}
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
