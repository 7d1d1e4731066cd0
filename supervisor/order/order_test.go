package order

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
)

var now = time.UnixMilli(1_790_000_000_000)

func samples() ([]Up, []Down) {
	p, j, s, r, t := ids.New[ids.Project](now, [10]byte{1}), ids.New[ids.Jail](now, [10]byte{2}), ids.New[ids.Server](now, [10]byte{3}), ids.New[ids.Revision](now, [10]byte{4}), ids.New[ids.Task](now, [10]byte{5})
	return []Up{Opening{}, Ready{}, FactsAck{Version: 1, Stands: []Stand{{Call: "cal_1", Tool: "echo", AgeMs: 5, CancelSent: true}}, More: 1}, LaunchBridge{1, p, 1}, LaunchServer{Seq: 2, Project: p, Set: 1, Server: s, Revision: r}, LaunchProbe{Seq: 3, Server: s, Revision: r},
			Stop{j, 100}, Resolve{Seq: 7, Project: p, Task: t, Paths: []string{"a"}}, Fetch{8, j, "/workspace/a"}, Retire{4, p}, TokenFile{5, t, 1000, p}, TokenFileGone{t}, StatJails{6}, Drained{1}, Pong{7, 2, 1}},
		[]Down{Facts{1}, Control{}, ProjectSocket{p}, Launched{Seq: 1, Jail: j, PID: 2, UID: 3}, NotLaunched{1, refusal.ServerUnavailable, "x"}, Exited{Jail: j, Status: -1, Signal: 9},
			TokenFileIs{5, "/run/postern/t/x"}, Stats{Seq: 6, Last: true, Rows: []JailRow{{Jail: j, Kind: "bridge"}}}, Done{Seq: 4}, Resolved{Seq: 7, Which: 1, Code: refusal.Busy, Text: "x"}, Fetched{Seq: 8, Size: 5}, Fetched{Seq: 8, Why: "x"}, Drain{1000}, Ping{7}}
}

func TestOrder1_DirectionsDoNotMix(t *testing.T) {
	ups, downs := samples()
	for _, m := range ups {
		b, err := EncodeUp(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeUp(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
		if _, err := DecodeDown(b); err == nil {
			t.Errorf("%s decoded in the other direction", b)
		}
	}
	for _, m := range downs {
		b, err := EncodeDown(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeDown(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
		if _, err := DecodeUp(b); err == nil {
			t.Errorf("%s decoded in the other direction", b)
		}
	}
}

// An order must not be able to name what runs or where: the check walks the
// types, so that a member added later is seen.
func TestOrder2_AnOrderNamesIdsOnly(t *testing.T) {
	ups, _ := samples()
	for _, m := range ups {
		typ := reflect.TypeOf(m)
		for i := range typ.NumField() {
			f := typ.Field(i)
			switch {
			case f.Type.PkgPath() == "postern/ids", f.Type.Kind() == reflect.Uint64, f.Type.Kind() == reflect.Int64:
			case typ.Name() == "Resolve" && f.Name == "Paths": // looked up, never opened for anyone
			case typ.Name() == "Fetch" && f.Name == "Path": // opened as its server could, beneath its own directory
			case typ.Name() == "Resolve" && f.Name == "OfHost": // how they are read
			case typ.Name() == "FactsAck" && (f.Name == "Stands" || f.Name == "More"): // shown to whoever made the change, and no more
			case typ.Name() == "TokenFile" && f.Name == "UID": // who may read a token; posternd checks it against the facts
			default:
				t.Errorf("%s.%s is a %s", typ.Name(), f.Name, f.Type)
			}
		}
	}
	if _, err := DecodeUp([]byte(`LaunchBridge {"seq":1,"project":"p","set":1,"command":["/bin/sh"]}`)); err == nil {
		t.Error("an extra member was accepted")
	}
	if _, err := DecodeUp([]byte(strings.Repeat("x", MaxMessage+1))); err == nil {
		t.Error("an over-long order was accepted")
	}
}

func TestRootFactsSurvive(t *testing.T) {
	r := Root{Version: 3, Credentials: []Credential{{ID: "crd", Project: "p", Server: "srv", Generation: 2}}, Servers: []Server{{ID: "srv", Revisions: []Revision{{ID: "a"}, {ID: "b"}}}}}
	raw, err := EncodeRoot(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRoot(raw)
	if err != nil || got.Servers[0].Current().ID != "b" || !reflect.DeepEqual(got.Credentials, r.Credentials) {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := DecodeRoot([]byte(`{"version":1,"servers":[{"id":"x","label":"y","revisions":[]}]}`)); err == nil {
		t.Error("a server without a revision was accepted")
	}
}
