package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"postern/supervisor/launch"
)

// manager is what systemd said of itself in the environment; the zero manager is none.
type manager struct {
	unit     bool          // posternd is the main process of a unit
	managed  bool          // posternd was started by it, whatever number it has
	socket   string        // where it hears how posternd goes
	watchdog time.Duration // how long it waits for a sign of life; 0 for ever
}

// managerOf reads the environment.
func managerOf() manager {
	m := manager{socket: os.Getenv("NOTIFY_SOCKET")}
	// The number tells a unit's own process from one that a shell of the unit started.
	given := os.Getenv("SYSTEMD_EXEC_PID")
	m.managed, m.unit = given != "", given == strconv.Itoa(os.Getpid())
	if d, err := daemon.SdWatchdogEnabled(false); err == nil {
		m.watchdog = d
	}
	return m
}

// settle tells launch what the manager expects. It gives the environment back the one
// variable that go-systemd reads at each message; no child gets an environment at all.
func (m manager) settle(cfg *launch.Config) {
	cfg.Unit, cfg.Managed, cfg.Watchdog = m.unit, m.managed, m.watchdog
	if m.socket != "" {
		os.Setenv("NOTIFY_SOCKET", m.socket)
	}
}

// maxStatus bounds a line for people, in bytes.
const maxStatus = 512

// tell gives systemd a notice. One that is not heard changes nothing: what systemd does
// without it is in the unit.
func (m manager) tell(n launch.Notice) {
	if m.socket == "" {
		return
	}
	var lines []string
	add := func(says bool, line string) {
		if says {
			lines = append(lines, line)
		}
	}
	add(n.Reloading, daemon.SdNotifyReloading+"\n"+monotonic())
	add(n.Ready, daemon.SdNotifyReady)
	add(n.Stopping, daemon.SdNotifyStopping)
	add(n.Extend > 0, "EXTEND_TIMEOUT_USEC="+strconv.FormatInt(n.Extend.Microseconds(), 10))
	add(n.Alive, daemon.SdNotifyWatchdog)
	add(n.Status != "", "STATUS="+oneLine(n.Status))
	_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
}

// oneLine keeps a line from becoming two: the next could be an order to systemd.
func oneLine(s string) string {
	return strings.Join(strings.Fields(s[:min(len(s), maxStatus)]), " ")
}

// monotonic is the time that Type=notify-reload wants beside RELOADING. Source: sd_notify(3).
func monotonic() string {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return "MONOTONIC_USEC=0"
	}
	return "MONOTONIC_USEC=" + strconv.FormatInt(ts.Nano()/1000, 10)
}
