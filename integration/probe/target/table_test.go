package target

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A table that compares equal to everything would pass every test built on it.
func TestEveryDifferenceIsOne(t *testing.T) {
	probes := []Probe{{Name: "A", What: "one"}, {Name: "B", What: "two"}}
	golden := Format(probes, map[string]Answer{"A": {"CLOSED", "EPERM"}, "B": {"KILLED", "SIGSYS"}})
	if d := Differences(golden, golden); len(d) > 0 {
		t.Errorf("a table differs from itself: %q", d)
	}
	for name, other := range map[string]map[string]Answer{
		"verdict": {"A": {"OPEN", ""}, "B": {"KILLED", "SIGSYS"}},
		"detail":  {"A": {"CLOSED", "EACCES"}, "B": {"KILLED", "SIGSYS"}},
	} {
		if d := Differences(Format(probes, other), golden); len(d) != 1 {
			t.Errorf("%s: %q", name, d)
		}
	}
	fewer, more := Format(probes[:1], Parse(golden)), Format(append(probes, Probe{Name: "C"}), Parse(golden))
	if len(Differences(fewer, golden)) != 1 || len(Differences(more, golden)) != 1 {
		t.Error("a row that is missing or new is no difference")
	}
	if got := Parse(golden); got["A"] != (Answer{"CLOSED", "EPERM"}) || got["B"] != (Answer{"KILLED", "SIGSYS"}) {
		t.Errorf("read back: %v", got)
	}
}

func TestOnlyErrorsOfFiltersAreOneAnswer(t *testing.T) {
	for _, row := range []struct {
		a, b Answer
		same bool
	}{
		{Answer{"CLOSED", "EPERM"}, Answer{"CLOSED", "ENOSYS"}, true},
		{Answer{"CLOSED", "any"}, Answer{"CLOSED", "EACCES"}, true},
		{Answer{"CLOSED", "any"}, Answer{"OPEN", ""}, false},
		{Answer{"CLOSED", "EPERM"}, Answer{"CLOSED", "ENOENT"}, false},
		{Answer{"CLOSED", "EPERM"}, Answer{"OPEN", "EPERM"}, false},
		{Answer{"KILLED", "SIGSYS"}, Answer{"CLOSED", "EPERM"}, false},
	} {
		if Same(row.a, row.b) != row.same {
			t.Errorf("%v and %v: %v", row.a, row.b, !row.same)
		}
	}
}

func TestReasonsAreFoundAndMissed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reasons.txt")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# words\nA * x : a reason in words\nB : host: some have it\nC : not needed any more\n")
	r, err := ReadReasons(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Find("A what ever x"); !ok {
		t.Error("a star does not stand for anything")
	}
	if _, ok := r.Find("A what ever y"); ok {
		t.Error("a key is found by its beginning")
	}
	if got := r.Unused(); !slices.Equal(got, []string{"C"}) {
		t.Errorf("unused: %q", got)
	}
	for _, bad := range []string{"A\n", "A : no\n", "A : a reason in words\nA : a reason in words\n"} {
		if write(bad); func() error { _, err := ReadReasons(path); return err }() == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// A run that a probe ends is gone on with after it.
func TestCollectGoesOnAfterADeath(t *testing.T) {
	runs := 0
	answers, err := Collect(func(names []string) (string, End, error) {
		runs++
		out := ""
		for _, n := range names {
			if n == "B" {
				return out, End{Signal: 31}, nil
			}
			out += n + " OPEN\n"
		}
		return out, End{}, nil
	}, []Probe{{Name: "A"}, {Name: "B"}, {Name: "C"}, {Name: "D", Alone: true}})
	want := map[string]Answer{"A": {"OPEN", ""}, "B": {"KILLED", "SIGSYS"}, "C": {"OPEN", ""}, "D": {"OPEN", ""}}
	if err != nil || runs != 3 || len(answers) != len(want) {
		t.Fatalf("%d runs: %v, %v", runs, answers, err)
	}
	for n, a := range want {
		if answers[n] != a {
			t.Errorf("%s: %v", n, answers[n])
		}
	}
	if _, err := Collect(func([]string) (string, End, error) { return "", End{}, nil }, []Probe{{Name: "A"}}); err == nil {
		t.Error("no answer and a good end is taken for one")
	}
}
