package gate

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"postern/bridge/wire"
	"postern/ids"
	"postern/item"
	"postern/supervisor/activity"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// recordsArguments tells whether the arguments of an item's calls are recorded: of tools
// and prompts, where root has switched that on for the project.
func (g *Gate) recordsArguments(p ids.Project, key string) bool {
	if !g.reg.Root().Projects[p].RecordArguments {
		return false
	}
	kind, _ := item.Split(key)
	return kind == item.Tool || kind == item.Prompt
}

// arguments is what is recorded of the arguments of one call, masked here: the bridge
// knows nothing of what is secret. Where they cannot be recorded, the record of an
// admitted call says why; a denied one's has its digest, and says no more.
func (g *Gate) arguments(s *session, k *registry.Tool, key string, m wire.Admit, rec *store.Call) {
	if !g.recordsArguments(s.set.Project, key) || k.Revision == nil || m.Size == 0 {
		return
	}
	a := store.Arguments{}
	switch sum := sha256.Sum256(m.Args); {
	case m.Args == nil && m.Size > wire.MaxArgs:
		a.Missing = fmt.Sprintf("they have more than %d bytes", wire.MaxArgs)
	case m.Args == nil:
		a.Missing = "the bridge did not send them" // by a view from before, or with what the user answered
	case sum != rec.ArgsDigest || int64(len(m.Args)) != m.Size:
		a.Missing = "what the bridge sent is not what was called with"
	default:
		a.Value, a.Missing = activity.Arguments(m.Args, activity.MaskOf(secretOf(k)))
	}
	if rec.Code == "" || a.Value != "" {
		rec.Args = a
	}
}

// secretOf are the secret fields of what runs and, so that a new one counts before its
// revision is accepted, of what is registered now.
func secretOf(k *registry.Tool) []string {
	now := k.Server.Revisions[k.Server.Current]
	if now == nil {
		return k.Revision.Secret
	}
	return slices.Concat(k.Revision.Secret, now.Secret)
}
