package refusal

//go:generate go run ./gen ../docs/refusals.md

// Advice says what a code means and what helps, as the reference page prints it.
func (c Code) Advice() string { return advice[c] }

// advice has one entry for each row of the table.
var advice = map[Code]string{
	Internal: "Something that should be impossible happened, or a dependency failed in an unforeseen way. Nothing was " +
		"allowed. The log of posternd, which holds the authority's lines too, says what; please report it.",
	BadRequest: "A line, a parameter or an argument cannot be understood: no JSON, an unknown or repeated member, a value " +
		"of the wrong kind, a uid that no account may have. The detail names it. Nothing was changed. Correct the " +
		"request; on the command line, see `--help`.",
	IdentityInRequest: "A message names an account, a project, a task, a principal or a mode, beside its parameters or in them, " +
		"or a `_meta` key beginning with `postern/`. Who asks is known from the connection, so such a member is " +
		"either a mistake or an attempt. Leave it out. An argument *of a tool* may have any name.",
	DuplicateID: "A request or a subscription with the same id has no answer yet. Use a new id for each request.",
	TooLarge: "A line is longer than 16 MiB, nested deeper than 512, or has more than 64 members where few belong; or, " +
		"on a control socket, longer than 1 MiB. Send less; ask for a shorter page.",
	LineUnfinished: "A message of more than 64 KiB that stops on its way holds memory which others need. Within 30 seconds, " +
		"or what `sessions.line_wait_seconds` says, it must have ended or grown by 256 KiB. The rest of it is passed " +
		"over, and the session goes on. Send a message when it is whole.",
	NotInitialized: "Tools were asked for before `initialize`. Send it first, or speak the revision of the protocol that has " +
		"no handshake.",
	UnknownMethod: "Kept for surfaces that refuse a method by the table. Over MCP, a method that is not offered is answered " +
		"with JSON-RPC's own error -32601. See which are in [runtime-authors.md](runtime-authors.md).",
	NotPermitted: "The detail says who may. You may read and narrow what your account has part in; granting, accepting, enabling, " +
		"members, servers and projects are root's alone, and no part in a project is enough. Ask whoever operates the host.",
	PeerGone: "The process that opened the connection ended before it was served; whoever holds the socket now is not " +
		"it. Connect from the process that will stay.",
	PeerRefused: "The kernel cannot name your user here (an unmapped user of a container, or uid 65534), or a host tried " +
		"to connect as a person. Connect as a user of this host; a host makes a task and passes its token.",
	AccountUnknown: "Your uid belongs to no account. The operator adds one: `postern account add`.",
	AccountSuspended: "The account is switched off: its sessions were ended, its calls are refused, no task can be made. " +
		"`postern account activate` (root) brings it back.",
	AccountDeleted: "The account is gone for good. Its uids can be given to a new account, which inherits nothing.",
	NotMember: "The account has no role in the project, or that of a viewer, who reads and makes no calls. An operator " +
		"adds members: `postern project member add`.",
	HostUnknown: "Making a task, or a fresh token, is a host's business, and your uid is not in `hosts` of `postern.yaml`. " +
		"Root configures hosts and starts posternd again.",
	HostNotAssigned: "The host is configured, but not for this account and project together. Change its `accounts` and " +
		"`projects` in `postern.yaml`.",
	TaskUnknown: "There is no task by this id that you may see; a host sees its own.",
	TaskEnded: "The task was revoked, or ended with its account, project or membership. It does not come back; the host " +
		"makes another.",
	TokenInvalid: "What was sent is not a token, is of another project, was replaced by a fresh one, or its task has ended. " +
		"The host asks for a fresh one: `postern task token`.",
	TokenUsed: "The token has bound as many sessions as it was made for (one, unless `--binds` said more). Clients that " +
		"start their servers twice, to look at them first, need two.",
	TokenExpired: "The time to connect is over (five minutes, unless `--ttl` said otherwise), the clock went backwards, or " +
		"the host was booted since. The host asks for a fresh token.",
	TokenWrongUID: "The token was made for another user. The host names the user that runs the runtime: `--for-uid`.",
	TokenFileUID: "All processes of a user can read that user's files, so a token in a file would be good for all projects " +
		"of that user. Pass it on a descriptor: `--token-fd`.",
	PersonBindOff: "The project accepts sessions with a token only. A person connects where root has said so: `postern " +
		"project set PROJECT --person-bind on`.",
	SessionEnded: "The session is over: the task or account behind it ended, a fresh token was made, or the bridge went " +
		"away. Start the runtime's server again.",
	TooManySession: "More than 512 sessions of one project, 32 connections of one user that have not bound, or 32 control " +
		"connections of one user. Close some and try again.",
	ProjectUnknown: "No project by this name is yours, or nothing listens for it. A user without an account names the project " +
		"by its id, not by its label.",
	ProjectDeleted: "The project is gone for good, and so is its id. Its records can still be read by root.",
	ProjectReplaced: "At the project's path is another directory than the one that was registered: it was removed and made " +
		"again, moved, restored from a backup, or is a link now. What was granted to the old one does not pass to " +
		"the newcomer by itself. Put the original back; or root looks at the new one and says that it is the project's: " +
		"`postern project move`.",
	WorkspaceOverlap: "The directory is, contains or lies in another project's workspace, or one of Postern's own directories. " +
		"Choose another.",
	WorkspaceRefused: "The directory cannot be a workspace: it does not belong to a uid of the owner's account, it is a link, " +
		"or its file system cannot map ids, has no file handles or keeps no birth times. The detail says which.",
	ServerUnknown:     "There is no registration by this name, or it was deleted.",
	ConnectionUnknown: "The project has no connection by this id. A runtime sees only that the tool is unknown.",
	ConnectionDisabled: "The connection was switched off. `postern connection enable` (root) switches it on again; its grants " +
		"are as they were.",
	ServerDeleted: "The connection is to a registration that is gone for good. One that was made again under the same label " +
		"is another server, and inherits nothing: `postern connection add` and `postern connection grant` (root) let the " +
		"project use it. The old names stay the old server's, so its tools are served as LABEL.TOOL.",
	ServerRevisionChanged: "What would run is not what was accepted: command, package, profile, classes, tiers or scope have " +
		"changed. Look at the catalogue, then `postern connection accept` (root). Until then no tool of it is " +
		"callable.",
	ToolUnknown: "No tool of this project has this name. A tool of another project is answered in the same words. The list " +
		"that the runtime asked for last may be old: ask again.",
	ToolNotGranted: "The server offers the tool; this project may not call it. `postern connection grant` (root) grants it by " +
		"its exact name.",
	ToolChanged: "The tool's definition is not the one that was granted: description, schema or annotations differ, in the " +
		"newest probe or in what the running server says. Look at it and grant it again.",
	ToolQuarantined: "The server's definition of this tool is malformed, so nobody can say what is granted. The reason stands " +
		"beside the tool in `postern server show`. The server's other tools are not affected.",
	CredentialMissing: "The server was registered as needing a credential, and this project has none that can be handed over: none is " +
		"assigned, it was revoked, or its file is not root's alone. The server was not started. `postern credential list` (root) " +
		"says which and why; `postern credential add` and `postern credential rotate` mend it.",
	ModeRefused: "The task's mode leaves this tool out. A task keeps its mode; another mode is another task.",
	ModeUnknown: "The modes are `search`, `code`, `auto` and those that `access.yaml` declares. Without `--mode` a task gets the " +
		"widest one of its principal.",
	ProfileRefused: "The tool is of class `process.execute`, the project's execution profile is `standard`, and the jail of its " +
		"server may not start programs: it could only fail. Register the server under a profile with `fork`.",
	AccessRefused: "The access policy holds the tool back from whoever the task acts for, in any mode. `postern explain` shows the " +
		"line that decides; `postern access` changes it.",
	PrincipalRefused: "`access.yaml` does not admit it. A person who connects, and a task without `--principal`, act for their own account: " +
		"without a file, and until it declares channel `local`, that is admitted only where it owns the project. A member is " +
		"admitted by `postern access set local NAME LEVEL` (root), and then owners by `postern access set local NAME --owner`. " +
		"`postern access show` lists whom it admits.",
	PrincipalBlocked: "Somebody blocked it in `access.yaml`; it beats whatever else the file says of that identity.",
	AccessUnavailable: "`access.yaml`, or the one entry that decides this, has a mistake, or posternd cannot read the file. `postern access " +
		"show` names the file, the line and the key. Mended, it decides at once; nothing is restarted.",
	AccessChange: "Nothing was written. The detail says why: somebody the file does not name, a level for an owner, `full` for whom " +
		"nobody knows, or a part of the file that is written in a form that is edited by hand. `--dry-run` shows what a change would do.",
	PairingRefused: "It was mistyped, was used, is over, is another channel's, or was ended by five wrong ones; which of them is not told. " +
		"Root makes another: `postern access pair CHANNEL`.",
	ModeFloor: "A principal has a widest mode, and this task's is wider; `postern access show` lists it. Make a task with a mode within " +
		"it, or leave `--mode` out.",
	ApprovalRequired: "The call's tier is `destructive`: marked so, claimed so by the server, or concluded from its classes. " +
		"Each such call needs an approval, and this version has no way to give one. An operator who knows the " +
		"tool marks it at the registration: `--tier TOOL=reversible`.",
	AccessAndMode: "Two rules hold the tool back, so another mode alone would not help. `postern explain` shows both; who may " +
		"change the access policy decides first.",
	CeilingChanged: "A session runs in processes of its own ceiling, which cannot gain. Nothing is lost but the connection: the next " +
		"one has what the policy gives now. A host asks for a fresh token for the same task.",
	WorkspaceShared: "The task acts for somebody on a channel, and such tasks of different people never share a directory that one of " +
		"them can write. Register the server with `--scope task`, or under a profile whose workspace is read only or absent.",
	PathOutside: "A known filesystem operation was called with a path that does not lie in the project's directory, through a " +
		"link or `..` or as an absolute path other than below `/workspace`; or with none; or with a value that is no path. The tool server did " +
		"not see the call. The record's reason says which argument it was, and whether it is missing or lies outside: `postern activity`. Name the file relative to the directory, or below `/workspace`. A name that begins with " +
		"`~`, or begins or ends with a space or a quote, is written `./~name`, or is renamed: servers read it in several ways.",
	TierLowered: "The operator's mark is the least: a grant can call a tool more dangerous, never less. Grant it without " +
		"`--tier`, or with a higher one.",
	StaleSelector: "The name means several things, or the version named by `--at` is no longer the present one, or a cursor " +
		"was not made here. Nothing was written. Look again; use an id.",
	AlreadyExists: "The name, uid or connection is taken; the detail says by what.",
	NotFound:      "Nothing that you may see has this name.",
	ConfigInvalid: "A configuration file is not acceptable. posternd names every mistake with file, line and key, and ends " +
		"with status 78.",
	PermissionsWrong: "A file that decides something could have been written by somebody else. Postern does not repair it: see " +
		"who owns it, and why.",
	ProfileUnknown: "The jail profile does not exist, is kept for Postern's own programs, or has changed since posternd " +
		"started. See [profiles.md](profiles.md).",
	RegistrationWrong: "The server cannot be registered like this: a command that is not absolute, not there, not executable " +
		"under the profile or in a place that others write; a package with links that leave it, set-id files or " +
		"devices; more than 200,000 files or 2 GiB. The detail says which.",
	LimitCalls: "64 requests of one session, 256 calls of one connection, or 32 MiB of waiting calls are in flight. Wait " +
		"for some to end.",
	LimitStarts: "The bridge or the tool server did not start, or ended by itself a second time without having lived for 30 seconds. " +
		"The first call after a pause starts it again; the pause is a second or two, and doubles each time up to a minute. " +
		"`postern ps` has the last error.",
	Busy: "Something that is bounded is in use, or did not answer in time: too many projects or tasks, a file " +
		"system that hangs, an instance that is still ending, a list that changed meanwhile. Nothing was done, " +
		"unless the answer itself says that this is unknown. Try again.",
	FactsFull: "What the authority is told of all accounts, projects, registrations with their revisions, and hosts has a " +
		"bound of 64 MiB, less what is kept free for ending them and for the access policy. Nothing was changed. Ids are " +
		"never used again, so deleting makes no room; shorter declarations of classes and tiers do (`postern server " +
		"update`), and revisions beyond the newest 64 of a server are forgotten.",
	StoreUnavailable: "The disk is full or the file is locked. What cannot be recorded is not done. Reading goes on; calls go " +
		"on as soon as records can be written.",
	ServerUnavailable: "The tool server could not be started, did not complete its handshake in time, could not be probed, or " +
		"said that its tools changed and does not list them, so that nothing can be compared with what was " +
		"accepted; its list is asked for again for a minute. " +
		"The log of posternd and `postern ps` say why; `postern server probe` tries again.",
	ServerExited: "The tool server, or the bridge, ended in the middle of the call. It is recorded as `unknown` and not " +
		"repeated. Find out what it did before you call again.",
	ServerForbidden: "In activity only: the runtime was told `server_exited` the moment it happened. The reason of the record " +
		"names the jail and, where the kernel's log told, the system call. No honest program makes such a call: look at " +
		"the server's package before you let it run again.",
	ServerMemory: "In activity only: the runtime was told `server_exited` the moment it happened. The limit is `limits.memory` " +
		"of the server's profile; see [profiles](profiles.md).",
	ServerAnswer: "The tool server answered with something that is not MCP, longer than 16 MiB, or a promise of more that " +
		"this version does not carry. The runtime gets nothing of it.",
	CallTimeout: "The call took longer than its limit of 60 seconds. The server was asked to stop; if it does not say so, " +
		"the call is `unknown`.",
	CallCancelled: "The runtime cancelled the call, or its session ended. Whether it had an effect is in the record's state.",
	CallRevoked: "The call had been admitted and sent before somebody revoked the tool, disabled the connection, ended the " +
		"task or suspended the account. Its server was asked to stop. What it did stands: look before you repeat " +
		"anything.",
	Draining: "Postern is ending and takes nothing new. Try again when it is back.",
	ReadOnly: "An operator has switched on read-only mode (`postern readonly on`). Calls, sessions, tasks and lists go on, and " +
		"what protects does: revoking, disabling, suspending, ending a task, blocking an identity, revoking a credential. " +
		"Everything else that would change who may do what, or what runs where, waits for `postern readonly off`.",
	Unreachable: "Nobody serves the socket. Is posternd running, and is `--run-dir` its directory?",
	LayerMissing: "The host lacks something that no jail goes without. `postern doctor`, as root, says which layer and what " +
		"helps.",
}
