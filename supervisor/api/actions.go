package api

import (
	"slices"

	"postern/item"
)

// Actions of root.sock: root facts, peer uid 0 only. Beside each stand its
// parameters and its result; None is {}.
const (
	AccountAdd    Action = "account.add"    // AccountAddParams → AccountResult
	AccountDelete Action = "account.delete" // Selected → AccountResult
	ProjectAdd    Action = "project.add"    // ProjectAddParams → ProjectResult
	ProjectSet    Action = "project.set"    // ProjectSetParams → ProjectResult
	ServerAdd     Action = "server.add"     // ServerParams → ServerResult, with Progress events
	ServerUpdate  Action = "server.update"  // ServerParams → ServerResult, with Progress events
	ServerDelete  Action = "server.delete"  // Selected → ServerResult
	ServerList    Action = "server.list"    // None → ServerListResult
	ServerShow    Action = "server.show"    // Selected → ServerResult
	RootStatus    Action = "root.status"    // None → RootStatusResult
	RootBackup    Action = "root.backup"    // None → BackupResult, with BackupPiece events
	AccessShow    Action = "access.show"    // None → AccessShowResult
	AccessMatrix  Action = "access.matrix"  // AccessMatrixParams → AccessShowResult
	AccessEdit    Action = "access.edit"    // AccessEditParams → AccessEditResult
)

// Actions of control.sock.
const (
	Status            Action = "status"                // None → StatusResult
	AccountList       Action = "account.list"          // None → AccountListResult
	AccountShow       Action = "account.show"          // Selected → AccountResult
	AccountSuspend    Action = "account.suspend"       // Selected → RevokeResult
	AccountActivate   Action = "account.activate"      // Selected → AccountResult
	ProjectList       Action = "project.list"          // None → ProjectListResult
	ProjectShow       Action = "project.show"          // Selected → ProjectShowResult
	ProjectDelete     Action = "project.delete"        // Selected → RevokeResult
	MemberAdd         Action = "project.member.add"    // MemberParams → MemberResult
	MemberRemove      Action = "project.member.remove" // MemberParams → RevokeResult
	ServerProbe       Action = "server.probe"          // Selected → CatalogueResult, with Progress events
	ServerCatalogue   Action = "server.catalogue"      // Selected → CatalogueResult
	ConnectionAdd     Action = "connection.add"        // ConnectionParams → ConnectionResult
	ConnectionList    Action = "connection.list"       // ProjectParams → ConnectionListResult
	ConnectionShow    Action = "connection.show"       // ConnectionParams → ConnectionResult
	ConnectionGrant   Action = "connection.grant"      // ConnectionParams → ConnectionResult
	ConnectionRevoke  Action = "connection.revoke"     // ConnectionParams → RevokeResult
	ConnectionAccept  Action = "connection.accept"     // ConnectionParams → ConnectionResult
	ConnectionEnable  Action = "connection.enable"     // ConnectionParams → ConnectionResult
	ConnectionDisable Action = "connection.disable"    // ConnectionParams → RevokeResult
	TaskNew           Action = "task.new"              // TaskNewParams → TaskResult
	TaskToken         Action = "task.token"            // TaskParams → TaskResult
	TaskList          Action = "task.list"             // ProjectParams → TaskListResult
	TaskShow          Action = "task.show"             // TaskParams → TaskResult
	TaskRevoke        Action = "task.revoke"           // TaskParams → RevokeResult
	Explain           Action = "explain"               // ExplainParams → ExplainResult
	Capabilities      Action = "capabilities"          // CapabilitiesParams → CapabilitiesResult
	Check             Action = "check"                 // CheckParams → CheckResult
	ActivityShow      Action = "activity.show"         // RecordParams → RecordResult
	Backup            Action = "backup"                // None → BackupResult, with BackupPiece events
	Ps                Action = "ps"                    // ProjectParams → PsResult
	Activity          Action = "activity"              // ActivityParams → ActivityResult; a follow sends ActivityRow events, an export its lines
)

