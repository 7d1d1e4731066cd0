package policy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"postern/ids"
	"postern/policy/class"
	"postern/refusal"
)

const rev = ids.Revision("rev_01900000-0000-7000-8000-000000000001")

// good is a call that everything allows.
func good() Facts {
	return Facts{
		Account: AccountActive, Project: ProjectLive, Task: TaskLive, Bound: true, Session: true, Host: HostAssigned, Member: true,
		Connection: ConnectionEnabled, Accepted: rev, Current: rev, Running: rev, Granted: true, Pin: PinMatches,
		Principal: PrincipalAdmitted, Ceiling: Allowed, Mode: Allowed, Profile: Allowed, Paths: PathsInside, Apart: true,
		Credential: true, Tier: class.Reversible, Limits: WithinLimits, Recordable: true,
	}
}

// matters lists the fields whose zero value must deny. Approved is asked only of
// destructive calls.
func matters() []string {
	var out []string
	for f := range reflect.TypeFor[Facts]().Fields() {
		if f.Name != "Approved" {
			out = append(out, f.Name)
		}
	}
	return out
}

func TestPolicy1_ZeroDeniesAndSoDoesEachMissingFactor(t *testing.T) {
	if v := Decide(&Facts{}); v.Allow || v.Code == "" {
		t.Fatalf("the zero Facts: %+v", v)
	}
	if (Verdict{}).Allow {
		t.Fatal("the zero Verdict allows")
	}
	f := good()
	if v := Decide(&f); !v.Allow || v.Code != "" || v.Also != nil {
		t.Fatalf("everything is in order: %+v", v)
	}
	for _, name := range matters() {
		f := good()
		reflect.ValueOf(&f).Elem().FieldByName(name).SetZero()
		if v := Decide(&f); v.Allow || !refusal.Known(v.Code) {
			t.Errorf("without %s: %+v", name, v)
		}
	}
}

// denials are all values of a factor that deny, each with its code.
var denials = []struct {
	field string
	value any
	code  refusal.Code
}{
	{"Account", AccountUnknown, refusal.AccountUnknown}, {"Account", AccountSuspended, refusal.AccountSuspended}, {"Account", AccountDeleted, refusal.AccountDeleted}, {"Account", Account(9), refusal.AccountUnknown},
	{"Project", ProjectUnknown, refusal.ProjectUnknown}, {"Project", ProjectDeleted, refusal.ProjectDeleted}, {"Project", ProjectReplaced, refusal.ProjectReplaced}, {"Project", Project(9), refusal.ProjectUnknown},
	{"Task", TaskUnknown, refusal.TaskUnknown}, {"Task", TaskEnded, refusal.TaskEnded}, {"Task", Task(9), refusal.TaskUnknown}, {"Bound", false, refusal.TaskUnknown},
	{"Session", false, refusal.SessionEnded},
	{"Host", HostUnknown, refusal.HostUnknown}, {"Host", HostNotAssigned, refusal.HostNotAssigned}, {"Host", Host(9), refusal.HostUnknown},
	{"Member", false, refusal.NotMember},
	{"Connection", NoConnection, refusal.ToolUnknown}, {"Connection", ConnectionDisabled, refusal.ConnectionDisabled}, {"Connection", ConnectionOrphaned, refusal.ServerDeleted}, {"Connection", Connection(9), refusal.ToolUnknown},
	{"Accepted", rev + "x", refusal.ServerRevisionChanged}, {"Current", rev + "x", refusal.ServerRevisionChanged}, {"Running", rev + "x", refusal.ServerRevisionChanged}, {"Accepted", ids.Revision(""), refusal.ServerRevisionChanged},
	{"Granted", false, refusal.ToolNotGranted},
	{"Pin", PinUnknown, refusal.ToolChanged}, {"Pin", PinChanged, refusal.ToolChanged}, {"Pin", PinQuarantined, refusal.ToolQuarantined}, {"Pin", Pin(9), refusal.ToolChanged},
	{"Principal", PrincipalUnknown, refusal.PrincipalRefused}, {"Principal", PrincipalBlocked, refusal.PrincipalBlocked}, {"Principal", PrincipalUnreadable, refusal.AccessUnavailable}, {"Principal", Principal(9), refusal.PrincipalRefused},
	{"Ceiling", Undecided, refusal.AccessRefused}, {"Ceiling", Refused, refusal.AccessRefused}, {"Ceiling", RefusedNoClass, refusal.AccessRefused}, {"Ceiling", Answer(9), refusal.AccessRefused},
	{"Mode", Undecided, refusal.ModeRefused}, {"Mode", Refused, refusal.ModeRefused}, {"Mode", RefusedNoClass, refusal.ModeRefused}, {"Mode", RefusedWider, refusal.ModeFloor},
	{"Profile", Undecided, refusal.ProfileRefused}, {"Profile", Refused, refusal.ProfileRefused},
	{"Apart", false, refusal.WorkspaceShared},
	{"Paths", PathsUnknown, refusal.PathOutside}, {"Paths", PathsOutside, refusal.PathOutside}, {"Paths", Paths(9), refusal.PathOutside},
	{"Credential", false, refusal.CredentialMissing},
	{"Tier", class.Unmarked, refusal.ApprovalRequired}, {"Tier", class.Destructive, refusal.ApprovalRequired}, {"Tier", class.Tier(9), refusal.ApprovalRequired},
	{"Limits", LimitsUnknown, refusal.Busy}, {"Limits", TooManyCalls, refusal.LimitCalls}, {"Limits", TooManyStarts, refusal.LimitStarts}, {"Limits", Draining, refusal.Draining}, {"Limits", Limits(9), refusal.Busy},
	{"Recordable", false, refusal.StoreUnavailable},
}

