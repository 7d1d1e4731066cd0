package control

import (
	"context"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/store"
	"postern/supervisor/workers"
)

// metrics answers root and the one uid that postern.yaml names for it. How much others do
// is nobody else's.
func (a *actions) metrics(ctx context.Context, c *Call) (any, error) {
	if _, err := params[struct{}](c); err != nil {
		return nil, err
	}
	out := api.MetricsResult{Version: a.Version, Started: a.started.UnixMilli(), Incarnation: a.Store.Incarnation(), Ended: map[string]uint64{}, Refused: map[string]uint64{}}
	err := a.do(ctx, func() error {
		if uid := a.reg.Root().MetricsUID; !c.Who.Root && (uid == 0 || c.Who.UID != uid) {
			return api.Refuse(refusal.NotPermitted, "Counts are shown to root and to metrics_uid of postern.yaml.")
		}
		n, sums, totals := a.Workers.Count(), a.Gate.Counts(), a.Workers.Totals()
		out.State, out.Sessions, out.Bridges, out.OpenCalls, out.Servers = a.state(), n.Sessions, n.Bridges, a.Gate.OpenCalls(), a.Workers.States()
		for _, p := range a.reg.Root().Projects {
			if !p.Deleted {
				out.Projects++
			}
		}
		out.Access = a.reg.Root().Access.State()
		out.Admitted = sums.Admitted
		for _, s := range []store.State{store.Completed, store.Failed, store.Cancelled, store.Unknown} {
			out.Ended[s.String()] = sums.Ended[s]
		}
		for code, n := range sums.Refused {
			out.Refused[string(code)] = n
		}
		out.Admission, out.Commit = histogram(totals.Admission), histogram(totals.Commit)
		out.ServerFailures, out.BridgeFailures, out.Fences, out.FenceKills, out.AuditErrors = totals.Restarts, totals.Bridges, totals.Fences, totals.Killed, sums.AuditErrors
		return nil
	})
	if err != nil {
		return nil, err
	}
	room := a.Store.Room() // may wait for a disk, and so not on the loop
	out.PolicyBytes, out.ActivityBytes, out.FreeBytes = room.Policy, room.Activity, room.Free
	return out, nil
}

func histogram(h workers.Histogram) api.Histogram {
	out := api.Histogram{Counts: h.Buckets[:], SumUsec: h.Sum.Microseconds()}
	for _, b := range h.Bounds() {
		out.BoundsUsec = append(out.BoundsUsec, b.Microseconds())
	}
	return out
}
