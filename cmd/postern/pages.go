package main

import (
	"context"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// everyPage asks for each page of a list. take keeps the rows of one and returns what the
// next one begins after, "" where it is the last.
func everyPage[R any](ctx context.Context, a *app, action api.Action, params func(after string) any, take func(R) (next string)) error {
	for after := ""; ; {
		r, err := ask[R](ctx, a, action, params(after), client.Options{})
		if err != nil {
			return err
		}
		next := take(r)
		if next <= after { // pages go forward, or end
			return nil
		}
		after = next
	}
}

func afterAll(after string) any { return api.PageParams{After: after} }

func ofProject(project string) func(after string) any {
	return func(after string) any { return api.ListParams{Project: project, After: after} }
}

// allProjects are the projects that one may see; with a label, those that are called so.
func (a *app) allProjects(ctx context.Context, label string) (all api.ProjectListResult, err error) {
	all.Projects = []api.ProjectResult{}
	return all, everyPage(ctx, a, api.ProjectList, func(after string) any { return api.ProjectListParams{Label: label, After: after} }, func(r api.ProjectListResult) string {
		all.Projects = append(all.Projects, r.Projects...)
		return r.Next
	})
}

// allAccounts are the accounts that one may see.
func (a *app) allAccounts(ctx context.Context) (all api.AccountListResult, err error) {
	all.Accounts = []api.AccountResult{}
	return all, everyPage(ctx, a, api.AccountList, afterAll, func(r api.AccountListResult) string {
		all.Accounts = append(all.Accounts, r.Accounts...)
		return r.Next
	})
}

// allServers are the registrations.
func (a *app) allServers(ctx context.Context) (all api.ServerListResult, err error) {
	all.Servers = []api.ServerResult{}
	return all, everyPage(ctx, a, api.ServerList, afterAll, func(r api.ServerListResult) string {
		all.Servers = append(all.Servers, r.Servers...)
		return r.Next
	})
}

// allCredentials are the credentials, without what they are.
func (a *app) allCredentials(ctx context.Context) (all api.CredentialListResult, err error) {
	all.Credentials = []api.CredentialResult{}
	return all, everyPage(ctx, a, api.CredentialList, afterAll, func(r api.CredentialListResult) string {
		all.Credentials = append(all.Credentials, r.Credentials...)
		return r.Next
	})
}

// allConnections are the connections of a project.
func (a *app) allConnections(ctx context.Context, project string) (all api.ConnectionListResult, err error) {
	all.Connections = []api.ConnectionResult{}
	return all, everyPage(ctx, a, api.ConnectionList, ofProject(project), func(r api.ConnectionListResult) string {
		all.Connections = append(all.Connections, r.Connections...)
		return r.Next
	})
}

// allTasks are the tasks that one may see, or those of a project.
func (a *app) allTasks(ctx context.Context, project string) (all api.TaskListResult, err error) {
	all.Tasks = []api.TaskResult{}
	return all, everyPage(ctx, a, api.TaskList, ofProject(project), func(r api.TaskListResult) string {
		all.Tasks = append(all.Tasks, r.Tasks...)
		return r.Next
	})
}

// allJails are the bridges and tool servers that one may see, or those of a project. They
// come and go between two pages.
func (a *app) allJails(ctx context.Context, project string) (all api.PsResult, err error) {
	all.Rows = []api.PsRow{}
	return all, everyPage(ctx, a, api.Ps, ofProject(project), func(r api.PsResult) string {
		all.Rows = append(all.Rows, r.Rows...)
		return r.Next
	})
}
