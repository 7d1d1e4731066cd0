package control

import (
	"context"
	"fmt"

	"postern/ids"
	"postern/policy/access"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

func (a *actions) projectResult(x registry.RootProject) api.ProjectResult {
	return api.ProjectResult{Project: string(x.ID), Label: x.Label, Owner: string(x.Owner), OwnerName: a.reg.Root().Accounts[x.Owner].Name, Workspace: x.Workspace, PersonBind: x.PersonBind, ExecutionProfile: x.ExecutionProfile, RecordArguments: x.RecordArguments, OpenNames: x.OpenNames}
}

func (a *actions) projectList(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ProjectListParams](c)
	if err != nil {
		return nil, err
	}
	var rows []api.ProjectResult
	err = a.do(ctx, func() error {
		read := a.mayReadOf(c.Who)
		for _, x := range a.reg.Root().Projects {
			if !x.Deleted && (p.Label == "" || x.Label == p.Label) && read(x.ID) {
				rows = append(rows, a.projectResult(x))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out api.ProjectListResult
	out.Projects, out.Next, err = api.Paged(rows, p.After, func(r api.ProjectResult) string { return r.Project })
	return out, err
}

func (a *actions) projectShow(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.Selected](c)
	if err != nil {
		return nil, err
	}
	out := api.ProjectShowResult{Members: []api.MemberResult{}, Connections: []api.ConnectionResult{}}
	err = a.do(ctx, func() error {
		x, err := a.pickProject(c.Who, p.Selector)
		if err != nil {
			return err
		}
		out.ProjectResult = a.projectResult(x)
		v := a.reg.View(x.ID)
		for acc, role := range v.Members {
			out.Members = append(out.Members, api.MemberResult{Account: string(acc), Name: a.reg.Root().Accounts[acc].Name, Role: role})
		}
		for _, con := range v.Connections {
			out.Connections = append(out.Connections, a.connectionResult(x, con, false))
		}
		return nil
	})
	sortBy(out.Members, func(r api.MemberResult) string { return r.Account })
	sortBy(out.Connections, func(r api.ConnectionResult) string { return r.Connection })
	return out, err
}

// projectDelete revokes everything of a project, waits until its bridges are gone
// and leaves root's tombstone. The records stay.
func (a *actions) projectDelete(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.Selected](c)
	if err != nil {
		return nil, err
	}
	var id ids.Project
	out, err := a.narrow(ctx, c, p.Selector, func() (registry.Change, []ids.Project, error) {
		x, err := a.pickProject(c.Who, p.Selector)
		if err == nil {
			err = a.mayNarrow(c.Who, x.ID)
		}
		if err != nil {
			return registry.Change{}, nil, err
		}
		id = x.ID
		ch, err := a.reg.RetireProject(x.ID, a.Now())
		if err == nil && ch.Empty() && !x.Deleted && !c.Req.DryRun {
			// Nothing of it is in policy.db, and posternd's own record of its end knows only
			// that the authority asked for it.
			err = a.Gate.As(actorOf(ctx), func() error {
				return a.Gate.Note(gate.Note{Target: string(x.ID), Before: fmt.Sprintf("label %q, live, nothing in it", x.Label), After: "deleted"})
			})
		}
		return ch, []ids.Project{x.ID}, err
	})
	if err != nil || c.Req.DryRun {
		return out, err
	}
	return out, a.Workers.Retire(ctx, id)
}

func (a *actions) memberAdd(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.MemberParams](c)
	if err != nil {
		return nil, err
	}
	var out api.MemberResult
	err = a.widen(ctx, c, func() (registry.Change, ids.Project, error) {
		x, err := a.pickProject(c.Who, p.Project)
		if err != nil {
			return registry.Change{}, "", err
		}
		acc, err := a.pickAccount(p.Account)
		if err != nil {
			return registry.Change{}, "", err
		}
		role := p.Role
		if role == "" {
			role = registry.Member
		}
		out = api.MemberResult{Account: string(acc.ID), Name: acc.Name, Role: role}
		if t := a.Gate.Suppose(x, access.Local(acc.ID), ""); role != registry.Viewer && !a.Gate.Resolved(t).Admitted {
			out.Note = "The access policy does not admit " + acc.Name + ", who can look and not connect: postern access set local " + acc.Name +
				" LEVEL admits. Once channel local is declared, owners of projects need an entry too (--owner)."
		}
		ch, err := a.reg.AddMember(x.ID, acc.ID, role)
		return ch, x.ID, err
	})
	return out, err
}

func (a *actions) memberRemove(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.MemberParams](c)
	if err != nil {
		return nil, err
	}
	return a.narrow(ctx, c, p.Account, func() (registry.Change, []ids.Project, error) {
		x, err := a.pickProject(c.Who, p.Project)
		if err != nil {
			return registry.Change{}, nil, err
		}
		acc, err := a.pickAccount(p.Account)
		if err != nil {
			return registry.Change{}, nil, err
		}
		// Whoever leaves by themselves needs no owner for it.
		if acc.ID != a.account(c.Who).ID {
			if err := a.mayNarrow(c.Who, x.ID); err != nil {
				return registry.Change{}, nil, err
			}
		}
		ch, err := a.reg.RemoveMember(x.ID, acc.ID, a.Now())
		return ch, []ids.Project{x.ID}, err
	})
}
