package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// manifestName is the last file of a backup to be written: without it there is none.
const manifestName = "manifest.json"

func (a *app) backupCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "backup DIR", Short: "write both files of the store and the root facts into a new directory", Args: exactly("DIR"),
		Long: "Writes a whole copy of the store and of the root facts into a new directory, while everything runs.\n" +
			"Copies of packages, and what lies under /etc/postern, are not in it."}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := a.backup(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.show(m, func(t *table) {
			t.row("FILE", "BYTES", "SHA-256")
			for _, f := range m.Files {
				t.row(f.Name, f.Size, f.SHA256)
			}
		})
	}
	return cmd
}

// backup fills dir, or removes what it made.
func (a *app) backup(ctx context.Context, dir string) (m api.BackupManifest, err error) {
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return m, fileErrorf(refusal.AlreadyExists, "%q is there already; each backup is a new directory", dir)
	case errors.Is(err, fs.ErrNotExist):
		return m, fileErrorf(refusal.NotFound, "%q cannot be made: make the directory above it first", dir)
	case err != nil:
		return m, err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return m, err
	}
	defer to.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	m = api.BackupManifest{Format: api.BackupFormat, Taken: time.Now().UnixMilli()}
	// The root facts come last: whatever the store names is in them.
	for _, from := range []struct {
		action api.Action
		files  []string
	}{{api.Backup, api.BackupStore}, {api.RootBackup, api.BackupRoot}} {
		files, version, err := a.receive(ctx, to, from.action, from.files)
		if err != nil {
			return m, err
		}
		m.Version = version
		m.Files = append(m.Files, files...)
	}
	line, err := api.Encode(m)
	if err != nil {
		return m, err
	}
	if err := writeNew(to, manifestName, line); err != nil {
		return m, err
	}
	return m, syncDir(to)
}

// receive writes the files that one socket sends. What is not asked for, comes in
// another order, is too long or has another digest than its sender says ends it.
func (a *app) receive(ctx context.Context, to *os.Root, action api.Action, names []string) (_ []api.BackupFile, version string, err error) {
	var files []api.BackupFile
	var f *os.File
	sum := sha256.New()
	finish := func() error {
		if f == nil {
			return nil
		}
		files[len(files)-1].SHA256 = hex.EncodeToString(sum.Sum(nil))
		err := errors.Join(f.Sync(), f.Close())
		f = nil
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	raw, err := a.call(ctx, action, struct{}{}, client.Options{}, func(raw []byte) error {
		p, err := api.DecodeResult[api.BackupPiece](raw)
		if err != nil {
			return err
		}
		if len(files) == 0 || files[len(files)-1].Name != p.File {
			if len(files) == len(names) || names[len(files)] != p.File {
				return fmt.Errorf("%s: %q was not expected", action, p.File)
			}
			if err := finish(); err != nil {
				return err
			}
			if f, err = to.OpenFile(p.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
				return err
			}
			files = append(files, api.BackupFile{Name: p.File})
			sum.Reset()
		}
		last := &files[len(files)-1]
		if last.Size += int64(len(p.Data)); last.Size > api.BackupFileBytes {
			return fmt.Errorf("%s: %q is longer than %d bytes", action, p.File, int64(api.BackupFileBytes))
		}
		sum.Write(p.Data)
		_, err = f.Write(p.Data)
		return err
	})
	if err == nil {
		err = finish()
	}
	if err != nil {
		return nil, "", err
	}
	r, err := api.DecodeResult[api.BackupResult](raw)
	if err != nil {
		return nil, "", err
	}
	if len(files) != len(names) || !slices.Equal(r.Files, files) {
		return nil, "", fmt.Errorf("%s: what came is not what was sent; nothing was kept", action)
	}
	return files, r.Version, nil
}

// writeNew writes a whole new file and syncs it.
func writeNew(to *os.Root, name string, content []byte) error {
	f, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes the names in a directory durable.
func syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
