package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"postern/ids"
	"postern/refusal"
)

var now = time.UnixMilli(1_790_000_000_000)

func ups() []Up {
	ses, con, jal, cal := ids.New[ids.Session](now, [10]byte{1}), ids.New[ids.Connection](now, [10]byte{2}), ids.New[ids.Jail](now, [10]byte{3}), ids.New[ids.Call](now, [10]byte{4})
	return []Up{
		Hello{Version: "1"}, View{Session: ses, Seq: 1},
		Start{Seq: 2, Session: ses, Connection: con, Tool: "read_file", RequestID: "1", Paths: &Paths{Unreadable: true}},
		Catalogue{Connection: con, Instance: jal, Last: true, Data: []byte(`[{}]`), Era: "legacy", Quarantined: []Quarantined{{Tool: "x", Reason: "y"}}},
		Admit{Seq: 1 << 60, Session: ses, Connection: con, Instance: jal, Tool: "x", Digest: strings.Repeat("ab", 32), Size: 3, RequestID: `"a"`, Paths: &Paths{List: []string{"a/b", "\u2028 \"\\"}}, Continues: cal},
		Admit{Seq: 4, Session: ses, Connection: con, Tool: "resource:file:///" + strings.Repeat("a", 900), Digest: strings.Repeat("ab", 32)},
		Alive{Call: cal, Waits: true},
		Ended{Call: cal, Outcome: Completed, Size: 1, Micros: 2, Returned: true},
		Skipped{Connection: con, Instance: jal, Lines: 1, Long: 2, Unmatched: 3},
		SessionEnded{Session: ses, Reason: "end of input"},
		Denied{Session: ses, Code: refusal.BadRequest}, Fenced{N: 9},
	}
}

func downs() []Down {
	ses, con, jal, cal := ids.New[ids.Session](now, [10]byte{1}), ids.New[ids.Connection](now, [10]byte{2}), ids.New[ids.Jail](now, [10]byte{3}), ids.New[ids.Call](now, [10]byte{4})
	return []Down{
		Session{Session: ses}, SessionEnd{Session: ses, Code: refusal.TaskEnded},
		ViewIs{Session: ses, Seq: 3, Tools: []Tool{{Name: "a", Connection: con, Tool: "a", Callable: true, Paths: &PathArgs{Names: []string{"path"}}, Definition: jsontext.Value(`{"name":"a","x":12345678901234567890,"y":"\u2028 \ud83d\ude00 \u0000"}`)}}},
		Started{Connection: con, Instance: jal, Revision: ids.New[ids.Revision](now, [10]byte{}), StartMs: 5, Era: "modern", Bounds: Bounds{Line: 1, Depth: 2, Blocks: 3, Stderr: 4, Pages: 5, Queue: 6}},
		NotStarted{Seq: 1, Session: ses, Connection: con, Code: refusal.ServerUnavailable, Text: "x"},
		Exited{Connection: con, Instance: jal, How: "exit 0"}, Admitted{Seq: 1, Call: cal, DeadlineMs: 60000},
		Refused{Seq: 1, Code: refusal.ToolNotGranted}, Cancel{Call: cal, Code: refusal.CallCancelled}, Changed{}, Fence{N: 9}, Drain{},
	}
}

func TestWire1_DirectionsDoNotMix(t *testing.T) {
	for _, m := range ups() {
		b, err := EncodeUp(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeDown(b); err == nil {
			t.Errorf("%T decoded as %T", m, got)
		}
	}
	for _, m := range downs() {
		b, err := EncodeDown(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeUp(b); err == nil {
			t.Errorf("%T decoded as %T", m, got)
		}
	}
}

func TestWire2_DecodeAcceptsWhatEncodeMakesAndNoMore(t *testing.T) {
	for _, m := range ups() {
		b, _ := EncodeUp(nil, m)
		if got, err := DecodeUp(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, %v", b, got, err)
		}
		for _, bad := range []string{string(b) + "x", strings.Replace(string(b), "{", `{"extra":1,`, 1), strings.ToLower(string(b)), string(b[:len(b)-1])} {
			if _, err := DecodeUp([]byte(bad)); err == nil {
				t.Errorf("accepted %s", bad)
			}
		}
	}
	for _, m := range downs() {
		b, _ := EncodeDown(nil, m)
		if got, err := DecodeDown(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, %v", b, got, err)
		}
	}
	for name, raw := range map[string]string{
		"a repeated member":           `Fenced {"n":1,"n":2}`,
		"a case variant":              `Fenced {"N":1}`,
		"a project's id as a session": `View {"session":"prj_01997d5e-0000-7000-8000-000000000000","seq":1}`,
		"a session left out":          `View {"seq":1}`,
		"an unknown outcome":          `Ended {"call":"` + string(ids.New[ids.Call](now, [10]byte{})) + `","outcome":"fine","size":0,"micros":0,"returned":true}`,
		"an unknown code":             `Denied {"session":"` + string(ids.New[ids.Session](now, [10]byte{})) + `","code":"made_up"}`,
		"paths that are none":         `Start {"seq":1,"session":"` + string(ids.New[ids.Session](now, [10]byte{})) + `","connection":"` + string(ids.New[ids.Connection](now, [10]byte{})) + `","tool":"x","request_id":"1","paths":{"list":["a\u0000b"]}}`,
		"no body":                     `Fenced`,
		"bad UTF-8":                   "Hello {\"version\":\"\xff\"}",
	} {
		if m, err := DecodeUp([]byte(raw)); err == nil {
			t.Errorf("%s was accepted: %+v", name, m)
		}
	}
}

func TestWire3_NothingExceedsTheLimit(t *testing.T) {
	big := Hello{Version: strings.Repeat("x", MaxMessage)}
	if _, err := EncodeUp(nil, big); !errors.Is(err, ErrTooLong) {
		t.Errorf("encode: %v", err)
	}
	if _, err := DecodeUp(make([]byte, MaxMessage+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("decode: %v", err)
	}
	con, jal := ids.New[ids.Connection](now, [10]byte{2}), ids.New[ids.Jail](now, [10]byte{3})
	if _, err := EncodeUp(nil, Catalogue{Connection: con, Instance: jal, Data: make([]byte, MaxPart), Error: strings.Repeat("e", MaxText)}); err != nil {
		t.Errorf("a full part does not fit: %v", err)
	}
	if _, err := DecodeUp([]byte(`Hello {"version":"` + strings.Repeat("x", 65) + `"}`)); err == nil {
		t.Error("an over-long version was accepted")
	}
}

func FuzzDecodeUp(f *testing.F) {
	for _, m := range ups() {
		b, _ := EncodeUp(nil, m)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeUp(b)
		if err != nil {
			return
		}
		again, err := EncodeUp(nil, m)
		if err != nil {
			t.Fatalf("%q decodes and does not encode: %v", b, err)
		}
		if m2, err := DecodeUp(again); err != nil || !reflect.DeepEqual(m, m2) {
			t.Fatalf("%q does not survive: %+v %+v %v", b, m, m2, err)
		}
	})
}

func BenchmarkAdmitRoundTrip(b *testing.B) {
	m := ups()[4].(Admit)
	m.Seq, m.RequestID = 4711, "815" // as they mostly are
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = EncodeUp(buf[:0], m)
		if _, err := DecodeUp(buf); err != nil {
			b.Fatal(err)
		}
	}
}
