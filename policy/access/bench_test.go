package access

import (
	"fmt"
	"strings"
	"testing"

	"postern/policy"
	"postern/policy/class"
)

// many is a document with n users, all different.
func many(n int) []byte {
	var b strings.Builder
	b.WriteString("channels:\n  w:\n    access:\n      users:\n")
	for i := range n {
		fmt.Fprintf(&b, "        \"+55119%08d\": {level: read, write: true}\n", i)
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		doc := many(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if _, mistakes := Parse(doc); len(mistakes) > 0 {
					b.Fatal(mistakes)
				}
			}
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{10, 5000} {
		p, _ := Parse(many(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				who, _ := ParsePrincipal("w:+5511900000007")
				r := p.Resolve(who, Facts{Profile: policy.ProfileStandard})
				if r.Ceiling.Answer("fs", "read_file", class.SetOf(class.FilesystemRead)) != policy.Allowed ||
					p.Modes().Answer(policy.ModeAuto, r.Floor, "fs", "read_file", class.SetOf(class.FilesystemRead)) != policy.Allowed {
					b.Fatal("denied")
				}
			}
		})
	}
}
