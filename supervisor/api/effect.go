package api

// Effect is what an action does to what people have decided: who may do what, and what
// runs where.
type Effect int

const (
	_ Effect = iota
	// Reads changes nothing.
	Reads
	// Works is what Postern is for, and its upkeep: tasks and tokens, ending and copying.
	Works
	// Protects takes away at once, and what is taken can be given again.
	Protects
	// Changes is everything else. Read-only mode refuses it.
	Changes
)

var effects = map[Action]Effect{
	AccountAdd: Changes, AccountDelete: Changes, AccountActivate: Changes, AccountSuspend: Protects,
	ProjectAdd: Changes, ProjectSet: Changes, ProjectMove: Changes, ProjectDelete: Changes, MemberAdd: Changes, MemberRemove: Protects,
	ServerAdd: Changes, ServerUpdate: Changes, ServerDelete: Changes, ServerProbe: Changes, // a probe pins what is found
	ConnectionAdd: Changes, ConnectionGrant: Changes, ConnectionAccept: Changes, ConnectionEnable: Changes, ConnectionRevoke: Protects, ConnectionDisable: Protects,
	CredentialAdd: Changes, CredentialRotate: Changes, CredentialRevoke: Protects,
	AccessEdit: Changes, AccessPair: Changes, AccessRedeem: Changes, AccessUnpair: Protects,
	TaskNew: Works, TaskToken: Works, TaskRevoke: Protects,
	Drain: Works, Backup: Works, RootBackup: Works, ServerGC: Works, ReadOnlySet: Works,

	AccountList: Reads, AccountShow: Reads, ProjectList: Reads, ProjectShow: Reads, ServerList: Reads, ServerShow: Reads, ServerDiff: Reads, ServerCatalogue: Reads,
	ConnectionList: Reads, ConnectionShow: Reads, CredentialList: Reads, AccessShow: Reads, AccessMatrix: Reads, AccessPaired: Reads,
	TaskList: Reads, TaskShow: Reads, Explain: Reads, Capabilities: Reads, Check: Reads, Activity: Reads, ActivityShow: Reads, ArtifactList: Reads, ArtifactGet: Reads,
	Logs: Reads, Ps: Reads, Quota: Reads, Metrics: Reads, Status: Reads, RootStatus: Reads,
}

// EffectOf tells what an action does; one that is not known changes.
func EffectOf(a Action) Effect {
	if e, ok := effects[a]; ok {
		return e
	}
	return Changes
}
