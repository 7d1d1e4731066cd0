package workers

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

func TestWhoMayBind(t *testing.T) {
	r := newRig(t)
	path, other := r.socket(shop), r.socket(blog)
	tok := func() string { return bindWith(r.mint(r.task(shop), aliceUID, 1)) }
	for _, row := range []struct {
		says string
		path string
		uid  uint32
		line string
		want refusal.Code
	}{
		{"the owner", path, aliceUID, bindPlain, ""},
		{"a member", path, bobUID, bindPlain, ""},
		{"a stranger", path, strangerUID, bindPlain, refusal.AccountUnknown},
		{"root", path, 0, bindPlain, refusal.AccountUnknown},
		{"the host's own user", path, hostUID, bindPlain, refusal.PeerRefused},
		{"somebody who is not of the other project", other, bobUID, bindPlain, refusal.NotMember},
		{"the user whom this kernel has no name for", path, 65534, bindPlain, refusal.PeerRefused},
		{"a token", path, aliceUID, tok(), ""},
		{"a token of another user", path, bobUID, tok(), refusal.TokenWrongUID},
		{"a token at another project", other, aliceUID, tok(), refusal.TokenInvalid},
		{"a token that is none", path, aliceUID, bindWith("ptk_"), refusal.TokenInvalid},
		{"identity beside the bind", path, aliceUID, "{\"postern\":{\"bind\":1,\"account\":\"x\"}}\n", refusal.BadRequest},
		{"identity around the bind", path, aliceUID, "{\"postern\":{\"bind\":1},\"task\":\"x\"}\n", refusal.BadRequest},
		{"a repeated member", path, aliceUID, "{\"postern\":{\"bind\":1,\"bind\":1}}\n", refusal.BadRequest},
		{"another version", path, aliceUID, "{\"postern\":{\"bind\":2}}\n", refusal.BadRequest},
		{"MCP at once", path, aliceUID, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n", refusal.BadRequest},
		{"too long a line", path, aliceUID, strings.Repeat("x", BindLine+1), refusal.BadRequest},
	} {
		_, s, line := r.bind(row.path, row.uid, row.line)
		if row.want == "" && s == "" || row.want != "" && refusalIn(line) != row.want {
			t.Errorf("%s: %q, want %q", row.says, line, string(row.want))
		}
		if strings.Contains(line, "ptk_") {
			t.Errorf("%s: the answer repeats a token", row.says)
		}
	}
	if strings.Contains(r.log.String(), "ptk_") {
		t.Error("a token is in the log")
	}
}

// What follows the bind line is the bridge's, to the byte.
func TestTheBindLineAndNotOneByteMoreIsRead(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.noAnswer = true } })
	c := r.dial(path, aliceUID)
	c.f.WriteString(bindPlain + "what follows")
	b := r.bridgeOf(shop)
	var f *os.File
	r.await("the session", func() bool {
		for _, x := range b.sessions {
			f = x
		}
		return f != nil
	})
	got := make([]byte, 64)
	n, err := unix.Read(int(f.Fd()), got)
	if err != nil || string(got[:n]) != "what follows" {
		t.Fatalf("%q, %v", got[:n], err)
	}
}

func TestWorkers5_ASilentPeerDelaysNobody(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	var silent []*client
	for range BindPerUID {
		silent = append(silent, r.dial(path, bobUID))
	}
	r.settled("they are looked at", func() bool {
		r.w.binding.mu.Lock()
		defer r.w.binding.mu.Unlock()
		return r.w.binding.byUID[bobUID] == BindPerUID
	})
	begin := time.Now()
	r.session(path, shop)
	if took := time.Since(begin); took > BindWait {
		t.Errorf("another user waited %v", took)
	}
	if got := refusalIn(r.dial(path, bobUID).line()); got != refusal.TooManySession {
		t.Errorf("one more of the silent user: %q", string(got))
	}
	for _, c := range silent {
		if got := refusalIn(c.line()); got != refusal.BadRequest {
			t.Fatalf("a silent one is answered %q", string(got))
		}
	}
	if took := time.Since(begin); took > 2*BindWait {
		t.Errorf("they were kept for %v", took)
	}
	if _, s, line := r.bind(path, bobUID, bindPlain); s == "" {
		t.Errorf("its next connection: %q", line)
	}
}

