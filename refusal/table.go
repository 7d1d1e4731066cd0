package refusal

// The codes, grouped by the factor that refuses.
const (
	Internal Code = "internal"

	// The message or the request.
	BadRequest        Code = "bad_request"
	IdentityInRequest Code = "identity_in_request"
	DuplicateID       Code = "duplicate_id"
	TooLarge          Code = "too_large"
	LineUnfinished    Code = "line_unfinished"
	NotInitialized    Code = "not_initialized"
	UnknownMethod     Code = "unknown_method"

	// Who asks.
	NotPermitted     Code = "not_permitted"
	PeerGone         Code = "peer_gone"
	PeerRefused      Code = "peer_refused"
	AccountUnknown   Code = "account_unknown"
	AccountSuspended Code = "account_suspended"
	AccountDeleted   Code = "account_deleted"
	NotMember        Code = "not_member"
	HostUnknown      Code = "host_unknown"
	HostNotAssigned  Code = "host_not_assigned"

	// The task and its token.
	TaskUnknown    Code = "task_unknown"
	TaskEnded      Code = "task_ended"
	TokenInvalid   Code = "token_invalid"
	TokenUsed      Code = "token_used"
	TokenExpired   Code = "token_expired"
	TokenWrongUID  Code = "token_wrong_uid"
	TokenFileUID   Code = "token_file_refused"
	PersonBindOff  Code = "person_bind_off"
	SessionEnded   Code = "session_ended"
	TooManySession Code = "too_many_sessions"

	// The project and its connections.
	ProjectUnknown        Code = "project_unknown"
	ProjectDeleted        Code = "project_deleted"
	ProjectReplaced       Code = "project_replaced"
	WorkspaceOverlap      Code = "workspace_overlap"
	WorkspaceRefused      Code = "workspace_refused"
	ServerUnknown         Code = "server_unknown"
	ConnectionUnknown     Code = "connection_unknown"
	ConnectionDisabled    Code = "connection_disabled"
	ServerDeleted         Code = "server_deleted"
	ServerRevisionChanged Code = "server_revision_changed"
	ToolUnknown           Code = "tool_unknown"
	ToolNotGranted        Code = "tool_not_granted"
	ToolChanged           Code = "tool_changed"
	ToolQuarantined       Code = "tool_quarantined"
	CredentialMissing     Code = "credential_missing"

	// Policy.
	ModeRefused       Code = "mode_refused"
	ModeUnknown       Code = "mode_unknown"
	ModeFloor         Code = "mode_floor"
	ProfileRefused    Code = "execution_profile_refused"
	AccessRefused     Code = "access_refused"
	PrincipalRefused  Code = "principal_refused"
	PrincipalBlocked  Code = "principal_blocked"
	AccessUnavailable Code = "access_unavailable"
	AccessChange      Code = "access_change_refused"
	PairingRefused    Code = "pairing_refused"
	ApprovalRequired  Code = "approval_required"
	AccessAndMode     Code = "access_and_mode_refused"
	CeilingChanged    Code = "ceiling_changed"
	WorkspaceShared   Code = "workspace_shared"
	PathOutside       Code = "path_outside"
	TierLowered       Code = "tier_lowered"
	StaleSelector     Code = "stale_selector"
	AlreadyExists     Code = "already_exists"
	NotFound          Code = "not_found"
	ConfigInvalid     Code = "config_invalid"
	PermissionsWrong  Code = "permissions_wrong"
	ProfileUnknown    Code = "profile_unknown"
	RegistrationWrong Code = "registration_refused"

	// The machine and its limits.
	LimitCalls        Code = "limit_calls"
	LimitStarts       Code = "limit_starts"
	Busy              Code = "busy"
	FactsFull         Code = "facts_full"
	StoreUnavailable  Code = "store_unavailable"
	ServerUnavailable Code = "server_unavailable"
	ServerExited      Code = "server_exited"
	ServerForbidden   Code = "server_forbidden_call"
	ServerMemory      Code = "server_memory"
	ServerAnswer      Code = "server_answer_refused"
	CallTimeout       Code = "call_timeout"
	CallCancelled     Code = "call_cancelled"
	CallRevoked       Code = "call_revoked"
	Draining          Code = "draining"
	ReadOnly          Code = "read_only"
	Unreachable       Code = "supervisor_unreachable"
	LayerMissing      Code = "layer_missing"
)

// Table lists every row, in the order of the reference page.
func Table() []Row { return append([]Row(nil), rows...) }

