package rig

import (
	"strings"
	"testing"
)

// ForTest starts one that ends with the test. What it leaves behind fails the test, and
// a test that fails says what posternd and the authority logged.
func ForTest(t testing.TB, cfg Config) *Rig {
	t.Helper()
	r, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := r.Left(); len(left) > 0 {
			t.Errorf("left behind: %s", strings.Join(left, ", "))
		}
		for _, wrong := range r.Undocumented() {
			t.Error(wrong)
		}
		if t.Failed() {
			t.Logf("log of posternd and the authority:\n%s", r.Log)
		}
	})
	return r
}
