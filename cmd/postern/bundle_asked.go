package main

import (
	"context"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// asked asks the supervisor for what a bundle takes a part of.
func asked[R any](ctx context.Context, b *bundling, action api.Action, params any) (R, error) {
	return askFor[R](ctx, b.a, bundleWait, action, params, client.Options{})
}

func (b *bundling) rootStatus(ctx context.Context) (api.RootStatusResult, error) {
	return b.root.get(func() (api.RootStatusResult, error) {
		return asked[api.RootStatusResult](ctx, b, api.RootStatus, struct{}{})
	})
}

func (b *bundling) authorityStatus(ctx context.Context) (api.StatusResult, error) {
	return b.state.get(func() (api.StatusResult, error) {
		return asked[api.StatusResult](ctx, b, api.Status, struct{}{})
	})
}

func (b *bundling) projectList(ctx context.Context) (api.ProjectListResult, error) {
	return b.known.get(func() (api.ProjectListResult, error) { return b.a.allProjects(ctx, "") })
}

// configFile is the path of postern.yaml.
func (b *bundling) configFile(ctx context.Context) string {
	if b.confFile != "" {
		return b.confFile
	}
	if r, err := b.rootStatus(ctx); err == nil && r.Config.File != "" {
		return r.Config.File
	}
	return "/etc/postern/postern.yaml"
}

func (b *bundling) versions(ctx context.Context) (any, error) {
	type programs struct {
		Posternd       string `json:"posternd,omitempty"`
		Authority      string `json:"authority,omitempty"`
		Instance       string `json:"instance,omitempty"`
		PolicySchema   int    `json:"policy_schema,omitzero"`
		ActivitySchema int    `json:"activity_schema,omitzero"`
		Facts          uint64 `json:"facts,omitzero"` // version of the root facts
		Incarnation    uint64 `json:"incarnation,omitzero"`
	}
	out := struct {
		Postern string `json:"postern"`
		Go      string `json:"go"`
		Kernel  string `json:"kernel"`
		programs
	}{Postern: "(devel)", Go: runtime.Version(), Kernel: kernelRelease()}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		out.Postern = info.Main.Version
	}
	if r, err := b.rootStatus(ctx); err == nil {
		out.Posternd, out.Instance = r.Version, r.Instance
	}
	if s, err := b.authorityStatus(ctx); err == nil {
		out.Authority = s.Version
		if c := s.StatusCounts; c != nil {
			out.PolicySchema, out.ActivitySchema, out.Facts, out.Incarnation = c.PolicySchema, c.ActivitySchema, c.Facts, c.Incarnation
		}
	}
	return out, nil
}

func (b *bundling) doctor(ctx context.Context) (any, error) {
	r := defaultUIDs
	root, err := b.rootStatus(ctx)
	if err != nil {
		root = api.RootStatusResult{}
	}
	if root.UIDCount > 0 {
		r = uidRange{uint64(root.UIDFirst), uint64(root.UIDCount)}
	}
	dirs := []string{existing(b.rootDir)}
	if all, err := b.projectList(ctx); err == nil {
		for _, p := range all.Projects {
			dirs = append(dirs, p.Workspace)
		}
	}
	doc := judged(append(hostLayers(dirs), uidLayer(r), userLayer(root), programsLayer(root.Libexec)))
	// Of the supervisor's layer the state alone: its words quote what is wrong with files.
	doc.Layers = append(doc.Layers, layer{Layer: "supervisor", State: b.a.supervisorLayer(ctx, root).State})
	return doc, nil
}

func (b *bundling) status(ctx context.Context) (any, error) {
	st, err := b.authorityStatus(ctx)
	if err != nil {
		return nil, err
	}
	type counts struct {
		Sessions  int `json:"sessions"`
		Bridges   int `json:"bridges"`
		Servers   int `json:"servers"`
		OpenCalls int `json:"open_calls"`
	}
	type posternd struct {
		Cgroup    string `json:"cgroup"`
		UIDFirst  uint32 `json:"uid_first"`
		UIDCount  uint32 `json:"uid_count"`
		PID       int    `json:"pid"`
		Authority int    `json:"authority_pid"`
		Restarts  int    `json:"authority_restarts"`
		Jails     int    `json:"jails"`
		Access    string `json:"access"`
		Config    bool   `json:"config_mistaken"`
	}
	out := struct {
		State   string             `json:"state"`
		Access  string             `json:"access"`
		Frozen  int64              `json:"read_only_since,omitzero"`
		Counts  *counts            `json:"counts,omitempty"`
		Root    *posternd          `json:"posternd,omitempty"`
		Metrics *api.MetricsResult `json:"metrics,omitempty"` // sums: they name nobody and nothing
	}{State: st.State, Access: st.Access, Frozen: st.ReadOnly}
	if c := st.StatusCounts; c != nil {
		out.Counts = &counts{c.Sessions, c.Bridges, c.Servers, c.OpenCalls}
	}
	if r, err := b.rootStatus(ctx); err == nil {
		out.Root = &posternd{r.Cgroup, r.UIDFirst, r.UIDCount, r.PID, r.Authority, r.Restarts, r.Jails, r.Access.State, r.Config.Error != ""}
	}
	if m, err := asked[api.MetricsResult](ctx, b, api.Metrics, struct{}{}); err == nil {
		out.Metrics = &m
	}
	return out, nil
}

