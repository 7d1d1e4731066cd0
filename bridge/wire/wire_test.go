package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
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
		Admit{Seq: 1 << 60, Session: ses, Connection: con, Instance: jal, Tool: "x", Digest: strings.Repeat("ab", 32), Size: 3, RequestID: `"a"`, Paths: &Paths{List: []string{"a/b", "\u2028 \"\\"}}, Args: []byte(`{"a":1}`), Continues: cal},
		Admit{Seq: 4, Session: ses, Connection: con, Tool: "resource:file:///" + strings.Repeat("a", 900), Digest: strings.Repeat("ab", 32)},
		Alive{Call: cal, Waits: true},
		Ended{Call: cal, Outcome: Completed, Size: 1, Micros: 2, Returned: true},
		Ended{Call: cal, Outcome: Completed, Artifacts: MaxArtifacts + 1},
		Piece{Call: cal, N: 3, Last: true, Size: 2, Type: "image/png", Name: "file:///a\u2028b", Data: []byte("hi")},
		Piece{Call: cal, Part: MaxArtifact / MaxPart, Data: []byte("x")},
		Piece{Call: cal, N: MaxArtifacts, Last: true, Why: WhyMany},
		Piece{Call: cal, N: 1, Last: true, Name: "file:///workspace/a%20b", Path: "/workspace/a b"},
		Piece{Call: cal, N: 1, Last: true, Name: "file://else/a", Why: WhyURI},
		Skipped{Connection: con, Instance: jal, Lines: 1, Long: 2, Unmatched: 3},
		Stderr{Seq: 7, Connection: con, Slot: 2, Instance: jal, Ended: true, At: 9, Data: []byte("\x1b[0m")}, Stderr{Seq: 7, Last: true},
		SessionEnded{Session: ses, Reason: "end of input"},
		Denied{Session: ses, Code: refusal.BadRequest}, Fenced{N: 9},
	}
}

func downs() []Down {
	ses, con, jal, cal := ids.New[ids.Session](now, [10]byte{1}), ids.New[ids.Connection](now, [10]byte{2}), ids.New[ids.Jail](now, [10]byte{3}), ids.New[ids.Call](now, [10]byte{4})
	return []Down{
		Session{Session: ses}, SessionEnd{Session: ses, Code: refusal.TaskEnded},
		ViewIs{Session: ses, Seq: 3, Tools: []Tool{{Name: "a", Connection: con, Tool: "a", Callable: true, Paths: &PathArgs{Names: []string{"path"}}, Args: true, Definition: jsontext.Value(`{"name":"a","x":12345678901234567890,"y":"\u2028 \ud83d\ude00 \u0000"}`)}}},
		Started{Connection: con, Instance: jal, Revision: ids.New[ids.Revision](now, [10]byte{}), StartMs: 5, Era: "modern", Bounds: Bounds{Line: 1, Depth: 2, Blocks: 3, Stderr: 4, Pages: 5, Queue: 6}},
		NotStarted{Seq: 1, Session: ses, Connection: con, Code: refusal.ServerUnavailable, Text: "x"},
		Exited{Connection: con, Instance: jal, How: "exit 0"}, Admitted{Seq: 1, Call: cal, DeadlineMs: 60000},
		Refused{Seq: 1, Code: refusal.ToolNotGranted}, Cancel{Call: cal, Code: refusal.CallCancelled}, Changed{}, ReadStderr{Seq: 7}, Fence{N: 9}, Drain{}, Retired{Connection: con, Slot: 3, Instance: jal},
	}
}

