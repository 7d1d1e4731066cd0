package workers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

const filesText = `[{"name":"read_file","inputSchema":{"type":"object"}},{"name":"read_rows","inputSchema":{"type":"object"}}]`

// pathRig is a rig whose server has a tool with path arguments, and posternd finds those
// inside that have no "..".
func pathRig(t *testing.T) *rig {
	r := newRig(t)
	r.mu.Lock()
	r.setUp = func(b *bridge) { b.autoList = filesText }
	r.onResolve = func(m order.Resolve) order.Resolved {
		return order.Resolved{Inside: !slices.ContainsFunc(m.Paths, func(p string) bool { return strings.Contains(p, "..") })}
	}
	r.mu.Unlock()
	pins, err := gate.Pins([]byte(filesText), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		return reg.PutCatalogue(id[ids.Revision](files), time.Now(), "", "", pins)
	})
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		return reg.Revoke(r.conn[shop], nil, 0)
	})
	r.change(func(*registry.Registry) (registry.Change, error) {
		return r.grantChange(r.conn[shop], "read_file", "read_rows")
	})
	return r
}

func at(paths ...string) *wire.Paths { return &wire.Paths{List: paths} }

func (r *rig) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(only[order.Resolve](r))
}

func TestC13_PathsAreLookedAtBeforeTheAdmission(t *testing.T) {
	r := pathRig(t)
	b, s := r.session(r.socket(shop), shop)
	c := r.conn[shop]
	// A call that is refused for its path starts no server.
	if _, code := b.startPaths(s, c, "read_file", at("../x")); code != refusal.PathOutside {
		t.Fatalf("%q", string(code))
	}
	if _, code := b.startPaths(s, c, "read_file", nil); code != refusal.PathOutside {
		t.Fatalf("%q", string(code))
	}
	r.mu.Lock()
	launched := len(only[order.LaunchServer](r))
	r.mu.Unlock()
	if launched != 0 {
		t.Fatalf("%d servers were started", launched)
	}
	inst, code := b.startPaths(s, c, "read_file", at("x"))
	if code != "" {
		t.Fatal(string(code))
	}
	asked := r.asked()
	for _, row := range []struct {
		says  string
		tool  string
		paths *wire.Paths
		want  refusal.Code
		asks  int
	}{
		{"inside", "read_file", at("a", "b"), "", 1},
		{"outside", "read_file", at("a", "../b"), refusal.PathOutside, 1},
		{"none", "read_file", at(), refusal.PathOutside, 0},
		{"left out", "read_file", nil, refusal.PathOutside, 0},
		{"no path at all", "read_file", &wire.Paths{Unreadable: true}, refusal.PathOutside, 0},
		{"a tool that takes none", "read_rows", nil, "", 0},
		{"a tool that takes none, with some", "read_rows", at("../x"), "", 0},
	} {
		call, code := b.admitPaths(s, c, inst, row.tool, row.paths)
		if code != row.want {
			t.Errorf("%s: %q, want %q", row.says, string(code), string(row.want))
		}
		if code == "" {
			r.record(call, store.Admitted)
			b.send(wire.Ended{Call: call, Outcome: wire.Completed})
		}
		if n := r.asked(); n != asked+row.asks {
			t.Errorf("%s: posternd was asked %d times, want %d", row.says, n-asked, row.asks)
		}
		asked = r.asked()
	}
	if asks := r.asked(); asks == 0 || b.view(s)[0].Paths == nil || b.view(s)[1].Paths != nil {
		t.Errorf("%+v", b.view(s))
	}
	// What is refused anyway costs no look, and says nothing about paths.
	r.narrow(shop, func(reg *registry.Registry) (registry.Change, error) {
		return reg.Revoke(c, []string{"read_file"}, 0)
	})
	asked = r.asked()
	if _, code := b.admitPaths(s, c, inst, "read_file", at("../x")); code != refusal.ToolNotGranted || r.asked() != asked {
		t.Errorf("%q after %d looks", string(code), r.asked()-asked)
	}
}

