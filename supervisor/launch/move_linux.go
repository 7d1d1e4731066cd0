package launch

import (
	"fmt"
	"time"

	"postern/ids"
	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
)

// moveWait is how long a move waits for the tool servers of the project that are just
// being started. It is longer than a jail may take to be built, after which the launch has
// failed by itself; only one that waits for a file system, or a process that the kernel
// cannot end, outlasts it.
const moveWait = jail.BuildWait + 2*time.Second

// projectMove gives a project another directory, checked as at its registration. It widens
// as registering does and is root's. When it returns, the authority has ended the tasks
// from before, and no server of the project is left that was started before.
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
		warnings = append(warnings, s.endElsewhere(made.ID, moveWait)...)
	}
	return api.ProjectSetResult{ProjectResult: projectResult(made, warnings), Cut: cut}, nil
}

// elsewhere tells whether a server's jail was ordered before its project got the directory
// that it has now. One that sees no directory at all is no exception: what it knows, it was
// told by the tasks from before.
func (j *running) elsewhere(f Facts) bool {
	if j.row.Kind != kindServer {
		return false
	}
	i := f.projectAt(j.row.Project)
	return i >= 0 && f.Projects[i].Moved != j.moved
}

func movedMeanwhile(p ids.Project) *api.Refusal {
	return api.Refuse(refusal.ProjectReplaced, "%s was moved to another directory meanwhile.", p)
}

// build begins a launch, unless its project has been moved since its directory was opened.
// From here on a move finds it: among those that are built, and then among those that are
// alive.
func (s *Supervisor) build(j *running) *api.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.elsewhere(s.facts) {
		return movedMeanwhile(j.row.Project)
	}
	s.building[j] = make(chan struct{})
	return nil
}

// proceed lets a jail's program run, unless its project has been moved since its launch
// began. So one that has waited for a file system, longer than a move waits for it, never
// runs in the former directory.
func (s *Supervisor) proceed(j *running) *api.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.elsewhere(s.facts) {
		return movedMeanwhile(j.row.Project)
	}
	return nil
}

// built takes note that a jail is alive, or that its launch has failed and left nothing.
//
// Preconditions: s.mu is held.
func (s *Supervisor) built(j *running) {
	if done := s.building[j]; done != nil {
		delete(s.building, j)
		close(done)
	}
}

// endElsewhere ends the servers of a project that were started before it was moved, those
// among them that are just being started. It tells what it could not end in time; that is
// ended by whoever starts it.
func (s *Supervisor) endElsewhere(id ids.Project, most time.Duration) []string {
	s.killElsewhere(id)
	s.mu.Lock()
	var starting []chan struct{}
	for j, done := range s.building {
		if j.row.Project == id && j.elsewhere(s.facts) {
			starting = append(starting, done)
		}
	}
	s.mu.Unlock()
	late := time.NewTimer(most)
	defer late.Stop()
	for i, done := range starting {
		select {
		case <-done:
			continue
		case <-late.C:
		}
		left := len(starting) - i
		s.cfg.Log.Warn("a project was moved while servers of it were started, and they do not answer", keyProject, id, keyWait, most)
		return []string{fmt.Sprintf("%d of its servers were just being started in the former directory and do not answer for %v; each is ended as soon as it does", left, most)}
	}
	if n := s.killElsewhere(id); n > 0 {
		return []string{fmt.Sprintf("%d of its servers have the former directory and cannot be ended; the log of posternd says more", n)}
	}
	return nil
}

// killElsewhere tells how many are still there although they were killed.
func (s *Supervisor) killElsewhere(id ids.Project) (left int) {
	f, _ := s.now()
	which := func(j *running) bool { return j.row.Project == id && j.elsewhere(f) }
	s.killWhere(which)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jails {
		if which(j) {
			select {
			case <-j.proc.Gone():
			default:
				left++
			}
		}
	}
	return left
}
