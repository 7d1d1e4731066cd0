package api

// Parameters of the access policy's actions.
type (
	AccessMatrixParams struct {
		ExecutionProfile string `json:"execution_profile,omitempty"` // standard where none is named
	}
	// AccessEditParams is one change; Action is named by its target: level, preset, role,
	// block, remove, default, admission, enabled, default-mode, groups, group-default,
	// group, group-remove.
	AccessEditParams struct {
		Action           string `json:"action"`
		Channel          string `json:"channel"`
		Target           string `json:"target,omitempty"` // an identity or a group
		Level            string `json:"level,omitempty"`
		Write            bool   `json:"write,omitzero"`
		Preset           string `json:"preset,omitempty"`
		On               bool   `json:"on,omitzero"`
		Word             string `json:"word,omitempty"` // of admission and default-mode
		ExecutionProfile string `json:"execution_profile,omitempty"`
	}
)

// Parameters of pairing.
type (
	PairParams struct {
		Channel string `json:"channel"`
		TTLMs   int64  `json:"ttl_ms,omitzero"` // 0: the default
	}
	RedeemParams struct {
		Principal string `json:"principal"` // CHANNEL:ID, who wrote the code
		Code      string `json:"code"`
	}
	UnpairParams struct {
		Principal string `json:"principal"`
	}
)

// Results of pairing.
type (
	// PairResult holds the one copy of a code there is; a dry run has none.
	PairResult struct {
		Channel string `json:"channel"`
		Code    string `json:"code,omitempty"`
		Expires int64  `json:"expires,omitzero"` // milliseconds since the epoch
		Usable  int    `json:"usable"`           // codes of the channel, this one with them
	}
	// PairedRow is somebody who is paired, and what the access policy makes of it now.
	PairedRow struct {
		Principal string  `json:"principal"`
		Host      string  `json:"host"` // through which the code was used
		At        int64   `json:"at,omitzero"`
		Kind      string  `json:"kind"`
		Admitted  bool    `json:"admitted"`
		Code      string  `json:"code,omitempty"`
		Level     *string `json:"level"` // null where there is no ceiling, or no admission
	}
	// PairedResult lists everybody, and how many codes of each channel can be used.
	PairedResult struct {
		Paired []PairedRow    `json:"paired"`
		Usable map[string]int `json:"usable,omitempty"`
	}
)

// Results of the access policy's actions.
type (
	// AccessState is how the file is now.
	AccessState struct {
		File     string          `json:"file"`
		State    string          `json:"state"`            // none, read, mistaken: whom its mistakes are about are denied, or denying: everyone, for it cannot be read
		Digest   string          `json:"digest,omitempty"` // of what was read
		Error    string          `json:"error,omitempty"`  // the first mistake that denies somebody, or why it cannot be read
		Deciding bool            `json:"deciding"`         // the authority decides by it
		Mistakes []AccessMistake `json:"mistakes"`
		At       int64           `json:"at"` // when it was found so, milliseconds since the epoch
	}
	AccessMistake struct {
		Line    int    `json:"line"`
		Key     string `json:"key"`
		Text    string `json:"text"`
		Warning bool   `json:"warning"` // nobody is denied for it
	}
	// AccessRow is what one principal may reach before anything is granted.
	AccessRow struct {
		Channel      string   `json:"channel"`
		Who          string   `json:"who"`
		Kind         string   `json:"kind"`
		Admitted     bool     `json:"admitted"`
		Code         string   `json:"code,omitempty"`
		Level        *string  `json:"level"` // null where there is no ceiling
		Write        bool     `json:"write"`
		Preset       *string  `json:"preset"` // null where there is no ceiling
		Ceiling      string   `json:"ceiling"`
		Mode         string   `json:"mode"` // the widest
		Classes      []string `json:"classes"`
		WithoutClass bool     `json:"without_class"` // a tool without class may pass
		From         string   `json:"from"`
	}
	AccessShowResult struct {
		AccessState
		Modes []string    `json:"modes"`
		Rows  []AccessRow `json:"rows"`
	}
	AccessEditResult struct {
		Action       string      `json:"action"`
		Channel      string      `json:"channel"`
		Target       string      `json:"target,omitempty"`
		Before       string      `json:"before"`
		After        string      `json:"after"`
		Warnings     []string    `json:"warnings,omitempty"`
		File         string      `json:"file"`
		Digest       string      `json:"digest,omitempty"`
		Written      bool        `json:"written"`
		MatrixBefore []AccessRow `json:"matrix_before"`
		MatrixAfter  []AccessRow `json:"matrix_after"`
		Cut
	}
)
