package launch

import (
	"time"

	"postern/ids"
	"postern/supervisor/api"
)

// projectMove gives a project another directory, checked as at its registration. It widens
// as registering does and is root's. When it returns, the authority has ended the tasks
// from before, and no server of the project is left that has the former directory.
func (s *Supervisor) projectMove(r request) (any, *api.Refusal) {
	p, refused := params[api.ProjectMoveParams](r)
	if refused != nil {
		return nil, refused
	}
	var made Project
	var warnings []string
	cut, refused := s.narrowing(r, func(f Facts) (Facts, *api.Refusal) {
		g, project, owner, refused := f.moveProject(p, time.Now())
		if refused != nil {
			return f, refused
		}
		if warnings, refused = s.bindWorkspace(f, project, owner, r.DryRun); refused != nil {
			return f, refused
		}
		made = *project
		return g, nil
	})
	if refused != nil {
		return nil, refused
	}
	if !r.DryRun {
		s.endElsewhere(made.ID)
	}
	return api.ProjectSetResult{ProjectResult: projectResult(made, warnings), Cut: cut}, nil
}

// endElsewhere ends the servers of a project that have another directory than it has now.
func (s *Supervisor) endElsewhere(id ids.Project) {
	f, _ := s.now()
	s.killWhere(func(j *running) bool { return j.row.Project == id && j.elsewhere(f) })
}
