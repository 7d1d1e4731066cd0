package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/api"
)

// profilesDir holds the profiles of an installed Postern.
const profilesDir = "/etc/postern/profiles.d"

// profileRow is one profile in a list.
type profileRow struct {
	Name        string `json:"name"`
	Builtin     bool   `json:"builtin"`     // it comes with Postern
	Registrable bool   `json:"registrable"` // a server may be registered with it
	Fork        bool   `json:"fork"`        // more than one process
	Workspace   string `json:"workspace"`   // none, read-only, writable
	MemoryBytes int64  `json:"memory_bytes"`
	PidsMax     int    `json:"pids_max"`
	SystemCalls int    `json:"system_calls"` // how many are allowed
	Digest      string `json:"digest"`       // of its content: part of every revision that names it
}

// profileDocument is one profile in full. Durations are text, as in a file.
type profileDocument struct {
	profileRow
	PackageExec  bool              `json:"package_exec"`
	Devices      bool              `json:"devices"`
	Proc         bool              `json:"proc"`
	Loopback     bool              `json:"loopback"`
	Binds        []profileBind     `json:"binds"`
	Links        map[string]string `json:"links"`
	Env          map[string]string `json:"env"`          // the whole environment
	LandlockABI  int               `json:"landlock_abi"` // the least version
	CPUPercent   int               `json:"cpu_percent"`  // of one processor
	Nofile       int               `json:"nofile"`
	FsizeBytes   int64             `json:"fsize_bytes"`
	TmpBytes     int64             `json:"tmp_bytes"`
	TmpInodes    int               `json:"tmp_inodes"`
	ShmBytes     int64             `json:"shm_bytes"`
	Idle         string            `json:"idle"` // as 10m0s, like the two below
	StopGrace    string            `json:"stop_grace"`
	StartTimeout string            `json:"start_timeout"`
	Groups       []profileGroup    `json:"groups"`
	Rules        []profileRule     `json:"rules"`
}

type profileBind struct {
	Source   string `json:"source"`
	Target   string `json:"target"` // where in the jail
	Optional bool   `json:"optional"`
	Exec     bool   `json:"exec"`
}

type profileGroup struct {
	Name   string   `json:"name"`
	Reason string   `json:"reason"`
	Calls  []string `json:"calls"`
}

type profileRule struct {
	Call   string   `json:"call"`
	Reason string   `json:"reason"`
	When   []string `json:"when"` // conditions that must all hold
}

// profileMistake is one thing wrong with a file.
type profileMistake struct {
	File string `json:"file"`
	Line int    `json:"line,omitzero"` // from 1; absent where no line is to blame
	Key  string `json:"key,omitempty"`
	Want string `json:"want"` // what is wrong, or was expected
}

type (
	profileList struct {
		Profiles []profileRow `json:"profiles"`
	}
	profileFile struct {
		Name   string `json:"name"`
		Source string `json:"source"` // the whole file
	}
	profileMistakes struct {
		Mistakes []profileMistake `json:"mistakes"`
		OK       bool             `json:"ok"` // there is none
	}
)

