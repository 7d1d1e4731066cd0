package api

// Parameters of explain, capabilities and check. Each is asked for a task, or for
// whoever a principal of a project would be.
type (
	AskerParams struct {
		Task      string `json:"task,omitempty"`
		Project   string `json:"project,omitempty"`
		Principal string `json:"principal,omitempty"`
		Mode      string `json:"mode,omitempty"`
	}
	ExplainParams struct {
		AskerParams
		Tool string `json:"tool"`
	}
	CapabilitiesParams struct {
		AskerParams
		Native bool `json:"native,omitzero"` // runtimes' own tools too
	}
	// CheckParams asks about a runtime's own tool. Paths are its path arguments, absolute
	// or relative to the workspace.
	CheckParams struct {
		Task       string   `json:"task,omitempty"`
		Project    string   `json:"project,omitempty"` // the caller's own task there
		Tool       string   `json:"tool"`
		Paths      []string `json:"paths,omitempty"`
		Unjudged   bool     `json:"unjudged,omitzero"` // a path argument is no path
		RequestID  string   `json:"request_id,omitempty"`
		ArgsDigest string   `json:"args_digest,omitempty"`
		ArgsSize   int64    `json:"args_size,omitzero"`
	}
	RecordParams struct {
		Record string `json:"record"` // a call's id, or a record's cursor
		// Arguments asks for what was recorded of them. Only a project's people see it.
		Arguments bool `json:"arguments,omitzero"`
	}
)

// Results of explain, capabilities and check.
type (
	// AskerResult is for whom an answer was found.
	AskerResult struct {
		Task         string `json:"task,omitempty"` // empty: supposed
		Account      string `json:"account"`
		Host         string `json:"host"`
		Project      string `json:"project"`
		ProjectLabel string `json:"project_label"`
		Principal    string `json:"principal"`
		Mode         string `json:"mode"`
	}
	RuleResult struct {
		Rule     string `json:"rule"`
		Answer   string `json:"answer"` // passes, denies or not asked
		Code     string `json:"code,omitempty"`
		Sentence string `json:"sentence,omitempty"`
		Read     string `json:"read,omitempty"`
		From     string `json:"from,omitempty"`
	}
	ExplainResult struct {
		AskerResult
		Tool       string       `json:"tool"`
		Server     string       `json:"server,omitempty"`
		Served     string       `json:"served,omitempty"`
		Native     bool         `json:"native,omitzero"` // a runtime's own tool
		Connection string       `json:"connection,omitempty"`
		Allowed    bool         `json:"allowed"`
		Code       string       `json:"code,omitempty"`
		Sentence   string       `json:"sentence,omitempty"`
		Advice     string       `json:"advice,omitempty"`
		Help       string       `json:"help,omitempty"`
		State      string       `json:"state"`
		Reason     string       `json:"reason,omitempty"`
		Facts      uint64       `json:"facts"` // the version of the root facts
		Rules      []RuleResult `json:"rules"`
	}
	CheckResult struct {
		Task    string   `json:"task"`
		Tool    string   `json:"tool"`
		Allowed bool     `json:"allowed"`
		Code    string   `json:"code,omitempty"`
		Also    []string `json:"also,omitempty"` // every other rule that denies
		Refusal *Refusal `json:"refusal,omitempty"`
		// Rules are those that deny, in the order of the decision, the one that decided too.
		Rules []RuleResult `json:"rules,omitempty"`
	}
	CapabilityRow struct {
		Kind       string   `json:"kind"` // tool, prompt, resource, server or native
		Server     string   `json:"server,omitempty"`
		Connection string   `json:"connection,omitempty"`
		Tool       string   `json:"tool,omitempty"`
		Served     string   `json:"served,omitempty"`
		State      string   `json:"state"`
		Code       string   `json:"code,omitempty"`
		Reason     string   `json:"reason,omitempty"`
		Classes    []string `json:"classes,omitempty"`
		ClassesBy  string   `json:"class_source,omitempty"`
		Tier       string   `json:"tier,omitempty"`
		Runtimes   []string `json:"runtimes,omitempty"` // that have a native tool
	}
	CapabilitiesResult struct {
		AskerResult
		Rows []CapabilityRow `json:"rows"`
	}
	RecordResult struct {
		ActivityRow
		Policy   string       `json:"policy,omitempty"` // what decided, as it was recorded
		Sentence string       `json:"sentence,omitempty"`
		Advice   string       `json:"advice,omitempty"`
		Help     string       `json:"help,omitempty"`
		Denies   []RuleResult `json:"denies,omitempty"` // every rule that denied at that moment
	}
)
