package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Log is one log that is open for writing. Its methods may be called from anywhere.
type Log struct {
	dir  *os.File
	uid  uint32
	keep Retention

	mu   sync.Mutex
	f    *os.File
	size int64
}

// Open opens or makes the log in a directory that belongs to uid alone.
func Open(dir string, uid uint32, keep Retention) (*Log, error) {
	if err := keep.Check(); err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	l := &Log{dir: os.NewFile(uintptr(fd), dir), uid: uid, keep: keep}
	if err = l.owned(l.dir); err == nil {
		err = l.open()
	}
	if err != nil {
		l.dir.Close()
		return nil, err
	}
	return l, nil
}

// open opens the file that is written to. A crash in the middle of a line leaves half
// of one; the next record must not become a part of it.
func (l *Log) open() error {
	fd, err := unix.Openat(int(l.dir.Fd()), Name, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: l.dir.Name() + "/" + Name, Err: err}
	}
	f := os.NewFile(uintptr(fd), l.dir.Name()+"/"+Name)
	info, err := f.Stat()
	if err == nil {
		err = l.owned(f)
	}
	if err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			_, err = f.Write([]byte{'\n'})
		}
	}
	if err == nil {
		err = l.dir.Sync() // the name is as durable as the lines
	}
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, info.Size()
	return nil
}

func (l *Log) owned(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	kind := st.Mode & unix.S_IFMT
	if st.Uid != l.uid || st.Mode&0o077 != 0 || kind != unix.S_IFREG && kind != unix.S_IFDIR || kind == unix.S_IFREG && st.Nlink != 1 {
		return fmt.Errorf("%q belongs to uid %d with mode %04o and %d names: want uid %d's alone", f.Name(), st.Uid, st.Mode&0o7777, st.Nlink, l.uid)
	}
	return nil
}

// Write appends one record and returns when it is on the disk. Where the file has
// reached its size it becomes the first of the older ones before.
func (l *Log) Write(r Record) error {
	line, err := r.line(time.Now())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		if err := l.open(); err != nil { // a rotation that failed half-way
			return err
		}
	}
	if l.size > 0 && l.size+int64(len(line)) > l.keep.MaxBytes {
		if err := l.rotate(); err != nil {
			return fmt.Errorf("rotate %s: %w", Name, err)
		}
	}
	n, err := l.f.Write(line)
	l.size += int64(n)
	if err == nil {
		err = l.f.Sync()
	}
	if err != nil {
		// What is there is not known: it is opened anew, and half a line is ended.
		l.f.Close()
		l.f = nil
	}
	return err
}

// rotate moves the files on, the oldest first, so that a crash between two steps loses
// none but the one that is beyond the bound.
func (l *Log) rotate() error {
	l.f.Close()
	l.f = nil
	dir := int(l.dir.Fd())
	if err := unix.Unlinkat(dir, l.name(l.keep.Keep), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	for n := l.keep.Keep - 1; n >= 0; n-- {
		if err := unix.Renameat(dir, l.name(n), dir, l.name(n+1)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	// Files beyond a bound that was lowered.
	for n := l.keep.Keep + 1; n <= MostKeep; n++ {
		if err := unix.Unlinkat(dir, l.name(n), 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return l.open()
}

func (l *Log) name(n int) string {
	if n == 0 {
		return Name
	}
	return fmt.Sprintf("%s.%d", Name, n)
}

// Retain changes how much is kept, from the next rotation on.
func (l *Log) Retain(keep Retention) error {
	if err := keep.Check(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep = keep
	return nil
}

// Close ends the log.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f.Close()
	}
	l.dir.Close()
}
