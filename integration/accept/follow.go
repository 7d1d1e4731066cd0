package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"postern/integration/rig"
)

// follower is postern activity --follow, as a person who watches runs it.
type follower struct {
	cmd   *exec.Cmd
	lines chan string
}

func (w *world) follow(p project) (*follower, error) {
	c := exec.Command(filepath.Join(w.Bin, "postern"), "--run-dir", w.RunDir, "activity", "--project", p.id, "--follow")
	c.SysProcAttr, c.Dir, c.Env = rig.As(aliceUID), "/", []string{"PATH=/usr/bin:/bin"}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	f := &follower{cmd: c, lines: make(chan string, 64)}
	go func() {
		defer close(f.lines)
		in := bufio.NewScanner(out)
		for in.Scan() {
			f.lines <- in.Text()
		}
	}()
	return f, nil
}

// until tells whether a line with this text came.
func (f *follower) until(text string) bool {
	late := time.After(stateWait)
	for {
		select {
		case line, ok := <-f.lines:
			if !ok {
				return false
			}
			if strings.Contains(line, text) {
				return true
			}
		case <-late:
			return false
		}
	}
}

func (f *follower) kill() {
	f.cmd.Process.Kill()
	for range f.lines { // to its end
	}
	f.cmd.Wait()
}
