package bridge

import (
	"postern/bridge/mcp"
	"postern/item"
	"postern/refusal"
)

// settle takes the right to answer the runtime; see session.finish.
func (c *call) settle() bool { return c.s.finish(c.live, c.key) }

// reply gives the answer to whoever made the request: a runtime, or the bridge itself.
func (c *call) reply(line []byte, ok bool) bool {
	if c.done != nil {
		c.done(ok)
		return true
	}
	return c.s.send(line)
}

// refuse answers the call with a refusal, in the form that the table gives it.
func (c *call) refuse(code refusal.Code, report bool) {
	c.s.b.mu.Lock()
	if c.phase == waiting {
		c.phase = over
	}
	c.s.b.mu.Unlock()
	c.abandonQuestion()
	if c.settle() {
		c.reply(c.refusal(code), false)
	}
	if report {
		c.s.denied(code, c.itemKey(), requestID(c.id))
	}
}

// refuseUnentered refuses a call that never got a place among the live ones.
func (c *call) refuseUnentered(code refusal.Code) {
	c.s.send(c.refusal(code))
	c.s.denied(code, c.itemKey(), requestID(c.id))
}

func (c *call) refusal(code refusal.Code) []byte {
	row := refusal.Of(code)
	switch {
	case row.Form == refusal.InvalidParams:
		// The same words whether the name is another project's or nobody's.
		return c.unknown()
	case row.Form == refusal.Result && c.what.kind == item.Tool:
		return c.peer.AppendRefusal(nil, c.id, string(row.Code), row.Code.Help(), row.Sentence)
	case row.Form == refusal.Result: // only a tool's result can say no
		return mcp.AppendError(nil, c.id, refusal.ServerError.JSONRPC(), row.Sentence, refusalData(row.Code))
	}
	return mcp.AppendError(nil, c.id, row.Form.JSONRPC(), row.Sentence, refusalData(row.Code))
}

func (c *call) unknown() []byte {
	switch c.what.kind {
	case item.Prompt:
		return mcp.AppendError(nil, c.id, mcp.CodeInvalidParams, "Unknown prompt: "+cut(c.name, mcp.MaxToolName), nil)
	case item.Resource:
		code := mcp.CodeInvalidParams
		if !c.peer.Modern {
			code = mcp.CodeNoResource
		}
		uri := c.name
		if c.completes.URI != "" {
			uri = c.completes.URI
		}
		var data mcp.Value // the revisions want the URI there
		if len(uri) <= item.MaxURI {
			data = mcp.Value("{" + mcp.URIParam(uri) + "}")
		}
		return mcp.AppendError(nil, c.id, code, "Resource not found: "+cut(uri, mcp.MaxToolName), data)
	}
	return mcp.AppendError(nil, c.id, mcp.CodeInvalidParams, "Unknown tool: "+cut(c.name, mcp.MaxToolName), nil)
}
