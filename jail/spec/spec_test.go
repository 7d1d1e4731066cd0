package spec

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func good() Profile {
	return Profile{
		Name:     "static",
		Env:      map[string]string{"PATH": "/package"},
		Binds:    []Bind{{Source: "/usr/bin/node", Exec: true}},
		Links:    []Link{{Path: "/lib", To: "usr/lib"}},
		Seccomp:  Seccomp{Groups: []SyscallGroup{{Name: "io", Reason: "reads", Calls: []string{"read"}}}},
		Landlock: Landlock{ABI: 6},
		Limits: Limits{MemoryBytes: 64 << 20, PidsMax: 16, CPUPercent: 100, Nofile: 64,
			FsizeBytes: 1 << 20, TmpBytes: 1 << 20, TmpInodes: 64},
		Idle: time.Minute, StopGrace: time.Second, StartTimeout: time.Second,
	}
}

func TestSpec1_DocumentIsDecodedStrictly(t *testing.T) {
	whole := Document{UID: 1, GID: 2, Argv: []string{"/program", "é"}, Env: []string{"A=b"}, Dir: "/",
		Filters: [][]byte{{1, 2, 3}}, ExtraFDs: []int{7}, Rules: []PathRule{{Path: "/tmp", Write: true}}}
	raw, err := whole.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := back.Encode(); err != nil || string(again) != string(raw) {
		t.Fatalf("a round trip changed the document: %s, %v", again, err)
	}
	for name, raw := range map[string]string{
		"unknown field":   `{"uid":1,"root":true}`,
		"other case":      `{"UID":1}`,
		"duplicate name":  `{"uid":1,"uid":0}`,
		"wrong type":      `{"uid":"0"}`,
		"negative id":     `{"uid":-1}`,
		"too great an id": `{"uid":4294967296}`,
		"trailing bytes":  `{"uid":1}{"uid":0}`,
		"bad utf-8":       "{\"dir\":\"\xff\"}",
		"not base64":      `{"filters":["*"]}`,
		"nothing":         ``,
		"too long":        `{"dir":"` + strings.Repeat("a", MaxDocument) + `"}`,
	} {
		if _, err := DecodeDocument([]byte(raw)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := (Document{Dir: strings.Repeat("a", MaxDocument)}).Encode(); err == nil {
		t.Error("a document that a pipe cannot hold was encoded")
	}
}

func TestSpec2_MountPointsLieOnThePrivateRootOnly(t *testing.T) {
	if found := good().Validate(); len(found) != 0 {
		t.Fatalf("a good profile was refused: %v", found)
	}
	for name, change := range map[string]func(*Profile){
		"relative source":     func(p *Profile) { p.Binds[0].Source = "usr/bin/node" },
		"source with ..":      func(p *Profile) { p.Binds[0].Source = "/usr/../etc" },
		"the whole host":      func(p *Profile) { p.Binds[0].Source = "/" },
		"target in workspace": func(p *Profile) { p.Binds[0].Target = "/workspace/x" },
		"target over proc":    func(p *Profile) { p.Binds[0].Target = "/proc" },
		"nested binds":        func(p *Profile) { p.Binds = append(p.Binds, Bind{Source: "/usr/bin"}) },
		"the same bind twice": func(p *Profile) { p.Binds = append(p.Binds, p.Binds[0]) },
		"link into a bind":    func(p *Profile) { p.Links[0].Path = "/usr/bin/node/x" },
		"link over tmp":       func(p *Profile) { p.Links[0].Path = "/tmp" },
	} {
		p := good()
		change(&p)
		if len(p.Validate()) == 0 {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestValidateNamesEveryMistakeAtOnce(t *testing.T) {
	p := good()
	p.Name, p.Limits.PidsMax, p.Landlock.ABI = "Node!", 0, 5
	p.Seccomp.Rules = []SyscallRule{{Call: "ioctl", Reason: "r", When: []Condition{{Arg: 6}, {Arg: 1, Mask: 0xf, Value: 0x10}}}}
	var fields []string
	for _, m := range p.Validate() {
		fields = append(fields, m.Field)
	}
	want := []string{"name", "seccomp.rules[0].when", "seccomp.rules[0].when", "landlock.abi", "limits.pids"}
	if !slices.Equal(fields, want) {
		t.Errorf("mistakes %v, want %v", fields, want)
	}
}

// Changing any field, however deep, must change the digest: else a profile
// could be widened without a new server revision.
func TestSpec3_TheCanonicalFormCoversEveryField(t *testing.T) {
	base := good()
	base.Seccomp.Rules = []SyscallRule{{Call: "ioctl", Reason: "r", When: []Condition{{Arg: 1, Mask: 3, Value: 1}}}}
	first, err := Canonical(base)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	var walk func(v reflect.Value, path string)
	check := func(path string) {
		changed++
		if now, err := Canonical(base); err != nil || bytes.Equal(now, first) {
			t.Errorf("%s does not reach the canonical form (%v)", path, err)
		}
	}
	walk = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; name != "Digest" {
					walk(v.Field(i), path+"."+name)
				}
			}
		case reflect.Slice:
			if v.Len() > 0 {
				walk(v.Index(0), path+"[0]")
				old := reflect.ValueOf(v.Interface())
				v.Set(v.Slice(0, v.Len()-1))
				check(path + " shortened")
				v.Set(old)
			}
		case reflect.Map:
			old := v.Interface()
			v.Set(reflect.ValueOf(map[string]string{"PATH": "/elsewhere"}))
			check(path)
			v.Set(reflect.ValueOf(old))
		case reflect.String:
			old := v.String()
			v.SetString(old + "x")
			check(path)
			v.SetString(old)
		case reflect.Bool:
			v.SetBool(!v.Bool())
			check(path)
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
			check(path)
			v.SetInt(v.Int() - 1)
		case reflect.Uint, reflect.Uint64:
			v.SetUint(v.Uint() + 1)
			check(path)
			v.SetUint(v.Uint() - 1)
		default:
			t.Fatalf("%s: kind %s is not walked", path, v.Kind())
		}
	}
	walk(reflect.ValueOf(&base).Elem(), "profile")
	if changed < 35 {
		t.Errorf("only %d fields were walked", changed)
	}
	if again, _ := Canonical(base); !bytes.Equal(again, first) {
		t.Error("the walk did not put everything back")
	}
}

func TestLimitsOfALaunchStayWithinTheProfile(t *testing.T) {
	p := good().Limits
	if got, err := (Limits{}).Within(p); err != nil || got != p {
		t.Errorf("nothing asked: got %+v, %v", got, err)
	}
	if got, err := (Limits{PidsMax: 4}).Within(p); err != nil || got.PidsMax != 4 || got.MemoryBytes != p.MemoryBytes {
		t.Errorf("less asked: got %+v, %v", got, err)
	}
	for _, l := range []Limits{{PidsMax: 17}, {MemoryBytes: p.MemoryBytes + 1}, {CPUPercent: -1}, {TmpBytes: 2 << 20}, {Nofile: 65}, {FsizeBytes: 2 << 20}, {TmpInodes: 65}} {
		if _, err := l.Within(p); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
}

func FuzzDecodeDocument(f *testing.F) {
	raw, _ := Document{UID: 1, Argv: []string{"/program"}}.Encode()
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := DecodeDocument(raw)
		if err != nil {
			return
		}
		if _, err := d.Encode(); err != nil && len(raw) < MaxDocument/8 {
			t.Errorf("decoded and not encoded: %v", err)
		}
	})
}
