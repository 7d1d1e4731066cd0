package launch

// The keys of log lines.
const (
	keyError    = "error"
	keyPause    = "pause"
	keyPID      = "pid"
	keyUID      = "uid"
	keyUIDs     = "uids"
	keyJail     = "jail"
	keyKind     = "kind"
	keyProject  = "project"
	keyRevision = "revision"
	keyCode     = "code"
	keyText     = "text"
	keyRunDir   = "run_dir"
	keyInstance = "instance"
	keyFacts    = "facts"
	keyAction   = "action"
	keyDigest   = "digest"
	keyKey      = "key"
	keyBefore   = "before"
	keyAfter    = "after"
	keyServer   = "server"
	keyProfile  = "profile"
)
