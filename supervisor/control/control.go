package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/artifact"
	"postern/supervisor/gate"
	"postern/supervisor/pairing"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
	"postern/supervisor/workers"
)

// Config is what the actions work on.
type Config struct {
	Gate    *gate.Gate
	Workers *workers.Workers
	Store   *store.Store
	Bell    *activity.Bell
	// Artifacts holds their bytes.
	Artifacts *artifact.Keeper

	Version string
	Now     func() time.Time
	Instant func() token.Instant
	Log     hclog.Logger
}

// actions serves the requests. Its methods run on a client's goroutine and touch
// the registry only inside do, which runs on the loop.
type actions struct {
	Config
	reg       *registry.Registry
	started   time.Time
	codes     pairing.Book // used on the loop alone
	backingUp sync.Mutex
}

// New makes the server of control.sock.
func New(c Config) *Server {
	a := &actions{Config: c, reg: c.Gate.Registry(), started: c.Now()}
	return &Server{log: c.Log, byUID: map[uint32]int{}, handlers: map[api.Action]handler{
		api.Status: a.status, api.Drain: a.drain, api.Backup: a.backup, api.Ps: a.ps, api.Activity: a.activity, api.ArtifactList: a.artifactList, api.ArtifactGet: a.artifactGet,
		api.Logs: a.logs, api.Metrics: a.metrics, api.Quota: a.quota,
		api.AccountList: a.accountList, api.AccountShow: a.accountShow, api.AccountSuspend: a.accountSuspend, api.AccountActivate: a.accountActivate,
		api.ProjectList: a.projectList, api.ProjectShow: a.projectShow, api.ProjectDelete: a.projectDelete, api.MemberAdd: a.memberAdd, api.MemberRemove: a.memberRemove,
		api.ServerProbe: a.serverProbe, api.ServerCatalogue: a.serverCatalogue,
		api.ConnectionAdd: a.connectionAdd, api.ConnectionList: a.connectionList, api.ConnectionShow: a.connectionShow, api.ConnectionGrant: a.connectionGrant,
		api.ConnectionRevoke: a.connectionRevoke, api.ConnectionAccept: a.connectionAccept, api.ConnectionEnable: a.connectionEnable, api.ConnectionDisable: a.connectionDisable,
		api.AccessPair: a.accessPair, api.AccessRedeem: a.accessRedeem, api.AccessUnpair: a.accessUnpair, api.AccessPaired: a.accessPaired,
		api.Explain: a.explain, api.Check: a.check, api.Capabilities: a.capabilities, api.ActivityShow: a.activityShow,
		api.TaskNew: a.taskNew, api.TaskToken: a.taskToken, api.TaskList: a.taskList, api.TaskShow: a.taskShow, api.TaskRevoke: a.taskRevoke,
	}}
}

type actorKey struct{}

// acting keeps who asks beside a request, so that every change it leads to is recorded
// as theirs, by whichever way it reaches the loop.
func acting(ctx context.Context, who Who, req api.Request) context.Context {
	origin := "control.sock"
	if who.peer != nil {
		origin = fmt.Sprintf("control.sock, process %d", who.peer.PID)
	}
	return context.WithValue(ctx, actorKey{}, gate.Actor{By: fmt.Sprintf("uid %d", who.UID), Origin: origin, Action: string(req.Action), Request: req.RequestID,
		Changes: api.EffectOf(req.Action) == api.Changes})
}

func actorOf(ctx context.Context) gate.Actor {
	who, _ := ctx.Value(actorKey{}).(gate.Actor)
	return who
}

// do runs fn on the loop and returns its error.
func (a *actions) do(ctx context.Context, fn func() error) error {
	ctx, cancel := context.WithTimeout(ctx, ChangeWait)
	defer cancel()
	err := make(chan error, 1)
	if e := a.Workers.Do(ctx, func() { err <- told(a.Gate.As(actorOf(ctx), fn)) }); e != nil {
		return e
	}
	return <-err
}

// told keeps the particulars of a refused change beside its code.
func told(err error) error {
	var r *api.Refusal
	var c refusal.Code
	if err == nil || errors.As(err, &r) || !errors.As(err, &c) {
		return err
	}
	// The sentence is the table's and stands in the answer already.
	detail := strings.TrimSuffix(strings.TrimSuffix(err.Error(), c.Error()), ": ")
	detail = strings.TrimPrefix(detail, c.Error()+": ")
	return api.Refuse(c, "%s", detail)
}