func set(f *Facts, field string, value any) {
	reflect.ValueOf(f).Elem().FieldByName(field).Set(reflect.ValueOf(value))
}

func TestPolicy1_EachDenialHasItsCode(t *testing.T) {
	covered := map[string]bool{}
	for _, d := range denials {
		covered[d.field] = true
		f := good()
		set(&f, d.field, d.value)
		if v := Decide(&f); v.Allow || v.Code != d.code || len(v.Also) != 0 {
			t.Errorf("%s = %v: %+v, want %s alone", d.field, d.value, v, d.code)
		}
	}
	for _, name := range matters() {
		if !covered[name] {
			t.Errorf("no denial of %s is tested", name)
		}
	}
}

func TestPolicy2_AddingADenialNeverAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := good()
		f.Approved = rapid.Bool().Draw(t, "approved")
		n := rapid.IntRange(0, 6).Draw(t, "denials")
		denied := false
		for range n {
			before := Decide(&f)
			d := denials[rapid.IntRange(0, len(denials)-1).Draw(t, "which")]
			set(&f, d.field, d.value)
			denied = denied || d.field != "Tier" || !f.Approved
			v := Decide(&f)
			if !before.Allow && v.Allow && d.field != "Tier" {
				t.Fatalf("%s = %v turned %+v into allow", d.field, d.value, before)
			}
			if denied && v.Allow {
				t.Fatalf("allowed with %+v", f)
			}
			if !v.Allow && (v.Code == "" || slices.Contains(v.Also, v.Code)) {
				t.Fatalf("%+v", v)
			}
		}
		if v := Decide(&f); v.Allow == denied {
			t.Fatalf("%d denials: %+v", n, v)
		}
	})
}

func TestPolicy3_AForeignToolIsLikeAnUnknownName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := good()
		f.Connection = NoConnection
		want := Decide(&f)
		// Whatever is true of the foreign tool changes nothing in the answer.
		f.Granted = rapid.Bool().Draw(t, "granted")
		f.Pin = Pin(rapid.IntRange(0, 4).Draw(t, "pin"))
		f.Accepted = rapid.SampledFrom([]ids.Revision{"", rev, rev + "x"}).Draw(t, "accepted")
		f.Tier = class.Tier(rapid.IntRange(0, 4).Draw(t, "tier"))
		f.Credential = rapid.Bool().Draw(t, "credential")
		f.Ceiling = Answer(rapid.IntRange(0, 4).Draw(t, "ceiling"))
		if v := Decide(&f); !reflect.DeepEqual(v, want) || v.Code != refusal.ToolUnknown {
			t.Fatalf("%+v, want %+v", v, want)
		}
	})
}

func TestPolicy4_CeilingModeAndProfileOnlyTakeAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := good()
		for range rapid.IntRange(0, 3).Draw(t, "denials") {
			d := denials[rapid.IntRange(0, len(denials)-1).Draw(t, "which")]
			set(&f, d.field, d.value)
		}
		f.Ceiling, f.Mode, f.Profile = Allowed, Allowed, Allowed
		widest := Decide(&f)
		f.Ceiling = Answer(rapid.IntRange(0, 4).Draw(t, "ceiling"))
		f.Mode = Answer(rapid.IntRange(0, 4).Draw(t, "mode"))
		f.Profile = Answer(rapid.IntRange(0, 4).Draw(t, "profile"))
		if Decide(&f).Allow && !widest.Allow {
			t.Fatalf("%+v added reach", f)
		}
	})
}

func TestPolicy4_BothRefusingNamesTheAccessPolicyFirst(t *testing.T) {
	f := good()
	f.Ceiling, f.Mode = Refused, Refused
	if v := Decide(&f); v.Code != refusal.AccessRefused || !slices.Equal(v.Also, []refusal.Code{refusal.ModeRefused}) {
		t.Fatalf("%+v", v)
	}
}

