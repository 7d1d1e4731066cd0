package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestC087_AFileThatIsTakenAwayEndsThisOpening: removed, renamed away or over, or closed
// to this user, either file ends the store within moments, also where SQLite would go on
// writing into what nobody will find again. Put back, it opens with everything.
func TestC087_AFileThatIsTakenAwayEndsThisOpening(t *testing.T) {
	for _, name := range []string{PolicyFile, ActivityFile} {
		for says, row := range map[string]struct {
			away, back func(path string) error
			asOther    bool // root is refused nothing
		}{
			"renamed away": {func(p string) error { return os.Rename(p, p+".away") }, func(p string) error { return os.Rename(p+".away", p) }, false},
			"another file in its place": {func(p string) error {
				return errors.Join(os.Link(p, p+".kept"), os.WriteFile(p+".new", nil, 0o600), os.Rename(p+".new", p))
			}, func(p string) error { return os.Rename(p+".kept", p) }, false},
			"nobody may open it": {func(p string) error { return os.Chmod(p, 0) }, func(p string) error { return os.Chmod(p, 0o600) }, true},
		} {
			t.Run(name+" "+says, func(t *testing.T) {
				if row.asOther && os.Geteuid() == 0 {
					return // TestStale_C087_ does it as the authority's user
				}
				dir := stateDir(t)
				s := open(t, dir)
				if err := s.Apply(record()); err != nil {
					t.Fatal(err)
				}
				s.Batch().Admit(call(1))
				if err := s.Batch().Commit(); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, name)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ran := make(chan error, 1)
				go func() { ran <- s.Run(ctx) }()
				for fi := (os.FileInfo)(nil); ; time.Sleep(time.Millisecond) { // until Run has connected and written back
					var err error
					if fi, err = os.Lstat(path); err != nil {
						t.Fatal(err)
					}
					if fi.Size() > pageBytes {
						break
					}
				}
				if err := row.away(path); err != nil {
					t.Fatal(err)
				}
				if err := <-ran; !errors.Is(err, ErrIO) || !strings.Contains(err.Error(), name) {
					t.Fatalf("%v", err)
				}
				s.Close()
				if err := row.back(path); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir)
				if p, err := s.Policy(); err != nil || len(p.Grants) != 1 || len(page(t, s, Query{}).Calls) != 1 {
					t.Errorf("%+v %v", p, err)
				}
			})
		}
	}
}

// TestStore2_OneFileWithoutTheOtherIsNoStore: neither is made anew beside the other, or
// an account would be active again, or a used token good again. Both gone is a new
// store, and so is what a first start left that was killed between the two.
func TestStore2_OneFileWithoutTheOtherIsNoStore(t *testing.T) {
	for _, name := range []string{PolicyFile, ActivityFile} {
		dir := stateDir(t)
		s := open(t, dir)
		s.Batch().Admit(call(1))
		if err := s.Batch().Commit(); err != nil {
			t.Fatal(err)
		}
		s.Close()
		path := filepath.Join(dir, name)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		for range 2 { // refusing makes nothing
			s, err := Open(dir)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "missing") {
				if err == nil {
					s.Close()
				}
				t.Fatalf("without %s: %v", name, err)
			}
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
		if len(page(t, s, Query{}).Calls) != 1 {
			t.Errorf("%s put back: the record is gone", name)
		}
		s.Close()
	}
	dir := stateDir(t)
	f, err := openFile(filepath.Join(dir, PolicyFile), "", policySchemas, silent)
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	open(t, dir).Close()
}