// narrow runs a narrowing change on the loop and answers with what it cut. A dry
// run only checks it.
func (a *actions) narrow(ctx context.Context, c *Call, target string, change func() (registry.Change, []ids.Project, error)) (api.RevokeResult, error) {
	out := api.RevokeResult{Target: target, Stands: []api.OpenCall{}}
	if c.Req.DryRun {
		err := a.do(ctx, func() error { _, _, err := change(); return err })
		out.Note = "Nothing was changed: this was a dry run."
		return out, err
	}
	n, err := a.Workers.Narrow(ctx, func() ([]ids.Project, error) {
		ch, projects, err := change()
		if err != nil {
			return nil, told(err)
		}
		return projects, told(a.Gate.As(actorOf(ctx), func() error { return a.Gate.Apply(ch) }))
	})
	if err != nil {
		return out, err
	}
	out.More = max(0, len(n.Stands)-api.MaxStands)
	for _, s := range n.Stands[:len(n.Stands)-out.More] {
		out.Stands = append(out.Stands, api.OpenCall{Call: string(s.Call), Tool: s.Tool, AgeMs: s.Age.Milliseconds(), CancelSent: s.CancelSent, State: stateOf(s)})
	}
	out.Sessions, out.Fenced, out.Killed = n.Sessions, n.Fenced, n.Killed
	if len(out.Stands) > 0 {
		out.Note = api.Effects
	}
	return out, nil
}

func stateOf(s gate.Stand) string {
	if s.Drains {
		return api.StateDraining
	}
	return api.StateAdmitted
}

// Who may do what is refused, in words: an owner who is refused what only root gives must
// not look for a part in the project that would be enough.
func rootOnly() error {
	return api.Refuse(refusal.NotPermitted, "Only root may; no part in a project is enough.")
}

func ownerOnly() error {
	return api.Refuse(refusal.NotPermitted, "The project's owner may, and root.")
}

// widen runs a widening change on the loop for root.
func (a *actions) widen(ctx context.Context, c *Call, change func() (registry.Change, ids.Project, error)) error {
	if !c.Who.Root {
		return rootOnly()
	}
	return a.do(ctx, func() error {
		ch, project, err := change()
		if err != nil || c.Req.DryRun {
			return err
		}
		if err := a.Gate.Apply(ch); err != nil {
			return err
		}
		if project != "" {
			a.Workers.Changed(project)
		}
		return nil
	})
}

// params decodes the parameters; what is not understood is refused.
func params[P any](c *Call) (P, error) {
	p, err := api.DecodeParams[P](c.Req.Params)
	if err != nil {
		return p, api.Refuse(refusal.BadRequest, "%v.", err)
	}
	return p, nil
}

func random() (r [10]byte) {
	rand.Read(r[:])
	return r
}

// by names the actor of a change.
func by(w Who, acc registry.RootAccount) string {
	switch {
	case w.Root:
		return "root"
	case acc.ID != "":
		return string(acc.ID)
	}
	return "nobody"
}

// identity is the account that the peer's uid belongs to, the zero one if there is none.
func (a *actions) identity(w Who) registry.RootAccount {
	acc, _ := a.reg.Root().AccountOf(w.UID)
	return acc
}

// account is the peer's account where that is active. Whoever is suspended is nobody
// here, and sees no more than that of themselves.
func (a *actions) account(w Who) registry.RootAccount {
	if acc := a.identity(w); a.reg.AccountStanding(acc.ID) == policy.AccountActive {
		return acc
	}
	return registry.RootAccount{}
}

// The selectors: an id, or a label that means exactly one living thing. They run on
// the loop. What the peer may not see is not found.

