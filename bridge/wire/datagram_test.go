package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"postern/ids"
)

// cutAll reads what a datagram holds, as both ends do.
func cutAll[M any](t *testing.T, raw []byte, decode func([]byte) (M, error)) (all []M) {
	t.Helper()
	for one, rest := Cut(raw); one != nil; one, rest = Cut(rest) {
		m, err := decode(one)
		if err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		all = append(all, m)
	}
	return all
}

func TestWire4_ADatagramIsReadAsWhatWasPutIntoIt(t *testing.T) {
	ses := ids.New[ids.Session](now, [10]byte{1})
	up := append(ups(), Denied{Session: ses, Code: "bad_request", Tool: "a\x1eb\nc", RequestID: `"\u001e"`}, Hello{Version: "1"})
	var d Datagram
	for _, m := range up {
		if err := d.Up(m); err != nil {
			t.Fatal(err)
		}
	}
	if got := cutAll(t, d.Bytes(), DecodeUp); !reflect.DeepEqual(got, up) {
		t.Errorf("%+v\nis not %+v", got, up)
	}
	d.Clear(1 << 20)
	if d.Bytes() == nil || len(d.Bytes()) != 0 {
		t.Errorf("after Clear: %q", d.Bytes())
	}
	// A definition is a server's own text, with whatever space it has between its members.
	raw := jsontext.Value("{\n\"name\":\"a\",\t\"x\":\"\\u001e\"}")
	down := append(downs(), ViewIs{Session: ses, Seq: 4, Tools: []Tool{{Name: "a", Tool: "a", Definition: raw}}}, Drain{})
	for _, m := range down {
		if err := d.Down(m); err != nil {
			t.Fatal(err)
		}
	}
	got := cutAll(t, d.Bytes(), DecodeDown)
	if len(got) != len(down) {
		t.Fatalf("%d messages of %d", len(got), len(down))
	}
	for i := range got {
		one, _ := EncodeDown(nil, down[i])
		alone, err := DecodeDown(one)
		if err != nil || !reflect.DeepEqual(got[i], alone) {
			t.Errorf("%+v\nby itself is %+v, %v", got[i], alone, err)
		}
	}
}

func TestWire3_ADatagramIsFullAtItsBounds(t *testing.T) {
	var d Datagram
	for range MaxTogether {
		if err := d.Up(Fenced{N: 1}); err != nil {
			t.Fatal(err)
		}
	}
	was := string(d.Bytes())
	if err := d.Up(Fenced{N: 2}); err != ErrFull || string(d.Bytes()) != was {
		t.Errorf("one more than MaxTogether: %v", err)
	}
	d.Clear(0)
	if d.Bytes() != nil {
		t.Error("memory is kept that should not be")
	}
	part := Catalogue{Connection: ids.New[ids.Connection](now, [10]byte{2}), Instance: ids.New[ids.Jail](now, [10]byte{3}), Data: make([]byte, MaxPart)}
	if err := d.Up(part); err != nil {
		t.Fatal(err)
	}
	was = string(d.Bytes())
	if err := d.Up(part); err != ErrFull || string(d.Bytes()) != was {
		t.Errorf("two parts: %v, %d bytes", err, len(d.Bytes()))
	}
	if err := d.Up(Fenced{N: 3}); err != nil || len(d.Bytes()) > MaxMessage {
		t.Errorf("a small one beside it: %v", err)
	}
	// What is too long for any datagram is not ErrFull, which asks to be tried again.
	d.Clear(0)
	if err := d.Down(ViewIs{Tools: []Tool{{Name: strings.Repeat("x", MaxMessage)}}}); err == nil || err == ErrFull {
		t.Errorf("too long by itself: %v", err)
	}
	if err := d.Down(Drain{}); err != nil {
		t.Errorf("after that: %v", err)
	}
}
