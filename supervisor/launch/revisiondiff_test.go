package launch

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"postern/refusal"
	"postern/supervisor/api"
)

// P3: a person accepts a revision and not a digest, so each member that the digest
// covers is shown where it differs, also one that is added to the type later.
func TestRevisionDiff_P3_C096_EachMemberThatDiffersIsShown(t *testing.T) {
	base := Revision{Transport: "stdio", Command: []string{"/usr/bin/node", "/package/a.js"}, Profile: "node", Scope: "project", Credential: "none",
		Classes: map[string][]string{"read": {"filesystem.read"}, "same": {"mcp.read"}}, Tiers: map[string]string{"read": "observe"}}
	if got, err := revisionDiff(base, base); err != nil || len(got) != 0 {
		t.Fatalf("equal revisions: %+v, %v", got, err)
	}
	kind := reflect.TypeFor[Revision]()
	for i := range kind.NumField() {
		f := kind.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if slices.Contains(notCompared, name) {
			continue
		}
		other := base
		v := reflect.ValueOf(&other).Elem().Field(i)
		switch v.Interface().(type) {
		case string:
			v.SetString("other")
		case int:
			v.SetInt(7)
		case []string:
			v.Set(reflect.ValueOf([]string{"/usr/bin/node", "/package/b.js", "two words"}))
		case map[string]string:
			v.Set(reflect.ValueOf(map[string]string{"write": "destructive"}))
		case map[string][]string:
			v.Set(reflect.ValueOf(map[string][]string{"read": {"network.read", "filesystem.read"}, "same": {"mcp.read"}}))
		default:
			v.SetZero()
			if reflect.DeepEqual(other, base) {
				t.Errorf("%s: this test cannot change a %s", name, v.Type())
				continue
			}
		}
		got, err := revisionDiff(base, other)
		if err != nil || len(got) != 1 || got[0].Member != name || len(got[0].Is) == 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if name == "classes" && (!slices.Equal(got[0].Was, []string{"read: filesystem.read"}) || !slices.Equal(got[0].Is, []string{"read: network.read, filesystem.read"})) {
			t.Errorf("of a table what differs: %+v", got)
		}
	}
}

func TestRevisionDiff_IsBoundedAndHidesNoDifference(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	a, b := Revision{Command: []string{"/bin/a"}}, Revision{Command: []string{"/bin/a"}}
	for range 200 {
		a.Command, b.Command = append(a.Command, "same"), append(b.Command, "same")
	}
	a.Command, b.Command = append(a.Command, long+"1"), append(b.Command, long+"2")
	got, err := revisionDiff(a, b)
	if err != nil || len(got) != 1 || len(got[0].Was) != 1 || len(got[0].Is) != 1 || got[0].More != 201 {
		t.Fatalf("%+v, %v", got, err)
	}
	if was, is := got[0].Was[0], got[0].Is[0]; was == is || len(was) > 2*maxLineShown || !strings.Contains(was, "sha256") {
		t.Errorf("%q and %q", was, is)
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString("f\x00" + strings.Repeat("d/", 200) + string(rune('a'+i%26)) + strings.Repeat("n", i%7) + string(rune('0'+i/26%10)) + string(rune('0'+i/260)) + "\x00sum\x00")
	}
	if f := packageDiff(nil, []byte(many.String())); f.Added < 900 || len(f.NamesAdded) != maxNamesShown || len(f.NamesAdded[0]) > maxNameShown+len("…") {
		t.Errorf("%d added, %d named", f.Added, len(f.NamesAdded))
	}
}

func TestRevisionDiff_OfAProfileWhatItSays(t *testing.T) {
	was := `{"name":"node","fork":false,"binds":[{"source":"/usr"}],"env":{"HOME":"/tmp","OLD":"secret"},"limits":{"pids":64,"memory":1}}`
	is := `{"name":"node","fork":true,"binds":[{"source":"/usr"},{"source":"/opt"}],"env":{"HOME":"/workspace"},"limits":{"pids":128,"memory":1}}`
	m := formDiff([]byte(was), []byte(is))
	if want := []string{"env HOME (value of 4 bytes)", "env OLD (value of 6 bytes)", "fork false", "limits.pids 64"}; !slices.Equal(m.Was, want) {
		t.Errorf("%q, want %q", m.Was, want)
	}
	if want := []string{`binds {"source":"/opt"}`, "env HOME (value of 10 bytes)", "fork true", "limits.pids 128"}; !slices.Equal(m.Is, want) {
		t.Errorf("%q, want %q", m.Is, want)
	}
}

// TestServerDiff_C096_ThroughTheSocket: what an update changed is told of the package by
// file, long after the former copy has gone, and of a profile by line.
func TestServerDiff_C096_ThroughTheSocket(t *testing.T) {
	r := start(t, newConfig(t))
	_, rev1 := r.server("echo")
	pkg := filepath.Join(r.dir, "pkg-echo")
	os.WriteFile(filepath.Join(pkg, "added.js"), []byte("1"), 0o644)
	p := api.ServerParams{Label: "echo", Profile: "static", Package: pkg, Command: []string{"/package/server"}}
	r.must(api.ServerUpdate, p)
	raw, _ := os.ReadFile(filepath.Join(pkg, "server"))
	os.WriteFile(filepath.Join(pkg, "server"), append(raw, '\n'), 0o755)
	os.Remove(filepath.Join(pkg, "added.js"))
	os.Symlink("server", filepath.Join(pkg, "link\nof two lines"))
	p.Command, p.Tiers = []string{"/package/server", "--all"}, map[string]string{"say": "observe"}
	r.must(api.ServerUpdate, p)
	waitFor(t, "only the current copy is left", func() bool { return len(copies(t, r)) == 1 })

	diff := func(from string) api.ServerDiffResult {
		return decode[api.ServerDiffResult](t, r.must(api.ServerDiff, api.ServerDiffParams{Server: "echo", From: from}))
	}
	last := diff("")
	if f := last.Files; f == nil || f.Added != 1 || f.Removed != 1 || f.Changed != 1 || f.NamesAdded[0] != "link\nof two lines" || f.NamesRemoved[0] != "added.js" || f.NamesChanged[0] != "server" {
		t.Errorf("files: %+v", f)
	}
	if f := diff(string(rev1)).Files; f == nil || f.Added != 1 || f.Removed != 0 || f.Changed != 1 {
		t.Errorf("since the first: %+v", f)
	}
	var names []string
	for _, m := range last.Members {
		names = append(names, m.Member)
	}
	if !slices.Equal(names, []string{"command", "tiers", "package"}) || len(last.Notes) != 0 {
		t.Errorf("%+v", last)
	}
	p.Profile = "node"
	p.Command = []string{"/usr/bin/node", "/package/server"}
	r.must(api.ServerUpdate, p)
	last = diff("")
	i := slices.IndexFunc(last.Members, func(m api.RevisionMember) bool { return m.Member == "profile content" })
	if i < 0 || !slices.ContainsFunc(last.Members[i].Is, func(l string) bool { return strings.HasPrefix(l, "limits.") }) || last.Files != nil {
		t.Errorf("%+v", last)
	}
	r.refused(refusal.NotFound, api.ServerDiff, api.ServerDiffParams{Server: "echo", From: "rev_01890000-0000-7000-8000-000000000000"})
	r.refused(refusal.ServerUnknown, api.ServerDiff, api.ServerDiffParams{Server: "nothing"})
}