func (a *app) profileCommand() *cobra.Command {
	var dir string
	var source bool
	// The usual directory need not be there; one that was asked for must.
	load := func(cmd *cobra.Command) ([]profileDocument, error) {
		if cmd.Flags().Changed("profiles-dir") {
			if _, err := os.Stat(dir); err != nil {
				return nil, &shown{status: refusal.ExitConfig, text: fmt.Sprintf("--profiles-dir: %v", err)}
			}
		}
		return loadProfiles(dir)
	}
	list := &cobra.Command{Use: "list", Short: "the built-in profiles and those of a directory", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		all, err := load(cmd)
		if err != nil {
			return err
		}
		rows := []profileRow{}
		for _, d := range all {
			rows = append(rows, d.profileRow)
		}
		return a.show(profileList{rows}, func(t *table) {
			t.row("PROFILE", "FROM", "PROCESSES", "WORKSPACE", "MEMORY", "PIDS", "CALLS")
			for _, r := range rows {
				t.row(r.Name, r.from(), r.processes(), r.Workspace, size(r.MemoryBytes), r.PidsMax, r.SystemCalls)
			}
		})
	}}
	show := &cobra.Command{Use: "show NAME [--source]", Short: "what a jail of a profile sees and may do, with the reasons", Args: exactly("NAME"), RunE: func(cmd *cobra.Command, args []string) error {
		all, err := load(cmd)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(d profileDocument) bool { return d.Name == args[0] })
		if i < 0 {
			return api.Refuse(refusal.ProfileUnknown, "%q; see postern profile list.", args[0])
		}
		if source {
			return a.profileSource(all[i], dir)
		}
		return a.show(all[i], func(t *table) { profileTable(t, all[i]) })
	}}
	for _, cmd := range []*cobra.Command{list, show} {
		cmd.Flags().StringVar(&dir, "profiles-dir", profilesDir, "`directory` of profiles of your own")
	}
	show.Flags().BoolVar(&source, "source", false, "the file itself, to start a profile of your own from")
	check := &cobra.Command{Use: "check FILE…", Short: "every mistake of profiles that need not be installed yet", RunE: func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("needs FILE")
		}
		return a.checkProfiles(args)
	}}
	return a.group("profile", "what jails see and may do", list, show, check)
}

// profileSource shows the file that a profile was read from.
func (a *app) profileSource(d profileDocument, dir string) error {
	raw, ok := profiles.Source(d.Name)
	if !ok {
		var err error
		if raw, err = os.ReadFile(filepath.Join(dir, d.Name+".yaml")); err != nil {
			return err
		}
	}
	return a.show(profileFile{d.Name, string(raw)}, func(t *table) {
		for line := range strings.Lines(string(raw)) {
			t.line("%s", strings.TrimSuffix(line, "\n"))
		}
	})
}

func (r profileRow) from() string {
	switch {
	case !r.Registrable:
		return "built in, Postern's own"
	case r.Builtin:
		return "built in"
	}
	return "profiles.d"
}

func (r profileRow) processes() string {
	if r.Fork {
		return "many"
	}
	return "one"
}

// loadProfiles returns every profile, sorted by name; the mistakes of a directory
// are its error, all of them.
func loadProfiles(dir string) ([]profileDocument, error) {
	builtin, err := profiles.Builtin()
	if err != nil {
		return nil, err
	}
	all, err := profiles.Load(dir)
	if err != nil {
		return nil, &shown{status: refusal.ExitConfig, text: err.Error()}
	}
	var out []profileDocument
	for _, name := range profiles.Names(all) {
		p := all[name]
		_, isBuiltin := builtin[name]
		d := profileDocument{
			profileRow: profileRow{Name: p.Name, Builtin: isBuiltin, Registrable: !p.NeverRegister, Fork: p.Fork, Workspace: "none",
				MemoryBytes: p.Limits.MemoryBytes, PidsMax: p.Limits.PidsMax, Digest: p.Digest},
			PackageExec: p.PackageExec, Devices: p.Devices, Proc: p.Proc, Loopback: p.Loopback, Binds: []profileBind{}, Links: map[string]string{}, Env: p.Env,
			LandlockABI: p.Landlock.ABI, CPUPercent: p.Limits.CPUPercent, Nofile: p.Limits.Nofile, FsizeBytes: p.Limits.FsizeBytes,
			TmpBytes: p.Limits.TmpBytes, TmpInodes: p.Limits.TmpInodes, ShmBytes: p.Limits.ShmBytes,
			Idle: p.Idle.String(), StopGrace: p.StopGrace.String(), StartTimeout: p.StartTimeout.String(), Groups: []profileGroup{}, Rules: []profileRule{},
		}
		switch {
		case p.WorkspaceReadOnly:
			d.Workspace = "read-only"
		case p.Workspace:
			d.Workspace = "writable"
		}
		for _, b := range p.Binds {
			d.Binds = append(d.Binds, profileBind{b.Source, b.At(), b.Optional, b.Exec})
		}
		for _, l := range p.Links {
			d.Links[l.Path] = l.To
		}
		ruled := map[string]bool{}
		for _, g := range p.Seccomp.Groups {
			d.Groups = append(d.Groups, profileGroup(g))
			d.SystemCalls += len(g.Calls)
		}
		for _, r := range p.Seccomp.Rules {
			rule := profileRule{Call: r.Call, Reason: r.Reason}
			for _, c := range r.When {
				rule.When = append(rule.When, fmt.Sprintf("argument %d & %#x = %#x", c.Arg, c.EffectiveMask(), c.Value))
			}
			d.Rules, ruled[r.Call] = append(d.Rules, rule), true
		}
		d.SystemCalls += len(ruled)
		out = append(out, d)
	}
	return out, nil
}

