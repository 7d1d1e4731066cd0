package control

import (
	"context"

	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

func (a *actions) accountResult(x registry.RootAccount) api.AccountResult {
	r := api.AccountResult{Account: string(x.ID), Name: x.Name, UIDs: x.UIDs, Status: "unknown"}
	switch a.reg.AccountStanding(x.ID) {
	case policy.AccountActive:
		r.Status = "active"
	case policy.AccountSuspended:
		r.Status = "suspended"
	case policy.AccountDeleted:
		r.Status = "deleted"
	}
	return r
}

// accountList: root sees all, an account itself.
func (a *actions) accountList(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.PageParams](c)
	if err != nil {
		return nil, err
	}
	var rows []api.AccountResult
	err = a.do(ctx, func() error {
		mine := a.identity(c.Who).ID
		for _, x := range a.reg.Root().Accounts {
			if c.Who.Root || x.ID == mine {
				rows = append(rows, a.accountResult(x))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out api.AccountListResult
	out.Accounts, out.Next, err = api.Paged(rows, p.After, func(r api.AccountResult) string { return r.Account })
	return out, err
}

// ownAccount finds an account that the peer may see: its own, or any for root.
func (a *actions) ownAccount(w Who, selector string) (registry.RootAccount, error) {
	x, err := a.pickAccount(selector)
	if !w.Root && (err != nil || x.ID != a.identity(w).ID) {
		return x, api.Missing(refusal.NotFound, "account", selector)
	}
	return x, err
}

func (a *actions) accountShow(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.Selected](c)
	if err != nil {
		return nil, err
	}
	var out api.AccountResult
	err = a.do(ctx, func() error {
		x, err := a.ownAccount(c.Who, p.Selector)
		if err == nil {
			out = a.accountResult(x)
		}
		return err
	})
	return out, err
}

// accountSuspend narrows: root, or the account itself.
func (a *actions) accountSuspend(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.Selected](c)
	if err != nil {
		return nil, err
	}
	return a.narrow(ctx, c, p.Selector, func() (registry.Change, []ids.Project, error) {
		x, err := a.ownAccount(c.Who, p.Selector)
		if err != nil {
			return registry.Change{}, nil, err
		}
		ch, err := a.reg.Suspend(x.ID, true, c.Req.At)
		return ch, a.projectsOf(x.ID), err
	})
}

// projectsOf lists the projects in which an account could have anything open.
func (a *actions) projectsOf(acc ids.Account) []ids.Project {
	var out []ids.Project
	for id := range a.reg.Root().Projects {
		if a.reg.Role(acc, id) != "" {
			out = append(out, id)
		}
	}
	return out
}

func (a *actions) accountActivate(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.Selected](c)
	if err != nil {
		return nil, err
	}
	var out api.AccountResult
	err = a.widen(ctx, c, func() (registry.Change, ids.Project, error) {
		x, err := a.pickAccount(p.Selector)
		if err != nil {
			return registry.Change{}, "", err
		}
		ch, err := a.reg.Suspend(x.ID, false, c.Req.At)
		out = a.accountResult(x)
		if !c.Req.DryRun && err == nil {
			out.Status = "active"
		}
		return ch, "", err
	})
	return out, err
}
