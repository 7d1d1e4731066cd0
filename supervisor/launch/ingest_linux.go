package launch

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/owned"
)

// Bounds of one package.
const (
	maxPackageFiles = 200_000
	maxPackageBytes = 2 << 30
	maxPackageDepth = 64
)

const packageDir = "pkg"

// ingest copies the tree at source into the store and returns the digest of the copy,
// which is held until letGo is called. Nothing else of the source is ever used: what
// changes there later changes nothing.
//
// The tree may hold directories, regular files without set-id bits, and links that
// stay inside or lead to what system accepts: a virtual environment of Python's has its
// interpreter by such a link. It is walked by descriptor, entry by entry, without
// following anything.
// check looks at the finished copy; the copy is kept only if it agrees and keep is set.
func (p *packages) ingest(source string, keep bool, system func(path string) bool, check func(tree *os.File) *api.Refusal) (digest string, letGo func(), refused *api.Refusal) {
	refuse := func(err error) (string, func(), *api.Refusal) {
		return "", nil, api.Refuse(refusal.RegistrationWrong, "package %q: %v.", source, err)
	}
	if !spec.CleanPath(source) {
		return refuse(errors.New("want an absolute directory in its shortest form"))
	}
	from, err := owned.Open(source, unix.O_DIRECTORY)
	if err != nil {
		return refuse(err)
	}
	defer from.Close()
	store, half := p.store, halfPrefix+rand.Text()
	if err := unix.Mkdirat(int(store.Fd()), half, 0o755); err != nil {
		return refuse(os.NewSyscallError("mkdirat", err))
	}
	done := false
	defer func() {
		if !done {
			os.RemoveAll(filepath.Join(store.Name(), half))
			unix.Unlinkat(int(store.Fd()), half+listSuffix, 0)
		}
	}()
	to, err := openAt(int(store.Fd()), half, unix.O_DIRECTORY)
	if err != nil {
		return refuse(err)
	}
	defer to.Close()
	if err := to.Chmod(0o755); err != nil { // whatever the umask was: the jail's uid walks it
		return refuse(err)
	}
	listed, err := unix.Openat(int(store.Fd()), half+listSuffix, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return refuse(os.NewSyscallError("openat", err))
	}
	list := os.NewFile(uintptr(listed), half+listSuffix)
	defer list.Close()
	sum, text := sha256.New(), bufio.NewWriterSize(list, 64<<10)
	c := copier{list: io.MultiWriter(sum, text), system: system}
	if err := c.dir(int(from.Fd()), int(to.Fd()), "", 0); err != nil {
		return refuse(err)
	}
	if err := c.checkLinks(int(to.Fd())); err != nil {
		return refuse(err)
	}
	if refused := check(to); refused != nil {
		return "", nil, refused
	}
	digest = hex.EncodeToString(sum.Sum(nil))
	if !keep {
		return digest, func() {}, nil
	}
	if err := text.Flush(); err != nil {
		return refuse(err)
	}
	// One sync for the whole tree: a call for each of thousands of small files takes minutes.
	if err := unix.Syncfs(int(to.Fd())); err != nil {
		return refuse(os.NewSyscallError("syncfs", err))
	}
	if done, letGo, err = p.publish(half, digest); err != nil {
		return refuse(err)
	}
	return digest, letGo, nil
}

type copier struct {
	list   io.Writer // of everything that was copied, of which the digest is taken
	listed int
	files  int
	bytes  int64
	links  []string
	system func(path string) bool // what of the system a link may lead to
}

// record adds one entry to the list; NUL cannot be in a name, so entries cannot run
// into each other.
func (c *copier) record(kind, at, what string) error {
	n, err := fmt.Fprintf(c.list, "%s\x00%s\x00%s\x00", kind, at, what)
	if c.listed += n; err == nil && c.listed > maxListBytes {
		err = fmt.Errorf("the names of the package have more than %d bytes", maxListBytes)
	}
	return err
}

func (c *copier) dir(from, to int, at string, depth int) error {
	if depth > maxPackageDepth {
		return fmt.Errorf("%q lies deeper than %d directories", at, maxPackageDepth)
	}
	names, err := namesOf(from, maxPackageFiles-c.files)
	if err != nil {
		return err
	}
	for _, name := range names {
		here := path.Join(at, name)
		if c.files++; c.files > maxPackageFiles {
			return fmt.Errorf("more than %d files", maxPackageFiles)
		}
		if err := c.entry(from, to, name, here, depth); err != nil {
			return fmt.Errorf("%q: %w", here, err)
		}
	}
	return nil
}

