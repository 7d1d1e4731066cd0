package launch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Names in the store beside the copies, which are called by their digest. The digest of
// a copy is that of its list, and a profile's that of its canonical form: whoever reads
// one can tell whether it is what it is called.
const (
	halfPrefix = ".new-" // a copy that is being made
	oldPrefix  = ".old-" // what is being removed
	listSuffix = ".files"
	formSuffix = ".profile"
)

// maxListBytes bounds the list of one package.
const maxListBytes = 64 << 20

// packages is the store of ingested copies. A copy is there for as long as the current
// revision of a server names it, or something that runs or is being registered needs it.
// Its list outlives it, for as long as the revision is remembered.
//
// A copy is taken away in one step, under the lock under which it is asked for: a
// launch has a whole one or none.
type packages struct {
	store  *os.File
	unused chan struct{} // told when something may have become unneeded

	mu   sync.Mutex
	held map[string]int // by digest: registrations in work, launches and jails
}

func openPackages(store *os.File) *packages {
	return &packages{store: store, unused: make(chan struct{}, 1), held: map[string]int{}}
}

// hold keeps a copy from being removed until the function that it returns is called;
// a second call of that does nothing.
func (p *packages) hold(digest string) (letGo func()) {
	if digest == "" {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holdLocked(digest)
}

func (p *packages) holdLocked(digest string) (letGo func()) {
	p.held[digest]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held[digest]--; p.held[digest] <= 0 {
			delete(p.held, digest)
			p.wake()
		}
	})
}

func (p *packages) wake() {
	select {
	case p.unused <- struct{}{}:
	default:
	}
}

// publish gives a whole copy and its list their names, and holds it. An equal copy that
// is there already stays; fresh tells whether this one took its place.
func (p *packages) publish(half, digest string) (fresh bool, letGo func(), err error) {
	store := int(p.store.Fd())
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := unix.Renameat(store, half+listSuffix, store, digest+listSuffix); err != nil {
		return false, nil, os.NewSyscallError("renameat", err)
	}
	err = unix.Renameat2(store, half, store, digest, unix.RENAME_NOREPLACE)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return false, nil, os.NewSyscallError("renameat2", err)
	}
	if syncErr := p.store.Sync(); syncErr != nil {
		return false, nil, syncErr
	}
	return err == nil, p.holdLocked(digest), nil
}

// keepProfile remembers the content of a profile that a revision is made with.
func (p *packages) keepProfile(profile spec.Profile) error {
	raw, err := spec.Canonical(profile)
	if err != nil {
		return err
	}
	store, name := int(p.store.Fd()), profile.Digest+formSuffix
	if unix.Faccessat(store, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	half := halfPrefix + rand.Text()
	fd, err := unix.Openat(store, half, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	f := os.NewFile(uintptr(fd), half)
	defer f.Close()
	if _, err = f.Write(raw); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.NewSyscallError("renameat", unix.Renameat(store, half, store, name))
	}
	if err != nil {
		unix.Unlinkat(store, half, 0)
	}
	return err
}

// keepForms remembers the content of every profile that a current revision was made with.
func (s *Supervisor) keepForms(f Facts, profiles map[string]spec.Profile) error {
	for _, server := range f.Servers {
		v := server.Current()
		if p, ok := profiles[v.Profile]; ok && !server.Deleted && p.Digest == v.ProfileDigest {
			if err := s.packages.keepProfile(p); err != nil {
				return fmt.Errorf("the content of profile %q could not be kept: %w", v.Profile, err)
			}
		}
	}
	return nil
}

// read returns a list or a form whose digest is its name. One that is not there was
// forgotten, or never made.
func (p *packages) read(digest, suffix string) ([]byte, error) {
	f, err := openAt(int(p.store.Fd()), digest+suffix, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxListBytes+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("%q is not what it is called", f.Name())
	}
	return raw, nil
}

// inStore names what the registrations still need: the copies of what may run, and the
// lists and forms of every revision that is remembered.
func (f Facts) inStore() map[string]bool {
	out := map[string]bool{}
	for _, s := range f.Servers {
		if s.Deleted {
			continue
		}
		for _, v := range s.Revisions {
			out[v.ProfileDigest+formSuffix] = true
			if v.Package != "" {
				out[v.Package+listSuffix] = true
			}
		}
		if now := s.Current().Package; now != "" {
			out[now] = true
		}
	}
	return out
}

// put is one entry of the store that is taken out of it, or would be.
type put struct {
	name string
	copy bool // of a package, and no list or form
}

// collect takes everything out of the store that nothing needs, and tells what. A dry
// run only tells. What was taken out is removed by sweep.
//
// Preconditions: the facts that needed comes from do not change meanwhile.
func (p *packages) collect(needed map[string]bool, dry bool) (out []put, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := int(p.store.Fd())
	names, err := namesOf(store, maxStored)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		digest := strings.TrimSuffix(name, listSuffix)
		if needed[name] || p.held[digest] > 0 || strings.HasPrefix(name, halfPrefix) || strings.HasPrefix(name, oldPrefix) {
			continue
		}
		if !dry {
			if err := unix.Renameat2(store, name, store, oldPrefix+rand.Text(), unix.RENAME_NOREPLACE); err != nil {
				return out, &os.LinkError{Op: "rename", Old: filepath.Join(p.store.Name(), name), New: oldPrefix, Err: err}
			}
		}
		out = append(out, put{name, name == digest && !strings.HasSuffix(name, formSuffix)})
	}
	return out, nil
}

