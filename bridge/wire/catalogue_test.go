package wire

import "testing"

func TestDefinitionsAreReadAnew(t *testing.T) {
	defs, err := Definitions([]byte(`[{"name":"a","annotations":{"readOnlyHint":true,"destructiveHint":"yes"},"x":1e400},{"name":"b","annotations":7}]`))
	if err != nil || len(defs) != 2 || defs[0].ReadOnly != Yes || defs[0].Destructive != Unsaid || defs[1].ReadOnly != Unsaid || string(defs[1].Raw) != `{"name":"b","annotations":7}` {
		t.Fatalf("%+v %v", defs, err)
	}
	for _, bad := range []string{``, `{}`, `[1]`, `[{"name":""}]`, `[{"title":"a"}]`, `[{"name":"a"},{"name":"a"}]`, `[{"name":"a","name":"b"}]`, `[{"name":1}]`, `[{"name":"a"}`} {
		if defs, err := Definitions([]byte(bad)); err == nil {
			t.Errorf("%s was accepted: %+v", bad, defs)
		}
	}
}
