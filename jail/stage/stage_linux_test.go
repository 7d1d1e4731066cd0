package stage

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"postern/jail/spec"
)

// The table is the order in which privilege is given up. Whoever changes it
// changes testdata/steps.txt with it, and says why.
func TestStepTableIsTheGoldenOne(t *testing.T) {
	var got strings.Builder
	for i, s := range Steps() {
		fmt.Fprintf(&got, "%2d  %-18s %s\n", i+1, s.Name, s.Why)
	}
	want, err := os.ReadFile("testdata/steps.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the table is now\n%s", got.String())
	}
}

func TestStage2_StepsAreNamedOnceAndReasoned(t *testing.T) {
	var names []string
	for _, s := range Steps() {
		if s.Name == "" || s.Why == "" || s.do == nil || slices.Contains(names, s.Name) {
			t.Errorf("step %+v", s)
		}
		names = append(names, s.Name)
	}
	before := func(a, b string) {
		if i, j := slices.Index(names, a), slices.Index(names, b); i < 0 || j < 0 || i > j {
			t.Errorf("%s must come before %s", a, b)
		}
	}
	before("pivot", "ids")
	before("bounding", "ids")
	before("groups", "ids")
	before("ids", "capabilities")
	before("ids", "parent") // changing ids clears the parent-death signal
	before("no-new-privileges", "landlock")
	before("regain", "seccomp") // else the filter answers, not the kernel
	before("landlock", "seccomp")
	before("seccomp", "proof")
}

const record = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n" +
	"CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n"

func TestStage3_ProofRefusesEveryDifference(t *testing.T) {
	doc := spec.Document{UID: 7, GID: 8, Filters: make([][]byte, 2)}
	if err := prove(record, doc); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7"}, {"Uid:\t7\t7\t7\t7", "Uid:\t0\t0\t0\t0"}, {"Gid:\t8\t8\t8\t8", "Gid:\t8\t0\t8\t8"},
		{"Groups:\t ", "Groups:\t0 "}, {"CapBnd:\t0000000000000000", "CapBnd:\t0000000000000001"}, {"CapEff:\t0", "CapEff:\tf"},
		{"CapAmb:\t0000000000000000\n", ""}, {"NoNewPrivs:\t1", "NoNewPrivs:\t0"}, {"Seccomp:\t2", "Seccomp:\t0"},
		{"Seccomp_filters:\t2", "Seccomp_filters:\t1"}, {"Seccomp_filters:\t2\n", ""}, {record, ""},
	} {
		if err := prove(strings.Replace(record, change[0], change[1], 1), doc); err == nil {
			t.Errorf("%q instead of %q was taken", change[1], change[0])
		}
	}
}

// The kernel gives a process a table of 64 descriptors, and enlarging the table of one
// that has threads cost every launch 10 ms.
func TestKeptDescriptorsFitTheFirstTable(t *testing.T) {
	const firstTable, kept, sources, extra = 64, 8, 4, 16
	if highest := spec.FailureFD + sources + extra; highFD <= highest {
		t.Errorf("what is kept from %d on is in the way of descriptor %d", highFD, highest)
	}
	if highFD+kept > firstTable {
		t.Errorf("descriptors from %d on are beyond the first table", highFD)
	}
}
