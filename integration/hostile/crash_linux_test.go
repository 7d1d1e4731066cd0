package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/supervisor/api"
)

// The state directory has no room: calls are denied before their server hears of them,
// reading goes on, and with room again everything works in place.
func TestCrash_C149_C150_AFullDiskDeniesAndRecovers(t *testing.T) {
	w := newWorld(t)
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	// A file system of its own for the state, with what is there by now.
	if err := os.Rename(w.StateDir, w.StateDir+".old"); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(w.StateDir, 0o700)
	if err := syscall.Mount("tmpfs", w.StateDir, "tmpfs", 0, "size=24m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer func() { w.Down(); syscall.Unmount(w.StateDir, syscall.MNT_DETACH) }()
	if out, err := as(0, "/bin/cp", "-a", w.StateDir+".old/.", w.StateDir); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	r := w.open(w.a, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	incarnation := func() uint64 {
		var st api.StatusResult
		if err := w.Call(api.Status, nil, &st); err != nil {
			t.Fatal(err)
		}
		return st.Incarnation
	}
	first := incarnation()
	fill := filepath.Join(w.StateDir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 64<<10); ; {
		if _, err := f.Write(chunk); err != nil {
			break
		}
	}
	f.Close()
	denied := 0
	for n := 0; n < 20000 && denied < 20; n++ { // what was grown beforehand is used up first
		before := len(w.calls(w.a))
		m := r.call("echo", `{}`)
		after := len(w.calls(w.a))
		switch m.outcome() {
		case "ok":
			if after != before+1 {
				t.Fatalf("%d calls for one", after-before)
			}
		case "store_unavailable":
			denied++
			if after != before {
				t.Fatal("a denied call reached the server")
			}
		default:
			t.Fatalf("with a full disk: %s", m.raw)
		}
		if n%500 == 499 {
			os.Truncate(filepath.Join(w.a.workspace, "calls.log"), 0)
		}
	}
	if denied == 0 {
		t.Error("no call was denied for want of room")
	}
	// Reading goes on; a revocation takes effect or says that it did not.
	w.must("ps")
	w.must("activity", "--project", w.a.id)
	if _, errb, exit := w.CLI(0, "backup", filepath.Join(w.Dir, "backup")); exit != 75 || !strings.Contains(errb, "bytes are free") {
		t.Errorf("a backup without room for a copy: exit %d %s", exit, errb)
	}
	out, errb, exit := w.CLI(0, "connection", "revoke", w.a.id, "count", "slow")
	t.Logf("revoking on a full disk: exit %d %s%s", exit, out, errb)
	if m := r.call("slow", `{"ms":0}`); exit == 0 && m.outcome() == "ok" {
		t.Error("revoked, and called all the same")
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	until(t, "calls work again", func() bool { return r.call("echo", `{}`).outcome() == "ok" })
	if got := incarnation(); got != first {
		t.Errorf("the authority was started again: incarnation %d, was %d", got, first)
	}
	if _, errb, exit := w.CLI(0, "connection", "revoke", w.a.id, "count", "big"); exit != 0 {
		t.Errorf("revoking afterwards: %s", errb)
	}
	w.works(w.b)
}

// Another process holds the write lock of the store: no call is made without a record,
// every caller hears something in time, and all goes on when the lock is gone.
func TestCrash_C155_ALockedStoreDenies(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	for _, name := range []string{"activity.db", "policy.db"} {
		// The lock that a writer takes in WAL mode (sqlite.org/walformat.html, 2.3.1).
		f, err := os.OpenFile(filepath.Join(w.StateDir, name+"-shm"), os.O_RDWR, 0)
		if err != nil {
			t.Logf("%s has no shared memory: nobody else can open it: %v", name, err)
			continue
		}
		lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: 120, Len: 1}
		if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
			t.Logf("%s is held by the authority: %v", name, err)
			f.Close()
			continue
		}
		before := len(w.calls(w.a))
		began := time.Now()
		m := r.call("echo", `{}`)
		t.Logf("%s locked: %s after %v", name, m.outcome(), time.Since(began))
		if n := len(w.calls(w.a)); (n > before) != (m.outcome() == "ok") {
			t.Errorf("%s, and the server received %d", m.raw, n-before)
		}
		if name == "activity.db" && m.outcome() == "ok" {
			t.Error("a call was made that could not be recorded")
		}
		_, errb, exit := w.CLI(0, "connection", "disable", w.b.id, "count")
		t.Logf("%s locked: disabling: exit %d %s", name, exit, errb)
		f.Close() // releases the lock
		until(t, "calls work again", func() bool { return r.call("echo", `{}`).outcome() == "ok" })
		if exit != 0 {
			w.must("connection", "disable", w.b.id, "count")
		}
		w.must("connection", "enable", w.b.id, "count")
		w.works(w.b)
	}
}

// What lies at a socket's path and is no socket is neither removed nor followed; a
// socket that a killed posternd left is replaced.
func TestCrash_C166_WhatIsNoSocketStays(t *testing.T) {
	w := newWorld(t)
	precious := filepath.Join(w.Dir, "precious")
	if err := os.WriteFile(precious, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"control.sock", "root.sock"} {
		path := filepath.Join(w.RunDir, name)
		for kind, put := range map[string]func() error{
			"a file": func() error { return os.WriteFile(path, []byte("kept"), 0o600) },
			"a link": func() error { return os.Symlink(precious, path) },
		} {
			if err := w.Down(); err != nil {
				t.Fatal(err)
			}
			os.MkdirAll(w.RunDir, 0o711)
			if err := put(); err != nil {
				t.Fatal(err)
			}
			if err := w.Up(); err == nil {
				t.Errorf("%s at %s: posternd started", kind, name)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "kept" {
				t.Errorf("%s at %s: %q %v", kind, name, b, err)
			}
			os.Remove(path)
			if err := w.Up(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Kill9()
	if err := w.Up(); err != nil {
		t.Fatalf("after kill -9: %v", err)
	}
	w.works(w.a)
}