func (c *copier) entry(from, to int, name, here string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("fstatat", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return c.link(from, to, name, here)
	case unix.S_IFDIR, unix.S_IFREG:
	default:
		// Not opened: opening a device or a FIFO already does something.
		return fmt.Errorf("is neither a file, a directory nor a link (mode %o)", st.Mode)
	}
	src, err := openAt(from, name, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	// The name may mean something else by now; only what is open counts.
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		if err := c.record("d", here, ""); err != nil {
			return err
		}
		if err := unix.Mkdirat(to, name, 0o755); err != nil {
			return os.NewSyscallError("mkdirat", err)
		}
		sub, err := openAt(to, name, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer sub.Close()
		if err := sub.Chmod(0o755); err != nil {
			return err
		}
		return c.dir(int(src.Fd()), int(sub.Fd()), here, depth+1)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("changed while it was copied")
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return fmt.Errorf("has a set-id bit (mode %04o)", st.Mode&0o7777)
	}
	if st.Size > maxPackageBytes-c.bytes { // before it fills the disk
		return fmt.Errorf("the package has more than %d bytes", int64(maxPackageBytes))
	}
	return c.file(src, to, name, here, st.Mode&0o111 != 0)
}

func (c *copier) file(src *os.File, to int, name, here string, exec bool) error {
	mode, kind := uint32(0o644), "f"
	if exec {
		mode, kind = 0o755, "x"
	}
	fd, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	dst := os.NewFile(uintptr(fd), here)
	defer dst.Close()
	if err := dst.Chmod(os.FileMode(mode)); err != nil { // whatever the umask was
		return err
	}
	sum := sha256.New()
	left := int64(maxPackageBytes) - c.bytes
	n, err := io.Copy(io.MultiWriter(dst, sum), io.LimitReader(src, left+1))
	if err != nil {
		return err
	}
	if n > left {
		return fmt.Errorf("the package has more than %d bytes", int64(maxPackageBytes))
	}
	c.bytes += n
	return c.record(kind, here, hex.EncodeToString(sum.Sum(nil)))
}

func (c *copier) link(from, to int, name, here string) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(from, name, buf)
	if err != nil {
		return os.NewSyscallError("readlinkat", err)
	}
	target := string(buf[:n])
	if path.IsAbs(target) {
		// In the jail it leads where the profile shows a file of root's, or nowhere.
		if path.Clean(target) != target || !c.system(target) {
			return fmt.Errorf("is a link to %q, which is neither in the package nor executed by the profile", target)
		}
	} else if !filepath.IsLocal(path.Join(path.Dir(here), target)) {
		return fmt.Errorf("is a link to %q, which leaves the package", target)
	}
	if err := c.record("l", here, target); err != nil {
		return err
	}
	c.links = append(c.links, here)
	if err := unix.Symlinkat(target, to, name); err != nil {
		return os.NewSyscallError("symlinkat", err)
	}
	return nil
}