// A session that is revoked while its bridge starts is never handed over, and nothing of it stays.
func TestASessionRevokedBeforeItsBridgeIsReady(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.mute = true } })
	task := r.task(shop)
	c := r.dial(path, aliceUID)
	c.f.WriteString(bindWith(r.mint(task, aliceUID, 1)))
	keep := r.dial(path, bobUID)
	keep.f.WriteString(bindPlain)
	b := r.bridgeOf(shop)
	r.settled("both wait", func() bool { return len(r.w.sets[b.key].waiting) == 2 })
	r.narrow(shop, func(reg *registry.Registry) (registry.Change, error) { return reg.EndTask(task, "revoked", time.Now()) })
	b.send(wire.Hello{Version: "test"})
	if got := refusalIn(c.line()); got != refusal.TaskEnded {
		t.Fatalf("%q", string(got))
	}
	if got := keep.line(); !strings.Contains(got, "ses_") {
		t.Fatalf("the other one: %q", got)
	}
	r.settled("it is over", func() bool { return r.g.Sessions(task) == 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(b.sessions) != 1 {
		t.Errorf("%d were handed over", len(b.sessions))
	}
}

func TestASocketThatReplacesAnother(t *testing.T) {
	r := newRig(t)
	old := r.socket(shop)
	r.session(old, shop)
	path := r.socket(shop)
	r.settled("it listens", func() bool { return len(r.w.listeners) == 1 })
	r.session(path, shop)
	if f, err := dialAs(old, aliceUID); err == nil {
		f.Close()
		t.Fatal("the former one still listens")
	}
}

func TestAProbe(t *testing.T) {
	probe := func(r *rig) (Probed, error) {
		return r.w.Probe(context.Background(), id[ids.Server](files), id[ids.Revision](files), "", fresh[ids.Connection](), 1000)
	}
	over := func(r *rig) {
		r.t.Helper()
		r.await("both jails' end", func() bool {
			for _, j := range r.jails {
				if !j.gone {
					return false
				}
			}
			return true
		})
		r.settled("nothing is tracked", func() bool { return len(r.w.jails) == 0 && len(r.w.sets) == 0 && len(r.w.byFD) == 0 })
	}
	t.Run("lists", func(t *testing.T) {
		r := newRig(t)
		got, err := probe(r)
		if err != nil || string(got.Data) != catalogueText {
			t.Fatalf("%s, %v", got.Data, err)
		}
		over(r)
		if o := only[order.LaunchProbe](r)[0]; o.Project != "" || o.Server != id[ids.Server](files) || o.Revision != id[ids.Revision](files) {
			t.Fatalf("%+v", o)
		}
	})
	// A bridge ends by itself after its one catalogue: nobody kills it, and nobody warns.
	t.Run("whose bridge ends when it has listed", func(t *testing.T) {
		for _, listed := range []bool{true, false} {
			r := newRig(t)
			r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
			done := make(chan error, 1)
			go func() { _, err := probe(r); done <- err }()
			b, in := r.probed()
			r.event(func() { r.unkillable[b.jail] = true }) // it ends by itself
			if listed {
				b.send(wire.Catalogue{Connection: in.Connection, Instance: in.Instance, Data: []byte("[]"), Last: true})
			}
			b.close()
			if err := <-done; (err == nil) != listed {
				t.Errorf("listed %v: %v", listed, err)
			}
			var stop order.Stop
			r.await("its end is asked for", func() bool {
				for _, o := range only[order.Stop](r) {
					if o.Jail == b.jail {
						stop = o
					}
				}
				return stop.Jail != ""
			})
			if (stop.GraceMs > 0) != listed {
				t.Errorf("listed %v: it has %d ms", listed, stop.GraceMs)
			}
			r.kill(b.jail, order.Exited{})
			over(r)
			if warned := strings.Contains(r.log.String(), "[WARN]  a bridge ended: kind=probe"); warned == listed {
				t.Errorf("listed %v:\n%s", listed, r.log)
			}
			if told := strings.Contains(r.log.String(), "[DEBUG] a bridge was ended: kind=probe"); told != listed {
				t.Errorf("listed %v:\n%s", listed, r.log)
			}
		}
	})
	t.Run("in parts, with what was kept out", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := probe(r)
			if err != nil || string(got.Data) != "[]" || len(got.Kept) != 1 || got.Kept[0].Tool != "odd" {
				t.Errorf("%+v, %v", got, err)
			}
		}()
		b, in := r.probed()
		b.send(wire.Catalogue{Connection: in.Connection, Instance: in.Instance, Data: []byte("[")})
		b.send(wire.Catalogue{Connection: in.Connection, Instance: in.Instance, Part: 1, Data: []byte("]"), Last: true, Quarantined: []wire.Quarantined{{Tool: "odd", Reason: "r"}}})
		<-done
		over(r)
	})
	t.Run("says why there is nothing", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
		done := make(chan error, 1)
		go func() { _, err := probe(r); done <- err }()
		b, in := r.probed()
		b.send(wire.Catalogue{Connection: in.Connection, Instance: in.Instance, Error: "it hangs", Last: true})
		if err := <-done; err == nil || !strings.Contains(err.Error(), "it hangs") {
			t.Fatal(err)
		}
		over(r)
	})
	t.Run("of a server that ends before its bridge is ready", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.setUp = func(b *bridge) { b.mute, b.autoList = true, "" } })
		done := make(chan error, 1)
		go func() { _, err := probe(r); done <- err }()
		var b *bridge
		r.await("the probe", func() bool {
			if len(r.bridges) == 1 && len(r.servers) == 1 {
				b = r.bridges[0]
			}
			return b != nil
		})
		server := r.servers[0].jail
		r.settled("it is known", func() bool { return len(r.w.jails) == 2 })
		r.kill(server, order.Exited{Status: 1})
		r.settled("its end is known", func() bool { return len(r.w.jails) == 1 })
		b.send(wire.Hello{Version: "test"})
		r.await("Started first of all, with its own name", func() bool {
			if len(b.heard) == 0 {
				return false
			}
			st, ok := b.heard[0].(wire.Started)
			return ok && st.Instance == server
		})
		_, in := r.probed()
		b.send(wire.Catalogue{Connection: in.Connection, Instance: in.Instance, Error: "it ended at once", Last: true})
		if err := <-done; err == nil || !strings.Contains(err.Error(), "it ended at once") {
			t.Fatal(err)
		}
		over(r)
	})
	t.Run("whose bridge dies", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
		done := make(chan error, 1)
		go func() { _, err := probe(r); done <- err }()
		b, _ := r.probed()
		r.kill(b.jail, order.Exited{Signal: 11})
		if err := <-done; err == nil {
			t.Fatal("it worked")
		}
		over(r)
	})
	t.Run("whose bridge reports another server", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
		done := make(chan error, 1)
		go func() { _, err := probe(r); done <- err }()
		b, in := r.probed()
		b.send(wire.Catalogue{Connection: r.conn[shop], Instance: in.Instance, Data: []byte(catalogueText), Last: true})
		if err := <-done; err == nil {
			t.Fatal("it worked")
		}
		b.isGone("another server's catalogue")
		over(r)
	})
	t.Run("whose bridge asks for calls", func(t *testing.T) {
		r := newRig(t)
		mine, s, inst := r.ready(r.socket(shop))
		r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
		go probe(r)
		b, in := r.probed()
		if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.SessionEnded {
			t.Errorf("%q", string(code))
		}
		if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.SessionEnded {
			t.Errorf("%q", string(code))
		}
		c, code := mine.admit(s, r.conn[shop], inst, "read_rows")
		if code != "" {
			t.Fatal(string(code))
		}
		b.send(wire.Ended{Call: c, Outcome: wire.Completed})
		b.isGone("it ended a project's call")
		_ = in
	})
	t.Run("that posternd refuses", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.onProbe = func(order.LaunchProbe) refusal.Code { return refusal.LayerMissing } })
		if _, err := probe(r); err == nil || !strings.Contains(err.Error(), "by the test") {
			t.Fatal(err)
		}
		over(r)
	})
	t.Run("that nobody waits for any more", func(t *testing.T) {
		r := newRig(t)
		r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := r.w.Probe(ctx, id[ids.Server](files), id[ids.Revision](files), "", fresh[ids.Connection](), 1000)
			done <- err
		}()
		r.probed()
		cancel()
		if err := <-done; err == nil {
			t.Fatal("it worked")
		}
		over(r)
	})
}

