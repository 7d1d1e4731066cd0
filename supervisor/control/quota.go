package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"postern/ids"
	"postern/supervisor/api"
	"postern/supervisor/artifact"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
	"postern/supervisor/workers"
)

// quotaPage bounds the projects that are looked at for one answer: this is on the loop.
const quotaPage = 100

// Words of a report.
const (
	inCount, inBytes = "count", "bytes"
	ours             = "Postern"
	ofProfile        = "the profile"
	ofDisk           = "the disk"
)

// quota tells every bound that one can meet, and what is used of it now.
func (a *actions) quota(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.QuotaParams](c)
	if err != nil {
		return nil, err
	}
	jails, err := a.Workers.Ps(ctx)
	if err != nil {
		return nil, err
	}
	held := map[ids.Project][]workers.Row{}
	for _, j := range jails {
		held[j.Project] = append(held[j.Project], j)
	}
	var kept artifact.Usage
	if a.Artifacts != nil {
		kept = a.Artifacts.Usage()
	}
	room := a.Store.Room()
	var out api.QuotaResult
	var rows []api.QuotaProject
	more := false
	err = a.do(ctx, func() error {
		only, err := a.onlyProject(c.Who, p.Project)
		if err != nil {
			return err
		}
		used, root := a.Gate.Usage(), a.reg.Root()
		if c.Who.Root && only == "" && p.After == "" {
			out.Postern = a.wholeQuota(used, kept, room.Activity, room.Free)
		}
		read := a.mayReadOf(c.Who)
		var shown []ids.Project
		for id, x := range root.Projects {
			if string(id) > p.After && (only == "" || id == only) && !x.Deleted && read(id) {
				shown = append(shown, id)
			}
		}
		slices.Sort(shown)
		if more = len(shown) > quotaPage; more {
			shown = shown[:quotaPage]
		}
		for _, id := range shown {
			rows = append(rows, api.QuotaProject{Project: string(id), Label: root.Projects[id].Label, Rows: a.projectQuota(id, used, kept, held[id], only != "")})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Projects, out.Next, err = api.Paged(rows, "", func(r api.QuotaProject) string { return r.Project })
	if out.Next == "" && more {
		out.Next = rows[len(rows)-1].Project
	}
	return out, err
}

// wholeQuota is what all projects share.
func (a *actions) wholeQuota(used gate.Usage, kept artifact.Usage, activity, free int64) []api.QuotaRow {
	root := a.reg.Root()
	n := a.Workers.Count()
	out := []api.QuotaRow{
		{What: "bridges", Used: int64(n.Bridges), Most: workers.MaxSets, Unit: inCount, SetBy: ours},
		{What: "jails", Used: int64(n.Bridges + n.Servers), Most: int64(root.UIDs), Unit: inCount, SetBy: "postern.yaml uid_range.count"},
		{What: "paired people", Used: int64(len(a.reg.AllPaired())), Most: registry.MaxPaired, Unit: inCount, SetBy: ours},
		{What: "records", Used: activity, Most: root.KeepBytes, Unit: inBytes, SetBy: "postern.yaml activity.keep_mib"},
		{What: "artifacts", Used: kept.Total, Most: root.Artifacts.Bytes, Unit: inBytes, SetBy: "postern.yaml artifacts.keep_mib"},
		{What: "artifacts that wait to be written", Used: kept.Waiting, Most: artifact.MaxWaiting, Unit: inBytes, SetBy: ours},
		{What: "store and artifacts", Used: activity + kept.Total, Most: activity + kept.Total + free, Unit: inBytes, SetBy: ofDisk},
	}
	var hosts []string
	for id := range root.Hosts {
		hosts = append(hosts, id)
	}
	slices.Sort(hosts)
	for _, id := range hosts {
		out = append(out, api.QuotaRow{What: "live tasks", Of: id, Used: int64(a.reg.LiveOfHost(id)), Most: registry.MaxOfHost, Unit: inCount, SetBy: ours},
			api.QuotaRow{What: "sessions", Of: id, Used: int64(used.OfHost[id]), Most: gate.MaxHostSessions, Unit: inCount, SetBy: ours})
	}
	return out
}

// projectQuota is what one project may have. Its tasks are told where it was named alone.
func (a *actions) projectQuota(p ids.Project, used gate.Usage, kept artifact.Usage, jails []workers.Row, tasks bool) []api.QuotaRow {
	root, view := a.reg.Root(), a.reg.View(p)
	live := a.reg.Tasks(p)
	out := []api.QuotaRow{
		{What: "sessions", Used: int64(used.Sessions[p]), Most: gate.MaxSessions, Unit: inCount, SetBy: ours},
		{What: "live tasks", Used: int64(len(live)), Most: registry.MaxLive, Unit: inCount, SetBy: ours},
		{What: "members", Used: int64(len(view.Members)), Most: registry.MaxMembers, Unit: inCount, SetBy: ours},
		{What: "artifacts", Used: kept.Bytes[p], Most: root.Artifacts.Project, Unit: inBytes, SetBy: "postern.yaml artifacts.project_mib"},
		{What: "records of artifacts", Used: int64(kept.Rows[p]), Most: artifact.MaxRows, Unit: inCount, SetBy: ours},
	}
	var cons []*registry.Connected
	for _, con := range view.Connections {
		cons = append(cons, con)
	}
	sortBy(cons, func(x *registry.Connected) string { return string(x.ID) })
	for _, con := range cons {
		label := root.Servers[con.Server].Label
		out = append(out, api.QuotaRow{What: "granted items", Of: string(con.ID), Label: label, Used: int64(len(con.Grants)), Most: registry.MaxTools, Unit: inCount, SetBy: ours},
			api.QuotaRow{What: "calls in flight of its fullest instance", Of: string(con.ID), Label: label, Used: int64(used.InFlight[con.ID]), Most: int64(a.Gate.InFlightMost(con.Server, con.Accepted)), Unit: inCount, SetBy: ours + ", or " + ofProfile})
	}
	slices.SortFunc(jails, func(x, y workers.Row) int { return strings.Compare(string(x.Jail), string(y.Jail)) })
	for _, j := range jails {
		if j.Jail == "" {
			continue // it does not run
		}
		label := j.Kind
		if con := view.Connections[j.Connection]; con != nil {
			label = root.Servers[con.Server].Label
		}
		by := fmt.Sprintf("profile %s", j.Profile)
		out = append(out, api.QuotaRow{What: "memory, with its /tmp", Of: string(j.Jail), Label: label, Used: j.Memory, Most: j.MemoryMax, Unit: inBytes, SetBy: by},
			api.QuotaRow{What: "processes and threads", Of: string(j.Jail), Label: label, Used: int64(j.Pids), Most: int64(j.PidsMax), Unit: inCount, SetBy: by})
	}
	if !tasks {
		return out
	}
	sortBy(live, func(x *registry.Task) string { return string(x.ID) })
	for _, t := range live {
		// A session may have so many calls open, and a task as many sessions as the project.
		n := used.OfTask[t.ID]
		out = append(out, api.QuotaRow{What: "sessions", Of: string(t.ID), Used: int64(n), Most: gate.MaxSessions, Unit: inCount, SetBy: ours},
			api.QuotaRow{What: "open calls of its sessions", Of: string(t.ID), Used: int64(used.Calls[t.ID]), Most: int64(max(n, 1) * gate.MaxPerSession), Unit: inCount, SetBy: ours})
	}
	return out
}
