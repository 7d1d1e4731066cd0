package seccomp

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
	"postern/profiles"
)

var update = flag.Bool("update", false, "write testdata/*.filter anew; read the difference before it is committed")

// A golden file says what one compiled program answers, decoded: one line for each
// way through it.
//
//	CALL  CONDITION and CONDITION …: ANSWER
//
// A condition looks at one half of an argument, "arg2.lo & 0x1 = 0x0" or with "!="
// or ">" or ">=". What no line names is answered as the line "otherwise" says.
type golden struct {
	otherwise uint32
	calls     map[uint32][]way
}

// way is one path: its conditions must all hold.
type way struct {
	when   []test
	answer uint32
}

// test compares one 32-bit word of the arguments.
type test struct {
	word  uint32 // offset in struct seccomp_data
	mask  uint32
	op    string // = != > <= >= <
	value uint32
}

func (c test) holds(data []byte) bool {
	v := binary.LittleEndian.Uint32(data[c.word:]) & c.mask
	switch c.op {
	case "=":
		return v == c.value
	case "!=":
		return v != c.value
	case ">":
		return v > c.value
	case "<=":
		return v <= c.value
	case ">=":
		return v >= c.value
	}
	return v < c.value
}

func (c test) String() string {
	half := "lo"
	if (c.word-16)%8 == 4 {
		half = "hi"
	}
	s := fmt.Sprintf("arg%d.%s", (c.word-16)/8, half)
	if c.mask != ^uint32(0) {
		s += fmt.Sprintf(" & %#x", c.mask)
	}
	if c.mask&(c.mask-1) == 0 && c.op == "!=" { // of one bit: it is the other
		c.op, c.value = "=", c.mask&^c.value
	}
	return fmt.Sprintf("%s %s %#x", s, c.op, c.value)
}

// walk follows every way through program for one call of this architecture. The
// number and the architecture are known, each word of an argument is not.
func walk(t *testing.T, program []byte, nr uint32) []way {
	t.Helper()
	type value struct {
		known bool
		v     uint32 // if known
		word  uint32 // else this word
		mask  uint32
	}
	var all []way
	var step func(pc int, a value, when []test)
	step = func(pc int, a value, when []test) {
		if len(all) > 4096 {
			t.Fatalf("call %d: too many ways", nr)
		}
		i := program[8*pc : 8*pc+8]
		code, jt, jf, k := binary.LittleEndian.Uint16(i), int(i[2]), int(i[3]), binary.LittleEndian.Uint32(i[4:])
		branch := func(yes, no string, holds bool) {
			if a.known {
				if holds {
					step(pc+1+jt, a, when)
				} else {
					step(pc+1+jf, a, when)
				}
				return
			}
			// A question whose answer follows from earlier ones has one way only.
			for _, c := range when {
				if c.word != a.word || c.mask != a.mask {
					continue
				}
				if c.op == "=" && yes == "=" && c.value != k || c.op == no && c.value == k {
					step(pc+1+jf, a, when)
					return
				}
				if c.op == yes && c.value == k {
					step(pc+1+jt, a, when)
					return
				}
			}
			step(pc+1+jt, a, append(slices.Clip(when), test{a.word, a.mask, yes, k}))
			step(pc+1+jf, a, append(slices.Clip(when), test{a.word, a.mask, no, k}))
		}
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch k {
			case 0:
				a = value{known: true, v: nr}
			case 4:
				a = value{known: true, v: x86_64}
			default:
				a = value{word: k, mask: ^uint32(0)}
			}
			step(pc+1, a, when)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a.v, a.mask = a.v&k, a.mask&k
			if k == 0 { // the library looks at the high half also where no bit of it counts
				a = value{known: true}
			}
			step(pc+1, a, when)
		case unix.BPF_JMP | unix.BPF_JA:
			step(pc+1+int(k), a, when)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			branch("=", "!=", a.v == k)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			branch(">", "<=", a.v > k)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			branch(">=", "<", a.v >= k)
		case unix.BPF_RET | unix.BPF_K:
			all = append(all, way{when, k})
		default:
			t.Fatalf("instruction %d: code %#x is not decoded", pc, code)
		}
	}
	step(0, value{}, nil)
	return all
}

