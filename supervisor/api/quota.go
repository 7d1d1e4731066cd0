package api

// QuotaParams asks for the bounds of one project, or of those after After that one may read.
type QuotaParams struct {
	Project string `json:"project,omitempty"`
	After   string `json:"after,omitempty"`
}

// Results of quota.
type (
	// QuotaRow is one bound and what is used of it now.
	QuotaRow struct {
		What  string `json:"what"`            // what is counted
		Of    string `json:"of,omitempty"`    // whose: a connection, a jail, a task or a host; else the whole project's, or Postern's
		Label string `json:"label,omitempty"` // its server's
		Used  int64  `json:"used"`
		Most  int64  `json:"most,omitzero"` // 0: without a bound
		Unit  string `json:"unit"`          // count or bytes
		SetBy string `json:"set_by"`        // Postern, the profile, postern.yaml and which key, or the disk
	}
	QuotaProject struct {
		Project string     `json:"project"`
		Label   string     `json:"label"`
		Rows    []QuotaRow `json:"rows"`
	}
	QuotaResult struct {
		Postern  []QuotaRow     `json:"postern,omitempty"` // of all projects together, for root, on the first page
		Projects []QuotaProject `json:"projects"`
		Next     string         `json:"next,omitempty"` // there is more, after this one
	}
)
