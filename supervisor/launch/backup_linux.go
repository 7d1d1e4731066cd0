package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/owned"
)

// restoring is the name of a file in the root directory: while it is there a restore
// has begun and not ended, and posternd does not start. What is half old and half new
// is never served. The command that restores makes and removes it.
const restoring = "restore.pending"

// restored is the name of another: what the last restore did, in words, until it
// stands in the audit.
const (
	restored    = "restored"
	maxRestored = 4096 // bytes of it
)

// recordRestore writes what a restore did into the audit. While that cannot be
// written, nothing starts.
func (s *Supervisor) recordRestore() error {
	dir := int(s.file.dir.Fd())
	fd, err := unix.Openat(dir, restored, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Join(s.file.path, restored), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(s.file.path, restored))
	defer f.Close()
	if err := owned.Check(f, owned.OthersAny); err != nil {
		return err
	}
	what, err := io.ReadAll(io.LimitReader(f, maxRestored))
	if err != nil {
		return err
	}
	line := audit.Record{Actor: "uid 0", Origin: "postern restore", Action: "restore", After: strings.TrimSpace(string(what)), Version: s.facts.Version}
	if err := s.audit.Write(line); err != nil {
		return err
	}
	return unix.Unlinkat(dir, restored, 0)
}

// whole refuses a root directory in the middle of a restore.
func (f *factsFile) whole() error {
	var st unix.Stat_t
	switch err := unix.Fstatat(int(f.dir.Fd()), restoring, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case unix.ENOENT:
		return nil
	case nil:
		return fmt.Errorf("%q: a restore was begun and did not end; run postern restore again", filepath.Join(f.path, restoring))
	default:
		return fmt.Errorf("%q: %w", filepath.Join(f.path, restoring), err)
	}
}

// rootBackup sends the root facts as they are now.
func (s *Supervisor) rootBackup(r request) (any, *api.Refusal) {
	if _, refused := params[struct{}](r); refused != nil {
		return nil, refused
	}
	facts, _ := s.now()
	raw, err := facts.encode()
	if err != nil {
		return nil, api.Refuse(refusal.Internal, "%v.", err)
	}
	sum := sha256.Sum256(raw)
	out := api.BackupResult{Version: version(), Files: []api.BackupFile{{Name: factsName, Size: int64(len(raw)), SHA256: hex.EncodeToString(sum[:])}}}
	for len(raw) > 0 {
		n := min(len(raw), api.BackupPieceBytes)
		if !r.event(api.BackupPiece{File: factsName, Data: raw[:n]}) {
			return nil, api.Refuse(refusal.PeerGone, "")
		}
		raw = raw[n:]
	}
	return out, nil
}
