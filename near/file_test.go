package near

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNear2_AFileIsReadOrLeftOverOrAMistake(t *testing.T) {
	for name, want := range map[string]struct{ read, wrong bool }{
		"10.yaml": {read: true}, "a.b.yaml": {read: true}, "10.yml": {wrong: true}, "10.YAML": {wrong: true}, "x.conf": {wrong: true}, "x.json": {wrong: true},
		"10": {wrong: true}, "README.md": {wrong: true}, "10.yaml.txt": {wrong: true}, "sub": {wrong: true}, "yaml": {wrong: true}, "10.yaml ": {wrong: true}, "10.yaml.disabled": {wrong: true},
		"README": {}, ".10.yaml": {}, ".10.yaml.swp": {}, "10.yaml~": {}, "#10.yaml#": {}, "10.yaml.swp": {}, "10.yaml.bak": {}, "10.yaml.orig": {},
		"10.yaml.dpkg-dist": {}, "10.yaml.dpkg-old": {}, "10.yaml.rpmnew": {}, "10.yaml.rpmsave": {}, "10.yaml.ucf-dist": {},
	} {
		read, wrong := Listed(name)
		if read != want.read || (wrong != "") != want.wrong {
			t.Errorf("%q: %v, %q", name, read, wrong)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9.~#-]{1,12}(\.ya?ml|\.bak|~)?`).Draw(t, "name")
		read, wrong := Listed(name)
		passed := strings.HasPrefix(name, ".") || name == readme || slices.ContainsFunc(Leftovers(), func(end string) bool { return strings.HasSuffix(name, end) })
		if n := map[bool]int{true: 1}; n[read]+n[wrong != ""]+n[passed] != 1 {
			t.Fatalf("%q: read %v, wrong %q, passed over %v", name, read, wrong, passed)
		}
	})
}

func TestAFilesNameIsNearOrNot(t *testing.T) {
	known := []string{"postern.yaml", "postern.yaml.d", "access.yaml", "profiles.d"}
	for typed, want := range map[string]string{
		"access.yml": "access.yaml", "Access.yaml": "access.yaml", "access.YAML": "access.yaml", "access.json": "access.yaml", "access.conf": "access.yaml", "postern.yml": "postern.yaml",
		"postern.yml.d": "postern.yaml.d", "postern.d": "postern.yaml.d", "postern.conf.d": "postern.yaml.d", "Profiles.d": "profiles.d",
		"acess.yaml": "access.yaml", "acces.yml": "access.yaml", "postren.yaml": "postern.yaml", "profile.d": "profiles.d", "posten.yaml.d": "postern.yaml.d",
		"access2.yaml": "", "access-old.yaml": "", "accounts.yaml": "", "postgres.yaml": "", "process.yaml": "", "tmpfiles.d": "", "conf.d": "", "acess": "",
		"access.yaml": "", "postern.yaml.d": "", "access.yaml.lock": "", "access.yaml.bak": "", "postern": "", "profiles": "", "access": "", "notes.yaml": "", "": "", ".d": "", ".yml": "",
	} {
		if got := File(typed, known); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

func TestAByteOrderMarkIsNamed(t *testing.T) {
	for raw, want := range map[string]string{
		"\ufeffname: x": "UTF-8", "\xff\xfen\x00": "UTF-16", "\xfe\xff\x00n": "UTF-16", "\ufeff": "UTF-8",
		"name: \ufeffx": "", "": "", "\xef": "", "\xff": "", "name: x": "",
	} {
		if got := Mark([]byte(raw)); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q", raw, got)
		}
	}
}
