package api

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"postern/item"
)

// Actions of root.sock: root facts, peer uid 0 only. Beside each stand its
// parameters and its result; None is {}.
const (
	AccountAdd    Action = "account.add"    // AccountAddParams → AccountResult
	AccountDelete Action = "account.delete" // Selected → AccountEndResult
	ProjectAdd    Action = "project.add"    // ProjectAddParams → ProjectResult
	ProjectSet    Action = "project.set"    // ProjectSetParams → ProjectSetResult
	ProjectMove   Action = "project.move"   // ProjectMoveParams → ProjectSetResult
	ServerAdd     Action = "server.add"     // ServerParams → ServerResult, with Progress events
	ServerUpdate  Action = "server.update"  // ServerParams → ServerChangeResult, with Progress events
	ServerDelete  Action = "server.delete"  // Selected → ServerChangeResult
	ServerList    Action = "server.list"    // PageParams → ServerListResult
	ServerShow    Action = "server.show"    // Selected → ServerResult
	ServerDiff    Action = "server.diff"    // ServerDiffParams → ServerDiffResult
	ServerGC      Action = "server.gc"      // None → ServerGCResult
	RootStatus    Action = "root.status"    // None → RootStatusResult
	ReadOnlySet   Action = "readonly.set"   // ReadOnlyParams → ReadOnlyResult
	RootBackup    Action = "root.backup"    // None → BackupResult, with BackupPiece events
	AccessShow    Action = "access.show"    // None → AccessShowResult
	AccessMatrix  Action = "access.matrix"  // AccessMatrixParams → AccessShowResult
	AccessEdit    Action = "access.edit"    // AccessEditParams → AccessEditResult
)

// Actions of control.sock.
const (
	Status            Action = "status"                // None → StatusResult
	AccountList       Action = "account.list"          // PageParams → AccountListResult
	AccountShow       Action = "account.show"          // Selected → AccountResult
	AccountSuspend    Action = "account.suspend"       // Selected → RevokeResult
	AccountActivate   Action = "account.activate"      // Selected → AccountResult
	ProjectList       Action = "project.list"          // ProjectListParams → ProjectListResult
	ProjectShow       Action = "project.show"          // Selected → ProjectShowResult
	ProjectDelete     Action = "project.delete"        // Selected → RevokeResult
	MemberAdd         Action = "project.member.add"    // MemberParams → MemberResult
	MemberRemove      Action = "project.member.remove" // MemberParams → RevokeResult
	ServerProbe       Action = "server.probe"          // ServerProbeParams → CatalogueResult, with Progress events
	ServerCatalogue   Action = "server.catalogue"      // Selected → CatalogueResult
	ConnectionAdd     Action = "connection.add"        // ConnectionParams → ConnectionResult
	ConnectionList    Action = "connection.list"       // ListParams → ConnectionListResult
	ConnectionShow    Action = "connection.show"       // ConnectionParams → ConnectionResult
	ConnectionGrant   Action = "connection.grant"      // ConnectionParams → ConnectionResult
	ConnectionRevoke  Action = "connection.revoke"     // ConnectionParams → RevokeResult
	ConnectionAccept  Action = "connection.accept"     // ConnectionParams → ConnectionResult
	ConnectionEnable  Action = "connection.enable"     // ConnectionParams → ConnectionResult
	ConnectionDisable Action = "connection.disable"    // ConnectionParams → RevokeResult
	TaskNew           Action = "task.new"              // TaskNewParams → TaskResult
	TaskToken         Action = "task.token"            // TaskParams → TaskResult
	TaskList          Action = "task.list"             // ListParams → TaskListResult
	TaskShow          Action = "task.show"             // TaskParams → TaskResult
	TaskRevoke        Action = "task.revoke"           // TaskParams → RevokeResult
	AccessPair        Action = "access.pair"           // PairParams → PairResult
	AccessRedeem      Action = "access.redeem"         // RedeemParams → PairedRow
	AccessUnpair      Action = "access.unpair"         // UnpairParams → RevokeResult
	AccessPaired      Action = "access.paired"         // None → PairedResult
	Explain           Action = "explain"               // ExplainParams → ExplainResult
	Capabilities      Action = "capabilities"          // CapabilitiesParams → CapabilitiesResult
	Check             Action = "check"                 // CheckParams → CheckResult
	ActivityShow      Action = "activity.show"         // RecordParams → RecordResult
	Drain             Action = "drain"                 // DrainParams → DrainResult, with Progress events
	ArtifactList      Action = "artifact.list"         // ArtifactListParams → ArtifactListResult
	ArtifactGet       Action = "artifact.get"          // ArtifactGetParams → ArtifactPiece
	Backup            Action = "backup"                // None → BackupResult, with BackupPiece events
	Ps                Action = "ps"                    // ListParams → PsResult
	Metrics           Action = "metrics"               // None → MetricsResult
	Quota             Action = "quota"                 // QuotaParams → QuotaResult
	Logs              Action = "logs"                  // LogsParams → LogsResult
	Activity          Action = "activity"              // ActivityParams → ActivityResult; a follow sends ActivityRow events, an export its lines
)

