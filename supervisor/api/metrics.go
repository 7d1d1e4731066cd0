package api

// MetricsResult is how much the authority does, for root and the configured metrics user.
// It names no account, project, server, tool or call. Counts begin with each authority.
type MetricsResult struct {
	Version     string            `json:"version"`
	State       string            `json:"state"`   // as in StatusResult
	Access      string            `json:"access"`  // as in StatusResult
	Started     int64             `json:"started"` // milliseconds since the epoch
	Incarnation uint64            `json:"incarnation"`
	Projects    int               `json:"projects"`
	Sessions    int               `json:"sessions"`
	Bridges     int               `json:"bridges"`
	Servers     map[string]int    `json:"servers"` // by state
	OpenCalls   int               `json:"open_calls"`
	Admitted    uint64            `json:"admitted"`
	Ended       map[string]uint64 `json:"ended"`   // by the state in which they ended
	Refused     map[string]uint64 `json:"refused"` // by code
	Admission   Histogram         `json:"admission"`
	Commit      Histogram         `json:"commit"`

	ServerFailures uint64 `json:"server_failures"`
	BridgeFailures uint64 `json:"bridge_failures"`
	Fences         uint64 `json:"fences"`
	FenceKills     uint64 `json:"fence_kills"`
	AuditErrors    uint64 `json:"audit_errors"`

	PolicyBytes   int64 `json:"policy_bytes"` // of the two files, with their logs
	ActivityBytes int64 `json:"activity_bytes"`
	FreeBytes     int64 `json:"free_bytes"` // of their file system
}

// Histogram counts durations by size, in microseconds.
type Histogram struct {
	BoundsUsec []int64  `json:"bounds_usec"`
	Counts     []uint64 `json:"counts"` // one more than bounds: the last is beyond them all
	SumUsec    int64    `json:"sum_usec"`
}
