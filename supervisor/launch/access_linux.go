package launch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
	"postern/supervisor/owned"
)

// Bounds of watching the access policy.
const (
	accessTick  = 2 * time.Second // between looks at a file nobody told about
	watchBuffer = 64 << 10
)

// readAccess reads the access policy as it is now. A file that somebody else could have
// written, a link, and one that is too long are errors, and an error is part of what the
// authority is told: it denies whom the file governs.
func readAccess(path string, now time.Time) order.Access {
	a := order.Access{Path: path, At: now.UnixMilli()}
	if path == "" {
		return order.Access{}
	}
	raw, err := owned.Read(path, access.MaxDocument)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return a
	case err != nil:
		a.Present, a.Error = true, err.Error()
		return a
	case len(bytes.TrimSpace(raw)) == 0:
		// What a full disk or a writer that was ended leaves behind, and nobody's decision.
		a.Present, a.Error = true, fmt.Sprintf("%q is empty; %s", path, declaresNothing)
		return a
	}
	a.Present, a.Document, a.Digest = true, raw, digestOf(raw)
	return a
}

func digestOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// declaresNothing is how an operator says that there is to be no policy: by a file that
// can be told from one that was lost.
const declaresNothing = `put it back, or write "channels: {}" into it if it is to declare nothing`

// sameAccess tells whether two looks found the same.
func sameAccess(a, b order.Access) bool {
	return a.Present == b.Present && a.Error == b.Error && a.Digest == b.Digest
}

// found takes what a look found, unless it is what is known already. A file that was
// there and is gone is not "no policy": that would give back what it took away. One that
// could not be looked for, and never was there, heals when it can be.
//
// Preconditions: s.change is held.
func (s *Supervisor) found(ctx context.Context, a order.Access) api.Cut {
	s.mu.Lock()
	was := s.access
	first := !s.accessWas && isThere(a)
	s.accessWas = s.accessWas || first
	a = s.unlessGone(a)
	if sameAccess(a, was) {
		s.mu.Unlock()
		return api.Cut{Stands: []api.OpenCall{}}
	}
	s.access = a
	s.mu.Unlock()
	if first {
		if err := s.file.keepSeen(a.Path); err != nil {
			s.cfg.Log.Error("after a restart nothing will tell that the access policy was there", keyError, err)
		}
	}
	if a.Error != "" {
		s.cfg.Log.Error("the access policy cannot be read, and whom it governs is denied", keyError, a.Error)
	} else {
		p, mistakes := access.Parse(a.Document)
		s.cfg.Log.Info("the access policy was read", keyDigest, a.Digest)
		for _, m := range mistakes {
			s.cfg.Log.Warn("the access policy has a mistake", keyText, a.Path+":"+m.String())
		}
		if why, broken := p.Broken(); broken {
			s.cfg.Log.Error("the access policy cannot be used, and whom it governs is denied", keyText, a.Path+": "+why)
		}
	}
	raw, err := s.told()
	if err != nil { // nobody is told, and so nobody may go on by what was told before
		s.cfg.Log.Error("the access policy could not be told", keyError, err)
		_, l := s.now()
		if l != nil {
			l.a.kill("it cannot be told of the access policy")
		}
		return api.Cut{Stands: []api.OpenCall{}, Note: cutEnded}
	}
	return s.push(ctx, raw, true)
}

// unlessGone takes a look that found no file as one that lost it, where there was one.
//
// Preconditions: s.mu is held, or nobody else has s.
func (s *Supervisor) unlessGone(a order.Access) order.Access {
	if !a.Present && s.accessWas {
		a.Present, a.Error = true, policyGone(a.Path)
	}
	return a
}

// isThere tells whether what a look found is a file, readable or not.
func isThere(a order.Access) bool {
	if !a.Present || a.Error == "" {
		return a.Present
	}
	_, err := os.Lstat(a.Path)
	return !errors.Is(err, os.ErrNotExist)
}

func policyGone(path string) string {
	return fmt.Sprintf("%q was there and is gone; %s", path, declaresNothing)
}

