package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"postern/refusal"
)

// hot are the messages of every call, with each member empty and full.
func hot() (ups_ []Up, downs_ []Down) {
	var admit Admit
	var ended Ended
	for _, m := range ups() {
		switch m := m.(type) {
		case Ended:
			ended = m
		case Admit:
			if admit.Seq == 0 {
				admit = m
			}
		}
	}
	admit.Paths, admit.Continues, admit.Args = nil, "", nil
	bare := admit
	bare.Connection, bare.Instance = "", ""
	odd := admit
	odd.Tool, odd.RequestID, odd.Seq, odd.Size = "tö\"ol\\\u2028\x00\x7f", "\"a\\u0000\"", 1<<64-1, 1<<63-1
	failed := ended
	failed.Outcome, failed.Code, failed.IsError, failed.Returned, failed.Size = Failed, refusal.ServerExited, true, false, 1<<62
	return []Up{admit, bare, odd, ended, failed, Admit{}, Ended{}}, []Down{downs()[6], Admitted{}, Admitted{Seq: 1<<64 - 1, Call: "<&>", DeadlineMs: -1}}
}

// The short way says what the general one would: a member that only one of them knows
// shows here.
func TestWire2_TheShortWayWritesWhatTheGeneralOneWrites(t *testing.T) {
	same := func(m any, got []byte, err error) {
		t.Helper()
		want, werr := json.Marshal(m, verbatim)
		_, body, _ := strings.Cut(string(got), " ")
		if err != nil || werr != nil || body != string(want) {
			t.Errorf("%T\n got %s %v\nwant %s %v", m, body, err, want, werr)
		}
	}
	ups, downs := hot()
	for _, m := range ups {
		if _, ok := fastUp(nil, m); !ok {
			t.Errorf("%T does not go the short way", m)
		}
		b, err := EncodeUp([]byte("kept"), m)
		same(m, b[len("kept"):], err)
	}
	for _, m := range downs {
		if _, ok := fastDown(nil, m); !ok {
			t.Errorf("%T does not go the short way", m)
		}
		b, err := EncodeDown(nil, m)
		same(m, b, err)
	}
	for _, v := range []reflect.Type{reflect.TypeFor[Admit](), reflect.TypeFor[Ended](), reflect.TypeFor[Admitted]()} {
		full := reflect.New(v).Elem()
		for i := range v.NumField() {
			switch f := full.Field(i); f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(7)
			case reflect.Uint64:
				f.SetUint(7)
			case reflect.Pointer: // left to the general way, whatever else there is
				f.Set(reflect.ValueOf(&Paths{List: []string{"x"}}))
			case reflect.Slice:
				f.SetBytes([]byte("x"))
			default:
				t.Errorf("%s.%s is of a kind that the short way does not write", v, v.Field(i).Name)
			}
		}
		if m, ok := full.Interface().(Up); ok {
			b, err := EncodeUp(nil, m)
			same(m, b, err)
		} else {
			m := full.Interface().(Down)
			b, err := EncodeDown(nil, m)
			same(m, b, err)
		}
	}
	if b, err := EncodeUp(nil, Admit{Tool: "\xff"}); err == nil {
		t.Errorf("bad UTF-8 is written: %q", b)
	}
	if b, err := EncodeUp(nil, Admit{Tool: strings.Repeat("x", MaxMessage)}); err == nil {
		t.Errorf("%d bytes are written", len(b))
	}
}

// agrees tells whether what the short way reads is what the general one reads.
func agrees[M any](t *testing.T, raw []byte, scan func([]byte) (M, bool)) bool {
	t.Helper()
	m, ok := scan(raw)
	if !ok {
		return false
	}
	if want, err := decode[M](raw); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("%q\n short %+v\n general %+v, %v", raw, m, want, err)
	}
	return true
}

func TestWire2_TheShortWayReadsNothingElse(t *testing.T) {
	for raw, reads := range map[string]bool{
		`{"seq":7,"call":"cal","deadline_ms":5}`:                   true,
		`{"seq":0,"call":"","deadline_ms":999999999999999999}`:     true,
		`{"seq":7,"call":"cal","deadline_ms":1000000000000000000}`: false,
		`{"seq":07,"call":"cal","deadline_ms":5}`:                  false,
		`{"seq":,"call":"cal","deadline_ms":5}`:                    false,
		`{"seq":-7,"call":"cal","deadline_ms":5}`:                  false,
		`{"seq":7.0,"call":"cal","deadline_ms":5}`:                 false,
		`{"seq":7,"call":"c\"al","deadline_ms":5}`:                 false,
		`{"seq":7,"call":"c` + "\x80" + `","deadline_ms":5}`:       false,
		`{"seq":7,"call":"cal","deadline_ms":5} `:                  false,
		`{"seq":7,"call":"cal","deadline_ms":5}{}`:                 false,
		`{"seq":7,"call":"cal","deadline_ms":5,"seq":8}`:           false,
		`{"call":"cal","seq":7,"deadline_ms":5}`:                   false,
		`{"seq":7,"call":"cal","deadline_ms":5`:                    false,
		`{"seq":7,"call":"cal`:                                     false,
		``:                                                         false,
	} {
		if agrees(t, []byte(raw), scanAdmitted) != reads {
			t.Errorf("%q: the short way should say %v", raw, reads)
		}
	}
}

func FuzzTheShortWayAgrees(f *testing.F) {
	ups, downs := hot()
	for _, m := range ups {
		b, _ := json.Marshal(m)
		f.Add(b)
	}
	for _, m := range downs {
		b, _ := json.Marshal(m)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		agrees(t, raw, scanAdmit)
		agrees(t, raw, scanEnded)
		agrees(t, raw, scanAdmitted)
	})
}
