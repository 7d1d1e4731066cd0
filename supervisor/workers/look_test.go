package workers

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/order"
)

// A question has room for the most paths that one may ask about, each character of them
// written as two. One that had no room would end the authority.
func TestResolveHasRoomForTheMostPaths(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	m := order.Resolve{Seq: 1<<64 - 1, Project: ids.New[ids.Project](now, [10]byte{}), Task: ids.New[ids.Task](now, [10]byte{}), OfHost: true}
	for range wire.MaxPaths {
		m.Paths = append(m.Paths, strings.Repeat(`"`, wire.MaxPathBytes/wire.MaxPaths))
	}
	if !wire.Judgeable(m.Paths) {
		t.Fatal("these are more than may be")
	}
	b, err := order.EncodeUp(m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := order.DecodeUp(b); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%v", err)
	}
	m.Paths = append(m.Paths, "x")
	if wire.Judgeable(m.Paths) {
		t.Error("one more is judged too")
	}
}
