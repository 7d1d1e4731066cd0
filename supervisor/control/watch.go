package control

import (
	"context"
	"encoding/hex"
	"time"

	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/store"
)

func (a *actions) status(ctx context.Context, c *Call) (any, error) {
	if _, err := params[struct{}](c); err != nil {
		return nil, err
	}
	out := api.StatusResult{Version: a.Version, Incarnation: a.Store.Incarnation(), State: "serving"}
	err := a.do(ctx, func() error {
		n := a.Workers.Count()
		out.Facts, out.OpenCalls = a.reg.Root().Version, a.Gate.OpenCalls()
		out.Bridges, out.Servers, out.Sessions = n.Bridges, n.Servers, n.Sessions
		if why := a.Gate.Trouble(); why != "" {
			out.State, out.Reason = "denying", why
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
			row := api.PsRow{Kind: r.Kind, Project: string(r.Project), ProjectLabel: a.reg.Root().Projects[r.Project].Label, Jail: string(r.Jail), Profile: r.Profile, UID: r.UID, PID: r.PID, State: r.State,
				Memory: r.Memory, CPUUsec: r.CPUUsec, Pids: r.Pids, Started: r.Started, Calls: r.Calls, Restarts: r.Restarts, Sessions: r.Sessions, LastError: r.LastError}
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

// MaxActivity bounds one page.
const MaxActivity = 500

// readsActivity says where the peer may read records: whole projects by role, or
// only its own tasks' records where it is a member. Administrators see records,
// which hold no argument.
func (a *actions) readsActivity(w Who, r *store.Call) bool {
	if w.Root {
		return true
	}
	if h, ok := a.reg.Root().HostOf(w.UID); ok && h.ID == r.Host {
		return true
	}
	acc := a.account(w).ID
	switch a.role(w, r.Project) {
	case "owner", "viewer":
		return true
	case "member":
		return r.Account == acc
	}
	return false
}

// activity answers one page, or follows: every page is authorized anew, so that a
// removed member's stream ends with what it may no longer see.
func (a *actions) activity(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ActivityParams](c)
	if err != nil {
		return nil, err
	}
	q := store.Query{Since: p.Since * int64(time.Millisecond), Limit: p.Limit}
	if q.Limit <= 0 || q.Limit > MaxActivity {
		q.Limit = MaxActivity
	}
	if p.State != "" {
		st, ok := store.ParseState(p.State)
		if !ok {
			return nil, api.Refuse(refusal.BadRequest, "%q is not a state of a call.", p.State)
		}
		q.State = st
	}
	cur, err := activity.ParseCursor(p.Cursor)
	if err != nil {
		return nil, api.Refuse(refusal.StaleSelector, "The cursor was not made here.")
	}
	if p.Follow {
		cur.Follow = true
	}
	for {
		next := a.Bell.Next()
		out, after, err := a.page(ctx, c.Who, p.Project, q, cur)
		if err != nil || !p.Follow {
			return out, err
		}
		cur = after
		for _, r := range out.Rows {
			if err := c.Event(r); err != nil {
				return out, nil
			}
		}
		if out.More {
			continue
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-next:
		case <-time.After(followSilent):
			if !c.Who.peer.Alive() {
				return out, refusal.PeerGone
			}
		}
	}
}

func (a *actions) page(ctx context.Context, w Who, project string, q store.Query, cur activity.Cursor) (api.ActivityResult, activity.Cursor, error) {
	out := api.ActivityResult{Rows: []api.ActivityRow{}}
	if err := a.do(ctx, func() error {
		var err error
		if q.Project, err = a.onlyProject(w, project); err != nil {
			return err
		}
		// Outcomes that still wait for a commit's company are part of what is asked for.
		return a.Gate.Flush()
	}); err != nil {
		return out, cur, err
	}
	cur.Apply(&q)
	page, err := a.Store.Calls(q)
	if err != nil {
		return out, cur, err
	}
	after := cur.Next(page)
	out.Cursor, out.More = after.String(), page.More
	err = a.do(ctx, func() error {
		for i := range page.Calls {
			if a.readsActivity(w, &page.Calls[i]) {
				// Each row's own place, so that whoever read half a page goes on behind it.
				at := activity.Cursor{Before: page.Calls[i].Seq}
				if cur.Follow {
					at = activity.Cursor{Follow: true, After: page.Calls[i].Change, From: cur.From}
				}
				r := row(&page.Calls[i], at.String())
				r.ProjectLabel = a.reg.Root().Projects[page.Calls[i].Project].Label
				out.Rows = append(out.Rows, r)
			}
		}
		return nil
	})
	return out, after, err
}

func row(c *store.Call, cursor string) api.ActivityRow {
	r := api.ActivityRow{Call: string(c.ID), Time: c.At / int64(time.Millisecond), Account: string(c.Account), Host: c.Host, Project: string(c.Project), Task: string(c.Task),
		Principal: c.Principal, Mode: c.Mode, Session: string(c.Session), Connection: string(c.Connection), Revision: string(c.Revision),
		Tool: activity.Shown(c.Tool, activity.MaxTool), Classes: class.Set(c.Classes).Strings(), RequestID: activity.Shown(c.RequestID, activity.MaxRequestID),
		ArgsSize: c.ArgsSize, State: c.State.String(), Ended: c.Ended / int64(time.Millisecond), Size: c.Size, Code: string(c.Code), Reason: activity.Shown(c.Reason, activity.MaxReason), Cursor: cursor}
	if c.ArgsDigest != (store.Digest{}) {
		r.ArgsDigest = hex.EncodeToString(c.ArgsDigest[:])
	}
	if c.Count > 1 {
		r.Count = int(c.Count)
	}
	return r
}