var served = map[Action]Socket{
	AccountAdd: RootSocket, AccountDelete: RootSocket, ProjectAdd: RootSocket, ProjectSet: RootSocket,
	ServerAdd: RootSocket, ServerUpdate: RootSocket, ServerDelete: RootSocket, ServerList: RootSocket, ServerShow: RootSocket, RootStatus: RootSocket, RootBackup: RootSocket,
	AccessShow: RootSocket, AccessMatrix: RootSocket, AccessEdit: RootSocket,

	Status: ControlSocket, AccountList: ControlSocket, AccountShow: ControlSocket, AccountSuspend: ControlSocket, AccountActivate: ControlSocket,
	ProjectList: ControlSocket, ProjectShow: ControlSocket, ProjectDelete: ControlSocket, MemberAdd: ControlSocket, MemberRemove: ControlSocket,
	ServerProbe: ControlSocket, ServerCatalogue: ControlSocket,
	ConnectionAdd: ControlSocket, ConnectionList: ControlSocket, ConnectionShow: ControlSocket, ConnectionGrant: ControlSocket, ConnectionRevoke: ControlSocket,
	ConnectionAccept: ControlSocket, ConnectionEnable: ControlSocket, ConnectionDisable: ControlSocket,
	TaskNew: ControlSocket, TaskToken: ControlSocket, TaskList: ControlSocket, TaskShow: ControlSocket, TaskRevoke: ControlSocket,
	Explain: ControlSocket, Check: ControlSocket, Capabilities: ControlSocket, ActivityShow: ControlSocket,
	Backup: ControlSocket, Ps: ControlSocket, Activity: ControlSocket,
}

// Selected names one thing by id or label.
type Selected struct {
	Selector string `json:"selector"`
}

// Parameters of root.sock.
type (
	AccountAddParams struct {
		Name string   `json:"name"`
		UIDs []uint32 `json:"uids"`
	}
	ProjectAddParams struct {
		Label     string `json:"label"`
		Workspace string `json:"workspace"` // absolute
		Owner     string `json:"owner"`     // account selector
	}
	ProjectSetParams struct {
		Project          string  `json:"project"`
		PersonBind       *bool   `json:"person_bind,omitzero"`
		ExecutionProfile *string `json:"execution_profile,omitzero"`
		// Protected names of the workspace that its servers may write from now on, and
		// that they may not write any more.
		OpenNames  []string `json:"open_names,omitempty"`
		CloseNames []string `json:"close_names,omitempty"`
	}
	// ServerParams registers a server, or gives an existing one a new revision.
	ServerParams struct {
		Label      string              `json:"label"`
		Profile    string              `json:"profile"`
		Package    string              `json:"package,omitempty"` // absolute directory to ingest; mounted at /package
		Scope      string              `json:"scope,omitempty"`   // project (default) or task
		Credential string              `json:"credential,omitempty"`
		Classes    map[string][]string `json:"classes,omitempty"` // tool → classes
		Tiers      map[string]string   `json:"tiers,omitempty"`   // tool → tier
		Command    []string            `json:"command"`           // absolute program inside the jail, then literal arguments
	}
)

// Results of root.sock.
type (
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
		Workspace        string   `json:"workspace"`
		PersonBind       bool     `json:"person_bind"`
		ExecutionProfile string   `json:"execution_profile"`
		OpenNames        []string `json:"open_names,omitempty"` // protected names that its servers may write
		Warnings         []string `json:"warnings,omitempty"`
	}
	ServerResult struct {
		Server     string              `json:"server"`
		Label      string              `json:"label"`
		Revision   string              `json:"revision"`
		Digest     string              `json:"digest"`
		Profile    string              `json:"profile"`
		Scope      string              `json:"scope"`
		Credential string              `json:"credential"`
		Classes    map[string][]string `json:"classes,omitempty"`
		Tiers      map[string]string   `json:"tiers,omitempty"`
		Command    []string            `json:"command,omitempty"`
		Package    string              `json:"package,omitempty"`  // digest of the ingested copy
		Recorded   []string            `json:"recorded,omitempty"` // system files that are recorded and not pinned
		Deleted    bool                `json:"deleted,omitzero"`
		Warnings   []string            `json:"warnings,omitempty"`
	}
	ServerListResult struct {
		Servers []ServerResult `json:"servers"`
	}
	RootStatusResult struct {
		Version   string   `json:"version"`
		Instance  string   `json:"instance"`
		Cgroup    string   `json:"cgroup"` // hybrid, v1 or v2
		UIDFirst  uint32   `json:"uid_first"`
		UIDCount  uint32   `json:"uid_count"`
		PID       int      `json:"pid"`
		Authority int      `json:"authority_pid"`
		Restarts  int      `json:"authority_restarts"`
		Jails     int      `json:"jails"`
		Warnings  []string `json:"warnings,omitempty"`

		Access AccessState `json:"access"`
		Config ConfigState `json:"config"`
	}
	// ConfigState is what became of postern.yaml and the profiles when they were read last.
	ConfigState struct {
		File    string   `json:"file"`
		Error   string   `json:"error,omitempty"` // why what they said before still holds
		Restart []string `json:"restart_needed,omitempty"`
		At      int64    `json:"at"` // milliseconds since the epoch
	}
	// Progress is the event of long work.
	Progress struct {
		Text string `json:"text"`
	}
)