var served = map[Action]Socket{
	AccountAdd: RootSocket, AccountDelete: RootSocket, ProjectAdd: RootSocket, ProjectSet: RootSocket, ProjectMove: RootSocket,
	ServerAdd: RootSocket, ServerUpdate: RootSocket, ServerDelete: RootSocket, ServerList: RootSocket, ServerShow: RootSocket, ServerDiff: RootSocket, ServerGC: RootSocket, ReadOnlySet: RootSocket, RootStatus: RootSocket, RootBackup: RootSocket,
	CredentialAdd: RootSocket, CredentialRotate: RootSocket, CredentialRevoke: RootSocket, CredentialList: RootSocket,
	AccessShow: RootSocket, AccessMatrix: RootSocket, AccessEdit: RootSocket,

	Status: ControlSocket, AccountList: ControlSocket, AccountShow: ControlSocket, AccountSuspend: ControlSocket, AccountActivate: ControlSocket,
	ProjectList: ControlSocket, ProjectShow: ControlSocket, ProjectDelete: ControlSocket, MemberAdd: ControlSocket, MemberRemove: ControlSocket,
	ServerProbe: ControlSocket, ServerCatalogue: ControlSocket,
	ConnectionAdd: ControlSocket, ConnectionList: ControlSocket, ConnectionShow: ControlSocket, ConnectionGrant: ControlSocket, ConnectionRevoke: ControlSocket,
	ConnectionAccept: ControlSocket, ConnectionEnable: ControlSocket, ConnectionDisable: ControlSocket,
	TaskNew: ControlSocket, TaskToken: ControlSocket, TaskList: ControlSocket, TaskShow: ControlSocket, TaskRevoke: ControlSocket,
	AccessPair: ControlSocket, AccessRedeem: ControlSocket, AccessUnpair: ControlSocket, AccessPaired: ControlSocket,
	Explain: ControlSocket, Check: ControlSocket, Capabilities: ControlSocket, ActivityShow: ControlSocket,
	ArtifactList: ControlSocket, ArtifactGet: ControlSocket,
	Drain: ControlSocket, Backup: ControlSocket, Ps: ControlSocket, Activity: ControlSocket,
	Logs: ControlSocket, Metrics: ControlSocket, Quota: ControlSocket,
}

// Selected names one thing by id or label.
type Selected struct {
	Selector string `json:"selector"`
}

