// Package artifact knows the bytes that calls have brought back: one file for each
// digest, and which projects hold it.
//
// It runs inside the authority, as user postern, in a directory of mode 0700. What it is
// given is a tool server's, passed on by a bridge: bytes, and a word about their type. It
// reads the first bytes to name the type itself, and trusts nothing else of them.
//
// Invariants:
//   - artifact-1: a file has exactly the bytes of its name's digest, whole and synced, before anyone is told of it.
//   - artifact-2: a file that no row holds is gone: at once when the last row goes, or at the next start.
//   - artifact-3: what is too much for a project, for the whole, or for the disk is not kept, and the reason is told.
//   - artifact-4: a type is one of a closed list; what the server says decides at most between text and bytes.
//   - artifact-5: whoever brings bytes never waits: one goroutine writes, and what it has no room for is refused.
//
// It knows no calls and no readers: rows are the store's, who may read is control's.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"postern/ids"
)

// Bounds of what is kept, beside those that root sets.
const (
	MaxWaiting = 64 << 20 // bytes that wait to be written, of all projects together
	MaxShare   = 32 << 20 // of them, those of one project
	Reserve    = 64 << 20 // bytes of the file system that artifacts leave to the records: without those no call is made
	MaxRows    = 1 << 16  // artifacts of one project, kept or not
	maxJobs    = 1024     // artifacts that wait to be written
)

// Dir is the name of the directory in the state directory.
const Dir = "artifacts"

// Why bytes are not kept. The words stand in records.
var (
	ErrBusy    = errors.New("too much was waiting to be written")
	ErrProject = errors.New("the project has as much as it may")
	ErrFull    = errors.New("the disk is nearly full")
	ErrWrite   = errors.New("it could not be written")
	ErrRead    = errors.New("it could not be read")
)

// Digest is the SHA-256 of an artifact's bytes.
type Digest = [sha256.Size]byte

// Held is one row's claim. One without bytes counts as a row alone.
type Held struct {
	Project ids.Project
	Digest  Digest
	Size    int64
	Missing bool
}

// Limits are root's; 0 is without an end.
type Limits struct {
	Project int64 // bytes of one project
	Total   int64 // of all; the oldest go first
}

// Kept is what became of the bytes that were brought.
type Kept struct {
	Digest Digest
	Type   string
	Err    error // one of those above; then nothing is held
}

// Keeper is the directory, open. Its methods may be called from any goroutine.
type Keeper struct {
	dir  string
	jobs chan job
	left error

	mu      sync.Mutex
	limits  Limits
	blobs   map[Digest]*blob
	used    map[ids.Project]int64 // bytes of what a project holds, each digest once
	rows    map[ids.Project]int
	total   int64
	waiting int64
	share   map[ids.Project]int64
}

type blob struct {
	size int64
	by   map[ids.Project]int // rows
}

type job struct {
	project ids.Project
	raw     []byte
	from    *os.File // of size bytes, instead of raw
	size    int64
	said    string
	done    func(Kept)
}

