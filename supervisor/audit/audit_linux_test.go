package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func opened(t *testing.T, dir string, keep Retention) *Log {
	t.Helper()
	l, err := Open(dir, uint32(os.Geteuid()), keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func records(t *testing.T, file string) (out []Record) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

func TestAudit1_WhatIsWrittenIsThereAndWhatCannotBeIsAnError(t *testing.T) {
	dir := home(t)
	l := opened(t, dir, Default())
	if err := l.Write(Record{Actor: "uid 0", Action: "level", Target: "+55…88", Before: "no entry", After: "level read"}); err != nil {
		t.Fatal(err)
	}
	got := records(t, filepath.Join(dir, Name))
	if len(got) != 1 || got[0].At == "" || got[0].Target != "+55…88" {
		t.Fatalf("%+v", got)
	}
	// A file that takes nothing any more.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	kept := l.f
	l.f = full
	l.mu.Unlock()
	if err := l.Write(Record{Action: "lost"}); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%v", err)
	}
	kept.Close()
	// It heals by itself.
	if err := l.Write(Record{Action: "after"}); err != nil {
		t.Fatal(err)
	}
	if got := records(t, filepath.Join(dir, Name)); len(got) != 2 || got[1].Action != "after" {
		t.Fatalf("%+v", got)
	}
}

func TestAudit1_HalfALineOfACrashIsEnded(t *testing.T) {
	dir := home(t)
	if err := os.WriteFile(filepath.Join(dir, Name), []byte(`{"at":"x","act`), 0o600); err != nil {
		t.Fatal(err)
	}
	l := opened(t, dir, Default())
	if err := l.Write(Record{Action: "next"}); err != nil {
		t.Fatal(err)
	}
	raw, _ := os.ReadFile(filepath.Join(dir, Name))
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"action":"next"`) {
		t.Fatalf("%q", lines)
	}
}

func TestAudit2_NoLinkAndNobodyElsesFile(t *testing.T) {
	for says, spoil := range map[string]func(dir, file string) error{
		"a link": func(dir, file string) error { return os.Symlink(filepath.Join(dir, "other"), file) },
		"a second name": func(dir, file string) error {
			return errors.Join(os.WriteFile(file, nil, 0o600), os.Link(file, file+"x"))
		},
		"others may write": func(dir, file string) error {
			return errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o622))
		},
		"a pipe":              func(dir, file string) error { return unix.Mkfifo(file, 0o600) },
		"others may enter it": func(dir, file string) error { return os.Chmod(dir, 0o755) },
	} {
		dir := home(t)
		if err := spoil(dir, filepath.Join(dir, Name)); err != nil {
			t.Fatal(err)
		}
		if l, err := Open(dir, uint32(os.Geteuid()), Default()); err == nil {
			l.Close()
			t.Errorf("%s was accepted", says)
		}
	}
	if l, err := Open(home(t), uint32(os.Geteuid())+1, Default()); err == nil {
		l.Close()
		t.Error("another user's directory was accepted")
	}
	opened(t, home(t), Default()) // the permitted twin
}

func TestAudit3_C9_TheFilesAreBounded(t *testing.T) {
	dir := home(t)
	l := opened(t, dir, Retention{MaxBytes: MinBytes, Keep: 2})
	text := strings.Repeat("x", 1000)
	const n = 300
	for i := range n {
		if err := l.Write(Record{Action: fmt.Sprint(i), After: text}); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 3 {
		t.Fatalf("%q", files)
	}
	last := n
	for _, name := range []string{Name, Name + ".1", Name + ".2"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() > MinBytes {
			t.Fatalf("%s: %d bytes, %v", name, info.Size(), err)
		}
		got := records(t, filepath.Join(dir, name))
		// The newest lie in the first file, and none between is missing.
		for i := len(got) - 1; i >= 0; i-- {
			if last--; got[i].Action != fmt.Sprint(last) {
				t.Fatalf("%s: %s, want %d", name, got[i].Action, last)
			}
		}
	}
	l.Close()
	l = opened(t, dir, Retention{MaxBytes: MinBytes, Keep: 0})
	for range 100 {
		if err := l.Write(Record{After: text}); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("a lower bound keeps %q", files)
	}
	for _, bad := range []Retention{{}, {MaxBytes: 1, Keep: 1}, {MaxBytes: MostBytes + 1}, {MaxBytes: MinBytes, Keep: -1}, {MaxBytes: MinBytes, Keep: MostKeep + 1}} {
		if bad.Check() == nil {
			t.Errorf("%+v is a bound", bad)
		}
	}
}

func TestAudit4_OneRecordIsOneLine(t *testing.T) {
	dir := home(t)
	l := opened(t, dir, Default())
	evil := []string{"a\nb", "\r\n{\"at\":\"\"}", "\u2028", "\x1b[2J", "\xff\xfe", strings.Repeat("é", 5000), strings.Repeat("x", 1<<20)}
	for _, s := range evil {
		if err := l.Write(Record{Actor: s, Origin: s, Action: s, Target: s, Before: s, After: s, Request: s, Failed: s}); err != nil {
			t.Fatal(err)
		}
	}
	if got := records(t, filepath.Join(dir, Name)); len(got) != len(evil) || got[0].Target != "a\nb" || len(got[6].After) > maxText+4 {
		t.Fatalf("%d records", len(got))
	}
}
