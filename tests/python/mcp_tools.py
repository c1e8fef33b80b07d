"""An MCP server made with the official Python SDK.

Usage: mcp_tools.py          on stdio
       mcp_tools.py PORT     streamable HTTP; requests without the header X-Token: letter-box are refused
"""

import os
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.responses import PlainTextResponse

server = MCPServer("tools")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(name="odd name/with.more")
def odd() -> str:
    """Cannot be written in a policy."""
    return "odd"


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("this never works")


@server.tool(name="env.names")
def names() -> str:
    """The names of its variables."""
    return " ".join(sorted(os.environ))


def guarded(app):
    async def check(scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"x-token") != b"letter-box-42":
            await PlainTextResponse("who are you?", 401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return check


if len(sys.argv) > 1:
    uvicorn.run(guarded(server.streamable_http_app()), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
else:
    server.run()
