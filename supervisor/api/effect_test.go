package api

import "testing"

// Whoever adds an action says what it does; what nobody said changes.
func TestEveryActionHasAnEffect(t *testing.T) {
	for _, a := range Actions() {
		if effects[a] == 0 {
			t.Errorf("nobody said what %s does", a)
		}
	}
	if len(effects) != len(Actions()) || EffectOf("nobody.knows") != Changes {
		t.Errorf("%d effects of %d actions; an unknown one does %v", len(effects), len(Actions()), EffectOf("nobody.knows"))
	}
}
