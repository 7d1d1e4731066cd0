package control

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// readsArtifact says who may see an artifact: an owner and a viewer of its project, and a
// member where it is of the member's own task. Root, as an administrator, sees none, and
// neither does a host: what a call brought back is the project's.
func (a *actions) readsArtifact(w Who, x *store.Artifact) bool {
	return a.readsOwn(w, x.Project, x.Account)
}

// readsOwn says who may see what a call of an account in a project was given or brought
// back.
func (a *actions) readsOwn(w Who, p ids.Project, of ids.Account) bool {
	acc := a.account(w).ID
	if acc == "" {
		return false
	}
	switch a.reg.Role(acc, p) {
	case registry.Owner, registry.Viewer:
		return true
	case registry.Member:
		return of == acc
	}
	return false
}

// onlyPeople refuses who has no account: for root an empty list would be a lie.
func (a *actions) onlyPeople(w Who, what string) error {
	if a.account(w).ID == "" {
		return api.Refuse(refusal.NotPermitted, "%s are shown to a project's people alone; ask as a user that an account has.", what)
	}
	return nil
}

func (a *actions) artifactList(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ArtifactListParams](c)
	if err != nil {
		return nil, err
	}
	q := store.ArtifactQuery{Task: ids.Task(p.Task), Call: ids.Call(p.Call), Before: p.Before, Limit: p.Limit}
	if err := a.do(ctx, func() error {
		if err := a.onlyPeople(c.Who, "Artifacts"); err != nil {
			return err
		}
		only, err := a.onlyProject(c.Who, p.Project)
		if q.Projects = a.projectsOf(a.account(c.Who).ID); only != "" {
			q.Projects = []ids.Project{only}
		}
		return errors.Join(err, a.Gate.Flush())
	}); err != nil {
		return nil, err
	}
	rows, next, more, err := a.Store.Artifacts(q)
	if err != nil {
		return nil, err
	}
	out := api.ArtifactListResult{Rows: []api.ArtifactRow{}, Next: next, More: more}
	return out, a.do(ctx, func() error {
		for i := range rows {
			if a.readsArtifact(c.Who, &rows[i]) {
				out.Rows = append(out.Rows, a.artifactRow(&rows[i]))
			}
		}
		return nil
	})
}

// artifactGet answers with one piece. Each is asked for by itself, and each time anew
// whether it may be.
func (a *actions) artifactGet(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ArtifactGetParams](c)
	if err != nil {
		return nil, err
	}
	id, err := ids.Parse[ids.Artifact](p.Artifact)
	if err != nil || p.Offset < 0 {
		return nil, api.Refuse(refusal.BadRequest, "Name one artifact by its id, and a place in it.")
	}
	if err := a.do(ctx, func() error { return errors.Join(a.onlyPeople(c.Who, "Artifacts"), a.Gate.Flush()) }); err != nil {
		return nil, err
	}
	x, err := a.Store.ArtifactByID(id)
	if err != nil {
		return nil, err
	}
	var out api.ArtifactPiece
	if err := a.do(ctx, func() error {
		if x == nil || !a.readsArtifact(c.Who, x) {
			return api.Missing(refusal.NotFound, "artifact", p.Artifact)
		}
		out = api.ArtifactPiece{ArtifactRow: a.artifactRow(x), Offset: p.Offset}
		return nil
	}); err != nil {
		return nil, err
	}
	if x.Missing != "" {
		return nil, api.Refuse(refusal.NotFound, "%s.", activity.Shown(x.Missing, activity.MaxReason))
	}
	out.Data, err = a.Artifacts.Read(x.Digest, p.Offset, api.MaxPiece)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, api.Refuse(refusal.NotFound, "Its bytes are not here any more.")
	}
	return out, err
}

func (a *actions) artifactRow(x *store.Artifact) api.ArtifactRow {
	r := api.ArtifactRow{Artifact: string(x.ID), Time: x.At / int64(time.Millisecond), Project: string(x.Project), ProjectLabel: a.reg.Root().Projects[x.Project].Label,
		Task: string(x.Task), Call: string(x.Call), Size: x.Size, Type: x.Type, Name: activity.Shown(x.Name, activity.MaxTool), Missing: activity.Shown(x.Missing, activity.MaxReason)}
	if x.Missing == "" {
		r.Digest = hex.EncodeToString(x.Digest[:])
	}
	return r
}