var rows = []Row{
	{Internal, 500, ExitFailed, ServerError, "Postern could not decide this request and refused it."},

	{BadRequest, 400, ExitUsage, InvalidRequest, "The request is not well formed."},
	{IdentityInRequest, 400, ExitRefused, InvalidRequest, "The request carries identity members; identity comes from the connection alone."},
	{DuplicateID, 400, ExitRefused, InvalidRequest, "A request with this id is still in flight on this session."},
	{TooLarge, 413, ExitRefused, InvalidRequest, "The message is larger than the limit."},
	{LineUnfinished, 408, ExitRefused, InvalidRequest, "The message was begun and did not come to its end in time."},
	{NotInitialized, 400, ExitRefused, InvalidRequest, "The session is not initialized yet."},
	{UnknownMethod, 404, ExitRefused, InvalidRequest, "This method is not offered here."},

	{NotPermitted, 403, ExitNotAllowed, ServerError, "You may not do this."},
	{PeerGone, 403, ExitNotAllowed, ServerError, "The process that connected is gone."},
	{PeerRefused, 403, ExitNotAllowed, ServerError, "This user may not connect here."},
	{AccountUnknown, 403, ExitNotAllowed, ServerError, "No account belongs to this user."},
	{AccountSuspended, 403, ExitRefused, Result, "The account is suspended."},
	{AccountDeleted, 403, ExitRefused, Result, "The account is deleted."},
	{NotMember, 403, ExitNotAllowed, Result, "The account neither owns nor belongs to this project."},
	{HostUnknown, 403, ExitNotAllowed, ServerError, "This user is not a configured host."},
	{HostNotAssigned, 403, ExitRefused, Result, "The host is not assigned to this account and project."},

	{TaskUnknown, 404, ExitRefused, ServerError, "There is no such task."},
	{TaskEnded, 403, ExitRefused, Result, "The task has ended; a new one is needed."},
	{TokenInvalid, 403, ExitRefused, ServerError, "The task token is not valid here."},
	{TokenUsed, 403, ExitRefused, ServerError, "The task token has been used as often as it may be."},
	{TokenExpired, 403, ExitRefused, ServerError, "The task token has expired; ask the host for a fresh one."},
	{TokenWrongUID, 403, ExitRefused, ServerError, "The task token belongs to another user."},
	{TokenFileUID, 403, ExitRefused, ServerError, "A token file is refused for a user who runs runtimes of more than one project; pass the token on a descriptor."},
	{PersonBindOff, 403, ExitRefused, ServerError, "This project does not let a person connect without a token."},
	{SessionEnded, 403, ExitRefused, Result, "The session has ended."},
	{TooManySession, 429, ExitTryAgain, ServerError, "Too many sessions or connections are open."},

	{ProjectUnknown, 404, ExitRefused, ServerError, "There is no such project."},
	{ProjectDeleted, 410, ExitRefused, Result, "The project is deleted."},
	{ProjectReplaced, 409, ExitRefused, Result, "The project's directory is not the one that was registered; root gives it another, or registers a new project."},
	{WorkspaceOverlap, 409, ExitRefused, Result, "The workspace overlaps another project's or Postern's own directories."},
	{WorkspaceRefused, 409, ExitRefused, Result, "The workspace cannot be used."},
	{ServerUnknown, 404, ExitRefused, ServerError, "There is no such server."},
	{ConnectionUnknown, 404, ExitRefused, InvalidParams, "Unknown tool."},
	{ConnectionDisabled, 403, ExitRefused, Result, "The connection to this server is disabled."},
	{ServerDeleted, 410, ExitRefused, Result, "The registration of this server is deleted."},
	{ServerRevisionChanged, 409, ExitRefused, Result, "The server's registration has changed; the new revision must be accepted first."},
	{ToolUnknown, 404, ExitRefused, InvalidParams, "Unknown tool."},
	{ToolNotGranted, 403, ExitRefused, Result, "This tool is not granted to this project."},
	{ToolChanged, 409, ExitRefused, Result, "The tool's definition has changed since it was granted; it must be accepted again."},
	{ToolQuarantined, 409, ExitRefused, Result, "The tool's definition is malformed and is kept out."},
	{CredentialMissing, 403, ExitRefused, Result, "The server needs a credential that this connection does not have."},

	{ModeRefused, 403, ExitRefused, Result, "The task's mode does not include this tool; another mode may."},
	{ModeUnknown, 400, ExitRefused, ServerError, "This mode does not exist here."},
	{ModeFloor, 403, ExitRefused, Result, "The access policy gives this principal a narrower mode than the task's."},
	{ProfileRefused, 403, ExitRefused, Result, "The project's execution profile does not allow this tool."},
	{AccessRefused, 403, ExitRefused, Result, "The access policy does not allow this tool to you."},
	{PrincipalRefused, 400, ExitRefused, ServerError, "This principal cannot be used for a task here."},
	{PrincipalBlocked, 403, ExitRefused, Result, "The access policy blocks this principal."},
	{AccessUnavailable, 503, ExitRefused, Result, "The access policy has a mistake in the entry that decides this, or cannot be read; whom that is about is refused until it is mended."},
	{AccessChange, 400, ExitRefused, ServerError, "The access policy is not changed so."},
	{PairingRefused, 403, ExitRefused, ServerError, "This pairing code is not valid here."},
	{ApprovalRequired, 403, ExitRefused, Result, "This tool is destructive and needs an approval."},
	{AccessAndMode, 403, ExitRefused, Result, "Neither the access policy nor the task's mode allows this tool."},
	{CeilingChanged, 409, ExitRefused, ServerError, "The access policy now allows more than this session was opened for; connect again."},
	{WorkspaceShared, 403, ExitRefused, Result, "This tool's server can write into a directory that other people's tasks share."},
	{PathOutside, 403, ExitRefused, Result, "A path argument lies outside the project, is missing, or is no path."},
	{TierLowered, 400, ExitRefused, ServerError, "A tier may be raised at the grant, never lowered."},
	{StaleSelector, 409, ExitRefused, ServerError, "What you named has changed or is ambiguous; look again and repeat."},
	{AlreadyExists, 409, ExitRefused, ServerError, "This already exists."},
	{NotFound, 404, ExitRefused, ServerError, "There is nothing by this name."},
	{ConfigInvalid, 400, ExitConfig, ServerError, "The configuration is not valid."},
	{PermissionsWrong, 400, ExitConfig, ServerError, "A file's owner or mode is not acceptable."},
	{ProfileUnknown, 400, ExitRefused, ServerError, "There is no such jail profile, or a registration may not use it."},
	{RegistrationWrong, 400, ExitRefused, ServerError, "The server registration is not acceptable."},

	{LimitCalls, 429, ExitTryAgain, Result, "Too many calls are in flight."},
	{LimitStarts, 429, ExitTryAgain, Result, "The server was started too often; it is retried after a pause."},
	{Busy, 503, ExitTryAgain, Result, "Postern is busy; try again."},
	{FactsFull, 507, ExitRefused, Result, "There is no room for more accounts, projects and registrations."},
	{StoreUnavailable, 503, ExitTryAgain, Result, "It could not be recorded, so it was not done."},
	{ServerUnavailable, 503, ExitTryAgain, Result, "The tool server could not be started, or does not list its tools."},
	{ServerExited, 502, ExitFailed, Result, "The tool server ended during the call; whether the call had an effect is unknown."},
	{ServerForbidden, 502, ExitFailed, Result, "The tool server made a system call that no jail allows, and was ended; whether the call had an effect is unknown."},
	{ServerMemory, 502, ExitFailed, Result, "The tool server reached its memory limit, and was ended; whether the call had an effect is unknown."},
	{ServerAnswer, 502, ExitFailed, Result, "The tool server's answer was malformed or too large and was not passed on."},
	{CallTimeout, 504, ExitFailed, Result, "The call took longer than its limit; whether it had an effect is unknown."},
	{CallCancelled, 499, ExitFailed, Result, "The call was cancelled."},
	{CallRevoked, 403, ExitFailed, Result, "What allowed this call was taken back while it ran; whether it had an effect is unknown."},
	{Draining, 503, ExitTryAgain, ServerError, "Postern is draining and takes no new work."},
	{ReadOnly, 503, ExitRefused, ServerError, "Postern is read-only: nothing is given, registered or changed until an operator ends that."},
	{Unreachable, 503, ExitUnreachable, ServerError, "The supervisor cannot be reached."},
	{LayerMissing, 503, ExitFailed, Result, "This host cannot build the jail; see postern doctor."},
}

var index = func() map[Code]Row {
	m := make(map[Code]Row, len(rows))
	for _, r := range rows {
		m[r.Code] = r
	}
	return m
}()
