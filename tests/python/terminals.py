"""The `pty` channel of a session's socket, through Python's `websockets`, one function each. Usage: terminals.py NAME"""

import asyncio
import base64
import http.client
import sys
import time

from ctx_client import *

api = Api()


def read(path):
    """An answer that is not one JSON value."""
    connection = http.client.HTTPConnection(ADDRESS, timeout=60)
    connection.request("GET", "/api/v1" + path, headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    return answer.read().decode()


async def attach(session, query="", **hello):
    ws = await socket(f"/sessions/{session}/socket{query}")
    await ws.send(json.dumps({"channel": "control", "type": "hello", "payload": hello}))
    welcome = await frame(ws)
    assert welcome["type"] == "welcome", welcome
    return ws, welcome["payload"]["terminals"]


def run(session, *command, **more):
    return api.ok("POST", f"/sessions/{session}/terminals", {"command": command, "cage": False, **more})["id"]


async def ptys(ws, until, output=b""):
    """The frames of the channel until one fits, with all output so far."""
    frames = []
    while True:
        message = await asyncio.wait_for(ws.recv(), 60)
        if isinstance(message, bytes):
            assert message[0] == 1
            one = {"type": "stdout", "seq": int.from_bytes(message[17:25]), "id": message[1:17], "bytes": message[25:]}
        else:
            one = json.loads(message)
            if one["channel"] == "control" and one["type"] == "error":
                frames.append(one)
                if until(one, output):
                    return frames, output
            if one["channel"] != "pty":
                continue
            if one["type"] == "stdout":
                one["bytes"] = base64.b64decode(one["data"])
        frames.append(one)
        output += one.get("bytes", b"")
        if until(one, output):
            seqs = [f["seq"] for f in frames if f["type"] != "error"]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), seqs
            return frames, output


def shown(text):
    return lambda one, output: text in output


async def type(ws, pty, text):
    await ws.send(json.dumps({"channel": "pty", "type": "stdin", "pty_id": pty, "data": base64.b64encode(text).decode()}))


PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size()))
print("ready")
for line in iter(sys.stdin.readline, ""):
    print("got", line.strip())
