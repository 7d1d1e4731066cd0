package gate

import (
	"errors"
	"testing"

	"postern/ids"
	"postern/refusal"
)

// In read-only mode whoever asks for a change is refused before anything is done for them;
// what protects goes on, and the authority's own changes do.
func TestReadOnly_ChangesAreRefusedInTheQueue(t *testing.T) {
	w := newWorld(t)
	suspend := func(off, changes bool) error {
		ran := false
		err := w.g.As(Actor{By: "uid 0", Action: "x", Changes: changes}, func() error {
			ran = true
			c, err := w.reg().Suspend(id[ids.Account](alice), off, 0)
			if err != nil {
				return err
			}
			return w.g.Apply(c)
		})
		if ran == errors.Is(err, refusal.ReadOnly) {
			t.Errorf("ran %v, %v", ran, err)
		}
		return err
	}
	mode := func(since int64) {
		next := facts()
		next.ReadOnly = since
		if err := w.g.SetRoot(next); err != nil {
			t.Fatal(err)
		}
	}
	if err := suspend(true, true); err != nil {
		t.Fatal(err)
	}
	mode(1_790_000_000_000)
	if err := suspend(false, true); !errors.Is(err, refusal.ReadOnly) {
		t.Errorf("a change: %v", err)
	}
	if err := suspend(true, false); err != nil {
		t.Errorf("what protects: %v", err)
	}
	mode(0)
	if err := suspend(false, true); err != nil {
		t.Errorf("after the mode: %v", err)
	}
}