func TestAnApprovalIsForDestructiveCallsOnly(t *testing.T) {
	f := good()
	f.Tier = class.Destructive
	if v := Decide(&f); v.Code != refusal.ApprovalRequired {
		t.Fatalf("%+v", v)
	}
	f.Approved = true
	if v := Decide(&f); !v.Allow {
		t.Fatalf("%+v", v)
	}
	f.Granted = false
	if v := Decide(&f); v.Allow || v.Code != refusal.ToolNotGranted {
		t.Fatalf("an approval stood in for a grant: %+v", v)
	}
}

func TestPolicy5_EveryFailingRuleIsNamedAndAllowingAllocatesNothing(t *testing.T) {
	f := good()
	f.Account, f.Granted, f.Limits = AccountSuspended, false, TooManyCalls
	v := Decide(&f)
	if v.Code != refusal.AccountSuspended || !slices.Equal(v.Also, []refusal.Code{refusal.ToolNotGranted, refusal.LimitCalls}) {
		t.Fatalf("%+v", v)
	}
	f = good()
	if n := testing.AllocsPerRun(100, func() {
		if !Decide(&f).Allow {
			t.Fatal("denied")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestCorpus runs each case of testdata: facts that differ from a call in order,
// then what is decided. The files are meant to be read.
func TestCorpus(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) == 0 {
		t.Fatal("no corpus")
	}
	for _, file := range files {
		fd, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer fd.Close()
		lines := bufio.NewScanner(fd)
		for n := 1; lines.Scan(); n++ {
			line := strings.TrimSpace(lines.Text())
			if line == "" || line[0] == '#' {
				continue
			}
			given, want, ok := strings.Cut(line, "=>")
			if !ok {
				t.Fatalf("%s:%d: no =>", file, n)
			}
			f := good()
			for word := range strings.FieldsSeq(given) {
				if err := apply(&f, word); err != nil {
					t.Fatalf("%s:%d: %v", file, n, err)
				}
			}
			v := Decide(&f)
			got := "allow"
			if !v.Allow {
				got = string(v.Code)
				for _, c := range v.Also {
					got += " " + string(c)
				}
			}
			if want = strings.TrimSpace(want); got != want {
				t.Errorf("%s:%d: %s\n got %s\nwant %s", file, n, given, got, want)
			}
		}
	}
}

var words = map[string]map[string]any{
	"account":    {"unknown": AccountUnknown, "suspended": AccountSuspended, "deleted": AccountDeleted},
	"project":    {"unknown": ProjectUnknown, "deleted": ProjectDeleted, "replaced": ProjectReplaced},
	"task":       {"unknown": TaskUnknown, "ended": TaskEnded},
	"host":       {"unknown": HostUnknown, "not_assigned": HostNotAssigned},
	"connection": {"none": NoConnection, "disabled": ConnectionDisabled, "orphaned": ConnectionOrphaned},
	"pin":        {"unknown": PinUnknown, "changed": PinChanged, "quarantined": PinQuarantined},
	"ceiling":    {"refuses": Refused, "no_class": RefusedNoClass, "undecided": Undecided},
	"mode":       {"refuses": Refused, "wider": RefusedWider, "no_class": RefusedNoClass, "undecided": Undecided},
	"principal":  {"unknown": PrincipalUnknown, "blocked": PrincipalBlocked, "unreadable": PrincipalUnreadable},
	"profile":    {"refuses": Refused, "undecided": Undecided},
	"paths":      {"outside": PathsOutside, "unknown": PathsUnknown},
	"tier":       {"observe": class.Observe, "reversible": class.Reversible, "destructive": class.Destructive, "unmarked": class.Unmarked},
	"limits":     {"calls": TooManyCalls, "starts": TooManyStarts, "draining": Draining, "unknown": LimitsUnknown},
	"accepted":   {"older": rev + "0", "none": ids.Revision("")},
	"current":    {"newer": rev + "1"},
	"running":    {"older": rev + "0", "none": ids.Revision("")},
}

func apply(f *Facts, word string) error {
	key, value, ok := strings.Cut(word, "=")
	field := strings.ToUpper(key[:1]) + key[1:]
	if v, known := words[key][value]; ok && known {
		set(f, field, v)
		return nil
	}
	if v := reflect.ValueOf(f).Elem().FieldByName(field); v.IsValid() && v.Kind() == reflect.Bool && (value == "no" || value == "yes") {
		v.SetBool(value == "yes")
		return nil
	}
	return fmt.Errorf("%q is no factor", word)
}

func BenchmarkDecide(b *testing.B) {
	f := good()
	b.ReportAllocs()
	for b.Loop() {
		if !Decide(&f).Allow {
			b.Fatal("denied")
		}
	}
}

func TestEachCodeOfAPrincipalHasItsFactor(t *testing.T) {
	for code, want := range map[refusal.Code]Principal{"": PrincipalAdmitted, refusal.PrincipalBlocked: PrincipalBlocked, refusal.AccessUnavailable: PrincipalUnreadable,
		refusal.PrincipalRefused: PrincipalUnknown, refusal.Internal: PrincipalUnknown} {
		if got := PrincipalOf(code); got != want {
			t.Errorf("%q: %v", code, got)
		}
	}
}
