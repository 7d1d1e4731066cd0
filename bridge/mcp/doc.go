// Package mcp knows the messages of the Model Context Protocol as bytes: how a
// runtime's line is parsed and refused, how a tool server's line is read, and how
// the message that goes to the other side is built from that parse. It speaks the
// revisions with a handshake (2024-11-05 to 2025-11-25, here "legacy") and the
// stateless one (2026-07-28, "modern").
//
// It is pure and runs with the bridge's privilege, which is none. Both sides are
// hostile: a runtime that hides a second meaning in a message, so that one parser
// authorizes what another does not execute, and a tool server that sends anything.
//
// Invariants:
//   - mcp-1: a line of a runtime has one meaning or is refused. Repeated names
//     anywhere, and in envelope, params and _meta names that differ only by case or
//     by Unicode folding, are refused, as are arrays and a second document.
//   - mcp-2: what is sent is built from the parse, never the line that was received;
//     every value kept is byte for byte the value that was parsed, except that a
//     carriage return between tokens becomes a space (many servers and runtimes
//     split lines there, and would see a message inside a message).
//   - mcp-3: no identity is taken from a message: members and _meta keys that look
//     like one are refused from a runtime and dropped from a server.
//   - mcp-4: ids of a runtime are kept verbatim; a tool server sees integers of ours.
//   - mcp-5: one malformed tool is kept out alone, with its reason.
//   - mcp-6: every line, nesting, object and list is bounded by a constant below.
//
// It is not the loop, holds no state of a session, and decides nothing.
package mcp

// Bounds on what comes from either side.
const (
	MaxLine      = 16 << 20  // bytes of one line, its newline not counted
	MaxDepth     = 512       // nested arrays and objects
	MaxMembers   = 64        // members of an envelope, of params and of _meta
	MaxID        = 512       // bytes of a request id as written
	MaxTools     = 2000      // tools of one server
	MaxPages     = 100       // pages of one server's list
	MaxBlocks    = 65536     // blocks of content in one result
	MaxToolBytes = 256 << 10 // bytes of one raw tool definition
	MaxToolName  = 128       // bytes of an upstream's tool name
	MaxPageTools = 500       // tools on one page that we serve
	MaxPageBytes = 4 << 20   // bytes of tools on one page that we serve
)