// Open opens or makes the directory in state, and removes what no row holds: halves that
// a crash left, and bytes whose row was never written or is gone.
func Open(state string, held []Held) (*Keeper, error) {
	k := &Keeper{dir: filepath.Join(state, Dir), jobs: make(chan job, maxJobs), blobs: map[Digest]*blob{}, used: map[ids.Project]int64{}, rows: map[ids.Project]int{}, share: map[ids.Project]int64{}}
	if err := os.Mkdir(k.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	fi, err := os.Lstat(k.dir)
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || st.Uid != uint32(os.Geteuid()) {
		return nil, fmt.Errorf("artifacts: %q with mode %v: it must be a directory of this user alone", k.dir, fi.Mode())
	}
	for _, h := range held {
		k.enterLocked(h)
	}
	k.left = k.sweep()
	return k, nil
}

// Left says what the sweep of Open could not remove, nil where nothing is left. It takes
// room, and harms nothing else.
func (k *Keeper) Left() error { return k.left }

// sweep removes files that no row holds.
func (k *Keeper) sweep() error {
	shelves, err := os.ReadDir(k.dir)
	if err != nil {
		return fmt.Errorf("artifacts: %w", err)
	}
	var errs []error
	for _, shelf := range shelves {
		at := filepath.Join(k.dir, shelf.Name())
		if !shelf.IsDir() {
			errs = append(errs, os.Remove(at))
			continue
		}
		files, err := os.ReadDir(at)
		errs = append(errs, err)
		for _, f := range files {
			d, ok := parse(f.Name())
			if b := k.blobs[d]; ok && b != nil && len(b.by) > 0 && f.Type().IsRegular() && strings.HasPrefix(f.Name(), shelf.Name()) {
				continue
			}
			errs = append(errs, os.Remove(filepath.Join(at, f.Name())))
		}
	}
	return errors.Join(errs...)
}

func parse(name string) (d Digest, ok bool) {
	raw, err := hex.DecodeString(name)
	return d, err == nil && len(raw) == len(d) && copy(d[:], raw) == len(d) && hex.EncodeToString(raw) == name
}

func (k *Keeper) path(d Digest) string {
	name := hex.EncodeToString(d[:])
	return filepath.Join(k.dir, name[:2], name)
}

// Run writes what was brought, one after the other, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-k.jobs:
			j.done(k.keep(j))
			k.mu.Lock()
			k.waitsLocked(j.project, -j.size)
			k.mu.Unlock()
		}
	}
}

// Limit sets what root allows from now on.
func (k *Keeper) Limit(l Limits) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limits = l
}

// Usage is what is held, for a report.
type Usage struct {
	Bytes          map[ids.Project]int64 // of what a project holds, each digest once
	Rows           map[ids.Project]int   // kept or not
	Total, Waiting int64
}

// Usage returns a copy.
func (k *Keeper) Usage() Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Usage{maps.Clone(k.used), maps.Clone(k.rows), k.total, k.waiting}
}

// Reserve makes room for so many bytes that are about to be brought for a project, or
// tells why there is none. Whoever gets it calls Bring or Release.
func (k *Keeper) Reserve(p ids.Project, size int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.waiting+size > MaxWaiting, k.share[p]+size > MaxShare:
		return ErrBusy
	case k.rows[p] >= MaxRows:
		return ErrProject
	}
	k.waitsLocked(p, size)
	return nil
}

// Release gives back what Reserve gave.
func (k *Keeper) Release(p ids.Project, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waitsLocked(p, -size)
}

func (k *Keeper) waitsLocked(p ids.Project, n int64) {
	k.waiting += n
	if k.share[p] += n; k.share[p] == 0 {
		delete(k.share, p)
	}
}

// Bring hands over bytes for which there is room; said is the server's word for their
// type. done is called once, on the writer's goroutine, when they are durable or not kept.
func (k *Keeper) Bring(p ids.Project, raw []byte, said string, done func(Kept)) {
	k.give(job{project: p, raw: raw, size: int64(len(raw)), said: said, done: done})
}

// BringFile is Bring for the first size bytes of a file of posternd's, which it closes.
func (k *Keeper) BringFile(p ids.Project, from *os.File, size int64, said string, done func(Kept)) {
	k.give(job{project: p, from: from, size: size, said: said, done: done})
}

func (k *Keeper) give(j job) {
	select {
	case k.jobs <- j:
	default: // many small ones
		k.Release(j.project, j.size)
		if j.from != nil {
			j.from.Close()
		}
		go j.done(Kept{Err: ErrBusy})
	}
}

// Note counts a row without bytes; false where the project has too many rows.
func (k *Keeper) Note(p ids.Project) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows[p] >= MaxRows {
		return false
	}
	k.rows[p]++
	return true
}

