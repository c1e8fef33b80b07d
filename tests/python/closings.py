"""How the sockets are closed, and what listeners are told of sessions that go. Usage: closings.py NAME"""

import asyncio
import struct
import sys

from ctx_client import *

api = Api()
BOTH = ("session", "system")


def path(kind):
    return "/system/socket" if kind == "system" else f"/sessions/{api.session()}/socket"


async def open_(where, query="", token=TOKEN):
    """A socket that has been greeted."""
    ws = await socket(where + query, token=token)
    await ws.send(hello())
    await until(ws, "welcome")
    return ws


async def close_code(ws):
    """Reads to the end: what `closing` said, and the close frame."""
    said = []
    try:
        async with asyncio.timeout(60):
            while True:
                got = await frame(ws)
                if got["type"] == "closing":
                    said.append(got["payload"]["code"])
    except ConnectionClosed as closed:
        assert closed.rcvd is not None, "no close frame came"
        return said, closed.rcvd.code, closed.rcvd.reason


async def raw(where, *frames):
    """Sends bytes as they are; the code that the daemon closes with."""
    reader, writer = await asyncio.open_connection(*ADDRESS.split(":"))
    writer.write((f"GET /api/v1{where} HTTP/1.1\r\nHost: {ADDRESS}\r\n"
                  f"Authorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"".join(frames))
    async with asyncio.timeout(60):
        while True:
            first, length = await reader.readexactly(2)
            if length == 126:
                (length,) = struct.unpack(">H", await reader.readexactly(2))
            payload = await reader.readexactly(length)
            if first & 0x0F == 8:
                writer.close()
                return struct.unpack(">H", payload[:2])[0]


def masked(first, payload):
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


async def faults():
    """A client that does not keep to the protocol is told which rule it broke; the others are not disturbed."""
    bystander = await open_(path("session"))
    for kind in BOTH:
        ws = await open_(path(kind))
        await ws.send("x" * (2 * 1024 * 1024))
        assert (await close_code(ws))[1] == 1009, kind
        # In pieces that are small each.
        ws = await open_(path(kind))
        try:
            await ws.send(["x" * 200_000 for _ in range(10)])
        except ConnectionClosed:
            pass
        assert (await close_code(ws))[1] == 1009, kind
        text = hello().encode()
        assert await raw(path(kind), masked(0x81, b"\xff\xfe\xfd")) == 1007, kind
        assert await raw(path(kind), masked(0x83, b"a kind of frame that is none")) == 1002, kind
        assert await raw(path(kind), bytes([0x81, len(text)]) + text) == 1002, "not masked"
        # A goodbye is answered in kind.
        assert await raw(path(kind), masked(0x88, struct.pack(">H", 1000))) == 1000, kind
        # Bytes where JSON is spoken, and what only the daemon may say: refused, and the talk goes on.
        ws = await open_(path(kind))
        await ws.send(b"\x00\xff")
        assert (await until(ws, "error"))[-1]["payload"]["code"] == "EINVAL"
        await ws.send(json.dumps({"channel": "output", "type": "delta", "payload": {}}))
        assert (await until(ws, "error"))[-1]["payload"]["code"] == "EINVAL"
        await ws.send(json.dumps({"channel": "control", "type": "ping", "payload": {}}))
        await until(ws, "pong")
        await ws.close()
    await bystander.send(json.dumps({"channel": "control", "type": "ping", "payload": {}}))
    await until(bystander, "pong")


async def reasons():
    """Every reason of ours has its `closing` and its close code."""
    session = api.session()
    first = await open_(f"/sessions/{session}/socket")
    observer = await open_(f"/sessions/{session}/socket", "?mode=observe")
    second = await open_(f"/sessions/{session}/socket", "?takeover=true")
    assert await close_code(first) == (["taken_over"], 1008, "taken_over")
    gap = await socket(f"/sessions/{session}/socket?mode=observe")
    await gap.send(hello("01ARZ3NDEKTSV4RRFFQ69G5FAV", 1, 1))
    assert await close_code(gap) == (["resume_failed"], 1000, "resume_failed")
    assert api.call("DELETE", f"/sessions/{session}?confirm=true")[0] == 204
    for ws in (second, observer):
        assert await close_code(ws) == (["session_ended"], 1000, "session_ended")
    # Who never says hello is not waited for.
    silent = await socket(f"/sessions/{api.session()}/socket")
    assert await close_code(silent) == ([], 1008, "timeout")


async def shutdown():
    """Says when it listens; the daemon is stopped then."""
    session = api.session()
    sockets = [await open_(f"/sessions/{session}/socket"),
               await open_(f"/sessions/{session}/socket", "?mode=observe"),
               await open_("/system/socket")]
    print("listening", flush=True)
    for ws in sockets:
        assert await close_code(ws) == (["shutdown"], 1001, "shutdown")


async def purged():
    """Those who may see a session are told that it is gone, and nobody else."""
    mine = await open_("/system/socket")
    stranger = await open_("/system/socket", token=api.ok("POST", "/tokens", {"uid": 54321})["token"])
    session = api.session(name="gone")
    status, _ = api.call("DELETE", f"/sessions/{session}?confirm=true")
    assert status == 204, status
    await until(mine, "session.ended")
    assert api.call("DELETE", f"/sessions/{session}?confirm=true&purge=true")[0] == 204
    told = (await until(mine, "session.purged"))[-1]["payload"]
    assert (told["session_id"], told["name"], told["project"]) == (session, "gone", "default"), told
    assert "state" not in told, "it has none any more"
    assert api.call("GET", f"/sessions/{session}")[0] == 404
    await stranger.send(json.dumps({"channel": "control", "type": "ping", "payload": {}}))
    heard = {f["type"] for f in await until(stranger, "pong") if f["channel"] == "events"}
    assert heard <= {"sessions.running_count"}, heard


asyncio.run(asyncio.wait_for(globals()[sys.argv[1]](), 120))
