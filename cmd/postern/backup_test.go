package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/refusal"
	"postern/supervisor/api"
)

func pieceLine(file, data string) string {
	return fmt.Sprintf(`{"event":{"file":%q,"data":%q}}`, file, base64.StdEncoding.EncodeToString([]byte(data)))
}

func sentLine(files ...string) string {
	var out []string
	for i := 0; i < len(files); i += 2 {
		sum := sha256.Sum256([]byte(files[i+1]))
		out = append(out, fmt.Sprintf(`{"name":%q,"size":%d,"sha256":%q}`, files[i], len(files[i+1]), hex.EncodeToString(sum[:])))
	}
	return `{"result":{"version":"1","files":[` + strings.Join(out, ",") + `]}}`
}

// wholeBackup is what the two sockets answer.
func wholeBackup() (store, root []string) {
	return []string{pieceLine("policy.db", "ab"), pieceLine("policy.db", "c"), pieceLine("activity.db", "de"), sentLine("policy.db", "abc", "activity.db", "de")},
		[]string{pieceLine("facts.json", "{}"), sentLine("facts.json", "{}")}
}

// A backup is what was sent, or it is none.
func TestABackupIsWholeOrNone(t *testing.T) {
	store, root := wholeBackup()
	for name, x := range map[string]struct {
		store, root []string
		status      int
	}{
		"whole":               {store, root, 0},
		"refused":             {[]string{`{"refusal":{"code":"busy","sentence":"Busy.","help":"x"}}`}, root, refusal.ExitTryAgain},
		"a file too few":      {[]string{pieceLine("policy.db", "abc"), sentLine("policy.db", "abc")}, root, 1},
		"another order":       {[]string{pieceLine("activity.db", "de"), pieceLine("policy.db", "abc"), sentLine("activity.db", "de", "policy.db", "abc")}, root, 1},
		"a file too much":     {append(slices.Clone(store[:3]), pieceLine("facts.json", "{}"), store[3]), root, 1},
		"a path":              {append([]string{pieceLine("../policy.db", "abc")}, store...), root, 1},
		"another digest":      {append(slices.Clone(store[:2]), pieceLine("activity.db", "dX"), store[3]), root, 1},
		"an end in between":   {append(slices.Clone(store[:2]), "hang up"), root, refusal.ExitUnreachable},
		"no root facts":       {store, []string{sentLine("facts.json", "{}")}, 1},
		"facts of the store":  {store, store, 1},
		"the same file twice": {append(slices.Clone(store[:3]), store[0], store[3]), root, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
			_, stop, err := serveFake(run, map[api.Action][]string{api.Backup: x.store, api.RootBackup: x.root})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			r := postern(t, "--run-dir", run, "backup", to)
			if r.status != x.status {
				t.Errorf("status %d: %s", r.status, r.err)
			}
			entries, err := os.ReadDir(to)
			if x.status != 0 {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("left: %v %v", entries, err)
				}
				return
			}
			for file, want := range map[string]string{"policy.db": "abc", "activity.db": "de", "facts.json": "{}"} {
				if got, err := os.ReadFile(filepath.Join(to, file)); err != nil || string(got) != want {
					t.Errorf("%s: %q %v", file, got, err)
				}
			}
			if len(entries) != 4 {
				t.Errorf("%v", entries)
			}
		})
	}
}

// A manifest that somebody made names what it likes: nothing but the files of a backup,
// each no longer than one can be, is read.
func TestARestoreReadsNoForgedManifest(t *testing.T) {
	manifest := func(files ...api.BackupFile) api.BackupManifest {
		return api.BackupManifest{Format: api.BackupFormat, Version: "1", Taken: 1, Files: files}
	}
	file := func(name string, size int64) api.BackupFile {
		return api.BackupFile{Name: name, Size: size, SHA256: strings.Repeat("0", 64)}
	}
	for name, row := range map[string]struct {
		m    api.BackupManifest
		good bool
	}{
		"whole":            {manifest(file("policy.db", 1), file("activity.db", 2), file("facts.json", api.BackupFileBytes)), true},
		"longer than any":  {manifest(file("policy.db", 1), file("activity.db", api.BackupFileBytes+1), file("facts.json", 3)), false},
		"as long as can":   {manifest(file("policy.db", 1<<63-1), file("activity.db", 2), file("facts.json", 3)), false},
		"shorter than any": {manifest(file("policy.db", -1), file("activity.db", 2), file("facts.json", 3)), false},
		"a path":           {manifest(file("../policy.db", 1), file("activity.db", 2), file("facts.json", 3)), false},
		"twice":            {manifest(file("policy.db", 1), file("policy.db", 1), file("facts.json", 3)), false},
		"one too many":     {manifest(file("policy.db", 1), file("activity.db", 2), file("facts.json", 3), file("audit.log", 3)), false},
		"none":             {manifest(), false},
	} {
		dir := t.TempDir()
		line, err := api.Encode(row.m)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, manifestName), line, 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readManifest(from); (err == nil) != row.good {
			t.Errorf("%s: %v", name, err)
		}
		from.Close()
	}
}