// piece is a Piece of one part, as a line, with these members; the first of a name decides.
func piece(members string) string {
	for _, m := range []string{`"n":0`, `"part":0`, `"last":false`} {
		if name, _, _ := strings.Cut(m, ":"); !strings.Contains(members, name+":") {
			members += "," + m
		}
	}
	return `Piece {"call":"` + string(ids.New[ids.Call](now, [10]byte{})) + `",` + members + `}`
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
		"a last piece with data":      `Stderr {"seq":1,"last":true,"at":0,"data":"YQ=="}`,
		"stderr of no instance":       `Stderr {"seq":1,"at":0,"data":"YQ=="}`,
		"no body":                     `Fenced`,
		"too many artifacts":          `Ended {"call":"` + string(ids.New[ids.Call](now, [10]byte{})) + `","outcome":"completed","size":0,"micros":0,"returned":true,"artifacts":18}`,
		"a piece of too large a one":  piece(`"size":8388609,"last":true`),
		"bytes and a reason":          piece(`"last":true,"data":"aGk=","why":"busy"`),
		"a reason that goes on":       piece(`"last":false,"why":"busy"`),
		"a reason nobody knows":       piece(`"last":true,"why":"tired"`),
		"a part with a second name":   piece(`"part":1,"name":"x","data":"aGk="`),
		"one beyond the most":         piece(`"n":16,"last":true,"data":"aGk="`),
		"a part before the first":     piece(`"part":-1`),
		"a file and bytes":            piece(`"last":true,"path":"/a","data":"aGk="`),
		"a file and a reason":         piece(`"last":true,"path":"/a","why":"busy"`),
		"a file of a size":            piece(`"last":true,"path":"/a","size":1`),
		"a file that goes on":         piece(`"path":"/a"`),
		"a file beyond the most":      piece(`"n":16,"last":true,"path":"/a"`),
		"a path that is relative":     piece(`"last":true,"path":"a/b"`),
		"a path with a control":       piece(`"last":true,"path":"/a\u0000b"`),
		"a path that is too long":     piece(`"last":true,"path":"/` + strings.Repeat("a", MaxPath) + `"`),
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
	if _, err := EncodeUp(nil, Piece{Call: ids.New[ids.Call](now, [10]byte{}), Size: MaxArtifact, Type: strings.Repeat("t", MaxType), Name: strings.Repeat("\x01", 1024), Data: make([]byte, MaxPart)}); err != nil {
		t.Errorf("a full piece does not fit: %v", err)
	}
	if _, err := EncodeUp(nil, Stderr{Seq: 1<<64 - 1, Connection: con, Slot: 1<<64 - 1, Instance: jal, At: 1<<64 - 1, Data: make([]byte, MaxPart)}); err != nil {
		t.Errorf("a full piece of stderr does not fit: %v", err)
	}
	var paths Paths
	for range MaxPathBytes / 1024 {
		paths.List = append(paths.List, strings.Repeat(`\`, 1024))
	}
	admit := Admit{Session: ids.New[ids.Session](now, [10]byte{}), Connection: con, Instance: jal, Tool: strings.Repeat("\x01", MaxName), Digest: strings.Repeat("ab", 32), RequestID: strings.Repeat(`\`, MaxRequestID), Paths: &paths, Args: make([]byte, MaxArgs)}
	if b, err := EncodeUp(nil, admit); err != nil {
		t.Errorf("full arguments do not fit: %v", err)
	} else if _, err := DecodeUp(b); err != nil {
		t.Error(err)
	}
	admit.Args = make([]byte, MaxArgs+1)
	if b, err := EncodeUp(nil, admit); err == nil {
		if _, err := DecodeUp(b); err == nil {
			t.Error("too long arguments are taken")
		}
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
	f.Add([]byte(`Admit {"session":"ses_00000000-0000-7000-8000-000000000000","tool":"x","digest":"` + strings.Repeat("0", 64) + `","paths":{"under":""},"args":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeUp(b)
		if err != nil {
			return
		}
		again, err := EncodeUp(nil, m)
		if err != nil {
			t.Fatalf("%q decodes and does not encode: %v", b, err)
		}
		// Compared as the general encoder writes them: a list that is empty and one that
		// is absent are one value to every reader, and two to reflect.DeepEqual.
		m2, err := DecodeUp(again)
		want, werr := json.Marshal(m, verbatim)
		got, gerr := json.Marshal(m2, verbatim)
		if err != nil || werr != nil || gerr != nil || reflect.TypeOf(m) != reflect.TypeOf(m2) || string(got) != string(want) {
			t.Fatalf("%q does not survive: %s %s %v %v %v", b, want, got, err, werr, gerr)
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
