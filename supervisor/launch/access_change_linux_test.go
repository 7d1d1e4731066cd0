package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/refusal"
	"postern/supervisor/api"
)

// A policy that was taken away denies, now and after a restart, and says what to do; a file
// that declares nothing is an operator's word that there is to be none.
func TestC8_APolicyThatIsTakenAwayIsNotNone(t *testing.T) {
	const good = "channels: {w: {allow: [x]}}\n"
	r, path := withAccess(t, good)
	r.stateIs("read")
	gone := func(r *rig) {
		t.Helper()
		m := r.stateIs("denying")
		if s := fmt.Sprint(m["error"]); !strings.Contains(s, "was there and is gone") || !strings.Contains(s, `write "channels: {}" into it`) || strings.Contains(s, "restart") {
			t.Errorf("%s", s)
		}
		// A new file with this one line would say nothing of all whom the lost one named.
		edit := r.refused(refusal.AccessUnavailable, api.AccessEdit, api.AccessEditParams{Action: "level", Channel: "w", Target: "y", Level: "read"})
		if _, err := os.Lstat(path); !strings.Contains(edit.Detail, "was there and is gone") || !os.IsNotExist(err) {
			t.Errorf("%v, %v", edit, err)
		}
	}
	os.Remove(path)
	gone(r)
	r.down()
	r = start(t, r.cfg)
	gone(r)
	// Put back, it decides at once.
	os.WriteFile(path, []byte(good), 0o600)
	if m := r.stateIs("read"); rowOf(m, "rows", "x") != "user: no ceiling" {
		t.Errorf("%v", m)
	}
	os.Remove(path)
	gone(r)
	os.WriteFile(path, []byte("channels: {}\n"), 0o600)
	if m := r.stateIs("read"); rowOf(m, "rows", "the project's owner") != "owner: no ceiling" {
		t.Errorf("%v", m)
	}
	r.down()
	r = start(t, r.cfg)
	r.stateIs("read")
	// C104: an empty file may be one that was cut off.
	os.WriteFile(path, []byte("\n"), 0o600)
	if m := r.stateIs("denying"); !strings.Contains(fmt.Sprint(m["error"]), "is empty; ") {
		t.Errorf("%v", m)
	}
	// Another file's absence is that of another file.
	r.down()
	cfg := r.cfg
	cfg.Access = filepath.Join(filepath.Dir(path), "other.yaml")
	start(t, cfg).stateIs("none")
}

// A file that is truncated and written in pieces is read when it is whole, and nobody is
// denied or admitted by a part of it.
func TestC8_AFileThatIsWrittenInPiecesIsReadWhole(t *testing.T) {
	doc := func(n int) []byte {
		return fmt.Appendf(nil, "channels:\n  w:\n    allow: [x]\n    access:\n      users:\n        y: {blocked: true}\n        z: {level: read} # %d\n", n)
	}
	r, path := withAccess(t, string(doc(0)))
	r.stateIs("read")
	whole := map[string]bool{digestOf(doc(0)): true}
	const most = 200 // rewrites, of which those count whose writer never paused as long as a file must be quiet
	counted := 0
	for n := 1; n < most && counted < 5; n++ {
		before := r.log.String()
		next := doc(n)
		whole[digestOf(next)] = true
		paused := time.Duration(0)
		last := time.Now()
		step := func(flags int, piece []byte) {
			f, err := os.OpenFile(path, flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.Write(piece)
			f.Close() // each end of writing is told to whoever watches
			paused = max(paused, time.Since(last))
			last = time.Now()
		}
		step(os.O_WRONLY|os.O_TRUNC, nil)
		for piece := range slices.Chunk(next, 10) {
			step(os.O_WRONLY|os.O_APPEND, piece)
		}
		waitFor(t, "the new document decides", func() bool {
			m := r.must(api.AccessShow, struct{}{})
			return m["digest"] == digestOf(next) && m["deciding"] == true
		})
		if paused >= settleTold {
			continue // this machine made a pause, and what was read in it was quiet
		}
		counted++
		log := strings.TrimPrefix(r.log.String(), before)
		if strings.Contains(log, "is denied") || strings.Contains(log, "has a mistake") {
			t.Fatalf("a part of the document was believed:\n%s", log)
		}
		for _, m := range regexp.MustCompile(`the access policy was read: digest=([0-9a-f]+)`).FindAllStringSubmatch(log, -1) {
			if !whole[m[1]] {
				t.Fatalf("a part of the document was read:\n%s", log)
			}
		}
	}
	if counted == 0 {
		t.Error("no rewrite went without a pause, and nothing was tried")
	}
}