// probed waits until the probe's bridge was handed its server.
func (r *rig) probed() (b *bridge, in wire.Started) {
	r.t.Helper()
	r.await("the probe", func() bool {
		for _, x := range r.bridges {
			if x.probe == nil {
				continue
			}
			for _, i := range x.instances {
				b, in = x, i
			}
			for _, m := range x.heard { // also of one that has ended meanwhile
				if i, ok := m.(wire.Started); ok {
					b, in = x, i
				}
			}
		}
		return b != nil
	})
	return b, in
}

func TestATokenFile(t *testing.T) {
	r := newRig(t)
	task := r.task(shop)
	fd, path, err := r.w.TokenFile(context.Background(), id[ids.Project](shop), task, aliceUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteTokenFile(fd, "secret"); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(path); err != nil || string(raw) != "secret\n" {
		t.Fatalf("%q, %v", raw, err)
	}
	o := only[order.TokenFile](r)
	if len(o) != 1 || o[0].Task != task || o[0].UID != aliceUID || o[0].Project != id[ids.Project](shop) {
		t.Fatalf("%+v", o)
	}
	// It was never minted: a token that can bind nothing leaves no file.
	r.await("its removal", func() bool { return has[order.TokenFileGone](r) })
	if err := r.w.Retire(context.Background(), id[ids.Project](shop)); err != nil || !has[order.Retire](r) {
		t.Fatal(err)
	}
}
