package launch

import (
	"sync"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// maxTokens bounds the token files of one life of the authority.
const maxTokens = 4096

// tokens remembers for whom there is a token file.
type tokens struct {
	mu sync.Mutex
	of map[ids.Task]order.TokenFile
}

func newTokens() tokens { return tokens{of: map[ids.Task]order.TokenFile{}} }

// take records a token file, or says why there must be none. The rule needs no
// knowledge of the authority's: every process of a uid can read that uid's files, so
// there may be one only where the facts show a single project behind the uid. An
// account that owns more than one project is refused, and so is a second task of the
// uid, unless both orders name the same project.
func (t *tokens) take(f Facts, cfg Config, m order.TokenFile) *api.Refusal {
	r := reserved{authority: cfg.UID, uids: cfg.UIDs}
	if err := r.check(m.UID); err != nil {
		return api.Refuse(refusal.TokenFileUID, "%v.", err)
	}
	if a, ok := f.accountOf(m.UID); ok {
		owned := 0
		for _, p := range f.Projects {
			if !p.Deleted && p.Owner == a.ID {
				owned++
			}
		}
		if owned > 1 {
			return api.Refuse(refusal.TokenFileUID, "Account %q owns %d projects.", a.Name, owned)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for task, other := range t.of {
		if task != m.Task && other.UID == m.UID && (m.Project == "" || other.Project != m.Project) {
			return api.Refuse(refusal.TokenFileUID, "uid %d has a token file of another task.", m.UID)
		}
	}
	if len(t.of) >= maxTokens {
		return api.Refuse(refusal.Busy, "There are %d token files.", maxTokens)
	}
	t.of[m.Task] = m
	return nil
}

// forget tells whether there was one.
func (t *tokens) forget(task ids.Task) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.of[task]
	delete(t.of, task)
	return ok
}
