package integration

import (
	"slices"
	"testing"

	library "github.com/mark3labs/mcp-go/mcp"

	"postern/bridge/mcp"
)

// TestMCPValues compares the values that bridge/mcp copies with a maintained
// library's, so that a slip of the pen does not become a dialect. They are copied
// because the library links an HTTP server into whatever imports it.
func TestMCPValues(t *testing.T) {
	if !slices.Equal(mcp.Versions(), library.ValidProtocolVersions) {
		t.Errorf("versions %q, the library has %q", mcp.Versions(), library.ValidProtocolVersions)
	}
	for _, v := range append(mcp.Versions(), "2099-01-01", "") {
		if mcp.Legacy(v) != slices.Contains(library.LegacyProtocolVersions(), v) {
			t.Errorf("version %q is legacy here: %v", v, mcp.Legacy(v))
		}
	}
	for _, c := range []struct{ name, ours, theirs string }{
		{"the modern revision", mcp.Modern, library.LATEST_PROTOCOL_VERSION},
		{"the latest legacy revision", mcp.LatestLegacy, library.LATEST_LEGACY_PROTOCOL_VERSION},
		{"protocolVersion", mcp.MetaVersion, library.MetaKeyProtocolVersion},
		{"clientInfo", mcp.MetaClientInfo, library.MetaKeyClientInfo},
		{"clientCapabilities", mcp.MetaCapabilities, library.MetaKeyClientCapabilities},
		{"serverInfo", mcp.MetaServerInfo, library.MetaKeyServerInfo},
		{"logLevel", mcp.MetaLogLevel, library.MetaKeyLogLevel},
		{"subscriptionId", mcp.MetaSubscription, library.MetaKeySubscriptionID},
		{"initialize", mcp.MethodInitialize, string(library.MethodInitialize)},
		{"ping", mcp.MethodPing, string(library.MethodPing)},
		{"tools/list", mcp.MethodToolsList, string(library.MethodToolsList)},
		{"tools/call", mcp.MethodToolsCall, string(library.MethodToolsCall)},
		{"logging/setLevel", mcp.MethodSetLevel, string(library.MethodSetLogLevel)},
		{"tools/list_changed", mcp.NoteToolsChanged, library.MethodNotificationToolsListChanged},
	} {
		if c.ours != c.theirs {
			t.Errorf("%s: %q, the library has %q", c.name, c.ours, c.theirs)
		}
	}
	for name, pair := range map[string][2]int{
		"parse error":         {mcp.CodeParse, library.PARSE_ERROR},
		"invalid request":     {mcp.CodeInvalidRequest, library.INVALID_REQUEST},
		"method not found":    {mcp.CodeMethodNotFound, library.METHOD_NOT_FOUND},
		"invalid params":      {mcp.CodeInvalidParams, library.INVALID_PARAMS},
		"internal error":      {mcp.CodeInternal, library.INTERNAL_ERROR},
		"unsupported version": {mcp.CodeUnsupportedVersion, library.UNSUPPORTED_PROTOCOL_VERSION},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %d, the library has %d", name, pair[0], pair[1])
		}
	}
	for method, theirs := range map[string]string{
		mcp.MethodDiscover:   string(library.MethodServerDiscover),
		mcp.MethodListen:     string(library.MethodSubscriptionsListen),
		mcp.NoteAcknowledged: string(library.MethodNotificationSubscriptionsAcknowledged),
		mcp.NoteCancelled:    "notifications/cancelled",
	} {
		if method != theirs {
			t.Errorf("method %q, the library has %q", method, theirs)
		}
	}
}
