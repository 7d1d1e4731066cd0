package owned

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Every way in which somebody else could have written what is read is refused by name, and
// left as it is; the same file without it is read.
func TestP9_OwnedUnfollowedUnrepaired(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("must run as root")
		}
		t.Skip("files of other uids are made: run as root")
	}
	const content = "mode: 1\n"
	for name, c := range map[string]struct {
		do   func(dir, file string) error
		want string
	}{
		"root's":                    {func(_, _ string) error { return nil }, ""},
		"readable by all":           {func(_, file string) error { return os.Chmod(file, 0o644) }, ""},
		"of another uid":            {func(_, file string) error { return os.Chown(file, 1234, 0) }, "belongs to uid 1234"},
		"writable by its group":     {func(_, file string) error { return os.Chmod(file, 0o664) }, "has mode 0664"},
		"writable by all":           {func(_, file string) error { return os.Chmod(file, 0o602) }, "has mode 0602"},
		"with a second name":        {func(dir, file string) error { return os.Link(file, dir+"/second") }, "has 2 names"},
		"a link":                    {func(_, file string) error { return errors.Join(os.Rename(file, file+"1"), os.Symlink(file+"1", file)) }, "symbolic link"},
		"a dangling link":           {func(_, file string) error { return errors.Join(os.Remove(file), os.Symlink("nowhere", file)) }, "symbolic link"},
		"a directory":               {func(_, file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o755)) }, "is a directory"},
		"a pipe that nobody writes": {func(_, file string) error { return errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)) }, "neither a file nor a directory"},
		"a device": {func(_, file string) error {
			return errors.Join(os.Remove(file), unix.Mknod(file, unix.S_IFCHR|0o600, 0x103))
		}, "neither a file nor a directory"},
		"too long":                         {func(_, file string) error { return os.WriteFile(file, []byte(strings.Repeat("x", 101)), 0o600) }, "more than 100 bytes"},
		"just not too long":                {func(_, file string) error { return os.WriteFile(file, []byte(strings.Repeat("x", 100)), 0o600) }, ""},
		"gone":                             {func(_, file string) error { return os.Remove(file) }, "no such file"},
		"in a directory of another uid":    {func(dir, _ string) error { return os.Chown(dir, 1234, 0) }, "belongs to uid 1234"},
		"in a directory that all write":    {func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, "has mode 1777"},
		"in a directory that is a link":    {func(dir, _ string) error { return errors.Join(os.Rename(dir, dir+"1"), os.Symlink(dir+"1", dir)) }, "symbolic link"},
		"in a directory that is no longer": {func(dir, _ string) error { return os.RemoveAll(dir) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etc")
			file := filepath.Join(dir, "x.yaml")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(file, []byte(content), 0o600), c.do(dir, file)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(file)
			raw, err := Read(file, 100)
			if c.want == "" {
				if err != nil || len(raw) == 0 {
					t.Errorf("%q, %v", raw, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || len(raw) > 101 {
				t.Errorf("%q, %v; want %q", raw, err, c.want)
			}
			if errors.Is(err, ErrNames) != strings.Contains(c.want, "names") || errors.Is(err, ErrNames) && !errors.Is(err, ErrRefused) {
				t.Errorf("%v: refused for its names: %v", err, errors.Is(err, ErrNames))
			}
			if after, _ := os.Lstat(file); before != nil && (after == nil || after.Mode() != before.Mode() || after.Sys() == nil) {
				t.Errorf("it was %v and is %v", before.Mode(), after)
			}
		})
	}
}
