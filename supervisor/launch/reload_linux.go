package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"postern/jail/spec"
	"postern/supervisor/api"
	"postern/supervisor/audit"
)

// maxWatched bounds the files of one directory that are looked at for changes.
const maxWatched = 4096

// settings are those that hold now.
func (s *Supervisor) settings() settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

// profile returns the profile that has the name now.
func (s *Supervisor) profile(name string) (spec.Profile, bool) {
	p, ok := s.settings().profiles[name]
	return p, ok
}

// watchConfig follows postern.yaml and the profiles until ctx is done: soon where a
// hangup asks for it, and by a look at every tick. A file that was written a moment ago
// is left for the next look, and what was read while one was written is not believed:
// half of one, or none of it yet, could say less than it will.
func (s *Supervisor) watchConfig(ctx context.Context) error {
	if s.cfg.Reload == nil {
		return nil
	}
	tick := time.NewTicker(accessTick)
	defer tick.Stop()
	var last string // nothing, so that what was changed during the start is seen
	var asked bool  // a hangup waits for its look, whether anything changed or not
	var change settling
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.cfg.Hangup:
			asked = true
			change.begin(time.Now())
		case <-change.soon():
		case <-tick.C:
		}
		began := time.Now()
		now := s.fingerprint()
		if now == last && !asked {
			change.end()
			continue
		}
		if !change.quiet(now, began, time.Now()) {
			continue
		}
		next, err := s.cfg.Reload()
		if then := s.fingerprint(); then != now {
			continue
		}
		asked = false
		change.end()
		// Ready is said once the authority is; a reload before that is part of the start.
		served := s.served.Load()
		if served {
			s.tell(Notice{Reloading: true})
		}
		if s.reload(ctx, next, err) {
			last = now
		}
		if served {
			s.tell(Notice{Ready: true})
		}
	}
}

// fingerprint tells whether a file of the configuration was changed.
func (s *Supervisor) fingerprint() string {
	return fmt.Sprintf("%s%v", fingerprint(s.cfg.File, s.cfg.DropInDir, s.cfg.ProfileDir), s.cfg.Misnamed())
}

// fingerprint tells whether a file was changed, without reading one.
func fingerprint(file string, dirs ...string) string {
	var b strings.Builder
	add := func(path string, info fs.FileInfo, err error) {
		if err != nil {
			fmt.Fprintf(&b, "%q: %v\n", path, err)
			return
		}
		st, _ := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%q %d %d %o %d %d %v %v\n", path, st.Ino, st.Size, st.Mode, st.Uid, st.Nlink, st.Mtim, st.Ctim)
	}
	info, err := os.Lstat(file)
	add(file, info, err)
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		info, err := os.Lstat(dir)
		add(dir, info, err)
		entries, _ := os.ReadDir(dir)
		for _, e := range entries[:min(len(entries), maxWatched)] {
			info, err := e.Info()
			add(e.Name(), info, err)
		}
	}
	return b.String()
}

// reload takes what postern.yaml and the profiles say, or why they could not be read, as
// far as it may change while posternd runs: as one change of the root facts, durable,
// recorded, pushed, and decided by when it returns. One mistake anywhere leaves everything
// as it was and is shown until it is mended: so a bad file never widens, and never ends a
// task for ever by a slip. It tells false where the same files are to be tried again.
func (s *Supervisor) reload(ctx context.Context, next Config, err error) bool {
	s.change.Lock()
	defer s.change.Unlock()
	switch {
	case err != nil:
	case s.hadFile && !next.FileFound:
		err = fmt.Errorf("%q was there and is gone; restart posternd if it is to be without one", s.cfg.File)
	default:
		err = errors.Join(next.Check()...)
	}
	was := s.settings()
	now := settingsOf(next)
	f, _ := s.now()
	if err == nil {
		merged := s.cfg.with(now)
		err = errors.Join(slices.Concat(merged.Check(), merged.checkProfiles(), merged.checkFacts(f))...)
	}
	if err != nil {
		s.configured(api.ConfigState{Error: err.Error()})
		s.cfg.Log.Error("the configuration has mistakes; what it said before still holds", keyError, err)
		return true
	}
	s.hadFile = next.FileFound
	diff := was.differences(now)
	var cut *api.Cut
	if len(diff) > 0 {
		cut, err = s.takeSettings(ctx, f, now, diff)
	}
	if err != nil {
		s.configured(api.ConfigState{Error: err.Error()})
		s.cfg.Log.Error("the configuration could not be taken, and is tried again", keyError, err)
		return false
	}
	restart := needRestart(s.cfg, next)
	s.configured(api.ConfigState{Restart: restart, Cut: cut})
	for _, d := range diff {
		s.cfg.Log.Info("the configuration changed", keyKey, d.key, keyBefore, d.before, keyAfter, d.after)
	}
	for _, text := range restart {
		s.cfg.Log.Warn("the configuration needs a restart", keyText, text)
	}
	return true
}

// takeSettings makes the settings those that hold. Registrations whose profile has new
// content get a new revision in the same step.
//
// Preconditions: s.change is held.
func (s *Supervisor) takeSettings(ctx context.Context, f Facts, n settings, diff []difference) (*api.Cut, error) {
	g, changed, err := f.followProfiles(n.profiles, time.Now())
	if err != nil {
		return nil, err
	}
	if !changed {
		g = f.next() // records name the version they were decided by
	}
	if err := s.keepForms(g, n.profiles); err != nil {
		return nil, err
	}
	raw, refused := s.encodedBy(g, n, "")
	if refused != nil {
		return nil, refused
	}
	target, before, after := summary(diff)
	line := audit.Record{Actor: "root", Origin: "file " + s.cfg.File, Action: "config reload", Target: target, Before: before, After: after, Version: g.Version}
	if err := s.audit.Write(line); err != nil {
		return nil, fmt.Errorf("the change could not be recorded: %w", err)
	}
	if err := s.file.save(g); err != nil {
		line.Failed = err.Error()
		return nil, errors.Join(fmt.Errorf("the root facts could not be written: %w", err), s.audit.Write(line))
	}
	s.mu.Lock()
	s.live, s.facts = n, g
	s.mu.Unlock()
	cut := s.push(ctx, raw, true)
	s.logCut(s.cfg.File, cut)
	return &cut, s.audit.Retain(n.audit)
}

// configured keeps what is shown of the last reload.
func (s *Supervisor) configured(c api.ConfigState) {
	c.File, c.At = s.cfg.File, time.Now().UnixMilli()
	s.mu.Lock()
	s.config = c
	s.mu.Unlock()
}