func (b *bundling) profiles(ctx context.Context) (any, error) {
	all, err := loadProfiles(filepath.Join(filepath.Dir(b.configFile(ctx)), "profiles.d"))
	if err != nil {
		return nil, err
	}
	type row struct {
		profileRow
		CPUPercent int    `json:"cpu_percent"`
		Nofile     int    `json:"nofile"`
		FsizeBytes int64  `json:"fsize_bytes"`
		TmpBytes   int64  `json:"tmp_bytes"`
		TmpInodes  int    `json:"tmp_inodes"`
		ShmBytes   int64  `json:"shm_bytes"`
		Idle       string `json:"idle"`
		StopGrace  string `json:"stop_grace"`
		Start      string `json:"start_timeout"`
	}
	return rowsOf(all, bundleRows, func(d profileDocument) row {
		return row{d.profileRow, d.CPUPercent, d.Nofile, d.FsizeBytes, d.TmpBytes, d.TmpInodes, d.ShmBytes, d.Idle, d.StopGrace, d.StartTimeout}
	}), nil
}

func (b *bundling) accounts(ctx context.Context) (any, error) {
	all, err := b.a.allAccounts(ctx)
	if err != nil {
		return nil, err
	}
	return rowsOf(all.Accounts, bundleRows, func(x api.AccountResult) api.AccountResult {
		return api.AccountResult{Account: x.Account, Name: x.Name, UIDs: x.UIDs, Status: x.Status}
	}), nil
}

func (b *bundling) projects(ctx context.Context) (any, error) {
	all, err := b.projectList(ctx)
	if err != nil {
		return nil, err
	}
	return rowsOf(all.Projects, bundleRows, func(x api.ProjectResult) api.ProjectResult {
		return api.ProjectResult{Project: x.Project, Label: x.Label, Owner: x.Owner, Workspace: x.Workspace, PersonBind: x.PersonBind,
			ExecutionProfile: x.ExecutionProfile, RecordArguments: x.RecordArguments, OpenNames: x.OpenNames}
	}), nil
}

func (b *bundling) servers(ctx context.Context) (any, error) {
	all, err := b.a.allServers(ctx)
	if err != nil {
		return nil, err
	}
	type row struct {
		Server     string `json:"server"`
		Label      string `json:"label"`
		Revision   string `json:"revision"`
		Digest     string `json:"digest"`
		Profile    string `json:"profile"`
		Scope      string `json:"scope"`
		Credential string `json:"credential"`
		Package    string `json:"package,omitempty"`
		Words      int    `json:"command_words"`
		Classes    int    `json:"classes"`
		Tiers      int    `json:"tiers"`
		Deleted    bool   `json:"deleted,omitzero"`
	}
	return rowsOf(all.Servers, bundleRows, func(x api.ServerResult) row {
		return row{x.Server, x.Label, x.Revision, x.Digest, x.Profile, x.Scope, x.Credential, x.Package, len(x.Command), len(x.Classes), len(x.Tiers), x.Deleted}
	}), nil
}

func (b *bundling) connections(ctx context.Context) (any, error) {
	all, err := b.projectList(ctx)
	if err != nil {
		return nil, err
	}
	type row struct {
		Connection string `json:"connection"`
		Project    string `json:"project"`
		Server     string `json:"server"`
		Enabled    bool   `json:"enabled"`
		Credential string `json:"credential"`
		State      string `json:"credential_state,omitempty"`
		Accepted   string `json:"accepted"`
		Current    string `json:"current"`
		Readiness  string `json:"readiness"`
		Version    uint64 `json:"version"`
	}
	var found []api.ConnectionResult
	for i, p := range all.Projects {
		if i == bundleProjects || len(found) >= bundleRows {
			break
		}
		r, err := b.a.allConnections(ctx, p.Project)
		if err != nil {
			return nil, err
		}
		found = append(found, r.Connections...)
	}
	out := struct {
		rows[row]
		Projects int `json:"projects_not_asked,omitzero"`
	}{rowsOf(found, bundleRows, func(x api.ConnectionResult) row {
		return row{x.Connection, x.Project, x.Server, x.Enabled, x.Credential, x.CredentialState, x.Accepted, x.Current, x.Readiness, x.Version}
	}), max(0, len(all.Projects)-bundleProjects)}
	return out, nil
}