// lastCall is beyond every call that anybody here has looked at.
const lastCall = 600

// decoded reads a program into the form of a golden file.
func decoded(t *testing.T, program []byte) golden {
	t.Helper()
	g := golden{calls: map[uint32][]way{}}
	beyond := walk(t, program, lastCall)
	if len(beyond) != 1 {
		t.Fatalf("an unknown call has %d answers", len(beyond))
	}
	g.otherwise = beyond[0].answer
	for nr := range uint32(lastCall) {
		ways := walk(t, program, nr)
		if len(ways) == 1 && ways[0].answer == g.otherwise {
			continue
		}
		g.calls[nr] = ways
	}
	return g
}

func (g golden) String() string {
	names := map[uint32]string{}
	for _, call := range spec.Calls() {
		if nr, err := number(call); err == nil {
			names[uint32(nr)] = call
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "otherwise: %s\n", answerName(g.otherwise))
	keys := slices.SortedFunc(maps.Keys(g.calls), func(a, b uint32) int { return cmp.Compare(names[a], names[b]) })
	for _, nr := range keys {
		var lines []string
		for _, w := range g.calls[nr] {
			var when []string
			for _, c := range w.when {
				when = append(when, c.String())
			}
			slices.Sort(when) // in which order a program asks is the compiler's affair
			lines = append(lines, fmt.Sprintf("%-24s %s: %s\n", names[nr], strings.Join(slices.Compact(when), " and "), answerName(w.answer)))
		}
		slices.Sort(lines)
		out.WriteString(strings.ReplaceAll(strings.Join(slices.Compact(lines), ""), "  : ", "  "))
	}
	return out.String()
}

var answers = map[uint32]string{
	allow: "allow", kill: "kill", noSys: "ENOSYS", perm: "EPERM",
	unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT): "EAFNOSUPPORT",
}

func answerName(a uint32) string {
	if name, ok := answers[a]; ok {
		return name
	}
	return fmt.Sprintf("%#x", a)
}

// readGolden reads a golden file back.
func readGolden(t testing.TB, file string) golden {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	byName := map[string]uint32{}
	for a, name := range answers {
		byName[name] = a
	}
	g := golden{calls: map[uint32][]way{}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "otherwise: "); ok {
			g.otherwise = byName[rest]
			continue
		}
		call, rest, _ := strings.Cut(line, " ")
		nr, err := number(call)
		if err != nil {
			t.Fatal(err)
		}
		w := way{}
		conditions, name, conditional := strings.Cut(strings.TrimSpace(rest), ": ")
		if !conditional {
			conditions, name = "", strings.TrimSpace(rest)
		}
		var known bool
		if w.answer, known = byName[name]; !known {
			t.Fatalf("%q: no such answer", line)
		}
		for c := range strings.SplitSeq(conditions, " and ") {
			if c == "" {
				continue
			}
			var arg uint32
			var half string
			one := test{mask: ^uint32(0)}
			head, rest, _ := strings.Cut(c, " ")
			half = head[len(head)-2:]
			if _, err := fmt.Sscanf(head[:len(head)-3], "arg%d", &arg); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if masked, ok := strings.CutPrefix(rest, "& "); ok {
				mask, after, _ := strings.Cut(masked, " ")
				fmt.Sscanf(mask, "0x%x", &one.mask)
				rest = after
			}
			op, value, _ := strings.Cut(rest, " ")
			one.op, one.word = op, 16+8*arg
			if half == "hi" {
				one.word += 4
			}
			if _, err := fmt.Sscanf(value, "0x%x", &one.value); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			w.when = append(w.when, one)
		}
		g.calls[uint32(nr)] = append(g.calls[uint32(nr)], w)
	}
	return g
}