// Parameters of root.sock.
type (
	// ReadOnlyParams switches read-only mode.
	ReadOnlyParams struct {
		On bool `json:"on"`
	}
	AccountAddParams struct {
		Name string   `json:"name"`
		UIDs []uint32 `json:"uids"`
	}
	ProjectAddParams struct {
		Label     string `json:"label"`
		Workspace string `json:"workspace"` // absolute
		Owner     string `json:"owner"`     // account selector
	}
	// ProjectMoveParams names a project and the directory that is to be its from now on.
	ProjectMoveParams struct {
		Project   string `json:"project"`
		Workspace string `json:"workspace"` // absolute
	}
	ProjectSetParams struct {
		Project          string  `json:"project"`
		PersonBind       *bool   `json:"person_bind,omitzero"`
		ExecutionProfile *string `json:"execution_profile,omitzero"`
		RecordArguments  *bool   `json:"record_arguments,omitzero"` // what its calls are given
		// Protected names of the workspace that its servers may write from now on, and
		// that they may not write any more.
		OpenNames  []string `json:"open_names,omitempty"`
		CloseNames []string `json:"close_names,omitempty"`
	}
	// ServerParams registers a server, or gives an existing one a new revision.
	ServerParams struct {
		Label      string `json:"label"`
		Profile    string `json:"profile"`
		Package    string `json:"package,omitempty"` // absolute directory to ingest; mounted at /package
		Scope      string `json:"scope,omitempty"`   // project (default) or task
		Credential string `json:"credential,omitempty"`
		// How a credential is handed over: as a variable, or as an inherited descriptor.
		CredentialEnv string              `json:"credential_env,omitempty"`
		CredentialFD  int                 `json:"credential_fd,omitzero"`
		Classes       map[string][]string `json:"classes,omitempty"`       // tool → classes
		Tiers         map[string]string   `json:"tiers,omitempty"`         // tool → tier
		SecretFields  []string            `json:"secret_fields,omitempty"` // of arguments: a name, or a path like /auth/key
		Command       []string            `json:"command"`                 // absolute program inside the jail, then literal arguments
	}
)

