// Command posternd is the root side of Postern: it keeps the root facts, builds every
// jail, and starts and watches the authority.
//
// It runs as root. Its inputs are flags, postern.yaml and the profiles, all root's own
// and refused where they are not; what comes from below, package launch handles.
//
// Where systemd started it, it says how it goes, and takes its control group from there.
//
// Invariants:
//   - posternd-1: every mistake of the configuration is reported at once, and nothing is started.
//   - posternd-2: nothing of its environment reaches a child.
//
// It has no logic of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/audit"
	"postern/supervisor/config"
	"postern/supervisor/launch"
	"postern/supervisor/order"
	"postern/supervisor/sink"
)

// The range that is used where none is named: above the ranges that systemd gives to
// containers and dynamic users, below where uids turn negative.
const (
	defaultFirst = 1_879_048_192
	defaultCount = 8192
)

// defaultDrain is what open calls get at a stop, where drain_seconds does not say.
const defaultDrain = 20 * time.Second

const (
	defaultGroup  = "postern"
	defaultConfig = "/etc/postern/postern.yaml"
	profilesName  = "profiles.d"
	dropInSuffix  = ".d" // of the directory beside postern.yaml
	accessName    = "access.yaml"
)

func main() {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	leave := make(chan struct{})
	go func() { // the first one asks for a drain, the second one does not wait for it
		<-signals
		close(leave)
		<-signals
		end()
	}()
	os.Exit(run(ctx, leave, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program: arguments in, exit status out. It drains when leave is closed,
// and ends at once when ctx is done. It forgets the environment
// first: children get none of it by name, and so none by mistake either.
func run(ctx context.Context, leave <-chan struct{}, args []string, out, errw io.Writer) int {
	json := os.Getenv("JOURNAL_STREAM") != "" // systemd keeps lines: it sets this
	credentials := os.Getenv("CREDENTIALS_DIRECTORY")
	manager := managerOf()
	os.Clearenv()
	asked, status := configure(args, manager, errw)
	switch {
	case status == helped:
		return 0
	case status != 0:
		return status
	}
	cfg := asked.cfg
	cfg.Credentials = credentials
	switch {
	case asked.check && len(asked.mistakes) == 0:
		asked.mistakes = cfg.CheckFiles()
		fallthrough
	case asked.check:
		return check(cfg, asked.said, asked.mistakes, asked.json, out, errw)
	case len(asked.mistakes) > 0:
		return report(errw, asked.mistakes)
	}
	if uid := os.Geteuid(); uid != 0 {
		fmt.Fprintf(errw, "posternd: must be started as root; this is uid %d\n", uid)
		return refusal.ExitNotAllowed
	}
	lines := sink.New(errw)
	defer lines.Close()
	cfg.Stderr = lines
	cfg.Log = hclog.New(&hclog.LoggerOptions{Name: "posternd", Level: hclog.Info, Output: lines, JSONFormat: json})
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	cfg.Hangup = hangup
	cfg.Tell, cfg.Leave = manager.tell, leave
	err := launch.Run(ctx, cfg)
	switch {
	case errors.Is(err, launch.ErrConfig):
		return report(errw, []error{err})
	case err != nil:
		cfg.Log.Error("posternd ends", "error", err)
		return refusal.ExitFailed
	}
	return 0
}

func report(errw io.Writer, mistakes []error) int {
	if len(mistakes) == 0 {
		return 0
	}
	for _, m := range mistakes { // one may join several, each a line
		fmt.Fprintf(errw, "posternd: %s\n", strings.ReplaceAll(m.Error(), "\n", "\nposternd: "))
	}
	return refusal.ExitConfig
}

// helped is configure's status where only the usage was asked for.
const helped = -1

// asked is what flags and files say.
type asked struct {
	cfg         launch.Config
	said        []config.Said
	mistakes    []error
	check, json bool
}

// configure reads flags, postern.yaml, its drop-ins and the profiles. It gathers every
// mistake of them and starts nothing.
func configure(args []string, by manager, errw io.Writer) (a asked, status int) {
	var cfg launch.Config
	flags := flag.NewFlagSet("posternd", flag.ContinueOnError)
	flags.SetOutput(errw)
	file := flags.String("config", "", "postern.yaml; without the flag "+defaultConfig+", if it is there")
	flags.StringVar(&cfg.Access, "access", "", "the access policy; without the flag "+accessName+" beside postern.yaml")
	flags.StringVar(&cfg.RootDir, "root-dir", "/var/lib/postern-root", "root's own directory: facts, packages, scratch")
	flags.StringVar(&cfg.StateDir, "state-dir", "/var/lib/postern", "the authority's own directory")
	flags.StringVar(&cfg.RunDir, "run-dir", "/run/postern", "directory of the sockets")
	flags.StringVar(&cfg.LockDir, "lock-dir", "/run/lock", "directory of machine-wide locks")
	flags.StringVar(&cfg.Cgroup, "cgroup", "", "parent control group, relative to each hierarchy; without the flag below the unit's own where systemd started posternd, else "+defaultGroup)
	flags.StringVar(&cfg.Libexec, "libexec", "", "directory of the other programs; without the flag the one of posternd")
	uids := flags.String("uid-range", "", fmt.Sprintf("FIRST:COUNT of the uids that jails lease; overrides postern.yaml, default %d:%d", defaultFirst, defaultCount))
	account := flags.String("authority-user", "postern", "user of the authority: a name, or UID:GID")
	flags.BoolVar(&a.check, "check", false, "check the configuration and end")
	flags.BoolVar(&a.json, "json", false, "with -check: print one JSON document")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return a, helped
		}
		return a, refusal.ExitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errw, "posternd takes no arguments, got %q\n", flags.Arg(0))
		return a, refusal.ExitUsage
	}
	if a.json && !a.check {
		fmt.Fprintln(errw, "posternd: -json is of -check")
		return a, refusal.ExitUsage
	}

	if by.settle(&cfg); cfg.Cgroup == "" && !cfg.Unit {
		cfg.Cgroup = defaultGroup
	}
	given := cfg
	given.File, given.FileFound = *file, *file != ""
	read := func() (launch.Config, []config.Said, []error) { return settings(given, *uids, *account) }
	a.cfg, a.said, a.mistakes = read()
	if len(a.mistakes) == 0 {
		a.mistakes = a.cfg.Check()
	} else {
		a.mistakes = append(a.mistakes, a.cfg.CheckIDs()...)
	}
	a.cfg.Reload = func() (launch.Config, error) {
		next, _, mistakes := read()
		return next, errors.Join(mistakes...)
	}
	return a, 0
}

