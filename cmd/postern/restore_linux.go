package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
)

// Names that posternd and the authority look for, and of what a restore puts aside.
const (
	pendingName  = "restore.pending" // in the root directory: posternd does not start
	auditName    = "restored"        // there: what was done, for posternd's audit
	markName     = "restored"        // in the state directory: the authority gives nothing back
	keepEnabled  = "enabled\n"       // in it: but leaves connections as they were
	stagingName  = "restore.new"
	factsName    = "facts.json"
	packagesName = "pkg"
	maxManifest  = 64 << 10
)

// asideNames are what a former store may consist of.
var asideNames = []string{"policy.db", "policy.db-wal", "policy.db-shm", "policy.db.damaged", "activity.db", "activity.db-wal", "activity.db-shm", "activity.db.damaged", markName}

type restoring struct {
	from, rootDir, stateDir string
	facts, enabled          bool
}

// restored is what the command prints.
type restored struct {
	Taken    int64    `json:"taken"`  // when the backup was
	Facts    string   `json:"facts"`  // restored, or kept
	Former   string   `json:"former"` // where the former store is
	Warnings []string `json:"warnings,omitempty"`
}

func (a *app) restoreCommand() *cobra.Command {
	var o restoring
	cmd := &cobra.Command{Use: "restore DIR", Short: "put a backup in the place of the present state; posternd must not run", Args: exactly("DIR"),
		Long: "Puts the store of a backup in the place of the present one, which is kept beside it. posternd must not run.\n\n" +
			"Nothing is given back by itself: every task and token of the backup is ended, and every connection comes back\n" +
			"disabled, for it may hold what was revoked since; enable those that you have looked at. --enabled leaves\n" +
			"connections as they were. The root facts stay as they are where there are any, unless --facts is given."}
	cmd.Flags().StringVar(&o.rootDir, "root-dir", "/var/lib/postern-root", "posternd's `directory`")
	cmd.Flags().StringVar(&o.stateDir, "state-dir", "/var/lib/postern", "the authority's `directory`")
	cmd.Flags().BoolVar(&o.facts, "facts", false, "take accounts, projects and servers from the backup too")
	cmd.Flags().BoolVar(&o.enabled, "enabled", false, "leave connections enabled that were enabled in the backup")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.from = args[0]
		// Nobody serves the sockets meanwhile, so they cannot tell which directories are theirs.
		if set := cmd.Flags().Changed; set("run-dir") && !(set("root-dir") && set("state-dir")) {
			return usagef("cannot tell from --run-dir what to restore: name the directories of that posternd with --root-dir and --state-dir")
		}
		if os.Geteuid() != 0 {
			return api.Refuse(refusal.NotPermitted, "Only root restores.")
		}
		out, err := o.run()
		if err != nil {
			return err
		}
		return a.show(out, func(t *table) {
			t.line("The backup of %s is in place; the root facts are %s.", time.UnixMilli(out.Taken).Format(time.DateTime), out.Facts)
			t.line("What was there before, if anything, is in %s.", out.Former)
			if !o.enabled {
				t.line("Every connection is disabled: start posternd, look at them, and enable those that you want.")
			}
			for _, w := range out.Warnings {
				t.line("warning: %s", w)
			}
		})
	}
	return cmd
}