func pick[T any](what string, none refusal.Code, selector string, all []T, id, label func(T) string) (T, error) {
	var nothing T
	if selector == "" || len(selector) > api.MaxSelector {
		return nothing, api.Refuse(refusal.BadRequest, "Name a %s by id or label.", what)
	}
	var found []T
	for _, t := range all {
		if id(t) == selector {
			return t, nil
		}
		if label(t) == selector {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nothing, api.Missing(none, what, selector)
	}
	return nothing, api.Refuse(refusal.StaleSelector, "%d are called %q; use the id of one.", len(found), selector)
}

func (a *actions) pickAccount(selector string) (registry.RootAccount, error) {
	var all []registry.RootAccount
	for _, x := range a.reg.Root().Accounts {
		if !x.Deleted || string(x.ID) == selector {
			all = append(all, x)
		}
	}
	return pick("account", refusal.NotFound, selector, all, func(x registry.RootAccount) string { return string(x.ID) }, func(x registry.RootAccount) string { return x.Name })
}

// pickProject finds a project that the peer may read.
func (a *actions) pickProject(w Who, selector string) (registry.RootProject, error) {
	var all []registry.RootProject
	read := a.mayReadOf(w)
	// An id is looked up, and of the rest only what has the name is asked about: this is
	// on the loop, where calls wait for it, and there may be tens of thousands.
	if x, ok := a.reg.Root().Projects[ids.Project(selector)]; ok && read(x.ID) {
		all = append(all, x)
	} else {
		for _, x := range a.reg.Root().Projects {
			if x.Label == selector && !x.Deleted && read(x.ID) {
				all = append(all, x)
			}
		}
	}
	return pick("project", refusal.ProjectUnknown, selector, all, func(x registry.RootProject) string { return string(x.ID) }, func(x registry.RootProject) string { return x.Label })
}

// onlyProject is the filter of a listing: a project, or "" for all where none is named.
func (a *actions) onlyProject(w Who, selector string) (ids.Project, error) {
	if selector == "" {
		return "", nil
	}
	p, err := a.pickProject(w, selector)
	return p.ID, err
}

func (a *actions) pickServer(selector string) (registry.RootServer, error) {
	var all []registry.RootServer
	for _, x := range a.reg.Root().Servers {
		if !x.Deleted || string(x.ID) == selector {
			all = append(all, x)
		}
	}
	return pick("server", refusal.ServerUnknown, selector, all, func(x registry.RootServer) string { return string(x.ID) }, func(x registry.RootServer) string { return x.Label })
}

// pickConnection finds a project's connection to a server, by the server's label or id or the connection's own id.
func (a *actions) pickConnection(w Who, p api.ConnectionParams) (registry.RootProject, *registry.Connected, error) {
	proj, err := a.pickProject(w, p.Project)
	if err != nil {
		return proj, nil, err
	}
	var all []*registry.Connected
	for _, c := range a.reg.View(proj.ID).Connections {
		if string(c.Server) == p.Server {
			return proj, c, nil
		}
		all = append(all, c)
	}
	// A label means what lives; a connection to a deleted server is named by its id.
	c, err := pick("connection", refusal.NotFound, p.Server, all, func(c *registry.Connected) string { return string(c.ID) }, func(c *registry.Connected) string {
		if srv := a.reg.Root().Servers[c.Server]; !srv.Deleted {
			return srv.Label
		}
		return ""
	})
	for _, was := range all {
		if srv := a.reg.Root().Servers[was.Server]; err != nil && srv.Deleted && srv.Label == p.Server {
			err = api.Refuse(refusal.ServerDeleted, "%s is a connection to %s; another registration of this label is another server, and needs a connection of its own.", was.ID, srv.ID)
		}
	}
	return proj, c, err
}

// role is the peer's role in a project; root has every role that a change needs,
// but no tasks of its own.
func (a *actions) role(w Who, p ids.Project) string {
	if w.Root {
		return registry.Owner
	}
	if acc := a.account(w); acc.ID != "" {
		return a.reg.Role(acc.ID, p)
	}
	return ""
}

func (a *actions) mayRead(w Who, p ids.Project) bool { return a.mayReadOf(w)(p) }

// mayReadOf tells of many projects whether the peer may read them; who the peer is, is
// looked up once.
func (a *actions) mayReadOf(w Who) func(ids.Project) bool {
	if w.Root {
		return func(ids.Project) bool { return true }
	}
	acc := a.account(w)
	h, host := a.reg.Root().HostOf(w.UID)
	return func(p ids.Project) bool {
		if acc.ID != "" && a.reg.Role(acc.ID, p) != "" {
			return true
		}
		rp, known := a.reg.Project(p)
		return host && known && h.Serves(rp.Owner, p)
	}
}

// mayNarrow: owners and root.
func (a *actions) mayNarrow(w Who, p ids.Project) error {
	if a.role(w, p) != registry.Owner {
		return ownerOnly()
	}
	return nil
}

func sortBy[T any](s []T, key func(T) string) []T {
	slices.SortFunc(s, func(x, y T) int { return strings.Compare(key(x), key(y)) })
	return s
}
