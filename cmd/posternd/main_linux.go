// Command posternd is the root side of Postern: it keeps the root facts, builds every
// jail, and starts and watches the authority.
//
// It runs as root. Its inputs are flags, postern.yaml and the profiles, all root's own
// and refused where they are not; what comes from below, package launch handles.
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

	"github.com/hashicorp/go-hclog"

	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/audit"
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

const (
	defaultConfig = "/etc/postern/postern.yaml"
	profilesName  = "profiles.d"
	accessName    = "access.yaml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the whole program: arguments in, exit status out. It forgets the environment
// first: children get none of it by name, and so none by mistake either.
func run(ctx context.Context, args []string, errw io.Writer) int {
	json := os.Getenv("JOURNAL_STREAM") != "" // systemd keeps lines: it sets this
	os.Clearenv()
	cfg, check, status := configure(args, errw)
	switch {
	case status == helped:
		return 0
	case status != 0:
		return status
	}
	if check {
		return report(errw, cfg.CheckFiles())
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

// configure reads flags, postern.yaml and the profiles. It reports every mistake of
// them and starts nothing.
func configure(args []string, errw io.Writer) (cfg launch.Config, check bool, status int) {
	flags := flag.NewFlagSet("posternd", flag.ContinueOnError)
	flags.SetOutput(errw)
	config := flags.String("config", "", "postern.yaml; without the flag "+defaultConfig+", if it is there")
	flags.StringVar(&cfg.Access, "access", "", "the access policy; without the flag "+accessName+" beside postern.yaml")
	flags.StringVar(&cfg.RootDir, "root-dir", "/var/lib/postern-root", "root's own directory: facts, packages, scratch")
	flags.StringVar(&cfg.StateDir, "state-dir", "/var/lib/postern", "the authority's own directory")
	flags.StringVar(&cfg.RunDir, "run-dir", "/run/postern", "directory of the sockets")
	flags.StringVar(&cfg.LockDir, "lock-dir", "/run/lock", "directory of machine-wide locks")
	flags.StringVar(&cfg.Cgroup, "cgroup", "postern", "parent control group, relative to each hierarchy")
	flags.StringVar(&cfg.Libexec, "libexec", "", "directory of the other programs; without the flag the one of posternd")
	uids := flags.String("uid-range", "", fmt.Sprintf("FIRST:COUNT of the uids that jails lease; overrides postern.yaml, default %d:%d", defaultFirst, defaultCount))
	account := flags.String("authority-user", "postern", "user of the authority: a name, or UID:GID")
	flags.BoolVar(&check, "check", false, "check the configuration and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return cfg, check, helped
		}
		return cfg, check, refusal.ExitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errw, "posternd takes no arguments, got %q\n", flags.Arg(0))
		return cfg, check, refusal.ExitUsage
	}

	given := cfg
	given.File, given.FileFound = *config, *config != ""
	read := func() (launch.Config, []error) { return settings(given, *uids, *account) }
	cfg, mistakes := read()
	if len(mistakes) == 0 {
		mistakes = cfg.Check()
	} else {
		mistakes = append(mistakes, cfg.CheckIDs()...)
	}
	cfg.Reload = func() (launch.Config, error) {
		next, mistakes := read()
		return next, errors.Join(mistakes...)
	}
	return cfg, check, report(errw, mistakes)
}

// settings adds to what the flags gave what the files say, and reports every mistake of
// them. It is asked again whenever the files change. FileFound of cfg says that the file
// must be there.
func settings(cfg launch.Config, uids, account string) (launch.Config, []error) {
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
	file, err := readConfig(cfg.File)
	cfg.FileFound = !errors.Is(err, os.ErrNotExist)
	if must || cfg.FileFound {
		note(err)
	}
	cfg.ConfigDir = filepath.Dir(cfg.File)
	cfg.Hosts, cfg.Keep = file.hosts, file.keep
	cfg.Audit = audit.Default()
	if n := file.audit.kib; n != 0 {
		cfg.Audit.MaxBytes = int64(n) << 10
	}
	if n := file.audit.files; n != 0 {
		cfg.Audit.Keep = int(n)
	}
	if cfg.Access == "" {
		cfg.Access, err = filepath.Abs(filepath.Join(cfg.ConfigDir, accessName))
		note(err)
	}
	if file.uids != (order.Range{}) {
		cfg.UIDs = file.uids
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
	return cfg, mistakes
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