// run restores. Until everything is staged and has its digest, nothing is touched;
// from then on posternd does not start before all of it is in place.
func (o restoring) run() (out restored, err error) {
	from, err := os.OpenRoot(o.from)
	if err != nil {
		return out, err
	}
	defer from.Close()
	m, err := readManifest(from)
	if err != nil {
		return out, fmt.Errorf("%q: %w", o.from, err)
	}
	if err := os.MkdirAll(o.rootDir, 0o700); err != nil {
		return out, err
	}
	root, err := os.OpenRoot(o.rootDir)
	if err != nil {
		return out, err
	}
	defer root.Close()
	lock, err := root.Open(".")
	if err != nil {
		return out, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return out, api.Refuse(refusal.Busy, "posternd uses %q; stop it first.", o.rootDir)
	}
	state, owner, err := o.openState()
	if err != nil {
		return out, err
	}
	defer state.Close()
	_, err = root.Lstat(factsName)
	facts := o.facts || errors.Is(err, fs.ErrNotExist)
	if err != nil && !facts {
		return out, err
	}

	if err := stage(from, state, m, api.BackupStore, owner); err != nil {
		return out, err
	}
	if facts {
		if err := stage(from, root, m, api.BackupRoot, [2]int{0, 0}); err != nil {
			return out, err
		}
	}

	former := "before-" + time.Now().UTC().Format("20060102T150405.000000000")
	out = restored{Taken: m.Taken, Facts: "kept", Former: filepath.Join(o.stateDir, former)}
	switch earlier, err := root.ReadFile(pendingName); {
	case err == nil: // it stays until all is in place
		out.Warnings = append(out.Warnings, fmt.Sprintf("an earlier restore was interrupted; what was there before it is in %q of both directories", strings.TrimSpace(string(earlier))))
	case !errors.Is(err, fs.ErrNotExist):
		return out, err
	default:
		if err := errors.Join(writeNew(root, pendingName, []byte(former+"\n")), syncDir(root)); err != nil {
			return out, err
		}
	}
	if err := aside(state, former, asideNames, owner); err != nil {
		return out, err
	}
	mark := "\n"
	if o.enabled {
		mark = keepEnabled
	}
	if err := errors.Join(writeNew(state, markName, []byte(mark)), state.Lchown(markName, owner[0], owner[1]), syncDir(state)); err != nil {
		return out, err
	}
	if err := place(state, api.BackupStore); err != nil {
		return out, err
	}
	if facts {
		out.Facts = "restored; the former ones are in " + filepath.Join(o.rootDir, former)
		if err := errors.Join(aside(root, former, api.BackupRoot, [2]int{0, 0}), place(root, api.BackupRoot)); err != nil {
			return out, err
		}
	}
	// Until it is in posternd's audit.
	said := fmt.Sprintf("the store of a backup of %s; connections left enabled: %v; root facts %s; former store in %q\n", time.UnixMilli(m.Taken).UTC().Format(time.RFC3339), o.enabled, out.Facts, out.Former)
	if err := root.Remove(auditName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	if err := errors.Join(writeNew(root, auditName, []byte(said)), syncDir(root), root.Remove(pendingName), syncDir(root)); err != nil {
		return out, err
	}
	out.Warnings = append(out.Warnings, missingPackages(root)...)
	return out, nil
}

// openState opens the state directory, makes it where it is missing, and tells whose it is.
func (o restoring) openState() (*os.Root, [2]int, error) {
	fi, err := os.Lstat(o.stateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		u, err := user.Lookup("postern")
		if err != nil {
			return nil, [2]int{}, fmt.Errorf("%q is missing, and so is the user it is made for: %w", o.stateDir, err)
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2, os.Mkdir(o.stateDir, 0o700), os.Lchown(o.stateDir, uid, gid)); err != nil {
			return nil, [2]int{}, err
		}
		state, err := os.OpenRoot(o.stateDir)
		return state, [2]int{uid, gid}, err
	case err != nil:
		return nil, [2]int{}, err
	case !fi.IsDir():
		return nil, [2]int{}, fmt.Errorf("%q is no directory", o.stateDir)
	}
	st := fi.Sys().(*syscall.Stat_t)
	state, err := os.OpenRoot(o.stateDir)
	return state, [2]int{int(st.Uid), int(st.Gid)}, err
}

func readManifest(from *os.Root) (m api.BackupManifest, err error) {
	f, err := openRegular(from, manifestName)
	if err != nil {
		return m, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return m, err
	}
	if len(raw) > maxManifest {
		return m, fmt.Errorf("%s: more than %d bytes", manifestName, maxManifest)
	}
	if m, err = api.DecodeParams[api.BackupManifest](raw); err != nil {
		return m, fmt.Errorf("%s: %w", manifestName, err)
	}
	if m.Format != api.BackupFormat {
		return m, fmt.Errorf("%s: format %d, this program reads %d", manifestName, m.Format, api.BackupFormat)
	}
	var names []string
	for _, f := range m.Files {
		if f.Size < 0 || f.Size > api.BackupFileBytes {
			return m, fmt.Errorf("%s: %q has %d bytes, a backup's file has at most %d", manifestName, f.Name, f.Size, int64(api.BackupFileBytes))
		}
		names = append(names, f.Name)
	}
	if want := slices.Concat(api.BackupStore, api.BackupRoot); !slices.Equal(names, want) {
		return m, fmt.Errorf("%s: it lists %q, a backup has %q", manifestName, names, want)
	}
	return m, nil
}

// openRegular opens a plain file: nothing that a read could wait for.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%q is no plain file", name))
	}
	return f, nil
}

// stage copies files of a backup into a directory of their own in to, and holds them
// against the manifest.
func stage(from, to *os.Root, m api.BackupManifest, names []string, owner [2]int) error {
	if err := to.RemoveAll(stagingName); err != nil { // of a restore that was interrupted
		return err
	}
	if err := to.Mkdir(stagingName, 0o700); err != nil {
		return err
	}
	for _, want := range m.Files {
		if !slices.Contains(names, want.Name) {
			continue
		}
		if err := stageFile(from, to, want, owner); err != nil {
			return errors.Join(err, to.RemoveAll(stagingName))
		}
	}
	return nil
}

func stageFile(from, to *os.Root, want api.BackupFile, owner [2]int) error {
	in, err := openRegular(from, want.Name)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := to.OpenFile(filepath.Join(stagingName, want.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(in, want.Size+1))
	if err := errors.Join(err, f.Chown(owner[0], owner[1]), f.Sync()); err != nil {
		return err
	}
	if n != want.Size || hex.EncodeToString(sum.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("%q is not the file that was backed up: its size or digest is another; nothing was changed", want.Name)
	}
	return nil
}

// aside moves what is there of names into a new directory.
func aside(in *os.Root, into string, names []string, owner [2]int) error {
	if err := errors.Join(in.Mkdir(into, 0o700), in.Lchown(into, owner[0], owner[1])); err != nil {
		return err
	}
	for _, name := range names {
		if err := in.Rename(name, filepath.Join(into, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDir(in)
}

// place moves staged files to where they belong.
func place(in *os.Root, names []string) error {
	for _, name := range names {
		if err := in.Rename(filepath.Join(stagingName, name), name); err != nil {
			return err
		}
	}
	return errors.Join(in.Remove(stagingName), syncDir(in))
}

// missingPackages names the servers whose copied package is not there, as on another host.
func missingPackages(root *os.Root) (out []string) {
	raw, err := root.ReadFile(factsName)
	if err != nil {
		return []string{err.Error()}
	}
	facts, err := api.DecodeResult[struct {
		Servers []struct {
			Label     string `json:"label"`
			Deleted   bool   `json:"deleted"`
			Revisions []struct {
				Package string `json:"package"`
			} `json:"revisions"`
		} `json:"servers"`
	}](raw)
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range facts.Servers {
		if s.Deleted || len(s.Revisions) == 0 {
			continue
		}
		if p := s.Revisions[len(s.Revisions)-1].Package; p != "" {
			if _, err := root.Lstat(filepath.Join(packagesName, p)); err != nil {
				out = append(out, fmt.Sprintf("the package of server %q is not here; postern server update gives it one", s.Label))
			}
		}
	}
	return out
}
