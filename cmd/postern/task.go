package main

import (
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// delivery says where a fresh token goes. It has exactly one way, so that no
// token is ever made for which there is none.
type delivery struct {
	fd   int // -1: not by descriptor
	file bool
	ttl  time.Duration
	bind int
}

func (d *delivery) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&d.fd, "token-fd", -1, "write the token to this inherited `descriptor` (3 or above)")
	cmd.Flags().Lookup("token-fd").DefValue = "0" // the help then names no default, and there is none
	cmd.Flags().BoolVar(&d.file, "token-file", false, "have the token put into a file only that user can read, and print its path")
	cmd.Flags().DurationVar(&d.ttl, "ttl", 0, "how long the token may be used to connect (0: the default, 5m)")
	cmd.Flags().IntVar(&d.bind, "binds", 0, "how often it may be used to connect (0: the default, once)")
}

// open checks the way before a token is asked for; nil means by file.
func (d *delivery) open() (*os.File, error) {
	switch {
	case d.fd >= 0 == d.file:
		return nil, usagef("needs exactly one of --token-fd N and --token-file")
	case d.ttl < 0 || d.bind < 0:
		return nil, usagef("--ttl and --binds are not negative")
	case d.file:
		return nil, nil
	}
	f, err := inherited(d.fd)
	if err != nil {
		return nil, usagef("--token-fd: %v", err)
	}
	return f, nil
}

func (a *app) taskCommand() *cobra.Command {
	var d delivery
	var p api.TaskNewParams
	var forUID string
	create := &cobra.Command{Use: "new --project P --for-uid U (--token-fd N | --token-file)", Short: "create a task and its token", Args: exactly()}
	d.flags(create)
	create.Flags().StringVar(&p.Project, "project", "", "the `project` it is bound to")
	create.Flags().StringVar(&forUID, "for-uid", "", "the `user` whose runtime will connect, by uid or name")
	create.Flags().StringVar(&p.Principal, "principal", "", "whom it acts for, as `CHANNEL:ID`")
	create.Flags().StringVar(&p.Mode, "mode", "", "its `mode`: search, code, auto or one of the access policy's own (default: the widest of whom it acts for)")
	create.RegisterFlagCompletionFunc("project", a.completeProjects)
	create.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.Project == "" || forUID == "" {
			return usagef("needs --project and --for-uid")
		}
		uid, err := parseUID(forUID)
		if err != nil {
			return err
		}
		p.ForUID, p.TTLMs, p.Binds, p.File = uid, d.ttl.Milliseconds(), d.bind, d.file
		return a.deliver(cmd, &d, api.TaskNew, p)
	}

	var fresh delivery
	token := &cobra.Command{Use: "token TASK (--token-fd N | --token-file)", Short: "a fresh token for a live task; its sessions end first", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks}
	fresh.flags(token)
	token.RunE = func(cmd *cobra.Command, args []string) error {
		return a.deliver(cmd, &fresh, api.TaskToken, api.TaskParams{Task: args[0], TTLMs: fresh.ttl.Milliseconds(), Binds: fresh.bind, File: fresh.file})
	}

	var project string
	ls := &cobra.Command{Use: "list", Short: "list tasks", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		r, err := a.allTasks(cmd.Context(), project)
		if err != nil {
			return err
		}
		for i := range r.Tasks {
			r.Tasks[i].Token = "" // no list holds one; this keeps it so
		}
		return a.show(r, func(t *table) {
			t.row("TASK", "PROJECT", "PRINCIPAL", "MODE", "HOST", "SESSIONS", "CREATED", "ENDED", "REASON")
			for _, x := range r.Tasks {
				t.row(x.Task, x.Project, x.Principal, x.Mode, x.Host, x.Sessions, when(x.Created), when(x.Ended), x.Reason)
			}
		})
	}}
	ls.Flags().StringVar(&project, "project", "", "only this `project`'s")
	ls.RegisterFlagCompletionFunc("project", a.completeProjects)
	show := &cobra.Command{Use: "show TASK", Short: "show one task", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.TaskResult](cmd.Context(), a, api.TaskShow, api.TaskParams{Task: args[0]}, client.Options{})
			if err != nil {
				return err
			}
			return a.showTask(r)
		}}
	revoke := &cobra.Command{Use: "revoke TASK", Short: "end a task for ever", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.narrow(cmd.Context(), api.TaskRevoke, api.TaskParams{Task: args[0]}, "task "+args[0]+" ended")
		}}
	a.changes(create, token, revoke)
	return a.group("task", "what a runtime is bound to", create, token, ls, show, revoke)
}

// deliver asks for a token and hands it on. It is in memory from the answer to
// the write, and the process lets nobody read that memory.
func (a *app) deliver(cmd *cobra.Command, d *delivery, action api.Action, params any) error {
	if err := undumpable(); err != nil {
		return err
	}
	f, err := d.open()
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	r, err := ask[api.TaskResult](cmd.Context(), a, action, params, a.opts)
	if err != nil {
		return err
	}
	if f != nil && !a.opts.DryRun {
		if r.Token == "" {
			return &shown{status: 1, text: "the answer holds no token; task " + r.Task + " exists, ask for one with: postern task token " + r.Task}
		}
		if _, err := f.Write([]byte(r.Token + "\n")); err != nil {
			return &shown{status: 1, text: "the token could not be written to descriptor " + strconv.Itoa(d.fd) + " (" + cause(err).Error() + "); ask for another with: postern task token " + r.Task}
		}
	}
	return a.showTask(r)
}

func (a *app) showTask(r api.TaskResult) error {
	r.Token = ""
	return a.show(r, func(t *table) {
		t.row("task", r.Task)
		t.row("project", r.Project)
		t.row("account", r.Account)
		t.row("host", r.Host)
		t.row("principal", r.Principal)
		t.row("mode", r.Mode)
		t.row("created", when(r.Created))
		if r.Ended != 0 {
			t.row("ended", when(r.Ended)+" "+r.Reason)
		}
		t.row("sessions", r.Sessions)
		if r.Expires != 0 {
			t.row("token expires", when(r.Expires))
		}
		if r.TokenFile != "" {
			t.row("token file", r.TokenFile)
		}
	})
}
