"""Drives the MCP door with the official SDK for Python: list, create, exec, progress, cancel, destroy.

    python tests/python/mcp_shells.py SERVER [ARG...]      e.g. target/debug/ctx mcp
    python tests/python/mcp_shells.py URL                  streamable HTTP, with the token in $CTX_TOKEN

Speaks the newest protocol through `server/discover`, and the older ones through `initialize`: the SDK's own, and 2025-06-18. Every structured
result is validated against the tool's output schema, by the SDK and once more here.
"""

import contextlib
import os
import sys
import tempfile
import time

import anyio
import jsonschema
import mcp.client.session
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

OLDER = "2025-06-18"
TOOLS = ["session_create", "session_exec", "session_list", "session_destroy", "session_output", "session_interrupt",
         "session_checkpoint", "session_checkpoints", "session_restore"]


class Shells:
    """The tools as functions, each result checked against its schema."""

    def __init__(self, session, tools):
        self.session = session
        self.schemas = {tool.name: tool.output_schema for tool in tools}

    async def raw(self, tool, arguments, **more):
        return await self.session.call_tool(tool, arguments, **more)

    async def call(self, tool, arguments, **more):
        result = await self.raw(tool, arguments, **more)
        assert not result.is_error, result
        jsonschema.validate(result.structured_content, self.schemas[tool])
        return result.structured_content

    async def refused(self, tool, arguments, code):
        result = await self.raw(tool, arguments)
        assert result.is_error and result.content[0].text.startswith(code + ": "), result


async def whole_life(shells):
    shell = (await shells.call("session_create", {"cwd": tempfile.gettempdir(), "env": {"GREETING": "hello"}}))["session_id"]
    assert shell.endswith("_local"), shell
    result = await shells.call("session_exec", {"session_id": shell, "command": "cd /; x=1; echo $GREETING; echo err >&2; false"})
    assert (result["stdout"], result["stderr"], result["exit_code"], result["cwd"]) == ("hello\n", "err\n", 1, "/"), result
    result = await shells.call("session_exec", {"session_id": shell, "command": "echo $x; cat", "stdin": "typed"})
    assert result["stdout"] == "1\ntyped", result
    budget = {"keep": {"mode": "tail", "n": 2}}
    result = await shells.call("session_exec", {"session_id": shell, "command": "seq 1000", "budget": budget})
    assert result["stdout"] == "[… 998 lines …]\n999\n1000\n" and result["truncated"], result
    page = await shells.call("session_output", {"session_id": shell, "call": result["call"], "grep": "^50$"})
    assert page["text"] == "50:50\n", page
    page = await shells.call("session_output", {"session_id": shell, "call": result["call"], "grep": "^50$", "context": 1})
    assert page["text"] == "49-49\n50:50\n51-51\n", page
    page = await shells.call("session_output", {"session_id": shell, "call": result["call"], "tail": 1})
    assert page["text"] == "1000\n", page
    listed = (await shells.call("session_list", {}))["sessions"]
    assert [row["session_id"] for row in listed] == [shell] and listed[0]["commands"] == 3, listed
    await fits(shells, shell)
    await progress(shells, shell)
    await cancel(shells, shell)
    await interrupt(shells, shell)
    await injected(shells, shell)
    assert await shells.call("session_destroy", {"session_id": shell}) == {"destroyed": True}
    await shells.refused("session_exec", {"session_id": shell, "command": "true"}, "ENOENT")


async def fits(shells, shell):
    """A result fits its host, in lines."""
    result = await shells.raw("session_exec", {"session_id": shell, "command": "seq 100000; seq 100000 >&2"})
    text = result.content[0].text
    assert len(text) <= 30_000 and max(map(len, text.splitlines())) < 400, len(text)
    jsonschema.validate(result.structured_content, shells.schemas["session_exec"])
    tools = (await shells.session.list_tools()).tools
    size = sum(len(tool.model_dump_json(exclude_none=True)) for tool in tools)
    assert size < 16_000, size


