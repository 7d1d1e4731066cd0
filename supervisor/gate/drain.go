package gate

import (
	"cmp"
	"slices"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/store"
)

// SetDraining refuses every further call, or admits again. What is open goes on.
func (g *Gate) SetDraining(on bool) { g.draining = on }

// bounded is what the gate's own bounds say of one more call.
func (g *Gate) bounded(full bool) policy.Limits {
	switch {
	case g.draining:
		return policy.Draining
	case full:
		return policy.TooManyCalls
	}
	return policy.WithinLimits
}

// OpenCall is an admitted call without an outcome.
type OpenCall struct {
	Set  Set
	Call ids.Call
	Task ids.Task
	Tool string
	Age  time.Duration
}

// Open lists the open calls, the oldest first.
func (g *Gate) Open() []OpenCall {
	now := g.now()
	out := make([]OpenCall, 0, len(g.open))
	for id, c := range g.open {
		out = append(out, OpenCall{Set: c.set, Call: id, Task: c.session.task.ID, Tool: c.rec.Tool, Age: c.age(now)})
	}
	slices.SortFunc(out, func(a, b OpenCall) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Call, b.Call)) })
	return out
}

// LiveTask is a task with sessions.
type LiveTask struct {
	Task     ids.Task
	Project  ids.Project
	Sessions int
	Calls    int // open
}

// LiveTasks lists the tasks that have sessions.
func (g *Gate) LiveTasks() []LiveTask {
	var out []LiveTask
	for task, sessions := range g.byTask {
		t := LiveTask{Task: task, Sessions: len(sessions)}
		for _, s := range sessions {
			t.Project, t.Calls = s.set.Project, t.Calls+s.open
		}
		if t.Sessions > 0 {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b LiveTask) int { return cmp.Compare(a.Task, b.Task) })
	return out
}

// GiveUp ends a call as unknown, with the reason in words.
func (g *Gate) GiveUp(id ids.Call, code refusal.Code, reason string) {
	if c := g.open[id]; c != nil {
		g.end(c, store.Outcome{State: store.Unknown, At: g.now().UnixNano(), Code: code, Reason: activity.Clean(reason, activity.MaxReason)})
	}
}
