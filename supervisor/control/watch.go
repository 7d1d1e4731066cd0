package control

import (
	"context"

	"postern/supervisor/api"
)

func (a *actions) status(ctx context.Context, c *Call) (any, error) {
	if _, err := params[struct{}](c); err != nil {
		return nil, err
	}
	out := api.StatusResult{Version: a.Version, State: "serving"}
	err := a.do(ctx, func() error {
		why := a.Gate.Trouble()
		if why != "" {
			out.State = "denying"
		}
		root := a.reg.Root()
		broken, denying := root.Access.Broken()
		switch {
		case denying:
			out.Access = "denying"
		case root.Access != nil:
			out.Access = "read"
		default:
			out.Access = "none"
		}
		// How much others do is nobody's but root's; a person sees their own in ps.
		if c.Who.Root {
			n := a.Workers.Count()
			out.StatusCounts = &api.StatusCounts{Incarnation: a.Store.Incarnation(), Facts: a.reg.Root().Version, Reason: why, AccessError: broken, Access: root.AccessFile.Digest,
				OpenCalls: a.Gate.OpenCalls(), Bridges: n.Bridges, Servers: n.Servers, Sessions: n.Sessions, Unmatched: a.reg.Unmatched()}
		}
		return nil
	})
	return out, err
}

// ps lists the live jails of the projects the peer may read.
func (a *actions) ps(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ProjectParams](c)
	if err != nil {
		return nil, err
	}
	rows, err := a.Workers.Ps(ctx)
	if err != nil {
		return nil, err
	}
	out := api.PsResult{Rows: []api.PsRow{}}
	err = a.do(ctx, func() error {
		only, err := a.onlyProject(c.Who, p.Project)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if only != "" && r.Project != only || r.Project == "" && !c.Who.Root || r.Project != "" && !a.mayRead(c.Who, r.Project) {
				continue
			}
			row := api.PsRow{Kind: r.Kind, Project: string(r.Project), ProjectLabel: a.reg.Root().Projects[r.Project].Label, Task: string(r.Task), Jail: string(r.Jail), Profile: r.Profile, UID: r.UID, PID: r.PID, State: r.State,
				Memory: r.Memory, CPUUsec: r.CPUUsec, Pids: r.Pids, Started: r.Started, Calls: r.Calls, Restarts: r.Restarts, Sessions: r.Sessions, LastError: r.LastError,
				Skipped: r.Skipped.Lines, TooLong: r.Skipped.Long, Unmatched: r.Skipped.Unmatched}
			for _, s := range a.reg.Root().Servers {
				if s.Revisions[r.Revision] != nil {
					row.Label = s.Label
				}
			}
			out.Rows = append(out.Rows, row)
		}
		return nil
	})
	sortBy(out.Rows, func(r api.PsRow) string { return r.Project + r.Kind + r.Jail })
	return out, err
}
