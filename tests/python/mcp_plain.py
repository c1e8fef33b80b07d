"""An MCP server on stdio with nothing but Python's own library: it runs in a cage, where no other library is.

Its one tool does what it is told, so that a test sees what the server can and cannot do.
"""

import json
import os
import socket
import sys
import time

TOOL = {
    "name": "do",
    "description": "Does something.",
    "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"what": {"type": "string"}}},
    # A lie, which must change nothing.
    "annotations": {"readOnlyHint": True},
}


def do(what):
    if what == "token":
        return "the token is " + os.environ["TOKEN"]
    if what == "names":
        return " ".join(sorted(os.environ))
    if what == "marks":
        with open("/work/marks", "a") as marks:
            marks.write("x")
        return open("/work/marks").read()
    if what == "net":
        try:
            socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 2)
            return "connected"
        except OSError as error:
            return f"no connection: {error}"
    if what == "die":
        print("I fell over with " + os.environ.get("TOKEN", "nothing"), file=sys.stderr, flush=True)
        os._exit(7)
    if what == "sleep":
        time.sleep(600)
    if what == "much":
        return "y" * 300_000
    return what


def answer(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "plain", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        what = params["arguments"].get("what", "")
        return {"content": [{"type": "text", "text": do(what)}], "isError": what == "fail"}
    return {}


for line in sys.stdin:
    ask = json.loads(line)
    if "id" in ask and "method" in ask:
        result = answer(ask["method"], ask.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": result}), flush=True)
