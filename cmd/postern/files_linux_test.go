package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"postern/refusal"
)

// A program branches by the code, and so a file that is missing and one that is taken are
// told apart, with the status of the code's row; nothing of these is a fault of Postern's.
func TestA4_AFileThatIsMissingOrTakenHasItsCode(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	for says, row := range map[string]struct {
		args []string
		code refusal.Code
	}{
		"a bundle that is there":          {[]string{"debug", "bundle", "-o", there}, refusal.AlreadyExists},
		"a bundle in no directory":        {[]string{"debug", "bundle", "-o", none + "/b.tar.gz"}, refusal.NotFound},
		"a backup that is missing":        {[]string{"restore", none, "--root-dir", none + "/r", "--state-dir", none + "/s"}, refusal.NotFound},
		"a backup that is there":          {[]string{"backup", there}, refusal.AlreadyExists},
		"a backup below nothing":          {[]string{"backup", none + "/b"}, refusal.NotFound},
		"a secret that is missing":        {[]string{"credential", "add", "tok", "--project", "p", "--server", "s", "--from-file", none}, refusal.NotFound},
		"an export that is there":         {[]string{"activity", "export", "--out", there}, refusal.AlreadyExists},
		"an export in no directory":       {[]string{"activity", "export", "--out", none + "/x"}, refusal.NotFound},
		"an artifact's file that is":      {[]string{"artifact", "get", "art_1", "--out", there}, refusal.AlreadyExists},
		"an artifact in no directory":     {[]string{"artifact", "get", "art_1", "--out", none + "/x"}, refusal.NotFound},
		"its twin, to where nobody hears": {[]string{"backup", filepath.Join(dir, "new")}, refusal.Unreachable},
	} {
		cmd := exec.Command(binary, append([]string{"--run-dir", filepath.Join(dir, "run"), "--json"}, row.args...)...)
		out, err := cmd.Output()
		var answer struct {
			Refusal struct {
				Code refusal.Code `json:"code"`
			} `json:"refusal"`
		}
		if wrong := json.Unmarshal(out, &answer); wrong != nil || answer.Refusal.Code != row.code {
			t.Errorf("%s: %s", says, out)
		}
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != refusal.Of(row.code).Exit {
			t.Errorf("%s: %v, want status %d", says, err, refusal.Of(row.code).Exit)
		}
	}
	if _, err := os.Lstat(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	for err, want := range map[error]refusal.Code{unix.EACCES: refusal.NotPermitted, unix.ENOSPC: refusal.Internal, errors.New("x"): refusal.Internal} {
		if got := codeOf(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