async def progress(shells, shell):
    seen = []

    async def told(progress, total, message):
        seen.append((progress, message))

    await shells.call("session_exec", {"session_id": shell, "command": "echo x; sleep 2.2"}, progress_callback=told)
    assert seen and seen == sorted(seen) and all(at >= 1 and at == int(at) for at, _ in seen), seen


async def cancel(shells, shell):
    """A cancelled request ends its command, and the shell lives on."""
    marker = os.path.join(tempfile.mkdtemp(), "pid")
    command = f"sh -c 'echo $$ >{marker}; exec sleep 300'"
    with anyio.move_on_after(60) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(shells.raw, "session_exec", {"session_id": shell, "command": command})
            while not (os.path.exists(marker) and open(marker).read().strip()):
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught, "the command did not start"
    pid = int(open(marker).read())
    result = await shells.call("session_exec", {"session_id": shell, "command": "echo $x alive"})
    assert result["stdout"] == "1 alive\n", result
    assert not os.path.exists(f"/proc/{pid}"), "the cancelled command still runs"


async def interrupt(shells, shell):
    results = []
    marker = os.path.join(tempfile.mkdtemp(), "started")

    async def run():
        results.append(await shells.call("session_exec", {"session_id": shell, "command": f"touch {marker}; sleep 300"}))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not os.path.exists(marker):
            await anyio.sleep(0.02)
        assert (await shells.call("session_interrupt", {"session_id": shell}))["interrupted"]
    assert results[0]["exit_code"] == 130, results


async def injected(shells, shell):
    """A caller cannot reach limits, paths, logs or the policy: what a tool does not know has no effect, and it is told."""
    for extra in ["limits", "shells_max", "idle_max", "policy", "log", "log_dir", "spool_dir", "state_dir", "program", "path"]:
        result = await shells.call("session_exec", {"session_id": shell, "command": "true", extra: 1})
        assert f"ignored: `{extra}`" in result["hint"], result
    made = await shells.call("session_create", {"wait_for_previous": True})
    assert "ignored: `wait_for_previous`" in made["hint"], made
    await shells.call("session_destroy", {"session_id": made["session_id"]})
    await shells.refused("session_exec", {"session_id": shell, "command": "true", "timeout_secs": 10**9}, "EINVAL")
    await shells.refused("session_exec", {"session_id": "../../etc", "command": "true"}, "ENOENT")
    await shells.refused("session_exec", {"session_id": shell, "command": "a\0b"}, "EINVAL")
    await shells.refused("session_create", {"transport": "carrier pigeon"}, "EINVAL")
    budget = {"max_chars": 10, "unbounded": True}
    await shells.refused("session_exec", {"session_id": shell, "command": "true", "budget": budget}, "EINVAL")


@contextlib.asynccontextmanager
async def transport(server):
    if server[0].startswith("http://"):
        headers = {"Authorization": "Bearer " + os.environ["CTX_TOKEN"]}
        async with create_mcp_http_client(headers=headers) as http:
            async with streamable_http_client(server[0], http_client=http) as streams:
                yield streams
    else:
        parameters = StdioServerParameters(command=server[0], args=server[1:], env=dict(os.environ))
        async with stdio_client(parameters) as streams:
            yield streams


async def drive(server, hello):
    async with transport(server) as (read, write):
        async with ClientSession(read, write) as session:
            await getattr(session, hello)()
            assert session.server_info.name == "ctx", session.server_info
            tools = (await session.list_tools()).tools
            assert sorted(tool.name for tool in tools) == sorted(TOOLS), tools
            for tool in tools:
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                jsonschema.Draft202012Validator.check_schema(tool.output_schema)
            await whole_life(Shells(session, tools))
            return session.protocol_version


def main():
    newest = mcp.client.session.LATEST_HANDSHAKE_VERSION
    for hello, offers in [("initialize", newest), ("initialize", OLDER), ("discover", newest)]:
        started = time.monotonic()
        # What the SDK offers a server is not to be chosen otherwise.
        mcp.client.session.LATEST_HANDSHAKE_VERSION = offers
        version = anyio.run(drive, sys.argv[1:], hello)
        assert hello == "discover" or version == offers, (version, offers)
        print(f"{hello}: protocol {version}, {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
