package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/refusal"
	"postern/supervisor/api"
)

// What switches a terminal to its other screen without a cursor, and back.
const (
	screenOn  = "\x1b[?1049h\x1b[?25l"
	screenOff = "\x1b[0m\x1b[?25h\x1b[?1049l"
)

// keyWait is how long a read of the keyboard waits before it looks whether it should end.
const keyWait = 200 // milliseconds

// display is a screen to draw on and the keyboard beside it.
type display struct {
	in, out *os.File
	before  *unix.Termios // how the keyboard was; nil where there is none
}

// display returns the terminal that the output goes to, nil where it goes elsewhere.
func (a *app) display() *display {
	out, ok := a.out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	t := &display{out: out}
	if a.asks() {
		t.in = a.in
	}
	return t
}

// enter takes the other screen, and keys as they are pressed. Signals stay the
// terminal's: an interrupt comes as one.
func (t *display) enter() error {
	if t.in != nil {
		before, err := unix.IoctlGetTermios(int(t.in.Fd()), unix.TCGETS)
		if err != nil {
			return fmt.Errorf("read the terminal's mode: %w", err)
		}
		raw := *before
		raw.Lflag &^= unix.ICANON | unix.ECHO
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &raw); err != nil {
			return fmt.Errorf("set the terminal's mode: %w", err)
		}
		t.before = before
	}
	_, err := t.out.WriteString(screenOn)
	return err
}

// leave gives back what enter took. Twice is harmless.
func (t *display) leave() {
	t.out.WriteString(screenOff)
	if t.before != nil {
		_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, t.before)
		t.before = nil
	}
}

// size is how much there is to draw on; a terminal that does not know is a small one.
func (t *display) size() (columns, rows int) {
	w, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// keys sends what is pressed until ctx ends or the keyboard is gone.
func (t *display) keys(ctx context.Context, pressed chan<- byte) {
	if t.in == nil {
		return
	}
	fd := int(t.in.Fd())
	for ctx.Err() == nil {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, keyWait)
		if err != nil && err != unix.EINTR || n > 0 && poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		if n <= 0 {
			continue
		}
		var b [1]byte
		if n, err := unix.Read(fd, b[:]); n <= 0 && err != unix.EINTR && err != unix.EAGAIN {
			return
		} else if n <= 0 {
			continue
		}
		select {
		case pressed <- b[0]:
		case <-ctx.Done():
		}
	}
}

// live draws frames on a terminal until q or a signal.
func (t *top) live(ctx context.Context, term *display) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	defer signal.Stop(signals)
	f, err := t.look(ctx) // a refusal is told on the ordinary screen
	if err != nil {
		return err
	}
	defer term.leave()
	if err := term.enter(); err != nil {
		return err
	}
	pressed := make(chan byte)
	var reader sync.WaitGroup
	inner, stop := context.WithCancel(ctx)
	defer reader.Wait()
	defer stop()
	reader.Go(func() { term.keys(inner, pressed) })
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	trouble := ""
	for {
		if err := t.draw(term, f, trouble); err != nil {
			return err
		}
		look := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			look = true
		case s := <-signals:
			switch s {
			case syscall.SIGTSTP: // stop as everything does, with the terminal as it was
				term.leave()
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			case syscall.SIGCONT:
				term.leave()
				if err := term.enter(); err != nil {
					return err
				}
				look = true
			}
		case key := <-pressed:
			switch {
			case key == 'q' || key == 'Q':
				return nil
			case key == ' ':
				look = true
			case key == 'i':
				t.reverse = !t.reverse
			}
			for _, o := range topOrders {
				if o.key == key {
					t.sort, t.reverse = o.name, false
				}
			}
			f.Sort = t.sort
			t.order(f.Rows)
		}
		if !look {
			continue
		}
		next, err := t.look(ctx)
		var r *api.Refusal
		switch {
		case err == nil:
			f, trouble = next, ""
		case errors.As(err, &r) && (r.Code == refusal.Unreachable || r.Code == refusal.Draining || r.Code == refusal.Busy):
			trouble = r.Error() // it may come back
		default:
			return err
		}
	}
}

func (t *top) draw(term *display, f topFrame, trouble string) error {
	columns, rows := term.size()
	marked := os.Getenv("NO_COLOR") == ""
	lines := f.screen(columns, rows, trouble, marked)
	_, err := term.out.WriteString("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
	return err
}
