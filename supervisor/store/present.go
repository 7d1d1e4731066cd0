package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ncruces/go-sqlite3"
)

// lonely tells whether policy.db is here and activity.db is not. The other way round is
// refused: a policy.db that was taken away would be made anew, and in it nobody is
// suspended and no task has ended.
func lonely(dir string) (bool, error) {
	policy, activity := filepath.Join(dir, PolicyFile), filepath.Join(dir, ActivityFile)
	_, noPolicy := os.Lstat(policy)
	_, noActivity := os.Lstat(activity)
	if errors.Is(noPolicy, fs.ErrNotExist) && noActivity == nil {
		return false, missing(policy, activity)
	}
	return noPolicy == nil && errors.Is(noActivity, fs.ErrNotExist), nil
}

// neverBegun refuses a policy.db that has served already: then there was an activity.db
// too, which held the binds that its tokens were used for. Without it they would be good
// again. A first start that was killed between the two files has not served.
func (f *file) neverBegun() error {
	begun := false
	if err := each(f.writer, `SELECT value FROM meta WHERE key = 'incarnation'`, func(*sqlite3.Stmt) { begun = true }); err != nil {
		return classify(err)
	}
	if begun {
		return missing(filepath.Join(filepath.Dir(f.path), ActivityFile), f.path)
	}
	return nil
}

func missing(gone, here string) error {
	return fmt.Errorf("%q is missing beside %q; put it back, restore a backup, or move the other one away too, to begin with nothing: %w", gone, here, ErrCorrupt)
}

// present returns ErrIO when the file is no longer what its path names, or may no longer
// be opened: what is written from then on is lost with this process, and its next start
// would not know of it. SQLite itself goes on writing into a file that was removed.
func (f *file) present() error {
	now, err := os.Lstat(f.path)
	if err == nil && !os.SameFile(now, f.is) {
		err = errors.New("it is another file than the one that was opened")
	}
	if err == nil {
		const readWrite = 4 | 2 // R_OK and W_OK of access(2)
		err = syscall.Access(f.path, readWrite)
	}
	if err != nil {
		return fmt.Errorf("%q, while it is in use: %w: %w", f.path, err, ErrIO)
	}
	return nil
}
