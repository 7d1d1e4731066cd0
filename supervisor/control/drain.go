package control

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/workers"
)

// defaultDrain is what open calls get where nobody says.
const defaultDrain = 30 * time.Second

// drained is what the record of a drain is about: all of it.
const drained = "postern"

// drain takes nothing new, for root alone, until it is taken back or Postern ends. It
// goes on when its client is gone.
func (a *actions) drain(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.DrainParams](c)
	switch {
	case err != nil:
		return nil, err
	case !c.Who.Root:
		return nil, rootOnly()
	case p.Now && p.Cancel || p.TimeoutMs != 0 && (p.Now || p.Cancel):
		return nil, api.Refuse(refusal.BadRequest, "A drain has a time, or none (now), or is taken back (cancel).")
	case p.TimeoutMs < 0 || p.TimeoutMs > workers.MaxDrain.Milliseconds():
		return nil, api.Refuse(refusal.BadRequest, "A drain gives open calls at most %v.", workers.MaxDrain)
	case c.Req.DryRun:
		return a.wouldDrain(ctx, p.Cancel)
	case p.Cancel:
		return a.undrain(ctx, c)
	}
	most := time.Duration(p.TimeoutMs) * time.Millisecond
	if most == 0 && !p.Now {
		most = defaultDrain
	}
	err = a.do(ctx, func() error {
		return a.Gate.Note(gate.Note{Target: drained, Before: cmp.Or(a.Workers.DrainState(), "serving"), After: fmt.Sprintf("draining, open calls have at most %v", most)})
	})
	if err != nil {
		return nil, err
	}
	a.Log.Info("a drain was asked for", "uid", c.Who.UID, "for", most)
	var told time.Duration = -1
	d, err := a.Workers.Drain(ctx, most, func(open int, left time.Duration) {
		if left = left.Round(time.Second); left != told {
			told = left
			_ = c.Event(api.Progress{Text: drainText(open, left)}) // a client that is gone is seen at the answer
		}
	})
	if err != nil {
		return nil, err
	}
	out := drainResult(d)
	out.State, out.Note = "drained", "Postern takes no session and no call until it is started again, or postern drain --cancel."
	if d.Cancelled {
		out.State, out.Note = "serving", "The drain was taken back before it was over."
	}
	return out, nil
}

func drainText(open int, left time.Duration) string {
	if open == 0 {
		return "no call is open; sessions and jails are ended"
	}
	return fmt.Sprintf("%d calls are open, and have %v", open, left)
}

func (a *actions) undrain(ctx context.Context, c *Call) (any, error) {
	out := api.DrainResult{State: "serving", Tasks: []api.DrainTask{}, Calls: []api.DrainCall{}, Ended: []api.DrainCall{}}
	err := a.do(ctx, func() error {
		back, err := a.Workers.Undrain(func() error {
			return a.Gate.Note(gate.Note{Target: drained, Before: a.Workers.DrainState(), After: "serving"})
		})
		if err != nil {
			return err
		}
		if back {
			a.Log.Info("the drain was taken back", "uid", c.Who.UID)
			out.Note = "New sessions and calls are taken again."
			return nil
		}
		if out.State = a.Workers.DrainState(); out.State != "" {
			return api.Refuse(refusal.Draining, "Postern is about to end, and that cannot be taken back.")
		}
		out.State, out.Note = "serving", "There was no drain."
		return nil
	})
	return out, err
}

// wouldDrain shows what is live.
func (a *actions) wouldDrain(ctx context.Context, cancel bool) (any, error) {
	var out api.DrainResult
	err := a.do(ctx, func() error {
		out = drainResult(a.Workers.Live())
		out.State = a.Workers.DrainState()
		return nil
	})
	if out.State == "" || cancel {
		out.State = "serving"
	}
	out.Note = "Nothing was changed: this was a dry run."
	return out, err
}

func drainResult(d workers.Drained) api.DrainResult {
	out := api.DrainResult{Tasks: []api.DrainTask{}, Calls: drainCalls(d.Calls), Ended: drainCalls(d.Ended), Sessions: d.Sessions}
	for _, t := range d.Tasks {
		out.Tasks = append(out.Tasks, api.DrainTask{Task: string(t.Task), Project: string(t.Project), Sessions: t.Sessions, Calls: t.Calls})
	}
	return out
}

func drainCalls(all []gate.OpenCall) []api.DrainCall {
	out := make([]api.DrainCall, 0, len(all))
	for _, c := range all {
		out = append(out, api.DrainCall{Call: string(c.Call), Tool: c.Tool, Task: string(c.Task), Project: string(c.Set.Project), AgeMs: c.Age.Milliseconds()})
	}
	return out
}