func profileTable(t *table, d profileDocument) {
	t.row("profile", d.Name)
	t.row("from", d.from())
	t.row("digest", d.Digest)
	t.row("processes", d.processes())
	t.row("workspace", d.Workspace)
	t.row("package", map[bool]string{true: "read-only, may be executed", false: "read-only"}[d.PackageExec])
	t.row("/dev, /proc, lo", strings.Join([]string{yesNo(d.Devices), yesNo(d.Proc), yesNo(d.Loopback)}, ", "))
	t.row("memory", size(d.MemoryBytes))
	t.row("processes and threads", d.PidsMax)
	t.row("cpu", fmt.Sprintf("%d %% of one processor", d.CPUPercent))
	t.row("descriptors", d.Nofile)
	t.row("greatest file", size(d.FsizeBytes))
	t.row("/tmp", fmt.Sprintf("%s, %d files", size(d.TmpBytes), d.TmpInodes))
	if d.ShmBytes > 0 {
		t.row("/dev/shm", size(d.ShmBytes))
	} else {
		t.row("/dev/shm", "none")
	}
	t.row("stopped", fmt.Sprintf("after %s without a call, given %s to end", d.Idle, d.StopGrace))
	t.row("must answer within", d.StartTimeout)
	t.row("landlock", fmt.Sprintf("ABI %d", d.LandlockABI))
	for _, b := range d.Binds {
		t.row("sees "+b.Target, strings.TrimSpace(map[bool]string{true: "executable", false: "data"}[b.Exec]+map[bool]string{true: ", where it exists"}[b.Optional]))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Links)) {
		t.row("link "+name, d.Links[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		t.row("env "+name, d.Env[name])
	}
	for _, g := range d.Groups {
		t.line("\n%s: %s", g.Name, g.Reason)
		t.line("  %s", strings.Join(g.Calls, " "))
	}
	t.line("\nUnder conditions:")
	for _, r := range d.Rules {
		t.line("  %s, %s: %s", r.Call, strings.Join(r.When, " and "), r.Reason)
	}
}

// checkProfiles reports every mistake of every file, and ends with the status of a
// wrong configuration if there is one.
func (a *app) checkProfiles(files []string) error {
	found := []profileMistake{}
	var good []string
	for _, file := range files {
		p, mistakes, err := profiles.Check(file)
		if err != nil {
			found = append(found, profileMistake{File: file, Want: fmt.Sprintf("cannot be read: %v", cause(err))})
			continue
		}
		for _, m := range mistakes {
			found = append(found, profileMistake(m))
		}
		if len(mistakes) == 0 {
			good = append(good, fmt.Sprintf("%s: profile %s, digest %s", filepath.Clean(file), p.Name, p.Digest))
		}
	}
	err := a.show(profileMistakes{found, len(found) == 0}, func(t *table) {
		for _, m := range found {
			t.line("%s", profiles.Mistake(m).Error())
		}
		for _, g := range good {
			t.line("%s", g)
		}
	})
	if err == nil && len(found) > 0 {
		err = &shown{status: refusal.ExitConfig, text: fmt.Sprintf("mistakes: %d", len(found))}
	}
	return err
}