// judge answers one call as the golden file says.
func (g golden) judge(nr uint32, args [6]uint64) uint32 {
	ways, ok := g.calls[nr]
	if !ok {
		return g.otherwise
	}
	data := make([]byte, 16, 64)
	for _, a := range args {
		data = binary.LittleEndian.AppendUint64(data, a)
	}
	for _, w := range ways {
		if !slices.ContainsFunc(w.when, func(c test) bool { return !c.holds(data) }) {
			return w.answer
		}
	}
	return kill // no line: the file is not whole
}

// programs are the distinct programs of the built-in profiles, by the names of
// their golden files.
func builtinPrograms(t testing.TB) map[string][]byte {
	t.Helper()
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for name, p := range all {
		made, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		out["allow-"+name] = made[0]
		out[map[bool]string{false: "deny", true: "deny-fork"}[p.Fork]] = made[1]
	}
	return out
}

func goldenFile(name string) string { return filepath.Join("testdata", name+".filter") }

// TestFiltersAreTheGoldenOnes shows every change of what a jail may call as a
// difference that a person reads.
func TestFiltersAreTheGoldenOnes(t *testing.T) {
	for name, program := range builtinPrograms(t) {
		got := decoded(t, program).String()
		if *update {
			if err := os.WriteFile(goldenFile(name), []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(goldenFile(name))
		if err != nil {
			t.Fatal(err)
		}
		if got == string(want) {
			continue
		}
		had := strings.Split(string(want), "\n")
		for line := range strings.SplitSeq(got, "\n") {
			if !slices.Contains(had, line) {
				t.Errorf("%s: new: %s", name, line)
			}
		}
		now := strings.Split(got, "\n")
		for _, line := range had {
			if !slices.Contains(now, line) {
				t.Errorf("%s: gone: %s", name, line)
			}
		}
	}
	files, err := filepath.Glob("testdata/*.filter")
	if err != nil || len(files) != len(builtinPrograms(t)) {
		t.Errorf("%d golden files for %d programs, %v", len(files), len(builtinPrograms(t)), err)
	}
}

// FuzzNoCallIsOpenedThatTheGoldenRefuses runs the compiled programs, as the kernel
// does, against the golden files, as a person reads them. The two readings share no
// code: the one follows instructions, the other lines of text.
func FuzzNoCallIsOpenedThatTheGoldenRefuses(f *testing.F) {
	programs := builtinPrograms(f)
	files := map[string]golden{}
	for name := range programs {
		files[name] = readGolden(f, goldenFile(name))
	}
	for nr := range uint32(470) {
		f.Add(nr, uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0))
		f.Add(nr, ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0))
		f.Add(nr, uint64(1)<<32, uint64(unix.TIOCSTI)|1<<32, uint64(0o4755), uint64(0o2755), uint64(0), uint64(0))
	}
	f.Add(uint32(unix.SYS_CLONE), uint64(unix.CLONE_THREAD|unix.CLONE_NEWUSER), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0))
	f.Add(uint32(unix.SYS_OPENAT), uint64(0), uint64(0), uint64(unix.O_CREAT), uint64(0o4755), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, nr uint32, a, b, c, d, e, g uint64) {
		args := [6]uint64{a, b, c, d, e, g}
		for name, program := range programs {
			got := judge(t, program, x86_64, nr, args[:]...)
			want := files[name].judge(nr, args)
			if nr >= 0x40000000 {
				want = kill // of the x32 table, which no line of the files speaks of
			}
			if got != want {
				t.Errorf("%s: call %d %#x: the program says %s, the golden file %s", name, nr, args, answerName(got), answerName(want))
			}
			if got := judge(t, program, i386, nr, args[:]...); got != kill {
				t.Errorf("%s: 32-bit call %d: %s", name, nr, answerName(got))
			}
		}
	})
}