// While posternd looks, the loop goes on; the call is decided by what holds when the
// answer is there.
func TestC13_WhileItLooksOthersPassAndARevocationWins(t *testing.T) {
	r := pathRig(t)
	b, s := r.session(r.socket(shop), shop)
	c := r.conn[shop]
	inst, code := b.startPaths(s, c, "read_file", at("x"))
	if code != "" {
		t.Fatal(string(code))
	}
	r.mu.Lock()
	answerAll := r.onResolve
	r.onResolve = func(order.Resolve) order.Resolved { return order.Resolved{Code: held} }
	r.mu.Unlock()
	asked := r.asked()
	type result struct {
		call ids.Call
		code refusal.Code
	}
	got := make(chan result, 2)
	ask := func() {
		call, code := b.admitPaths(s, c, inst, "read_file", at("x"))
		got <- result{call, code}
	}
	go ask()
	r.await("the look", func() bool { return len(only[order.Resolve](r)) == asked+1 })
	for range 10 {
		call, code := b.admit(s, c, inst, "read_rows")
		if code != "" {
			t.Fatalf("another call waits: %q", string(code))
		}
		b.send(wire.Ended{Call: call, Outcome: wire.Completed})
	}
	if n := r.narrow(shop, func(reg *registry.Registry) (registry.Change, error) {
		return reg.Revoke(c, []string{"read_file"}, 0)
	}); n.Killed != 0 || n.Fenced != 1 {
		t.Errorf("%+v", n)
	}
	r.mu.Lock()
	looks := only[order.Resolve](r)
	r.mu.Unlock()
	r.say(order.Resolved{Seq: looks[len(looks)-1].Seq, Inside: true})
	if x := <-got; x.code != refusal.ToolNotGranted || x.call != "" {
		t.Fatalf("%+v, after the revocation had returned", x)
	}
	// Granted again; an answer that does not come in time refuses.
	r.change(func(*registry.Registry) (registry.Change, error) { return r.grantChange(c, "read_file") })
	begin := time.Now()
	ask()
	if x := <-got; x.code != refusal.Busy || time.Since(begin) < LookWait {
		t.Fatalf("%+v after %v", x, time.Since(begin))
	}
	// A late answer is nobody's, and one in time admits.
	r.mu.Lock()
	looks = only[order.Resolve](r)
	r.onResolve = answerAll
	r.mu.Unlock()
	r.say(order.Resolved{Seq: looks[len(looks)-1].Seq, Inside: true})
	ask()
	if x := <-got; x.code != "" {
		t.Fatalf("%+v", x)
	}
	// What posternd says of the directory is passed on; its no has a reason.
	for code, want := range map[refusal.Code]refusal.Code{refusal.ProjectReplaced: refusal.ProjectReplaced, refusal.WorkspaceRefused: refusal.WorkspaceRefused} {
		r.mu.Lock()
		r.onResolve = func(order.Resolve) order.Resolved { return order.Resolved{Inside: true, Code: code} }
		r.mu.Unlock()
		ask()
		if x := <-got; x.code != want {
			t.Errorf("%s: %+v", code, x)
		}
	}
}

// A bridge that asks more than an honest one can is refused, and nobody else is.
func TestC13_LooksAreBounded(t *testing.T) {
	r := pathRig(t)
	b, s := r.session(r.socket(shop), shop)
	inst, code := b.startPaths(s, r.conn[shop], "read_file", at("x"))
	if code != "" {
		t.Fatal(string(code))
	}
	r.mu.Lock()
	r.onResolve = func(order.Resolve) order.Resolved { return order.Resolved{Code: held} }
	r.mu.Unlock()
	const more = 7
	asked := r.asked()
	got := make(chan refusal.Code, wire.MaxAsked+more)
	for range wire.MaxAsked + more {
		go func() {
			_, code := b.admitPaths(s, r.conn[shop], inst, "read_file", at("x"))
			got <- code
		}()
	}
	for range more { // at once
		if code := <-got; code != refusal.Busy {
			t.Errorf("%q", string(code))
		}
	}
	r.await("the looks", func() bool { return len(only[order.Resolve](r)) == asked+wire.MaxAsked })
	r.mu.Lock()
	looks := only[order.Resolve](r)[asked:]
	r.mu.Unlock()
	for _, m := range looks {
		r.say(order.Resolved{Seq: m.Seq, Inside: true})
	}
	for range wire.MaxAsked {
		if code := <-got; code != "" && code != refusal.LimitCalls {
			t.Errorf("%q", string(code))
		}
	}
}