func (b *bundling) credentials(ctx context.Context) (any, error) {
	all, err := b.a.allCredentials(ctx)
	if err != nil {
		return nil, err
	}
	type row struct {
		Credential string `json:"credential"`
		Project    string `json:"project"`
		Server     string `json:"server"`
		Generation uint64 `json:"generation"`
		Created    int64  `json:"created"`
		Changed    int64  `json:"changed"`
		Readable   bool   `json:"readable"`
	}
	return rowsOf(all.Credentials, bundleRows, func(x api.CredentialResult) row {
		return row{x.Credential, x.Project, x.Server, x.Generation, x.Created, x.Changed, x.State == "ok"}
	}), nil
}

func (b *bundling) ps(ctx context.Context) (any, error) {
	all, err := b.a.allJails(ctx, "")
	if err != nil {
		return nil, err
	}
	type row struct {
		Kind      string        `json:"kind"`
		Project   string        `json:"project,omitempty"`
		Task      string        `json:"task,omitempty"`
		Label     string        `json:"label,omitempty"`
		Jail      string        `json:"jail"`
		Profile   string        `json:"profile"`
		UID       uint32        `json:"uid"`
		PID       int           `json:"pid"`
		State     string        `json:"state"`
		Memory    int64         `json:"memory"`
		MemoryMax int64         `json:"memory_max,omitzero"`
		CPUUsec   int64         `json:"cpu_usec"`
		Pids      int           `json:"pids"`
		PidsMax   int           `json:"pids_max,omitzero"`
		Started   int64         `json:"started"`
		Calls     uint64        `json:"calls"`
		InFlight  int           `json:"in_flight"`
		Restarts  int           `json:"restarts"`
		Sessions  int           `json:"sessions"`
		Failed    bool          `json:"failed,omitzero"` // it has a last error
		Skipped   int64         `json:"skipped,omitzero"`
		TooLong   int64         `json:"too_long,omitzero"`
		Unmatched int64         `json:"unmatched,omitzero"`
		Pressure  *api.Pressure `json:"pressure,omitzero"`
	}
	return rowsOf(all.Rows, bundleRows, func(x api.PsRow) row {
		return row{x.Kind, x.Project, x.Task, x.Label, x.Jail, x.Profile, x.UID, x.PID, x.State, x.Memory, x.MemoryMax, x.CPUUsec, x.Pids, x.PidsMax,
			x.Started, x.Calls, x.InFlight, x.Restarts, x.Sessions, x.LastError != "", x.Skipped, x.TooLong, x.Unmatched, x.Pressure}
	}), nil
}

func (b *bundling) activity(ctx context.Context) (any, error) {
	all, err := asked[api.ActivityResult](ctx, b, api.Activity, api.ActivityParams{Limit: bundleRecords})
	if err != nil {
		return nil, err
	}
	type row struct {
		Call       string   `json:"call,omitempty"`
		Time       int64    `json:"time"`
		Account    string   `json:"account"`
		Project    string   `json:"project"`
		Task       string   `json:"task"`
		Session    string   `json:"session"`
		Connection string   `json:"connection,omitempty"`
		Revision   string   `json:"revision,omitempty"`
		Tool       string   `json:"tool,omitempty"` // where it was admitted: anybody can ask for any name
		Classes    []string `json:"classes,omitempty"`
		ArgsSize   int64    `json:"args_size"`
		State      string   `json:"state"`
		Ended      int64    `json:"ended,omitzero"`
		Size       int64    `json:"size,omitzero"`
		Code       string   `json:"code,omitempty"`
		Count      int      `json:"count,omitzero"`
		Artifacts  int      `json:"artifacts,omitzero"`
	}
	return rowsOf(all.Rows, bundleRecords, func(x api.ActivityRow) row {
		r := row{x.Call, x.Time, x.Account, x.Project, x.Task, x.Session, x.Connection, x.Revision, x.Tool, x.Classes, x.ArgsSize, x.State, x.Ended, x.Size, x.Code, x.Count, len(x.Artifacts)}
		if x.State == "denied" {
			r.Tool = ""
		}
		return r
	}), nil
}