// keep writes bytes once and counts who holds them.
func (k *Keeper) keep(j job) Kept {
	if j.from != nil {
		defer j.from.Close()
		j.raw = make([]byte, j.size)
		if _, err := io.ReadFull(io.NewSectionReader(j.from, 0, j.size), j.raw); err != nil {
			return Kept{Err: fmt.Errorf("%w: %w", ErrRead, err)}
		}
	}
	h := Held{Project: j.project, Digest: sha256.Sum256(j.raw), Size: int64(len(j.raw))}
	k.mu.Lock()
	b := k.blobs[h.Digest]
	adds := b == nil
	if (adds || b.by[h.Project] == 0) && k.limits.Project > 0 && k.used[h.Project]+h.Size > k.limits.Project {
		k.mu.Unlock()
		return Kept{Err: ErrProject}
	}
	k.enterLocked(h) // from here on nobody removes the file
	k.mu.Unlock()
	if b != nil { // a row of a restored backup may have no file
		_, err := os.Lstat(k.path(h.Digest))
		adds = err != nil
	}
	if adds {
		if err := k.write(h.Digest, j.raw); err != nil {
			k.Drop(h)
			return Kept{Err: err}
		}
	}
	return Kept{Digest: h.Digest, Type: Type(j.raw, j.said)}
}

func (k *Keeper) enterLocked(h Held) {
	k.rows[h.Project]++
	if h.Missing {
		return
	}
	b := k.blobs[h.Digest]
	if b == nil {
		b = &blob{size: h.Size, by: map[ids.Project]int{}}
		k.blobs[h.Digest] = b
		k.total += h.Size
	}
	if b.by[h.Project]++; b.by[h.Project] == 1 {
		k.used[h.Project] += h.Size
	}
}

// Drop gives up what a row held, and removes the file with the last one. A file that
// cannot be removed is swept at the next start.
func (k *Keeper) Drop(h Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows[h.Project]--; k.rows[h.Project] <= 0 {
		delete(k.rows, h.Project)
	}
	b := k.blobs[h.Digest]
	if h.Missing || b == nil || b.by[h.Project] == 0 {
		return
	}
	if b.by[h.Project]--; b.by[h.Project] == 0 {
		delete(b.by, h.Project)
		if k.used[h.Project] -= h.Size; k.used[h.Project] <= 0 {
			delete(k.used, h.Project)
		}
	}
	if len(b.by) == 0 {
		delete(k.blobs, h.Digest)
		k.total -= b.size
		os.Remove(k.path(h.Digest)) // with the lock held: whoever brings the same bytes now writes them anew
	}
}

// Over tells that there is more than all projects together may have.
func (k *Keeper) Over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.limits.Total > 0 && k.total > k.limits.Total
}

// write makes the file, whole and synced or not at all.
func (k *Keeper) write(d Digest, raw []byte) (err error) {
	var room syscall.Statfs_t
	if err := syscall.Statfs(k.dir, &room); err != nil || room.Bavail*uint64(room.Bsize) < uint64(len(raw))+Reserve {
		return ErrFull
	}
	path := k.path(d)
	shelf := filepath.Dir(path)
	half := filepath.Join(shelf, "half")
	defer func() {
		if err != nil {
			os.Remove(half)
			kind := ErrWrite
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				kind = ErrFull
			}
			err = fmt.Errorf("%w: %w", kind, err)
		}
	}()
	if err := os.Mkdir(shelf, 0o700); err == nil {
		if err := syncDir(k.dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	os.Remove(half) // of a writer that was killed
	f, err := os.OpenFile(half, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(half, path); err != nil {
		return err
	}
	return syncDir(shelf)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns at most so many bytes of an artifact from a place on. Bytes that are gone,
// as after a backup was restored, are fs.ErrNotExist.
func (k *Keeper) Read(d Digest, at int64, most int) ([]byte, error) {
	f, err := os.OpenFile(k.path(d), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, most)
	n, err := f.ReadAt(buf, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf[:n], err
}