// watchAccess follows the file until ctx is done: what inotify tells at once, and a look
// at every tick for what it does not, such as a directory that was replaced.
func (s *Supervisor) watchAccess(ctx context.Context) error {
	if s.cfg.Access == "" {
		return nil
	}
	told := make(chan struct{}, 1)
	w, err := newWatch(s.cfg.Access, told)
	if err != nil {
		return err
	}
	defer w.close()
	tick := time.NewTicker(accessTick)
	defer tick.Stop()
	var change settling
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-told:
			change.begin(time.Now())
		case <-change.soon():
		case <-tick.C:
			w.add()
		}
		s.look(ctx, &change)
	}
}

// look reads the file, and takes what it finds once the file has been left alone: half of
// one that is being written could say less than it will, and admit or deny by that.
func (s *Supervisor) look(ctx context.Context, change *settling) {
	s.change.Lock()
	defer s.change.Unlock()
	began := time.Now()
	print := fingerprint(s.cfg.Access)
	a := readAccess(s.cfg.Access, time.Now())
	s.mu.Lock()
	was := s.access
	a = s.unlessGone(a)
	s.mu.Unlock()
	if sameAccess(a, was) {
		change.end() // an edit from here, or another that says the same
		return
	}
	if !change.quiet(print+a.Digest+a.Error, began, time.Now()) {
		return
	}
	change.end()
	// An editor has nobody to be refused: where it cannot be recorded, what it takes away
	// is taken away all the same.
	line := audit.Record{Actor: "root", Origin: "file " + s.cfg.Access, Action: "access file", Before: fileText(was), After: fileText(a)}
	if err := s.audit.Write(line); err != nil {
		s.cfg.Log.Error("a change of the access policy could not be recorded", keyError, err)
	}
	s.logCut(s.cfg.Access, s.found(ctx, a))
}

// fileText is a version of the file in a record, which holds nothing of what it says.
func fileText(a order.Access) string {
	switch {
	case a.Error == policyGone(a.Path), !a.Present:
		return "none"
	case a.Error != "":
		return "unreadable"
	}
	return "digest " + a.Digest
}

// watch is one inotify instance on the directory of a file.
type watch struct {
	f    *os.File
	dir  string
	name string
}

func newWatch(path string, told chan<- struct{}) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &watch{f: os.NewFile(uintptr(fd), "inotify"), dir: filepath.Dir(path), name: filepath.Base(path)}
	w.add()
	go w.run(told)
	return w, nil
}

// add watches the directory that has the name now; for one that is watched already it
// changes nothing. A directory that is not there is looked for at the next tick.
func (w *watch) add() {
	raw, err := w.f.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.InotifyAddWatch(int(fd), w.dir, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE|unix.IN_ATTRIB|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
	})
}

// run ends with the watch's file.
func (w *watch) run(told chan<- struct{}) {
	buf := make([]byte, watchBuffer)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		// An event names its file, padded with zeros; one without a name is the directory's.
		if text := string(buf[:n]); strings.Contains(text, w.name+"\x00") || n <= unix.SizeofInotifyEvent {
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}
}

func (w *watch) close() { w.f.Close() }

// accessState says what the policy is now and whether the authority decides by it.
func (s *Supervisor) accessState() (api.AccessState, *access.Policy) {
	s.mu.Lock()
	a, pushed, l := s.access, s.pushed, s.life
	s.mu.Unlock()
	out := api.AccessState{File: a.Path, Digest: a.Digest, Error: a.Error, Mistakes: []api.AccessMistake{}, At: a.At}
	if l != nil {
		l.a.mu.Lock()
		out.Deciding = l.a.acked >= pushed
		l.a.mu.Unlock()
	}
	p := policyOf(a)
	for _, m := range p.Mistakes() {
		out.Mistakes = append(out.Mistakes, api.AccessMistake{Line: m.Line, Key: m.Key, Text: m.Want, Warning: m.Warn})
	}
	if out.State = p.State(); out.Error == "" { // a file that cannot be read has its own
		out.Error = p.Trouble(a.Path)
	}
	return out, p
}