// ServerDiffParams names two revisions, "" for the current one and the one before.
type ServerDiffParams struct {
	Server string `json:"server"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
}

// Results of root.sock.
type (
	ReadOnlyResult struct {
		ReadOnly bool  `json:"read_only"`
		Since    int64 `json:"since,omitzero"` // milliseconds since the epoch
	}
	AccountResult struct {
		Account string   `json:"account"`
		Name    string   `json:"name"`
		UIDs    []uint32 `json:"uids"`
		Status  string   `json:"status"`
	}
	ProjectResult struct {
		Project          string   `json:"project"`
		Label            string   `json:"label"`
		Owner            string   `json:"owner"`
		OwnerName        string   `json:"owner_name,omitempty"`
		Workspace        string   `json:"workspace"`
		PersonBind       bool     `json:"person_bind"`
		ExecutionProfile string   `json:"execution_profile"`
		RecordArguments  bool     `json:"record_arguments,omitzero"`
		OpenNames        []string `json:"open_names,omitempty"` // protected names that its servers may write
		Warnings         []string `json:"warnings,omitempty"`
	}
	ServerResult struct {
		Server        string              `json:"server"`
		Label         string              `json:"label"`
		Revision      string              `json:"revision"`
		Digest        string              `json:"digest"`
		Profile       string              `json:"profile"`
		Scope         string              `json:"scope"`
		Credential    string              `json:"credential"`
		CredentialEnv string              `json:"credential_env,omitempty"`
		CredentialFD  int                 `json:"credential_fd,omitzero"`
		Classes       map[string][]string `json:"classes,omitempty"`
		Tiers         map[string]string   `json:"tiers,omitempty"`
		SecretFields  []string            `json:"secret_fields,omitempty"`
		Command       []string            `json:"command,omitempty"`
		Package       string              `json:"package,omitempty"`  // digest of the ingested copy
		Recorded      []string            `json:"recorded,omitempty"` // system files that are recorded and not pinned
		Deleted       bool                `json:"deleted,omitzero"`
		Warnings      []string            `json:"warnings,omitempty"`
	}
	// ServerDiffResult tells what differs between two revisions of a server. It holds
	// commands, and is root's.
	ServerDiffResult struct {
		Server  string           `json:"server"`
		Label   string           `json:"label"`
		From    string           `json:"from"` // revision
		To      string           `json:"to"`   // revision
		Members []RevisionMember `json:"members"`
		Files   *FileChanges     `json:"files,omitempty"` // of the package, where it differs
		Notes   []string         `json:"notes,omitempty"` // what could not be told
	}
	// RevisionMember is one member of a registration: a command whole, of a table what
	// differs.
	RevisionMember struct {
		Member string   `json:"member"`
		Was    []string `json:"was,omitempty"`
		Is     []string `json:"is,omitempty"`
		More   int      `json:"more,omitzero"` // lines that are not shown
	}
	// FileChanges counts the files of a package that differ, and names the first of them.
	FileChanges struct {
		Added        int      `json:"added"`
		Removed      int      `json:"removed"`
		Changed      int      `json:"changed"`
		NamesAdded   []string `json:"names_added,omitempty"`
		NamesRemoved []string `json:"names_removed,omitempty"`
		NamesChanged []string `json:"names_changed,omitempty"`
	}
	// ServerGCResult tells which copies of packages were removed, or would be, and which stay.
	ServerGCResult struct {
		Removed []StoredCopy `json:"removed"`
		Kept    []StoredCopy `json:"kept"`
		Lists   int          `json:"lists_removed"` // of files and of profiles' contents, of forgotten revisions
	}
	StoredCopy struct {
		Package string   `json:"package"` // digest
		Files   int      `json:"files"`
		Bytes   int64    `json:"bytes"`             // on the disk
		Servers []string `json:"servers,omitempty"` // whose current revision it is, by label
		Running int      `json:"running,omitzero"`  // jails that have it, and registrations and launches in work
	}
	ServerListResult struct {
		Servers []ServerResult `json:"servers"`
		Next    string         `json:"next,omitempty"` // there is more, after this one
	}
	RootStatusResult struct {
		Version   string `json:"version"`
		Instance  string `json:"instance"`
		Cgroup    string `json:"cgroup"` // hybrid, v1 or v2
		UIDFirst  uint32 `json:"uid_first"`
		UIDCount  uint32 `json:"uid_count"`
		PID       int    `json:"pid"`
		Authority int    `json:"authority_pid"`
		Restarts  int    `json:"authority_restarts"`
		Jails     int    `json:"jails"`
		// Where this one keeps what is root's, which programs it starts, and as whom the authority runs.
		RootDir      string   `json:"root_dir"`
		Libexec      string   `json:"libexec"`
		AuthorityUID uint32   `json:"authority_uid"`
		Warnings     []string `json:"warnings,omitempty"`
		// Goroutines of posternd, for whoever looks for a leak.
		Goroutines int `json:"goroutines"`

		Access AccessState `json:"access"`
		Config ConfigState `json:"config"`
	}
	// ConfigState is what became of postern.yaml and the profiles when they were read last.
	ConfigState struct {
		File    string   `json:"file"`
		Error   string   `json:"error,omitempty"` // why what they said before still holds
		Restart []string `json:"restart_needed,omitempty"`
		At      int64    `json:"at"` // milliseconds since the epoch

		Cut *Cut `json:"cut,omitempty"` // calls that the last change of the file found open
	}
	// Progress is the event of long work.
	Progress struct {
		Text string `json:"text"`
	}
)

// Parameters of control.sock.
type (
	// ServerProbeParams names a server and, where it needs a credential, the project whose
	// credential it is probed with.
	ServerProbeParams struct {
		Selector string `json:"selector"`
		Project  string `json:"project,omitempty"`
	}
	MemberParams struct {
		Project string `json:"project"`
		Account string `json:"account"`
		Role    string `json:"role,omitempty"` // owner, member, viewer
	}
	// ConnectionParams names one connection; grant needs a tool, a prompt or a resource prefix, revoke takes some or none.
	ConnectionParams struct {
		Project   string   `json:"project"`
		Server    string   `json:"server"`
		Tools     []string `json:"tools,omitempty"`
		Prompts   []string `json:"prompts,omitempty"`
		Resources []string `json:"resources,omitempty"` // prefixes of URIs, by whole segments
		Tier      string   `json:"tier,omitempty"`
		// Seen are the pins of the changed definitions that were looked at, by tool: accept refuses others.
		Seen map[string]string `json:"seen,omitempty"`
		// Revision is the server's current one when it was looked at: accept refuses another.
		Revision string `json:"revision,omitempty"`
	}
	// LogsParams asks for the end of what a project's tool servers wrote to stderr.
	LogsParams struct {
		Project string            `json:"project"`
		Server  string            `json:"server,omitempty"` // of one connection, as in ConnectionParams
		Lines   int               `json:"lines,omitzero"`   // of each instance, the last ones
		From    map[string]uint64 `json:"from,omitempty"`   // by instance: only what was written after so many bytes
	}
	// ProjectListParams asks for the projects with ids after After, only those of a label
	// where there is one.
	ProjectListParams struct {
		Label string `json:"label,omitempty"`
		After string `json:"after,omitempty"`
	}
	// PageParams asks for what comes after After in a list: its first page where that is
	// empty, then each time what the last answer had as Next.
	PageParams struct {
		After string `json:"after,omitempty"`
	}
	// ListParams is PageParams for a list that may be of one project alone.
	ListParams struct {
		Project string `json:"project,omitempty"`
		After   string `json:"after,omitempty"`
	}
	ProjectParams struct {
		Project string `json:"project,omitempty"`
	}
	TaskNewParams struct {
		Project   string `json:"project"`
		ForUID    uint32 `json:"for_uid"`
		Principal string `json:"principal,omitempty"`
		Mode      string `json:"mode,omitempty"`
		TTLMs     int64  `json:"ttl_ms,omitzero"`
		Binds     int    `json:"binds,omitzero"`
		File      bool   `json:"file,omitzero"` // deliver the token by file
	}
	TaskParams struct {
		Task  string `json:"task"`
		TTLMs int64  `json:"ttl_ms,omitzero"`
		Binds int    `json:"binds,omitzero"`
		File  bool   `json:"file,omitzero"`
	}
	// DrainParams: at most one of Now and Cancel.
	DrainParams struct {
		TimeoutMs int64 `json:"timeout_ms,omitzero"` // for open calls
		Now       bool  `json:"now,omitzero"`        // none
		Cancel    bool  `json:"cancel,omitzero"`     // take new work again
	}
	ActivityParams struct {
		Project string `json:"project,omitempty"`
		Since   int64  `json:"since,omitzero"` // milliseconds since the epoch
		State   string `json:"state,omitempty"`
		Cursor  string `json:"cursor,omitempty"`
		Limit   int    `json:"limit,omitzero"`
		Follow  bool   `json:"follow,omitzero"`
		Export  bool   `json:"export,omitzero"` // the oldest first, each record an event of the exported form
		// Arguments asks for what was recorded of them. Only a project's people see it.
		Arguments bool `json:"arguments,omitzero"`
	}
)

// Results of control.sock.
type (
	StatusResult struct {
		Version       string `json:"version"`
		State         string `json:"state"`                    // serving, draining, drained, denying
		Access        string `json:"access"`                   // the access policy: none, read, mistaken (whom its mistakes are about are denied), or denying everyone it governs
		ReadOnly      int64  `json:"read_only_since,omitzero"` // nothing is changed since then, milliseconds since the epoch
		*StatusCounts        // for root alone
	}
	StatusCounts struct {
		Incarnation uint64 `json:"incarnation"`
		Facts       uint64 `json:"facts"`
		Reason      string `json:"reason,omitempty"`        // why calls are denied
		AccessError string `json:"access_error,omitempty"`  // the mistake of the access policy that denies somebody, or why it cannot be used
		Access      string `json:"access_digest,omitempty"` // of the document that decides
		// Denials of the access policy that match no known tool, with file, line and key.
		Unmatched []string `json:"access_unmatched,omitempty"`
		Sessions  int      `json:"sessions"`
		Bridges   int      `json:"bridges"`
		Servers   int      `json:"servers"`
		OpenCalls int      `json:"open_calls"`
		// Schemas of the two files, and goroutines of the authority, for whoever looks for a fault.
		PolicySchema   int `json:"policy_schema"`
		ActivitySchema int `json:"activity_schema"`
		Goroutines     int `json:"goroutines"`
	}
	AccountListResult struct {
		Accounts []AccountResult `json:"accounts"`
		Next     string          `json:"next,omitempty"` // there is more, after this one
	}
	ProjectListResult struct {
		Projects []ProjectResult `json:"projects"`
		Next     string          `json:"next,omitempty"` // there is more, after this one
	}
	ProjectShowResult struct {
		ProjectResult
		Members     []MemberResult     `json:"members"`
		Connections []ConnectionResult `json:"connections"`
	}
	MemberResult struct {
		Account string `json:"account"`
		Name    string `json:"name"`
		Role    string `json:"role"`
		Note    string `json:"note,omitempty"` // of an account that was added: why it cannot connect
	}
	CatalogueResult struct {
		Server   string       `json:"server"`
		Revision string       `json:"revision"`
		Probed   int64        `json:"probed"` // milliseconds since the epoch; 0: never
		Error    string       `json:"error,omitempty"`
		Tools    []ToolResult `json:"tools"`
		// Unmatched is what the registration declares of tools and arguments that are not in the list.
		Unmatched []string `json:"unmatched,omitempty"`
	}
	ToolResult struct {
		Tool        string   `json:"tool"`           // a prompt is "prompt:NAME", a prefix of resources "resource:URI"
		Kind        string   `json:"kind,omitempty"` // prompt or resource; empty for a tool
		Served      string   `json:"served,omitempty"`
		Title       string   `json:"title,omitempty"`
		Description string   `json:"description,omitempty"`
		Pin         string   `json:"pin,omitempty"`
		Classes     []string `json:"classes,omitempty"`
		ClassSource string   `json:"class_source,omitempty"`
		Tier        string   `json:"tier,omitempty"`
		Granted     bool     `json:"granted"`
		State       string   `json:"state,omitempty"`  // as capabilities tells it; offered or quarantined in a catalogue
		Reason      string   `json:"reason,omitempty"` // code of the table, or why it is quarantined
	}
	ConnectionResult struct {
		Connection string `json:"connection"`
		Project    string `json:"project"`
		Server     string `json:"server"`
		Label      string `json:"label"`
		Enabled    bool   `json:"enabled"`
		Credential string `json:"credential"` // keyless or credential
		// CredentialState is assigned or missing, "" of a keyless one.
		CredentialState string       `json:"credential_state,omitempty"`
		Accepted        string       `json:"accepted"` // revision
		Current         string       `json:"current"`  // revision
		Readiness       string       `json:"readiness"`
		Reason          string       `json:"reason,omitempty"`
		Version         uint64       `json:"version"`
		Tools           []ToolResult `json:"tools,omitempty"`
		Changes         []Change     `json:"changes,omitempty"` // against the current revision; in accept's answer, as it was before
		Notice          string       `json:"notice,omitempty"`
	}
	// Change is a granted tool or prompt that the server lists otherwise than it was granted,
	// or another one that it lists otherwise than the accepted revision did.
	Change struct {
		Tool      string         `json:"tool"`
		Kind      string         `json:"kind,omitempty"`
		Ungranted bool           `json:"ungranted,omitzero"`
		State     string         `json:"state"` // changed, gone or quarantined; of what is not granted also new
		Reason    string         `json:"reason,omitempty"`
		Pin       string         `json:"pin,omitempty"` // of the definition as it is now
		Members   []MemberChange `json:"members,omitempty"`
	}
	// MemberChange is one member of a definition, word by word; the text is escaped.
	MemberChange struct {
		Member string  `json:"member"`
		Pieces []Piece `json:"pieces"`
		Cut    bool    `json:"cut,omitzero"` // more is different than is shown
	}
	Piece struct {
		Op   string `json:"op"` // "=" stays, "-" goes, "+" comes
		Text string `json:"text"`
	}
	ConnectionListResult struct {
		Connections []ConnectionResult `json:"connections"`
		Next        string             `json:"next,omitempty"` // there is more, after this one
	}
	// RevokeResult lists what was admitted before a narrowing change.
	RevokeResult struct {
		Target    string     `json:"target"`
		Stands    []OpenCall `json:"admitted_before"`
		More      int        `json:"admitted_before_more,omitzero"` // further ones that are not named
		Sessions  int        `json:"sessions_closed"`
		Fenced    int        `json:"bridges_fenced"`
		Killed    int        `json:"bridges_killed"`
		Note      string     `json:"note,omitempty"`
		Readiness string     `json:"readiness,omitempty"`
	}
	OpenCall struct {
		Call       string `json:"call"`
		Tool       string `json:"tool"`
		AgeMs      int64  `json:"age_ms"`
		CancelSent bool   `json:"cancel_sent"`
		State      string `json:"state"` // StateAdmitted or StateDraining
	}
	// DrainResult tells what a drain found and what it ended.
	DrainResult struct {
		State    string      `json:"state"`    // serving, draining, drained
		Tasks    []DrainTask `json:"tasks"`    // with sessions, when it began
		Calls    []DrainCall `json:"calls"`    // open when it began
		Ended    []DrainCall `json:"ended"`    // given up as unknown, because they were open when the time was over
		Sessions int         `json:"sessions"` // closed
		Note     string      `json:"note,omitempty"`
	}
	DrainTask struct {
		Task     string `json:"task"`
		Project  string `json:"project"`
		Sessions int    `json:"sessions"`
		Calls    int    `json:"open_calls"`
	}
	DrainCall struct {
		Call    string `json:"call"`
		Tool    string `json:"tool"`
		Task    string `json:"task"`
		Project string `json:"project"`
		AgeMs   int64  `json:"age_ms"`
	}
	TaskResult struct {
		Task      string `json:"task"`
		Account   string `json:"account"`
		Host      string `json:"host"`
		Project   string `json:"project"`
		Principal string `json:"principal"`
		Mode      string `json:"mode"`
		Created   int64  `json:"created"`
		Ended     int64  `json:"ended,omitzero"`
		Reason    string `json:"reason,omitempty"`
		Sessions  int    `json:"sessions"`
		Token     string `json:"token,omitempty"`      // only in the answer of task.new and task.token, to the host itself
		TokenFile string `json:"token_file,omitempty"` // where it was delivered instead
		Expires   int64  `json:"expires,omitzero"`
	}
	TaskListResult struct {
		Tasks []TaskResult `json:"tasks"`
		Next  string       `json:"next,omitempty"` // there is more, after this one
	}
	PsRow struct {
		Kind         string `json:"kind"` // bridge, server, probe
		Project      string `json:"project,omitempty"`
		ProjectLabel string `json:"project_label,omitempty"`
		Task         string `json:"task,omitempty"`  // whose alone it is, of a server of scope task
		Label        string `json:"label,omitempty"` // the server's
		Jail         string `json:"jail"`
		Profile      string `json:"profile"`
		UID          uint32 `json:"uid"`
		PID          int    `json:"pid"`
		State        string `json:"state"`
		Memory       int64  `json:"memory"`
		CPUUsec      int64  `json:"cpu_usec"`
		Pids         int    `json:"pids"`
		Started      int64  `json:"started"`
		Calls        uint64 `json:"calls"`
		Restarts     int    `json:"restarts"`
		Sessions     int    `json:"sessions"`
		LastError    string `json:"last_error,omitempty"`
		// Its limits, 0 where it does not run.
		MemoryMax int64 `json:"memory_max,omitzero"`
		PidsMax   int   `json:"pids_max,omitzero"`
		// InFlight are the calls that it was sent and has not answered.
		InFlight int `json:"in_flight"`
		// Pressure is absent where the kernel keeps none.
		Pressure *Pressure `json:"pressure,omitzero"`
		// Of what a tool server wrote, so far: lines that are no messages, lines over their bound, and
		// answers and progress to nothing that was asked. All were passed over.
		Skipped   int64 `json:"skipped,omitzero"`
		TooLong   int64 `json:"too_long,omitzero"`
		Unmatched int64 `json:"unmatched,omitzero"`
	}
	// Pressure is how much of the last ten seconds, in percent, something in a jail
	// waited for a resource.
	Pressure struct {
		Memory float64 `json:"memory"`
		CPU    float64 `json:"cpu"`
		IO     float64 `json:"io"`
	}
	PsResult struct {
		Rows []PsRow `json:"rows"`
		Next string  `json:"next,omitempty"` // there is more, after this one
	}
	// LogRow is what one instance of a tool server wrote to its stderr, or why that is not
	// shown. Text is the server's, with anything in it; it may tell what calls were about.
	LogRow struct {
		Connection string `json:"connection,omitempty"`
		Label      string `json:"label,omitempty"` // the server's
		Task       string `json:"task,omitempty"`  // whose alone it is, of a server of scope task
		Instance   string `json:"instance,omitempty"`
		Ended      bool   `json:"ended"`
		Reason     string `json:"reason,omitempty"`  // how an ended one ended
		Missing    string `json:"missing,omitempty"` // why there is no text
		// Next is where From goes on. Lost bytes before Text are no longer kept.
		Next uint64 `json:"next"`
		Lost uint64 `json:"lost,omitzero"`
		Text string `json:"text"`
	}
	LogsResult struct {
		Rows []LogRow `json:"rows"`
	}
	ActivityRow struct {
		Call         string   `json:"call,omitempty"`
		Time         int64    `json:"time"` // milliseconds since the epoch
		Account      string   `json:"account"`
		Host         string   `json:"host"`
		Project      string   `json:"project"`
		ProjectLabel string   `json:"project_label,omitempty"`
		Task         string   `json:"task"`
		Principal    string   `json:"principal"`
		Mode         string   `json:"mode"`
		Session      string   `json:"session"`
		Continues    string   `json:"continues,omitempty"` // the call whose server asked the user, and which this one goes on with
		Connection   string   `json:"connection,omitempty"`
		Revision     string   `json:"revision,omitempty"`
		Tool         string   `json:"tool"`
		Classes      []string `json:"classes,omitempty"`
		RequestID    string   `json:"request_id,omitempty"`
		ArgsDigest   string   `json:"args_digest,omitempty"`
		ArgsSize     int64    `json:"args_size"`
		State        string   `json:"state"`
		Ended        int64    `json:"ended,omitzero"`
		Size         int64    `json:"size,omitzero"`
		Code         string   `json:"code,omitempty"`
		Reason       string   `json:"reason,omitempty"` // why it ended so, or was not begun, in words
		Count        int      `json:"count,omitzero"`   // folded denials
		Artifacts    []string `json:"artifacts,omitempty"`
		NotKept      []string `json:"artifacts_not_kept,omitempty"` // why others were not kept
		Cursor       string   `json:"cursor"`
		// Where they were asked for and are recorded.
		Arguments   jsontext.Value `json:"arguments,omitempty"`
		NotRecorded string         `json:"arguments_not_recorded,omitempty"`
	}
	ActivityResult struct {
		Rows   []ActivityRow `json:"rows"`
		Cursor string        `json:"cursor"` // where the next page begins
		More   bool          `json:"more"`
		Follow string        `json:"follow,omitempty"` // the cursor from which a follow goes on now
	}
)

// Items lists what the parameters name, as it stands in grants and records: tools by
// their own names, then prompts, then prefixes of resources.
func (p ConnectionParams) Items() []string {
	out := slices.Clone(p.Tools)
	for _, name := range p.Prompts {
		out = append(out, item.Prompt.Key(name))
	}
	for _, uri := range p.Resources {
		out = append(out, item.Resource.Key(uri))
	}
	return out
}
