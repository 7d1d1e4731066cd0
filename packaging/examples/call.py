"""Calls one tool of a project, as a runtime would, and prints what it answered.

    python3 call.py PROJECT TOOL [NAME=VALUE...]

Status 1 if the call was refused or failed, 2 if it is not understood.
"""

import json
import subprocess
import sys

if len(sys.argv) < 3 or not all("=" in pair for pair in sys.argv[3:]):
    print(__doc__, file=sys.stderr)
    sys.exit(2)
project, tool = sys.argv[1:3]
arguments = dict(pair.split("=", 1) for pair in sys.argv[3:])

connect = subprocess.Popen(["postern", "connect", "--project", project], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), file=connect.stdin, flush=True)


def ask(number, method, params):
    """Sends a request and returns its result. Whatever else comes meanwhile is not for us."""
    try:
        say({"id": number, "method": method, "params": params})
    except BrokenPipeError:
        pass  # connect has ended, and has said why
    for line in connect.stdout:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            if "error" in message:
                sys.exit(json.dumps(message["error"], ensure_ascii=False))
            return message["result"]
    sys.exit(connect.wait() or 1)


ask(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "call", "version": "1"}})
say({"method": "notifications/initialized"})
result = ask(2, "tools/call", {"name": tool, "arguments": arguments})
for item in result["content"]:
    print(item.get("text", f"({item['type']})"))
if result.get("isError"):
    sys.exit(json.dumps(result.get("_meta", {}), ensure_ascii=False))  # the code, where Postern refused it
