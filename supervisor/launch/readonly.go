package launch

import (
	"fmt"
	"time"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
)

// frozen refuses a request that would change what read-only mode keeps. A trial run is
// refused like the change, for it shows what would come of that. Blocking an identity is
// the one edit of the access policy that only takes away.
func (f Facts) frozen(r request) *api.Refusal {
	if f.ReadOnly == 0 || api.EffectOf(r.Action) != api.Changes {
		return nil
	}
	if r.Action == api.AccessEdit {
		if p, err := api.DecodeParams[api.AccessEditParams](r.Params); err == nil && p.Action == string(access.SetBlocked) {
			return nil
		}
	}
	return api.Refuse(refusal.ReadOnly, "It is so since %s.", time.UnixMilli(f.ReadOnly).UTC().Format(time.RFC3339))
}

// readOnlySet switches read-only mode. It is a root fact like any other: durable before it
// is answered, and decided by on both sides when the answer comes.
func (s *Supervisor) readOnlySet(r request) (any, *api.Refusal) {
	p, refused := params[api.ReadOnlyParams](r)
	if refused != nil {
		return nil, refused
	}
	var out api.ReadOnlyResult
	refused = s.changing(r, func(f Facts) (Facts, *api.Refusal) {
		if p.On != (f.ReadOnly != 0) {
			f = f.next()
			f.ReadOnly = 0
			if p.On {
				f.ReadOnly = time.Now().UnixMilli()
			}
		}
		out = api.ReadOnlyResult{ReadOnly: f.ReadOnly != 0, Since: f.ReadOnly}
		return f, nil
	})
	return out, refused
}

// changedMode is changed for read-only mode.
func changedMode(f, g Facts) (target, before, after string) {
	text := func(since int64) string {
		if since == 0 {
			return "changes are made"
		}
		return fmt.Sprintf("read-only since %s", time.UnixMilli(since).UTC().Format(time.RFC3339))
	}
	if f.ReadOnly == g.ReadOnly {
		return "", "", ""
	}
	return "postern", text(f.ReadOnly), text(g.ReadOnly)
}