// Parameters of control.sock.
type (
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
	ActivityParams struct {
		Project string `json:"project,omitempty"`
		Since   int64  `json:"since,omitzero"` // milliseconds since the epoch
		State   string `json:"state,omitempty"`
		Cursor  string `json:"cursor,omitempty"`
		Limit   int    `json:"limit,omitzero"`
		Follow  bool   `json:"follow,omitzero"`
		Export  bool   `json:"export,omitzero"` // the oldest first, each record an event of the exported form
	}
)

// Results of control.sock.
type (
	StatusResult struct {
		Version       string `json:"version"`
		State         string `json:"state"`  // serving, draining, denying
		Access        string `json:"access"` // the access policy: none, read, or denying everyone it governs
		*StatusCounts        // for root alone
	}
	StatusCounts struct {
		Incarnation uint64 `json:"incarnation"`
		Facts       uint64 `json:"facts"`
		Reason      string `json:"reason,omitempty"`        // why calls are denied
		AccessError string `json:"access_error,omitempty"`  // why the access policy cannot be used
		Access      string `json:"access_digest,omitempty"` // of the document that decides
		// Denials of the access policy that match no known tool, with file, line and key.
		Unmatched []string `json:"access_unmatched,omitempty"`
		Sessions  int      `json:"sessions"`
		Bridges   int      `json:"bridges"`
		Servers   int      `json:"servers"`
		OpenCalls int      `json:"open_calls"`
	}
	AccountListResult struct {
		Accounts []AccountResult `json:"accounts"`
	}
	ProjectListResult struct {
		Projects []ProjectResult `json:"projects"`
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
	}
	CatalogueResult struct {
		Server   string       `json:"server"`
		Revision string       `json:"revision"`
		Probed   int64        `json:"probed"` // milliseconds since the epoch; 0: never
		Error    string       `json:"error,omitempty"`
		Tools    []ToolResult `json:"tools"`
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
		Connection string       `json:"connection"`
		Project    string       `json:"project"`
		Server     string       `json:"server"`
		Label      string       `json:"label"`
		Enabled    bool         `json:"enabled"`
		Credential string       `json:"credential"` // keyless or credential
		Accepted   string       `json:"accepted"`   // revision
		Current    string       `json:"current"`    // revision
		Readiness  string       `json:"readiness"`
		Reason     string       `json:"reason,omitempty"`
		Version    uint64       `json:"version"`
		Tools      []ToolResult `json:"tools,omitempty"`
		Changes    []Change     `json:"changes,omitempty"` // of what is granted, against the current revision; in accept's answer, as it was before
		Notice     string       `json:"notice,omitempty"`
	}
	// Change is a granted tool or prompt that the server lists otherwise than it was granted.
	Change struct {
		Tool    string         `json:"tool"`
		Kind    string         `json:"kind,omitempty"`
		State   string         `json:"state"` // changed, gone or quarantined
		Reason  string         `json:"reason,omitempty"`
		Pin     string         `json:"pin,omitempty"` // of the definition as it is now
		Members []MemberChange `json:"members,omitempty"`
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
	}
	// RevokeResult lists what was admitted before a narrowing change.
	RevokeResult struct {
		Target    string     `json:"target"`
		Stands    []OpenCall `json:"admitted_before"`
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
		State      string `json:"state"`
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
		// Of what a tool server wrote, so far: lines that are no messages, lines over their bound, and
		// answers and progress to nothing that was asked. All were passed over.
		Skipped   int64 `json:"skipped,omitzero"`
		TooLong   int64 `json:"too_long,omitzero"`
		Unmatched int64 `json:"unmatched,omitzero"`
	}
	PsResult struct {
		Rows []PsRow `json:"rows"`
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
		Cursor       string   `json:"cursor"`
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