// settings adds to what the flags gave what the files say, and reports every mistake of
// them. It is asked again whenever the files change. FileFound of cfg says that the file
// must be there.
func settings(cfg launch.Config, uids, account string) (launch.Config, []config.Said, []error) {
	var mistakes []error
	note := func(err error) {
		if err != nil {
			mistakes = append(mistakes, err)
		}
	}
	cfg.UIDs = order.Range{First: defaultFirst, Count: defaultCount}
	must := cfg.FileFound
	if cfg.File == "" {
		cfg.File = defaultConfig
	}
	path, err := filepath.Abs(cfg.File) // what is shown of it must mean the same everywhere
	note(err)
	cfg.File = path
	file, found, err := readConfig(cfg.File)
	note(err)
	if cfg.FileFound = found; must && !found {
		note(fmt.Errorf("%s: there is no such file", cfg.File))
	}
	cfg.ConfigDir, cfg.DropInDir = filepath.Dir(cfg.File), cfg.File+dropInSuffix
	cfg.Hosts, cfg.Keep, cfg.Sessions, cfg.Artifacts, cfg.Drain = file.Hosts, file.Keep, file.Sessions, file.Artifacts, defaultDrain
	cfg.MetricsUID = file.MetricsUID
	if file.Drain != nil {
		cfg.Drain = time.Duration(*file.Drain) * time.Second
	}
	cfg.Audit = audit.Default()
	if n := file.Audit.KiB; n != 0 {
		cfg.Audit.MaxBytes = int64(n) << 10
	}
	if n := file.Audit.Files; n != 0 {
		cfg.Audit.Keep = int(n)
	}
	if cfg.Access == "" {
		cfg.Access = filepath.Join(cfg.ConfigDir, accessName)
	}
	if file.UIDs != (order.Range{}) {
		cfg.UIDs = file.UIDs
	}
	if uids != "" {
		cfg.UIDs, err = parseRange(uids)
		note(err)
	}
	if cfg.UID, cfg.GID, err = lookUp(account); err != nil {
		note(err)
		cfg.UID = math.MaxUint32 // nobody's: nothing else can be said about it
	}
	if cfg.Libexec == "" {
		exe, err := os.Executable()
		note(err)
		cfg.Libexec = filepath.Dir(exe)
	}
	cfg.ProfileDir = filepath.Join(cfg.ConfigDir, profilesName)
	cfg.Profiles, err = profiles.Load(cfg.ProfileDir)
	note(err)
	return cfg, file.Said, append(mistakes, cfg.Misnamed()...)
}

// parseRange reads FIRST:COUNT.
func parseRange(s string) (order.Range, error) {
	first, count, ok := strings.Cut(s, ":")
	f, err1 := strconv.ParseUint(first, 10, 32)
	c, err2 := strconv.ParseUint(count, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return order.Range{}, fmt.Errorf("uid-range: want FIRST:COUNT, not %q", s)
	}
	return order.Range{First: uint32(f), Count: uint32(c)}, nil
}

// lookUp resolves the authority's user: a name, or UID:GID for a user without one.
func lookUp(name string) (uid, gid uint32, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		r, numeric := parseRange(name)
		if numeric != nil {
			return 0, 0, fmt.Errorf("authority-user: %w", err)
		}
		return r.First, r.Count, nil
	}
	id, err1 := strconv.ParseUint(u.Uid, 10, 32)
	group, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), errors.Join(err1, err2)
}
