"""A tool server in one file: it reads, lists and writes files of /workspace.

It checks no path and asks for nobody's leave. Postern decides each call before it
arrives here, and the jail around this program holds no other file of the host.
Begin your own from a copy: an entry in TOOLS, and a branch in call().
"""

import json
import os
import sys

TEXT = {"type": "string"}


def tool(name, description, properties, read_only):
    """What is told of a tool: its arguments, all of them needed, and whether it only reads."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": {"readOnlyHint": read_only}}


TOOLS = [
    tool("read_text_file", "Returns the text of a file.", {"path": TEXT}, True),
    tool("list_directory", "Returns the names in a directory, one a line; a directory's ends with /.", {"path": TEXT}, True),
    tool("write_file", "Writes a file, and replaces what was there.", {"path": TEXT, "content": TEXT}, False),
]


def call(name, arguments):
    """Does one call and returns its text. What it raises is told to the runtime."""
    path = os.path.join("/workspace", arguments["path"])
    if name == "read_text_file":
        with open(path, encoding="utf-8") as f:
            return f.read()
    if name == "list_directory":
        with os.scandir(path) as entries:
            return "\n".join(sorted(e.name + ("/" if e.is_dir() else "") for e in entries))
    if name == "write_file":
        with open(path, "w", encoding="utf-8") as f:
            f.write(arguments["content"])
        return "written"
    raise ValueError(f"there is no tool {name!r}")


def answer(method, params):
    """Returns the result of a request, or None for a method that is not known here."""
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "files", "version": "1"}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = call(params["name"], params.get("arguments", {})), False
        except Exception as e:
            text, failed = f"{type(e).__name__}: {e}", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue  # a notification, which nobody answers
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    result = answer(message["method"], message.get("params", {}))
    if result is None:
        reply["error"] = {"code": -32601, "message": "method not found"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
