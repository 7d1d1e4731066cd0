package ids

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIDs1_ParseAcceptsWhatNewMakesAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r [10]byte
		copy(r[:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random"))
		id := New[Project](time.UnixMilli(rapid.Int64Range(0, 1<<47).Draw(t, "ms")), r)
		if got, err := Parse[Project](string(id)); err != nil || got != id {
			t.Fatalf("Parse(%q) = %q, %v", id, got, err)
		}
		i := rapid.IntRange(0, Len-1).Draw(t, "position")
		b := []byte(id)
		b[i] = 'G'
		if _, err := Parse[Project](string(b)); err == nil {
			t.Fatalf("accepted %q", b)
		}
		if up := strings.ToUpper(string(id)); up != string(id) {
			if _, err := Parse[Project](up); err == nil {
				t.Fatalf("accepted a second spelling %q", up)
			}
		}
	})
	for _, s := range []string{"", "prj_", "prj_00000000-0000-4000-8000-000000000000", "prj_00000000-0000-7000-c000-000000000000",
		"prj_00000000-0000-7000-8000-0000000000000", "prj_00000000-0000-7000-:000-000000000000"} {
		if _, err := Parse[Project](s); err == nil {
			t.Errorf("accepted %q", s)
		}
	}
}

func TestIDs2_AKindIsNotAnother(t *testing.T) {
	id := New[Task](time.Now(), [10]byte{1})
	if _, err := Parse[Project](string(id)); err == nil {
		t.Fatalf("a task id was accepted as a project")
	}
	if _, err := Parse[Task](string(id)); err != nil {
		t.Fatal(err)
	}
}

func TestAnIdKnowsWhenItWasMade(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_123)
	if got := Time(New[Call](at, [10]byte{1})); !got.Equal(at) {
		t.Errorf("%v, want %v", got, at)
	}
	for _, no := range []Call{"", "cal_", "ses_01900000-0000-7000-8000-000000000001"} {
		if got := Time(no); !got.IsZero() {
			t.Errorf("%q was made at %v", no, got)
		}
	}
}
