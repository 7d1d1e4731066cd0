package mcp

// The revisions of the protocol, newest first. They are copied from the
// specification; a test compares them with a library's.
const (
	Version20260728 = "2026-07-28"
	Version20251125 = "2025-11-25"
	Version20250618 = "2025-06-18"
	Version20250326 = "2025-03-26"
	Version20241105 = "2024-11-05"

	// Modern is the revision without a handshake; LatestLegacy the last with one.
	Modern       = Version20260728
	LatestLegacy = Version20251125
)

// Versions lists every revision spoken here, newest first.
func Versions() []string {
	return []string{Version20260728, Version20251125, Version20250618, Version20250326, Version20241105}
}

// Legacy tells whether v is a revision that initialize can agree on.
func Legacy(v string) bool {
	switch v {
	case Version20251125, Version20250618, Version20250326, Version20241105:
		return true
	}
	return false
}

// Error codes of JSON-RPC and MCP.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeUnsupportedVersion = -32022
	CodeNoResource         = -32002 // before 2026-07-28, which has CodeInvalidParams for it
)

// Methods and notifications that are handled here.
const (
	MethodInitialize  = "initialize"
	MethodPing        = "ping"
	MethodSetLevel    = "logging/setLevel"
	MethodDiscover    = "server/discover"
	MethodListen      = "subscriptions/listen"
	MethodToolsList   = "tools/list"
	MethodToolsCall   = "tools/call"
	MethodPromptsList = "prompts/list"
	MethodPromptsGet  = "prompts/get"
	MethodResources   = "resources/list"
	MethodTemplates   = "resources/templates/list"
	MethodRead        = "resources/read"
	MethodSubscribe   = "resources/subscribe"
	MethodUnsubscribe = "resources/unsubscribe"
	MethodComplete    = "completion/complete"
	MethodElicit      = "elicitation/create"
	NoteInitialized   = "notifications/initialized"
	NoteCancelled     = "notifications/cancelled"
	NoteProgress      = "notifications/progress"
	NoteToolsChanged  = "notifications/tools/list_changed"
	NotePrompts       = "notifications/prompts/list_changed"
	NoteResources     = "notifications/resources/list_changed"
	NoteUpdated       = "notifications/resources/updated"
	NoteMessage       = "notifications/message"
	NoteAcknowledged  = "notifications/subscriptions/acknowledged"
	metaPrefix        = "io.modelcontextprotocol/"
	MetaVersion       = metaPrefix + "protocolVersion"
	MetaClientInfo    = metaPrefix + "clientInfo"
	MetaCapabilities  = metaPrefix + "clientCapabilities"
	MetaServerInfo    = metaPrefix + "serverInfo"
	MetaLogLevel      = metaPrefix + "logLevel"
	MetaSubscription  = metaPrefix + "subscriptionId"
	MetaProgressToken = "progressToken"
	// OwnPrefix begins the _meta keys that only Postern may write.
	OwnPrefix = "postern/"
	// ServerName is how Postern calls itself to both sides.
	ServerName = "postern"
)
