package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// C156: a file beside the others that nobody reads for its name is told while posternd
// runs, keeps it from starting, and is no matter once it is gone.
func TestC156_AFileThatIsNotReadIsTold(t *testing.T) {
	w := newBareWorld(t)
	said := func() string {
		var st api.RootStatusResult
		if err := w.Call(api.RootStatus, nil, &st); err != nil {
			return fmt.Sprint(err)
		}
		return fmt.Sprint(st.Config.Error)
	}
	for name, want := range map[string]string{
		"access.yml":            "access.yml: is not read; did you mean access.yaml?",
		"postern.yaml.d/10.yml": "10.yml: is not read: a name here ends in .yaml",
		"profiles.d/own.conf":   "own.conf: is not read: a name here ends in .yaml",
	} {
		path := filepath.Join(w.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, name+" is told", func() bool { return strings.Contains(said(), want) })
		if out, errs, _ := w.CLI(0, "doctor"); !strings.Contains(out+errs, want) {
			t.Errorf("doctor: %s%s", out, errs)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		until(t, "it is mended", func() bool { return said() == "" })
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.Dir, "access.yml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err == nil || !strings.Contains(err.Error(), "exit status 78") || !strings.Contains(w.Log.String(), path+": is not read") {
		t.Errorf("a start with it: %v\n%s", err, w.Log)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
}
