package control

import (
	"cmp"
	"context"
	"runtime"

	"postern/ids"
	"postern/supervisor/api"
	"postern/supervisor/store"
)

func (a *actions) status(ctx context.Context, c *Call) (any, error) {
	if _, err := params[struct{}](c); err != nil {
		return nil, err
	}
	out := api.StatusResult{Version: a.Version}
	err := a.do(ctx, func() error {
		why := a.Gate.Trouble()
		out.State = a.state()
		root := a.reg.Root()
		out.ReadOnly = root.ReadOnly
		broken := cmp.Or(root.AccessFile.Error, root.Access.Trouble(cmp.Or(root.AccessFile.Path, "access.yaml")))
		out.Access = root.Access.State()
		// How much others do is nobody's but root's; a person sees their own in ps.
		if c.Who.Root {
			n := a.Workers.Count()
			out.StatusCounts = &api.StatusCounts{Incarnation: a.Store.Incarnation(), Facts: a.reg.Root().Version, Reason: why, AccessError: broken, Access: root.AccessFile.Digest,
				OpenCalls: a.Gate.OpenCalls(), Bridges: n.Bridges, Servers: n.Servers, Sessions: n.Sessions, Unmatched: a.reg.Unmatched(),
				Goroutines: runtime.NumGoroutine()}
			out.PolicySchema, out.ActivitySchema = store.Schemas()
		}
		return nil
	})
	return out, err
}

// state is what the authority does with calls, in one word. It runs on the loop.
func (a *actions) state() string {
	state := a.Workers.DrainState()
	switch {
	case a.Gate.Trouble() != "":
		return "denying"
	case state != "":
		return state
	}
	return "serving"
}

// ps lists the live jails of the projects the peer may read.
func (a *actions) ps(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ListParams](c)
	if err != nil {
		return nil, err
	}
	live, err := a.Workers.Ps(ctx)
	if err != nil {
		return nil, err
	}
	var rows []api.PsRow
	err = a.do(ctx, func() error {
		only, err := a.onlyProject(c.Who, p.Project)
		if err != nil {
			return err
		}
		labels := map[ids.Revision]string{}
		for _, r := range live {
			if only != "" && r.Project != only || r.Project == "" && !c.Who.Root || r.Project != "" && !a.mayRead(c.Who, r.Project) {
				continue
			}
			row := api.PsRow{Kind: r.Kind, Project: string(r.Project), ProjectLabel: a.reg.Root().Projects[r.Project].Label, Task: string(r.Task), Jail: string(r.Jail), Profile: r.Profile, UID: r.UID, PID: r.PID, State: r.State,
				Memory: r.Memory, CPUUsec: r.CPUUsec, Pids: r.Pids, Started: r.Started, Calls: r.Calls, Restarts: r.Restarts, Sessions: r.Sessions, LastError: r.LastError,
				MemoryMax: r.MemoryMax, PidsMax: r.PidsMax, InFlight: r.Open,
				Skipped: r.Skipped.Lines, TooLong: r.Skipped.Long, Unmatched: r.Skipped.Unmatched}
			if p := r.Pressure; p != nil {
				row.Pressure = &api.Pressure{Memory: p.Memory, CPU: p.CPU, IO: p.IO}
			}
			label, known := labels[r.Revision]
			if !known {
				label = a.labelOf(r.Revision)
				labels[r.Revision] = label
			}
			row.Label = label
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out api.PsResult
	// What is down has no jail.
	out.Rows, out.Next, err = api.Paged(rows, p.After, func(r api.PsRow) string { return r.Project + r.Kind + r.Jail + r.Label + r.Task })
	return out, err
}

// labelOf is the label of the server that has a revision. It looks through all of them.
func (a *actions) labelOf(rev ids.Revision) string {
	for _, s := range a.reg.Root().Servers {
		if s.Revisions[rev] != nil {
			return s.Label
		}
	}
	return ""
}
