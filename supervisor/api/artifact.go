package api

// MaxPiece is how many bytes of an artifact one answer holds: with base64 and the rest
// they fit into a line.
const MaxPiece = 512 << 10

// Parameters and results about artifacts.
type (
	ArtifactListParams struct {
		Project string `json:"project,omitempty"`
		Task    string `json:"task,omitempty"`
		Call    string `json:"call,omitempty"`
		Before  int64  `json:"before,omitzero"` // Next of the former page
		Limit   int    `json:"limit,omitzero"`
	}
	// ArtifactRow is one artifact; where Missing says why, there are no bytes.
	ArtifactRow struct {
		Artifact     string `json:"artifact"`
		Time         int64  `json:"time"` // milliseconds since the epoch
		Project      string `json:"project"`
		ProjectLabel string `json:"project_label,omitempty"`
		Task         string `json:"task"`
		Call         string `json:"call"`
		Digest       string `json:"digest,omitempty"` // SHA-256, hex
		Size         int64  `json:"size"`
		Type         string `json:"type,omitempty"`
		Name         string `json:"name,omitempty"` // the server's, escaped
		Missing      string `json:"missing,omitempty"`
	}
	ArtifactListResult struct {
		Rows []ArtifactRow `json:"rows"`
		Next int64         `json:"next,omitzero"`
		More bool          `json:"more"`
	}
	ArtifactGetParams struct {
		Artifact string `json:"artifact"`
		Offset   int64  `json:"offset,omitzero"`
	}
	// ArtifactPiece is a part of an artifact's bytes, with what it is a part of.
	ArtifactPiece struct {
		ArtifactRow
		Offset int64  `json:"offset"`
		Data   []byte `json:"data"`
	}
)
