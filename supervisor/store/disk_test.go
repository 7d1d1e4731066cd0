package store

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// disk is a file system that can fail. SQLite's every write, sync and read passes
// through it to real files; for each piece of 512 bytes it remembers what a sync has
// made durable, and every content since. When its power goes, nothing works any more,
// and after leaves what a disk may have kept: of each piece that was not synced any of
// its contents, independent of all others, so that writes are lost, reordered and torn.
//
// A VFS was chosen over dm-log-writes and FUSE because it needs neither a module nor
// root, cuts the power at an operation that can be counted and so repeated, and tears
// within a page. What it does not see is the kernel's own order of writes to one file
// system; it assumes none at all, which is worse than any.
type disk struct {
	vfs.VFS
	name string
	dir  string

	mu     sync.Mutex
	rng    *rand.Rand
	files  map[string]*contents
	cut    int64 // the power goes with this write or sync; 0: never
	ops    int64
	dead   bool
	lies   bool            // syncs are confirmed and nothing is done
	faults map[fault]error // what goes wrong from now on
}

// fault is one kind of operation on one file.
type fault struct{ op, file string }

const piece = 512

// contents is what is known of one file since its last sync.
type contents struct {
	pieces map[int64][][]byte // the durable content first, then each later one; nil is past the end
	size   int64              // durable
}

var disks atomic.Int64

// newDisk makes a disk over the directory dir, and its name as a VFS.
func newDisk(t testing.TB, dir string, seed uint64) *disk {
	d := &disk{VFS: vfs.Find(""), name: fmt.Sprintf("disk-%d", disks.Add(1)), dir: dir, rng: rand.New(rand.NewPCG(seed, 1)), files: map[string]*contents{}, faults: map[fault]error{}}
	vfs.Register(d.name, d)
	t.Cleanup(func() { vfs.Unregister(d.name) })
	return d
}

var errPower = errors.New("the power is off")

// step counts one operation; off tells that the power goes with it, or is gone.
func (d *disk) step(op, file string, counts bool) (err error, off bool) {
	if d.dead {
		return errPower, true
	}
	if counts {
		if d.ops++; d.ops == d.cut {
			d.dead = true
			return errPower, true
		}
	}
	return d.faults[fault{op, file}], false
}

// fail has every operation of a kind on a file fail; nil lets it work again.
func (d *disk) fail(op, file string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[fault{op, file}] = err
}

func (d *disk) Open(string, vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return nil, 0, sqlite3.CANTOPEN
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := d.VFS.(vfs.VFSFilename).OpenFilename(name, flags)
	if err != nil || name.String() == "" {
		return f, flags, err
	}
	base := filepath.Base(name.String())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		f.Close()
		return nil, 0, errPower
	}
	if d.files[base] == nil {
		size, err := f.Size()
		if err != nil {
			return nil, 0, err
		}
		d.files[base] = &contents{pieces: map[int64][][]byte{}, size: size}
	}
	return &diskFile{File: f, d: d, base: base, c: d.files[base]}, flags, nil
}

func (d *disk) Delete(name string, syncDir bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errPower // the name stays too
	}
	delete(d.files, filepath.Base(name))
	return d.VFS.Delete(name, syncDir)
}

type diskFile struct {
	vfs.File
	d    *disk
	base string
	c    *contents
}

func (f *diskFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	err, _ := f.d.step("read", f.base, false)
	f.d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err, off2 := f.d.step("write", f.base, true)
	if err != nil && !off2 {
		return 0, err
	}
	if off2 && f.d.ops != f.d.cut {
		return 0, err
	}
	// The write with which the power goes may reach the disk too, whole or in part.
	first, last := off/piece, (off+int64(len(p))-1)/piece
	for n := first; n <= last; n++ {
		if f.c.pieces[n] == nil {
			f.c.pieces[n] = [][]byte{f.piece(n)}
		}
	}
	if n, err := f.File.WriteAt(p, off); err != nil {
		return n, err
	}
	for n := first; n <= last; n++ {
		f.c.pieces[n] = append(f.c.pieces[n], f.piece(n))
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// piece reads one piece of the file as it is; nil is past its end.
func (f *diskFile) piece(n int64) []byte {
	b := make([]byte, piece)
	got, err := f.File.ReadAt(b, n*piece)
	if got == 0 || err != nil && err != io.EOF {
		return nil
	}
	return b[:got]
}

func (f *diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err, _ := f.d.step("write", f.base, true); err != nil {
		return err
	}
	f.c.size = min(f.c.size, size)
	for n := range f.c.pieces {
		if n*piece >= size {
			delete(f.c.pieces, n)
		}
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Sync(flags vfs.SyncFlag) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err, _ := f.d.step("sync", f.base, true); err != nil {
		return err
	}
	if f.d.lies {
		return nil
	}
	if err := f.File.Sync(flags); err != nil {
		return err
	}
	size, err := f.File.Size()
	f.c.size = max(size, f.c.size)
	clear(f.c.pieces)
	return err
}

// after writes into dir what the disk holds when the power is back.
func (d *disk) after(t testing.TB, dir string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-shm") {
			continue // it is made anew from the log
		}
		raw, err := os.ReadFile(filepath.Join(d.dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if c := d.files[e.Name()]; c != nil {
			raw = d.kept(c, raw)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// kept makes one file's content: each piece that was not synced is one of what it was.
func (d *disk) kept(c *contents, raw []byte) []byte {
	size := int64(len(raw))
	if size > c.size && d.rng.IntN(2) == 0 {
		size = c.size + d.rng.Int64N(size-c.size+1) // the new length may not be there yet
	}
	// Half of the times most are lost, half of the times most are there.
	keep := d.rng.IntN(100)
	for n, was := range c.pieces {
		b := was[0]
		if d.rng.IntN(100) < keep {
			b = was[d.rng.IntN(len(was))]
		}
		at := n * piece
		if at >= int64(len(raw)) {
			continue
		}
		end := min(at+piece, int64(len(raw)))
		clear(raw[at:end])
		copy(raw[at:end], b)
	}
	return raw[:size]
}