"""


async def channel():
    session = api.session()
    ws, terminals = await attach(session)
    assert terminals == []
    pty = run(session, "sh", "-c", f"stty -echo; exec python3 -u -c '{PROGRAM}'", name="one")
    frames, _ = await ptys(ws, shown(b"ready"))
    assert frames[0]["type"] == "opened" and frames[0]["terminal"]["name"] == "one" and frames[0]["pty_id"] == pty, frames[0]
    await type(ws, pty, b"word\r")
    await ptys(ws, shown(b"got word\r\n"))
    await ws.send(json.dumps({"channel": "pty", "type": "resize", "pty_id": pty, "cols": 100, "rows": 30}))
    frames, _ = await ptys(ws, shown(b"size 100 30"))
    assert [(f["cols"], f["rows"]) for f in frames if f["type"] == "resized"] == [(100, 30)], frames
    for bad in ({"type": "stdin", "pty_id": pty, "data": "!"}, {"type": "stdin", "pty_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "data": ""},
                {"type": "resize", "pty_id": pty, "cols": 0, "rows": 1},
                {"type": "resize", "pty_id": pty, "cols": 1001, "rows": 1}, {"type": "shout", "pty_id": pty}):
        await ws.send(json.dumps({"channel": "pty", **bad}))
        frames, _ = await ptys(ws, lambda one, output: one["type"] == "error")
    # Who leaves stops nothing; who comes back sees the screen.
    await ws.close()
    api.ok("POST", f"/terminals/{pty}/input", {"text": "away", "keys": ["Enter"]})
    while "got away" not in api.ok("GET", f"/terminals/{pty}/screen")["text"]:
        time.sleep(0.02)
    ws, terminals = await attach(session)
    assert [t["id"] for t in terminals] == [pty] and terminals[0]["cols"] == 100, terminals
    await ptys(ws, shown(b"got away"))
    watcher, _ = await attach(session, "?mode=observe")
    await ptys(watcher, shown(b"got away"))
    await type(watcher, pty, b"not me\r")
    frames, _ = await ptys(watcher, lambda one, output: one["type"] == "error")
    assert frames[-1]["payload"]["code"] == "EACCES", frames
    await type(ws, pty, b"\x07last\r\x04")
    frames, output = await ptys(ws, lambda one, output: one["type"] == "closed")
    assert frames[-1]["reason"] == "exited" and frames[-1]["exit_code"] == 0 and b"got" in output, frames[-1]
    assert b"not me" not in output
    def audited():
        return [e for e in api.ok("GET", "/audit?limit=100")["items"] if e["event"].startswith("pty.") and e["data"]["pty_id"] == pty]
    while len(audited()) < 3:
        time.sleep(0.05)
    by_name = {e["event"]: e["data"] for e in audited()}
    assert set(by_name) == {"pty.allocated", "pty.reattached", "pty.closed"}, by_name
    assert by_name["pty.closed"]["reason"] == "exited" and by_name["pty.closed"]["transcript_lines"] >= 4
    assert by_name["pty.reattached"]["scrollback_lines_sent"] == 0
    text = read(f"/sessions/{session}/terminals/{pty}/transcript")
    assert "got word\nsize 100 30\n" in text, text
    found = [json.loads(line) for line in read(f"/sessions/{session}/terminals/{pty}/transcript?q=GOT+AWAY").splitlines()]
    assert [one["text"] for one in found] == ["got away"], found
    cast = read(f"/sessions/{session}/terminals/{pty}/transcript?format=asciicast").splitlines()
    assert json.loads(cast[0])["version"] == 2 and any(json.loads(line)[1:] == ["r", "100x30"] for line in cast[1:])
    assert api.call("GET", f"/sessions/{api.session()}/terminals/{pty}/transcript")[0] == 404
    await ws.close()
    await watcher.close()


async def binary():
    session = api.session()
    pty = run(session, "sh", "-c", "seq 1 300; cat")
    while "300" not in api.ok("GET", f"/terminals/{pty}/screen")["text"]:
        time.sleep(0.02)
    ws, terminals = await attach(session, pty_encoding="binary", scrollback=50)
    frames, output = await ptys(ws, shown(b"300"))
    lines = output.replace(b"\r", b"").split(b"\n")
    assert lines[0].endswith(b"228") and b"229" in lines, lines[:3]
    # The id is that of the terminal.
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    number = 0
    for letter in pty:
        number = number * 32 + alphabet.index(letter)
    assert frames[0]["id"] == number.to_bytes(16), frames[0]
    await ws.send(b"\x02" + number.to_bytes(16) + (1).to_bytes(8) + b"typed\r")
    await ptys(ws, shown(b"typed"))
    await ws.send(b"\x09 nonsense")
    await ptys(ws, lambda one, output: one["type"] == "error")
    await ws.close()


async def throttled():
    """The limit is 100,000 bytes a second here."""
    session = api.session()
    ws, _ = await attach(session)
    pty = run(session, "sh", "-c", "read go; yes 'a line of output' | head -c 3000000; echo; echo the end; cat")
    await ptys(ws, lambda one, output: one["type"] == "opened")
    await type(ws, pty, b"go\r")
    frames, _ = await ptys(ws, lambda one, output: one["type"] == "output_throttled")
    sent = sum(len(f.get("bytes", b"")) for f in frames)
    _, rest = await ptys(ws, shown(b"the end"))
    assert sent + len(rest) < 1_500_000, (sent, len(rest))
    # All of it is in the transcript.
    lines = api.ok("GET", f"/sessions/{session}/terminals")["items"][0]["lines"]
    assert lines > 3_000_000 // 17, lines
    await ws.close()


async def idle():
    """The limit is 500 ms here."""
    session = api.session()
    pty = run(session, "cat")
    ws, _ = await attach(session)
    await type(ws, pty, b"x\r")
    frames, _ = await ptys(ws, lambda one, output: one["type"] == "idle")
    assert frames[-1]["pty_id"] == pty and frames[-1]["idle_ms"] == 500, frames[-1]
    await type(ws, pty, b"\x07")
    assert api.ok("GET", f"/sessions/{session}/terminals")["items"][0]["state"] == "active"
    await ws.close()


asyncio.run(asyncio.wait_for(globals()[sys.argv[1]](), 120))
