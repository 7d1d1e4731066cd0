package control

import (
	"context"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

// ownTask finds the task that a runtime asks for: root and the task's host may name
// it, and so may the user the task runs as and its account. By project it is the
// asker's own, where a person connects without a token. It runs on the loop.
func (a *actions) ownTask(w Who, p api.CheckParams) (*registry.Task, error) {
	if (p.Task == "") == (p.Project == "") {
		return nil, api.Refuse(refusal.BadRequest, "Name a task, or the project of your own one.")
	}
	if p.Project != "" {
		proj, err := a.pickProject(w, p.Project)
		if err != nil {
			return nil, err
		}
		acc := a.account(w).ID
		for _, t := range a.reg.Tasks(proj.ID) {
			if t.Host == registry.LocalHost && acc != "" && t.Account == acc {
				return t, nil
			}
		}
		return nil, api.Refuse(refusal.TaskUnknown, "You have no task of your own in project %q: it is made by connecting.", proj.Label)
	}
	t := a.reg.Task(ids.Task(p.Task))
	if t == nil || !a.mayCheck(w, t) {
		return nil, api.Missing(refusal.TaskUnknown, "task", p.Task)
	}
	return t, nil
}

func (a *actions) mayCheck(w Who, t *registry.Task) bool {
	if w.Root {
		return true
	}
	if h, ok := a.reg.Root().HostOf(w.UID); ok {
		return h.ID == t.Host
	}
	if acc := a.account(w).ID; acc != "" && acc == t.Account {
		return true
	}
	uid, err := a.Gate.TaskUID(t.ID)
	return err == nil && uid == w.UID
}

// check decides about a runtime's own tool, as its hook asks before each use.
func (a *actions) check(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.CheckParams](c)
	if err != nil {
		return nil, err
	}
	if p.Tool == "" || len(p.Tool) > api.MaxSelector || len(p.Paths) > gate.MaxNativePaths {
		return nil, api.Refuse(refusal.BadRequest, "A check names one tool of at most %d bytes, and at most %d paths.", api.MaxSelector, gate.MaxNativePaths)
	}
	if len(p.ArgsDigest) != 0 && len(p.ArgsDigest) != 64 || p.ArgsSize < 0 {
		return nil, api.Refuse(refusal.BadRequest, "The digest of the arguments is SHA-256 in hex.")
	}
	q := gate.Native{Tool: p.Tool, Paths: p.Paths, Unjudged: p.Unjudged, RequestID: p.RequestID, Digest: p.ArgsDigest, Size: p.ArgsSize}
	var d gate.Checked
	var task string
	var whole bool // the asker may have the task explained
	ask := func(seen gate.Seen) error {
		return a.do(ctx, func() error {
			t, err := a.ownTask(c.Who, p)
			switch {
			case err != nil:
			case c.Req.DryRun: // nothing is recorded, and no path is looked at
				e := a.Gate.ExplainNative(t, q.Tool)
				task, d = string(t.ID), gate.Checked{Verdict: e.Verdict, Reasons: e.Reasons}
			default:
				task, d = string(t.ID), a.Gate.Check(t, q, seen)
			}
			whole = err == nil && a.seesTask(c.Who, t)
			return err
		})
	}
	if err := ask(gate.Seen{}); err != nil {
		return nil, err
	}
	if d.Ask != nil {
		seen, err := a.Workers.Look(ctx, d.Ask)
		if err == nil {
			err = ask(seen)
		}
		if err != nil {
			return nil, err
		}
	}
	return checkResult(task, p.Tool, d, whole), nil
}

// checkResult answers with every rule that denies. What a rule read, and where that is
// written, is told to whoever may have the task explained.
func checkResult(task, tool string, d gate.Checked, whole bool) api.CheckResult {
	v := d.Verdict
	out := api.CheckResult{Task: task, Tool: tool, Allowed: v.Allow}
	if v.Allow {
		return out
	}
	out.Code, out.Refusal = string(v.Code), api.Refuse(v.Code, "")
	for _, c := range v.Also {
		out.Also = append(out.Also, string(c))
	}
	for _, r := range d.Reasons {
		if r.Code == "" {
			continue
		}
		row := ruleResult(r)
		if !whole {
			row.Read, row.From = "", ""
		}
		out.Rules = append(out.Rules, row)
	}
	return out
}
