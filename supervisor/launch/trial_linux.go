package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/jail"
	"postern/jail/spec"
	"postern/profiles"
)

const (
	trialWait = 30 * time.Second // for the program in the jail that is tried to say that it runs
	maxWords  = 4 << 10          // bytes that are read of what it wrote before it ended
)

// tryJail starts one jail and waits until its program has spoken. What nobody has thought
// of (a directive, a security module, a device that is missing) takes something from
// every jail here, and is told before anybody relies on it, with the step that failed.
//
// The program is Postern's own bridge, under its own filter, so that nothing an operator
// has registered decides whether posternd starts. It gets what the shipped profiles ask
// for besides: devices, /proc, a /tmp, and the largest of their limits.
func (s *Supervisor) tryJail(ctx context.Context) error {
	profile, _ := s.profile(BridgeProfile)
	profile.Devices, profile.Proc = true, true
	shipped, err := profiles.Builtin()
	if err != nil {
		return err
	}
	for _, p := range shipped {
		profile.Limits.Nofile = max(profile.Limits.Nofile, p.Limits.Nofile)
		profile.Limits.FsizeBytes = max(profile.Limits.FsizeBytes, p.Limits.FsizeBytes)
		profile.Limits.TmpBytes = max(profile.Limits.TmpBytes, p.Limits.TmpBytes)
		profile.Limits.TmpInodes = max(profile.Limits.TmpInodes, p.Limits.TmpInodes)
	}
	how, err := s.runTrial(ctx, profile)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	err = fmt.Errorf("a jail was tried, and does not come about, as none would: %s: %w%s", how, err, addedTo(s.unit))
	if passing(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

// errNoWord is what a jail is refused with whose program has not spoken in time.
var errNoWord = errors.New("its program has not spoken in time")

// runTrial starts the jail, and ends it. With an error it tells what was being done.
func (s *Supervisor) runTrial(ctx context.Context, profile spec.Profile) (doing string, err error) {
	uid, err := s.leases.take()
	if err != nil {
		return "a uid for it", err
	}
	mine, theirs, err := wirePair()
	if err != nil {
		s.leases.giveBack(uid)
		return "its wire", err
	}
	defer mine.Close()
	words, stderr, err := os.Pipe()
	if err != nil {
		theirs.Close()
		s.leases.giveBack(uid)
		return "its output", err
	}
	defer words.Close()
	p, err := s.launcher.Launch(jail.Request{Name: string(newID[ids.Jail](time.Now())), Profile: profile, UID: uid, GID: uid, Argv: []string{spec.ProgramFile}, Program: s.bridge, Stderr: stderr, Extra: []*os.File{theirs}})
	theirs.Close()
	stderr.Close()
	if err != nil {
		s.leases.giveBack(uid)
		var step *jail.StepError
		if errors.As(err, &step) {
			return fmt.Sprintf("step %q failed", step.Step), err
		}
		return "its start", err
	}
	spoken := hears(ctx, mine, trialWait)
	if errors.Is(spoken, errEnded) { // by itself: only then does its end tell something
		select {
		case <-p.Done():
			spoken = fmt.Errorf("it ended with %s, and wrote %q", howEnded(p.Exit()), firstWords(words))
		case <-time.After(goneWait):
		}
	}
	p.Kill()
	select {
	case <-p.Gone():
		s.leases.giveBack(uid)
	case <-time.After(goneWait): // its uid stays leased
		return "its end", errors.New("it cannot be emptied")
	}
	if spoken != nil {
		return "its program started", spoken
	}
	return "", nil
}

// errEnded is returned by hears where nobody holds the other end any more.
var errEnded = errors.New("the other end is closed")

// hears waits for one message on a wire. What it says is not read.
func hears(ctx context.Context, wire *os.File, wait time.Duration) error {
	const look = 100 * time.Millisecond // how often ctx is asked
	for end := time.Now().Add(wait); time.Now().Before(end) && ctx.Err() == nil; {
		fds := []unix.PollFd{{Fd: int32(wire.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(look.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		} else if n <= 0 {
			continue
		}
		n, _, err := unix.Recvfrom(int(wire.Fd()), make([]byte, 1), unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil && !errors.Is(err, unix.ECONNRESET):
			return os.NewSyscallError("recvfrom", err)
		case n <= 0:
			return errEnded
		default:
			return nil
		}
	}
	return errNoWord
}

// howEnded says how a program ended that was to live.
func howEnded(e jail.Exit) string {
	switch {
	case e.OOM:
		return "the memory of its group used up"
	case e.Filtered:
		return fmt.Sprintf("the system call %q, which its filter forbids", e.Call)
	case e.Signal != 0:
		return fmt.Sprintf("signal %d", e.Signal)
	}
	return fmt.Sprintf("status %d", e.Code)
}

// firstWords is the first line of what a program that has ended wrote.
func firstWords(f *os.File) string {
	if err := f.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return ""
	}
	raw := make([]byte, maxWords)
	n, _ := f.Read(raw)
	line, _, _ := strings.Cut(string(raw[:n]), "\n")
	return line
}

// passing tells whether another start may find it otherwise: a host that is out of
// something, or too slow, is not a mistake of its configuration.
func passing(err error) bool {
	for _, e := range []error{errNoWord, unix.EAGAIN, unix.ENOMEM, unix.ENFILE, unix.EMFILE, unix.EINTR, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	var step *jail.StepError // no report in time is one without a number
	return errors.As(err, &step) && step.Step == "report" && step.Errno == 0
}
