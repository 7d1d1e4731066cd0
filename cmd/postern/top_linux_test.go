package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/api"
)

// pty is a terminal of a test: what the program draws is collected.
type pty struct {
	t             *testing.T
	master, slave *os.File
	mu            sync.Mutex
	drawn         bytes.Buffer
	more          chan struct{}
}

func openPty(t *testing.T, columns, rows uint16) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, master: master, slave: slave, more: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.drawn.Write(buf[:n])
			p.mu.Unlock()
			select {
			case p.more <- struct{}{}:
			default:
			}
		}
	}()
	return p
}

// shows waits until what was drawn since the last wait holds text, and returns it.
func (p *pty) shows(text string) string {
	p.t.Helper()
	end := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		got := p.drawn.String()
		if strings.Contains(got, text) {
			p.drawn.Reset()
			p.mu.Unlock()
			return got
		}
		p.mu.Unlock()
		select {
		case <-p.more:
		case <-end:
			p.t.Fatalf("%q was not drawn: %q", text, got)
		}
	}
}

func (p *pty) mode() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

func twoJails(t *testing.T) string {
	t.Helper()
	run := t.TempDir()
	rows := `ps {"result":{"rows":[` +
		`{"kind":"server","project":"prj_1","project_label":"shop","label":"files","jail":"jal_1","profile":"node","uid":60001,"pid":77,"state":"ready","memory":1,"cpu_usec":1,"pids":1,"started":1790000000000,"calls":0,"restarts":0,"sessions":0,"in_flight":0,"last_error":"` + strings.Repeat("long ", 40) + `"},` +
		`{"kind":"server","project":"prj_2","project_label":"blog","label":"mail","jail":"jal_2","profile":"node","uid":60002,"pid":78,"state":"ready","memory":9000000,"cpu_usec":0,"pids":1,"started":1790000000000,"calls":0,"restarts":0,"sessions":0,"in_flight":0}]}}`
	_, answer, _ := strings.Cut(rows, " ")
	_, stop, err := serveFake(run, map[api.Action][]string{api.Ps: {answer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return run
}

func startTop(t *testing.T, p *pty, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.Env = append([]string{"TERM=xterm"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

func TestTopGivesTheTerminalBackHoweverItEnds(t *testing.T) {
	run := twoJails(t)
	for _, end := range []struct {
		name string
		do   func(p *pty, cmd *exec.Cmd)
	}{
		{"q", func(p *pty, _ *exec.Cmd) { p.master.WriteString("q") }},
		{"an interrupt from the keyboard", func(p *pty, _ *exec.Cmd) { p.master.WriteString("\x03") }},
		{"SIGTERM", func(_ *pty, cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGTERM) }},
		{"SIGHUP", func(_ *pty, cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGHUP) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			p := openPty(t, 100, 10)
			before := p.mode()
			cmd := startTop(t, p, nil, "--run-dir", run, "top", "--interval", "1h")
			p.shows("\x1b[J") // the first frame is whole
			if m := p.mode(); m.Lflag&(unix.ICANON|unix.ECHO) != 0 {
				t.Error("keys are echoed, or wait for a line")
			}
			end.do(p, cmd)
			p.shows(screenOff)
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if p.mode() != before {
				t.Error("the terminal is not as it was")
			}
		})
	}
}

func TestTopStaysWithinTheScreenAndSortsByKeys(t *testing.T) {
	run := twoJails(t)
	p := openPty(t, 70, 6)
	cmd := startTop(t, p, []string{"NO_COLOR=1"}, "--run-dir", run, "top", "--interval", "1h")
	frame := p.shows("\x1b[J")
	if strings.Contains(frame, "\x1b[7m") {
		t.Error("marked in spite of NO_COLOR")
	}
	body := frame[strings.Index(frame, "\x1b[H")+3:]
	lines := strings.Split(strings.ReplaceAll(body, "\x1b[J", ""), "\r\n")
	if len(lines) > 6 {
		t.Errorf("%d lines on 6", len(lines))
	}
	for _, line := range lines {
		if n := width(strings.TrimSuffix(strings.TrimRight(line, "\r"), "\x1b[K")); n > 70 {
			t.Errorf("%d columns on 70: %q", n, line)
		}
	}
	if !strings.Contains(frame, "…") || strings.Index(frame, "files") > strings.Index(frame, "mail") {
		t.Errorf("by cpu: %q", frame)
	}
	p.master.WriteString("m")
	if frame = p.shows("\x1b[J"); strings.Index(frame, "files") < strings.Index(frame, "mail") {
		t.Errorf("by memory: %q", frame)
	}
	p.master.WriteString("i")
	if frame = p.shows("\x1b[J"); strings.Index(frame, "files") > strings.Index(frame, "mail") {
		t.Errorf("turned round: %q", frame)
	}
	// A smaller window is drawn anew, and says what it left out.
	if err := unix.IoctlSetWinsize(int(p.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 40, Row: 4}); err != nil {
		t.Fatal(err)
	}
	p.shows("… 2 more")
	p.master.WriteString("q")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	// The twin: without NO_COLOR the head is marked.
	p = openPty(t, 70, 6)
	cmd = startTop(t, p, nil, "--run-dir", run, "top", "--interval", "1h")
	p.shows("\x1b[7mPROJECT")
	p.master.WriteString("q")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestTopMakesRatesOfTwoLooks(t *testing.T) {
	top := &top{sort: "cpu"}
	start := time.UnixMilli(1_790_000_000_000)
	row := func(jail string, cpu int64, calls uint64) api.PsRow {
		return api.PsRow{Jail: jail, CPUUsec: cpu, Calls: calls, Started: start.UnixMilli()}
	}
	f := top.frame([]api.PsRow{row("a", 5_000_000, 20), {State: "down", Calls: 7}}, start.Add(10*time.Second))
	if a, down := f.Rows[0], f.Rows[1]; a.CPUPercent < 49.9 || a.CPUPercent > 50.1 || a.CallsPerSecond != 2 || down.CPUPercent != 0 || down.CallsPerSecond != 0 || f.Interval != 0 {
		t.Errorf("%+v", f)
	}
	f = top.frame([]api.PsRow{row("a", 5_000_000, 30), row("b", 1_000_000, 3)}, start.Add(12*time.Second))
	if b, a := f.Rows[0], f.Rows[1]; a.Jail != "a" || a.CPUPercent != 0 || a.CallsPerSecond != 5 || b.CPUPercent < 8 || f.Interval != 2000 {
		t.Errorf("%+v", f)
	}
	// A counter that went back is no rate.
	f = top.frame([]api.PsRow{row("a", 0, 0)}, start.Add(14*time.Second))
	if f.Rows[0].CPUPercent != 0 || f.Rows[0].CallsPerSecond != 0 {
		t.Errorf("%+v", f)
	}
}

func TestFitNeverExceedsItsColumns(t *testing.T) {
	for _, s := range []string{"", "plain", "日本語のラベル", "e\u0301e\u0301e\u0301", strings.Repeat("x", 300)} {
		for columns := range 12 {
			if got := fit(s, columns); width(got) > columns {
				t.Errorf("%q in %d: %q", s, columns, got)
			}
		}
		if got := fit(s, 1000); got != s {
			t.Errorf("%q has room, and became %q", s, got)
		}
	}
}

// Who waits at a terminal sees how far it is; a log is told the end alone.
func TestProgressIsForATerminal(t *testing.T) {
	dir := t.TempDir()
	_, stop, err := serveFake(dir, map[api.Action][]string{api.ServerProbe: {`{"event":{"text":"starting the jail"}}`, `{"result":{"probed":1}}`}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p := openPty(t, 80, 24)
	cmd := exec.Command(binary, "--run-dir", dir, "server", "probe", "fs")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, p.slave
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	p.shows("… starting the jail")
	if strings.Contains(out.String(), "starting") {
		t.Errorf("progress is in the output: %q", &out)
	}
	if r := postern(t, "--run-dir", dir, "server", "probe", "fs"); r.status != 0 || r.err != "" {
		t.Errorf("a log gets progress: %q", r.err)
	}
}