// checkLinks asks the kernel where each copied link really leads: one that goes through
// another link can leave although its text does not. A dangling link is harmless.
func (c *copier) checkLinks(root int) error {
	for _, l := range c.links {
		fd, err := openat2(root, l, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		switch {
		case err == nil:
			unix.Close(fd)
		case errors.Is(err, unix.EXDEV) && systemLink(root, l, c.system) != "":
		case !errors.Is(err, unix.ENOENT):
			return fmt.Errorf("%q is a link that leaves the package or leads nowhere: %w", l, err)
		}
	}
	return nil
}

// maxLinks is how many links are followed to one file.
const maxLinks = 8

// systemLink follows the links at a path of a tree to one that leads out of it, to what
// system accepts; "" where there is none.
func systemLink(root int, at string, system func(string) bool) string {
	for range maxLinks {
		fd, err := openat2(root, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		if err != nil {
			return ""
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", buf)
		unix.Close(fd)
		target := string(buf[:max(n, 0)])
		switch {
		case err != nil:
			return ""
		case path.IsAbs(target) && system(target):
			return target
		case path.IsAbs(target):
			return ""
		}
		at = path.Join(path.Dir(at), target)
	}
	return ""
}

// namesOf lists a directory in a fixed order, at most limit+1 names of it.
func namesOf(fd, limit int) ([]string, error) {
	dup, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	d := os.NewFile(uintptr(dup), ".")
	defer d.Close()
	names, err := d.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func openAt(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// checkProgram finds the executable: in the copy, or in the system, where its digest is
// recorded and not pinned. tree is nil without a package. It returns the warnings about
// arguments that look like files of the package and are not there: arguments are
// literal text, so that is no refusal. runs tells what the profile executes: a script
// needs its interpreter too, and a jail that lacks it would say no more than that
// nothing is there.
func checkProgram(tree *os.File, v *Revision, runs func(program string) bool) ([]string, *api.Refusal) {
	program := v.Command[0]
	refuse := func(format string, args ...any) ([]string, *api.Refusal) {
		return nil, api.Refuse(refusal.RegistrationWrong, format, args...)
	}
	root, at := unix.AT_FDCWD, program
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if in, ok := strings.CutPrefix(program, spec.PackageDir+"/"); ok {
		root, at = int(tree.Fd()), in
		how.Resolve |= unix.RESOLVE_BENEATH
	}
	fd, err := openat2(root, at, &how)
	if root != unix.AT_FDCWD && errors.Is(err, unix.EXDEV) {
		if target := systemLink(root, at, runs); target != "" {
			root, at, how.Resolve = unix.AT_FDCWD, target, unix.RESOLVE_NO_MAGICLINKS
			fd, err = openat2(root, at, &how)
		}
	}
	if err != nil {
		return refuse("The executable %q is missing: %v.", program, err)
	}
	f := os.NewFile(uintptr(fd), program)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return refuse("%q: %v.", program, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return refuse("%q is not a file.", program)
	case st.Mode&0o001 == 0:
		return refuse("%q may not be executed by everybody (mode %04o).", program, st.Mode&0o7777)
	}
	head := make([]byte, scriptHead)
	n, err := io.ReadFull(f, head)
	if head = head[:n]; err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return refuse("%q: %v.", program, err)
	}
	if line, script := bytes.CutPrefix(head, []byte("#!")); script {
		if why := checkInterpreter(line, runs); why != "" {
			return refuse("%q is a script whose interpreter %s.", program, why)
		}
	} else if root == unix.AT_FDCWD && !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return refuse("%q is neither a program nor a script.", program)
	}
	if root == unix.AT_FDCWD {
		sum := sha256.New()
		sum.Write(head)
		if _, err := io.Copy(sum, f); err != nil {
			return refuse("%q: %v.", program, err)
		}
		v.Recorded = []string{at + " sha256:" + hex.EncodeToString(sum.Sum(nil))}
	}
	var warnings []string
	for _, a := range v.Command[1:] {
		in, ok := strings.CutPrefix(a, spec.PackageDir+"/")
		if !ok || tree == nil {
			continue
		}
		fd, err := openat2(int(tree.Fd()), in, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH})
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("argument %q is not in the package: %v", a, err))
			continue
		}
		unix.Close(fd)
	}
	return warnings, nil
}

// scriptHead is what the kernel looks at of a script's first line, BINPRM_BUF_SIZE.
const scriptHead = 256

// checkInterpreter says what is wrong with the interpreter that a script's first line
// names, "" for nothing.
func checkInterpreter(line []byte, runs func(string) bool) string {
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return "is not named"
	}
	program := words[0]
	if !filepath.IsAbs(program) || filepath.Clean(program) != program {
		return fmt.Sprintf("%q is not an absolute path in its shortest form", program)
	}
	if !spec.Inside(program, spec.PackageDir) {
		var st unix.Stat_t
		switch err := unix.Stat(program, &st); {
		case err != nil:
			return fmt.Sprintf("%q is missing: %v", program, err)
		case st.Mode&unix.S_IFMT != unix.S_IFREG, st.Mode&0o001 == 0:
			return fmt.Sprintf("%q may not be executed by everybody (mode %04o)", program, st.Mode&0o7777)
		}
	}
	if !runs(program) {
		return fmt.Sprintf("%q is not executed by the profile", program)
	}
	return ""
}