func policyOf(a order.Access) *access.Policy {
	switch {
	case a.Error != "":
		return access.Unreadable(access.Mistake{Want: a.Error})
	case !a.Present:
		return nil
	}
	p, _ := access.Parse(a.Document)
	return p
}

func (s *Supervisor) accessShow(r request) (any, *api.Refusal) {
	if _, refused := params[struct{}](r); refused != nil {
		return nil, refused
	}
	state, p := s.accessState()
	return api.AccessShowResult{AccessState: state, Modes: p.Modes().Names(), Rows: rows(p, "standard")}, nil
}

func (s *Supervisor) accessMatrix(r request) (any, *api.Refusal) {
	q, refused := params[api.AccessMatrixParams](r)
	if refused != nil {
		return nil, refused
	}
	profile, refused := executionProfile(q.ExecutionProfile)
	if refused != nil {
		return nil, refused
	}
	state, p := s.accessState()
	return api.AccessShowResult{AccessState: state, Modes: p.Modes().Names(), Rows: rows(p, profile)}, nil
}

// accessEdit is the one path by which the file is changed from here: the new document is
// made by the package that reads it, recorded, written beside, synced and renamed, and
// answered when the authority decides by it. A trial run ends before the record.
func (s *Supervisor) accessEdit(r request) (any, *api.Refusal) {
	q, refused := params[api.AccessEditParams](r)
	if refused != nil {
		return nil, refused
	}
	profile, refused := executionProfile(q.ExecutionProfile)
	if refused != nil {
		return nil, refused
	}
	s.change.Lock()
	defer s.change.Unlock()
	f, _ := s.now()
	if refused := f.frozen(r); refused != nil {
		return nil, refused
	}
	m, refused := mutation(q, f)
	if refused != nil {
		return nil, refused
	}
	if s.cfg.Access == "" {
		return nil, api.Refuse(refusal.AccessChange, "posternd was started without an access file.")
	}
	if !r.DryRun { // a trial run writes nothing, and so no lock either
		unlock, err := lockBeside(s.cfg.Access)
		if err != nil {
			return nil, api.Refuse(refusal.AccessChange, "%v.", err)
		}
		defer unlock()
	}
	s.mu.Lock()
	was := s.unlessGone(readAccess(s.cfg.Access, time.Now()))
	s.mu.Unlock()
	if was.Error != "" { // one that is gone too: a new file would say nothing of all whom it named
		return nil, api.Refuse(refusal.AccessUnavailable, "%s.", was.Error)
	}
	doc, change, err := access.Edit(was.Document, m)
	if err != nil {
		return nil, api.Refuse(refusal.AccessChange, "%v.", err)
	}
	before, now := policyOf(was), policyOf(order.Access{Present: true, Document: doc})
	out := api.AccessEditResult{Action: string(m.Action), Channel: m.Channel, Target: m.Target, Before: change.Before, After: change.After, Warnings: change.Warnings,
		File: s.cfg.Access, MatrixBefore: rows(before, profile), MatrixAfter: rows(now, profile), Cut: api.Cut{Stands: []api.OpenCall{}}}
	if r.DryRun {
		return out, nil
	}
	if out.Digest = digestOf(doc); out.Digest == was.Digest {
		return out, nil // nothing to change, and so nothing to record
	}
	target := m.Channel
	if m.Target != "" {
		target += ":" + access.Mask(m.Target)
	}
	line := record(r, target, change.Before, change.After, f.Version)
	line.Action = "access " + string(m.Action)
	if err := s.audit.Write(line); err != nil {
		return nil, api.Refuse(refusal.StoreUnavailable, "The change could not be recorded and was not made: %v.", err)
	}
	if err := replaceFile(s.cfg.Access, doc, was); err != nil {
		line.Failed = err.Error()
		if again := s.audit.Write(line); again != nil {
			s.cfg.Log.Error("a failed change stands in the audit as made", keyError, again, keyAction, r.Action)
		}
		return nil, refusedAs(err, refusal.StoreUnavailable)
	}
	out.Cut = s.found(r.ctx, readAccess(s.cfg.Access, time.Now()))
	out.Written = true
	return out, nil
}
