package e2e

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// Jails lease from another range after a restart, and every file that they wrote under the
// former one is as readable, writable and owned as it was: nothing stands on a disk under a
// leased uid.
func TestTheRangeOfUidsIsChangedByARestart(t *testing.T) {
	w := newWorld(t)
	w.perTask()
	tok, task := w.token(w.a, runtimeUID, "--binds", "2")
	ofRange := func(first int) (found []string) {
		t.Helper()
		looked := 0
		for _, dir := range []string{w.RootDir, w.StateDir, w.RunDir, w.a.workspace, w.b.workspace} {
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				if err != nil {
					return err
				}
				looked++
				if st := info.Sys().(*syscall.Stat_t); inRange(int(st.Uid), first) || inRange(int(st.Gid), first) {
					found = append(found, path)
				}
				return nil
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if looked < 10 {
			t.Fatalf("only %d names were looked at", looked)
		}
		return found
	}
	use := func(first int, mine string) {
		t.Helper()
		r := w.connect(w.a, runtimeUID, tok).initialize()
		defer r.close()
		if got := r.sys("write", at("/workspace/"+mine)); got != "written" {
			t.Fatalf("a file of the task: %s", got)
		}
		if got := r.call("echo", `{}`); got.outcome() != "ok" { // which writes calls.log into the project's directory
			t.Fatal(got.raw)
		}
		row := w.servers()[task]
		if !inRange(int(row.UID), first) {
			t.Errorf("a jail has uid %d, the range begins at %d", row.UID, first)
		}
	}
	former := w.UIDFirst()
	use(former, "mine")
	if found := ofRange(former); len(found) != 0 {
		t.Errorf("under leased uids: %v", found)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	next := former + 4*8192
	w.Range(next)
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	before := len(w.calls(w.a))
	use(next, "mine") // over what a jail of the former range wrote
	if now := len(w.calls(w.a)); now <= before {
		t.Errorf("the project's own file was not written on: %d calls, then %d", before, now)
	}
	if found := append(ofRange(former), ofRange(next)...); len(found) != 0 {
		t.Errorf("under leased uids: %v", found)
	}
}

func inRange(id, first int) bool { return id >= first && id < first+8192 }