// maxStored bounds the names of the store that are looked at.
const maxStored = 3 * maxServers * maxRevisions

// sweep removes what was taken out of the store, now or before a crash.
func (p *packages) sweep(ctx context.Context) error {
	names, err := namesOf(int(p.store.Fd()), maxStored)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		for done := !strings.HasPrefix(name, oldPrefix); !done && ctx.Err() == nil; {
			if done, err = removeTree(ctx, int(p.store.Fd()), name, removeTurn); err != nil {
				errs = append(errs, &os.PathError{Op: "remove", Path: filepath.Join(p.store.Name(), name), Err: err})
				break
			}
		}
	}
	return errors.Join(errs...)
}

// begin sets aside the half copies of a crash and what no registration needs. It is
// called before anything is launched or registered.
func (p *packages) begin(f Facts) error {
	names, err := namesOf(int(p.store.Fd()), maxStored)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, halfPrefix) {
			if err := unix.Renameat2(int(p.store.Fd()), name, int(p.store.Fd()), oldPrefix+rand.Text(), unix.RENAME_NOREPLACE); err != nil {
				return os.NewSyscallError("renameat2", err)
			}
		}
	}
	_, err = p.collect(f.inStore(), false)
	p.wake()
	return err
}

// keepCollected takes out what has become unneeded, and removes it, until ctx ends.
func (s *Supervisor) keepCollected(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.packages.unused:
		}
		gone, err := s.collectPackages(false)
		for _, g := range gone {
			if g.copy {
				s.cfg.Log.Info("a package that nothing runs any more is removed", keyDigest, g.name)
			}
		}
		if err = errors.Join(err, s.packages.sweep(ctx)); err != nil {
			s.cfg.Log.Error("unused packages stay", keyError, err)
		}
	}
}

// collectPackages is collect by the facts as they are, which do not change meanwhile.
func (s *Supervisor) collectPackages(dry bool) ([]put, error) {
	s.change.Lock()
	defer s.change.Unlock()
	f, _ := s.now()
	return s.packages.collect(f.inStore(), dry)
}

// copies lists the copies in the store with their sizes. One that is removed meanwhile
// is as large as what was left of it.
func (p *packages) copies() (map[string]sized, error) {
	names, err := namesOf(int(p.store.Fd()), maxStored)
	if err != nil {
		return nil, err
	}
	out := map[string]sized{}
	for _, name := range names {
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, listSuffix) || strings.HasSuffix(name, formSuffix) {
			continue
		}
		var n sized
		filepath.WalkDir(filepath.Join(p.store.Name(), name), func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil && !d.IsDir() {
				n.files++
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					n.bytes += st.Blocks * 512
				}
			}
			return nil
		})
		out[name] = n
	}
	return out, nil
}

type sized struct {
	files int
	bytes int64 // on the disk
}

// users tells which live servers have a copy as their current one.
func (f Facts) users(digest string) (labels []string) {
	for _, s := range f.Servers {
		if !s.Deleted && s.Current().Package == digest {
			labels = append(labels, s.Label)
		}
	}
	slices.Sort(labels)
	return labels
}

// users tells how many launches, jails and registrations in work have a copy.
func (p *packages) users(digest string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[digest]
}
