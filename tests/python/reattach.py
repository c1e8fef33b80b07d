"""The reattach list of the seed, and what belongs to it, one function each. Usage: reattach.py NAME"""

import asyncio
import os
import sys
import tempfile
import time

from ctx_client import *

api = Api()


def talk():
    session = api.session()
    api.ok("PUT", f"/sessions/{session}", {"model_override": "debug:script"})
    return session


async def attach(session, query="", **known):
    ws = await socket(f"/sessions/{session}/socket{query}")
    await ws.send(hello(**known))
    first = await frame(ws)
    return ws, first


async def refused(session, query=""):
    try:
        ws, first = await attach(session, query)
    except InvalidStatus as error:
        return error.response.status_code
    raise AssertionError(f"was let in: {first}")


async def done(ws):
    return await until(ws, "run.completed")


async def clean_reattach():
    session = talk()
    ws, welcome = await attach(session)
    assert welcome["type"] == "welcome" and welcome["payload"]["session_id"] == session, welcome
    assert welcome["payload"]["state"] == "idle" and welcome["payload"]["terminals"] == []
    api.post(session, script({"text": "one"}))
    frames = await done(ws)
    kinds = {(f["channel"], f["type"]) for f in frames}
    assert {("output", "delta"), ("output", "message"), ("events", "session.state")} <= kinds, kinds
    await ws.close()
    known = {c: max(f["seq"] for f in frames if f["channel"] == c) for c in ("output", "events")}
    api.post(session, script({"text": "while away"}, {"tool": {"name": "fs.list", "input": {"path": "/work"}}}))
    while api.ok("GET", f"/sessions/{session}")["state"] != "idle":
        time.sleep(0.01)
    epoch = welcome["payload"]["epoch"]
    ws, welcome = await attach(session, epoch=epoch, **known)
    assert welcome["type"] == "welcome" and welcome["payload"]["epoch"] == epoch, welcome
    missed = await done(ws)
    for channel in ("output", "events"):
        seqs = [f["seq"] for f in missed if f["channel"] == channel]
        assert seqs == list(range(known[channel] + 1, known[channel] + 1 + len(seqs))), (channel, seqs)
    text = [f["payload"].get("content") for f in missed if f["type"] == "message"]
    assert "while away" in text, text
    assert {"tool_started", "tool_finished"} <= {f["type"] for f in missed}
    await ws.close()


async def overflow():
    """More than is kept for someone who is away: resume_failed, and the messages are all there."""
    session = talk()
    ws, welcome = await attach(session)
    epoch = welcome["payload"]["epoch"]
    seqs = welcome["payload"]["server_seq"]
    await ws.close()
    api.post(session, script(*[{"text": "x" * 4000} for _ in range(40)]))
    while api.ok("GET", f"/sessions/{session}")["state"] != "idle":
        time.sleep(0.01)
    ws, closing = await attach(session, epoch=epoch, **seqs)
    assert (closing["channel"], closing["type"]) == ("control", "closing"), closing
    assert closing["payload"] == {"code": "resume_failed", "reason": "resume_failed"}
    assert len(api.messages(session)[-1]["content"]) == 160_000
    ws, welcome = await attach(session)
    assert welcome["type"] == "welcome" and welcome["payload"]["epoch"] != epoch
    await ws.close()


async def reread():
    """After a gap: the messages since the last one that is known, page by page, and live ones, make up all of it once."""
    session = talk()
    ws, welcome = await attach(session)
    epoch, seqs = welcome["payload"]["epoch"], welcome["payload"]["server_seq"]
    api.post(session, script({"text": "known"}))
    last = [f["payload"]["id"] for f in await done(ws) if f["type"] == "message"][-1]
    await ws.close()
    read = {"tool": {"name": "fs.list", "input": {"path": "/work"}}}
    for n in range(20):
        api.post(session, script({"text": f"{n} " + "x" * 4000}, read, {"text": f"{n} done"}))
        while api.ok("GET", f"/sessions/{session}")["state"] != "idle":
            time.sleep(0.01)
    ws, closing = await attach(session, epoch=epoch, **seqs)
    assert closing["payload"]["code"] == "resume_failed", closing
    ws, _ = await attach(session)
    # Something goes on while it is read.
    api.post(session, script({"text": "live "}, {"sleep_ms": 200}, {"text": "text"}, read, {"text": "the end"}))
    missed, place = [], f"since={last}"
    while True:
        page = api.ok("GET", f"/sessions/{session}/messages?limit=7&{place}")
        missed += [(m["id"], m["role"]) for m in page["items"]]
        if page["next"] is None:
            break
        place = f"cursor={page['next']}"
    assert len(missed) == len(set(missed)) >= 20 * 5, len(missed)
    roles = {"tool_started": "assistant", "tool_finished": "tool"}
    live = []
    for got in await done(ws):
        payload = got["payload"]
        if got["type"] in roles:
            live.append((payload["call_id"], roles[got["type"]]))
        elif got["type"] == "message" and payload["content"]:
            live.append((payload["id"], payload["role"]))
    everything = [(m["id"], m["role"]) for m in api.messages(session)]
    after = everything[[m[0] for m in everything].index(last) + 1:]
    assert missed + [m for m in live if m not in missed] == after
    await ws.close()


async def disk_full():
    """Says which session runs; the disk is filled then, and freed. Every frame comes, and the run's end says why."""
    session = talk()
    ws, welcome = await attach(session)
    read = {"tool": {"name": "fs.list", "input": {"path": "/work"}}}
    steps = [step for _ in range(50) for step in ({"sleep_ms": 60}, {"text": "y" * 8000}, read)]
    api.post(session, script(*steps))
    frames = await until(ws, "tool_finished")
    print(session, flush=True)
    frames += await done(ws)
    error = frames[-1]["payload"]["error"]
    assert (error["code"], error["reason"]) == ("ENOSPC", "disk_full"), error
    for channel in ("output", "events"):
        seqs = [f["seq"] for f in frames if f["channel"] == channel]
        first = welcome["payload"]["server_seq"][channel] + 1
        assert seqs == list(range(first, first + len(seqs))), channel
    await until(ws, "session.state")
    api.post(session, script({"text": "there is room again"}))
    await done(ws)
    await ws.close()


async def failed():
    """The session that is named has failed."""
    session = sys.argv[2]
    for query in ("", "?mode=observe"):
        ws, welcome = await attach(session, query)
        assert welcome["payload"]["state"] == "failed", welcome
        closing = (await until(ws, "closing"))[-1]
        assert closing["payload"] == {"code": "session_failed", "reason": "session_failed"}, closing


async def expired():
    """Away for longer than frames are kept."""
    session = talk()
    ws, welcome = await attach(session)
    known = {"epoch": welcome["payload"]["epoch"], **welcome["payload"]["server_seq"]}
    await ws.close()
    while True:
        await asyncio.sleep(0.05)
        ws, first = await attach(session, "?mode=observe", **known)
        await ws.close()
        if first["type"] == "closing":
            assert first["payload"]["code"] == "resume_failed"
            return
        # Looking on counts as listening: the time begins again.
        await asyncio.sleep(0.6)


async def total():
    """Over all sessions together: who left first is let go first, the others can come back."""
    away = []
    for _ in range(6):
        session = talk()
        ws, welcome = await attach(session)
        known = {"epoch": welcome["payload"]["epoch"], **welcome["payload"]["server_seq"]}
        await ws.close()
        api.post(session, script(*[{"text": "x" * 4000} for _ in range(40)]))
        while api.ok("GET", f"/sessions/{session}")["state"] != "idle":
            time.sleep(0.01)
        away.append((session, known))
    firsts = []
    # Newest first: who comes back listens, and takes nobody's room.
    for session, known in reversed(away):
        ws, first = await attach(session, **known)
        firsts.insert(0, first["type"])
        if first["type"] == "welcome":
            frames = await until(ws, "run.completed")
            assert sum(len(f["payload"]["text"]) for f in frames if f["type"] == "delta") == 160_000
        else:
            assert first["payload"]["code"] == "resume_failed", first
        assert len(api.messages(session)[-1]["content"]) == 160_000
        await ws.close()
    assert firsts[0] == "closing" and firsts[-1] == "welcome" and firsts == sorted(firsts), firsts


async def revoked():
    """Both sockets, and none that was opened with another token."""
    made = api.ok("POST", "/tokens", {"label": "short"})
    session, other = talk(), talk()
    mine, _ = await attach(other)
    theirs = await socket(f"/sessions/{session}/socket", token=made["token"])
    await theirs.send(hello())
    assert (await frame(theirs))["type"] == "welcome"
    system = await socket("/system/socket", token=made["token"])
    await frame(system)
    ticket = Api(made["token"]).ok("POST", "/tickets")["ticket"]
    by_ticket = await connect(f"ws://{ADDRESS}/api/v1/system/socket?ticket={ticket}")
    await frame(by_ticket)
    late = Api(made["token"]).ok("POST", "/tickets")["ticket"]
    run = api.post(session, script({"text": "mine to end"}, {"sleep_ms": 2000}, {"text": "."}))["run_id"]
    api.ok("DELETE", f"/tokens/{made['id']}")
    # What is asked with it now is not done, also before the socket is closed.
    cancel = {"channel": "control", "type": "cancel", "payload": {"run_id": run}}
    await theirs.send(json.dumps(cancel))
    for ws in (theirs, system, by_ticket):
        async with asyncio.timeout(20):
            try:
                while True:
                    await ws.recv()
            except ConnectionClosed:
                pass
    try:
        await connect(f"ws://{ADDRESS}/api/v1/system/socket?ticket={late}")
        raise AssertionError("a ticket of a revoked token was good")
    except InvalidStatus as error:
        assert error.response.status_code == 401, error
    api.post(other, script({"text": "still here"}))
    await done(mine)
    while (state := api.ok("GET", f"/sessions/{session}/runs/{run}")["state"]) == "running":
        await asyncio.sleep(0.05)
    assert state == "done", state


async def wrong_epoch():
    session = talk()
    for known in ({"epoch": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "output": 1, "events": 1},):
        ws, closing = await attach(session, **known)
        assert closing["payload"]["code"] == "resume_failed", closing
    ws, welcome = await attach(session)
    await ws.close()
    ws, closing = await attach(session, epoch=welcome["payload"]["epoch"], output=10**9, events=0)
    assert closing["payload"]["code"] == "resume_failed", closing


async def seed_hello():
    """The hello of the seed has no epoch: its numbers are those of now, and 0 is all that is kept."""
    session = talk()
    ws, _ = await attach(session)
    api.post(session, script({"text": "one"}, {"text": "two"}))
    seen = [f for f in await done(ws) if f["channel"] in ("output", "events")]
    await ws.close()
    def numbers(frames):
        return [(f["channel"], f["seq"]) for f in frames if f["channel"] in ("output", "events")]
    outputs = [f["seq"] for f in seen if f["channel"] == "output"]
    for output, events in ((0, 0), (outputs[0], 0)):
        ws, welcome = await attach(session, "?mode=observe", output=output, events=events)
        assert welcome["type"] == "welcome", welcome
        assert welcome["payload"]["resumed_from_seq"] == {"output": output, "events": events}, welcome
        again = await done(ws)
        wanted = [n for n in numbers(seen) if n[0] == "events" or n[1] > output]
        # And what was there before this client came: that it attached.
        assert numbers(again)[-len(wanted) :] == wanted and ("events", 1) in numbers(again), (output, numbers(again), wanted)
        await ws.close()
    ws, closing = await attach(session, "?mode=observe", output=10**9, events=0)
    assert closing["payload"]["code"] == "resume_failed", closing


async def two_devices():
    session = talk()
    first, _ = await attach(session)
    assert await refused(session) == 409
    watchers = [(await attach(session, "?mode=observe"))[0] for _ in range(3)]
    second, welcome = await attach(session, "?takeover=true")
    assert welcome["type"] == "welcome", welcome
    closing = (await until(first, "closing"))[-1]
    assert closing["payload"]["code"] == "taken_over", closing
    api.post(session, script({"text": "seen by all"}))
    for ws in (second, *watchers):
        texts = [f["payload"].get("content") for f in await done(ws) if f["type"] == "message"]
        assert "seen by all" in texts, texts
    await watchers[0].send(json.dumps({"channel": "control", "type": "cancel", "payload": {"run_id": "x"}}))
    error = (await until(watchers[0], "error"))[-1]
    assert error["payload"]["code"] == "EACCES", error
    await second.close()
    # Detaching is seen at once: the next may attach.
    deadline = time.monotonic() + 30
    while True:
        try:
            third, _ = await attach(session)
            break
        except InvalidStatus:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    for ws in (third, *watchers):
        await ws.close()


async def ended():
    session = talk()
    ws, _ = await attach(session)
    observer, _ = await attach(session, "?mode=observe")
    status, _ = api.call("DELETE", f"/sessions/{session}?confirm=true")
    assert status == 204
    for socket_ in (ws, observer):
        frames = await until(socket_, "closing")
        assert frames[-1]["payload"] == {"code": "session_ended", "reason": "session_ended"}
        assert "session.ended" in {f["type"] for f in frames}
    ws, welcome = await attach(session)
    assert welcome["payload"]["state"] == "ended", welcome
    assert (await until(ws, "closing"))[-1]["payload"]["code"] == "session_ended"


async def cancel():
    session = talk()
    ws, _ = await attach(session)
    run = api.post(session, script({"text": "begun"}, {"sleep_ms": 600_000}))["run_id"]
    await until(ws, "delta")
    await ws.send(json.dumps({"channel": "control", "type": "cancel", "payload": {"run_id": run}}))
    frames = await until(ws, "run.cancelled")
    assert frames[-1]["payload"]["run_id"] == run
    kept = [f["payload"] for f in frames if f["type"] == "message"]
    assert [(m["content"], m["finish_reason"]) for m in kept] == [("begun", "cancelled")], kept
    await ws.close()


async def control(ws, kind, **payload):
    await ws.send(json.dumps({"channel": "control", "type": kind, "payload": payload}))


async def pause():
    """A run is paused and a tool call answered over the socket; everyone who looks on sees it."""
    session = talk()
    ws, _ = await attach(session)
    observer, _ = await attach(session, "?mode=observe")
    await control(observer, "checkpoint", reason="not mine")
    assert (await until(observer, "error"))[-1]["payload"]["code"] == "EACCES"
    await control(ws, "checkpoint", reason="nothing runs")
    assert (await until(ws, "error"))[-1]["payload"]["code"] == "EBUSY"
    read = {"tool": {"name": "fs.list", "input": {"path": "/work"}}}
    api.post(session, script({"text": "begun"}, read, {"text": "listed"}))
    asked = (await until(ws, "approval.requested"))[-1]["payload"]
    await control(ws, "checkpoint", reason="look")
    for one in (ws, observer):
        created = (await until(one, "checkpoint.created"))[-1]["payload"]
        assert created["reason"] == "look", created
        assert (await until(one, "session.state"))[-1]["payload"]["to_state"] == "paused"
    answer = {"approval_id": asked["approval_id"], "decision": "deny", "note": "no"}
    await control(ws, "approval", **answer)
    assert (await until(ws, "error"))[-1]["payload"]["code"] == "EBUSY"
    api.ok("POST", f"/sessions/{session}/checkpoints/{created['checkpoint_id']}/resume")
    await until(ws, "checkpoint.resumed")
    await control(ws, "approval", decision="deny")
    assert (await until(ws, "error"))[-1]["payload"]["code"] == "EINVAL"
    await control(ws, "approval", **answer)
    settled = (await until(observer, "approval.settled"))[-1]["payload"]
    assert (settled["outcome"], settled["note"]) == ("deny", "no"), settled
    await done(ws)
    await ws.close()


async def pins():
    """A pin and its taking back are told to who is attached and to who looks on, and again to who comes back."""
    session = talk()
    ws, welcome = await attach(session)
    observer, _ = await attach(session, "?mode=observe")
    api.post(session, script({"text": "keep me"}))
    await done(ws)
    message = api.messages(session)[-1]["id"]
    pin = f"/sessions/{session}/messages/{message}/pin"
    api.ok("PUT", pin)
    for one in (ws, observer):
        told = (await until(one, "message.pinned"))[-1]
        assert told["channel"] == "events", told
        assert (told["payload"]["message_id"], told["payload"]["pinned"]) == (message, True), told
    await ws.close()
    api.ok("DELETE", pin)
    told = (await until(observer, "message.unpinned"))[-1]["payload"]
    assert (told["message_id"], told["pinned"]) == (message, False), told
    await observer.close()


async def nonsense():
    session = talk()
    ws = await socket(f"/sessions/{session}/socket")
    for text in ("{", "[]", '{"channel":"control"}', '{"channel":"pty","type":"stdin","payload":{}}', "[" * 10_000):
        await ws.send(text)
        got = await frame(ws)
        assert (got["type"], got["payload"]["code"]) == ("error", "EINVAL"), got
    await ws.send(b"\x00\xff")
    assert (await frame(ws))["type"] == "error"
    await ws.send(hello())
    assert (await frame(ws))["type"] == "welcome"
    await ws.send(json.dumps({"channel": "control", "type": "ping", "payload": {"n": 1}}))
    assert (await until(ws, "pong"))[-1]["payload"] == {"n": 1}
    await ws.close()


async def slow():
    """A client that stops reading is let go with `slow`; others see everything meanwhile."""
    session = talk()
    # Nothing is read unless we ask: the library's own buffer is one frame.
    stuck = await socket(f"/sessions/{session}/socket", max_queue=1, ping_interval=None)
    await stuck.send(hello())
    await frame(stuck)
    observer, _ = await attach(session, "?mode=observe")
    detached = []
    for _ in range(20):
        api.post(session, script({"text": "y" * 400_000}))
        frames = await done(observer)
        assert sum(len(f["payload"].get("text", "")) for f in frames if f["type"] == "delta") == 400_000
        detached += [f for f in frames if f["type"] == "session.detached"]
        if detached:
            break
    # Being attached ends by itself, with that reason.
    detached = detached or await until(observer, "session.detached")
    assert detached[-1]["payload"]["reason"] == "slow", detached[-1]
    ws, welcome = await attach(session)
    assert welcome["type"] == "welcome", welcome
    codes = []
    try:
        while True:
            got = await frame(stuck)
            if got["type"] == "closing":
                codes.append(got["payload"]["code"])
    except ConnectionClosed:
        pass
    assert codes in (["slow"], []), codes
    print(json.dumps({"closing_seen": codes}))
    await ws.close()
    await observer.close()


async def silent():
    """A peer that answers no ping is gone after two, with reason timeout."""
    session = talk()
    observer, _ = await attach(session, "?mode=observe")
    reader, writer = await asyncio.open_connection(*ADDRESS.split(":"))
    writer.write((f"GET /api/v1/sessions/{session}/socket HTTP/1.1\r\nHost: {ADDRESS}\r\n"
                  f"Authorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
    await reader.readuntil(b"\r\n\r\n")
    text = hello().encode()
    writer.write(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)
    begun = time.monotonic()
    frames = await until(observer, "session.detached")
    assert frames[-1]["payload"]["reason"] == "timeout", frames[-1]
    assert time.monotonic() - begun < 20
    writer.close()
    await observer.close()


async def system():
    ws = await socket("/system/socket")
    first = await frame(ws)
    assert first["type"] == "sessions.running_count" and first["payload"]["total"] == 0, first
    session = talk()
    api.post(session, script({"text": "quick"}))
    counts, kinds = [], []
    while counts != [1, 0] or "session.changed" not in kinds:
        got = await frame(ws)
        if got["channel"] != "events":
            continue
        kinds.append(got["type"])
        if got["type"] == "sessions.running_count":
            counts.append(got["payload"]["total"])
            if counts == [1]:
                assert got["payload"]["per_project"] == {"default": 1}, got
        assert len(counts) < 3, counts
    assert kinds[0] == "session.created", kinds
    # A project that has its own limit is told with it.
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f"{work}/.ctx")
        with open(f"{work}/.ctx/project.yaml", "w") as file:
            file.write('version: 1\nproject: music\nprimary: {model: "debug:script"}\nlimits: {running_per_project: 2}\n')
        api.ok("POST", "/projects", {"directory": work})
        singer = api.ok("POST", "/projects/music/sessions", {})["id"]
        api.post(singer, script({"sleep_ms": 300}, {"text": "la"}))
        while "music" not in (got := await frame(ws))["payload"].get("per_project", {}):
            pass
        limits = got["payload"]["limits"]
        assert limits["projects"] == {"music": 2} and limits["per_project"] == 4, got
        api.call("DELETE", f"/sessions/{singer}?confirm=true")
    api.call("DELETE", f"/sessions/{session}?confirm=true")
    await until(ws, "session.ended")
    await ws.close()


def bind(session, issue):
    return api.ok("PUT", f"/sessions/{session}/bind", {"issue_id": issue})


def todo(issue, **op):
    return api.ok("POST", f"/issues/{issue}/todos", op)


async def issue():
    """The session's socket tells what happens to the issue it is bound to, whoever does it, and of no other."""
    issue = api.ok("POST", "/projects/default/issues", {"title": "Mend it"})["id"]
    other = api.ok("POST", "/projects/default/issues", {"title": "Another"})["id"]
    session = talk()
    ws, _ = await attach(session)
    todo(issue, text="before it was bound")
    bind(session, issue)
    bound = await frame(ws)
    assert (bound["type"], bound["payload"]["issue_id"]) == ("session.bound", issue), bound
    # By hand, also of another issue; then by the tool of its own run.
    todo(issue, op="start", item="1")
    todo(other, text="not here")
    api.ok("PATCH", f"/issues/{issue}", {"status": "in_progress", "title": "Mend it all"})
    changed = await frame(ws)
    assert (changed["channel"], changed["type"]) == ("events", "todo.changed"), changed
    assert changed["payload"]["status"] == "in_progress" and changed["payload"]["issue_id"] == issue, changed
    assert changed["payload"]["user_id"] == os.getuid() and changed["payload"]["project_seq"] > 0, changed
    moved = await frame(ws)
    assert (moved["type"], moved["payload"]["title"]) == ("issue.changed", "Mend it all"), moved
    assert moved["payload"]["status"] == "in_progress" and "session_id" not in moved["payload"], moved
    api.post(session, script({"tool": {"name": "todo", "input": {"op": "append", "item": "by the model"}}}))
    frames = await done(ws)
    added = [f for f in frames if f["type"] == "todo.added"]
    assert len(added) == 1, frames
    assert added[0]["payload"]["text"] == "by the model", added
    assert added[0]["payload"]["session_id"] == session, added
    # By another session, which has taken the issue over: this one is not bound to it any more.
    await until(ws, "session.state")
    api.ok("DELETE", f"/sessions/{session}/bind")
    assert (await frame(ws))["type"] == "session.unbound"
    second = talk()
    theirs, welcome = await attach(second)
    bind(second, issue)
    await until(theirs, "session.bound")
    todo(issue, op="done", item="1")
    assert (await frame(theirs))["payload"]["status"] == "done"
    await control(ws, "ping")
    assert (await frame(ws))["type"] == "pong", "nothing of an issue that is another's"
    # Away for a moment: what was missed comes when it is back.
    known = {"output": 0, "events": 0}
    known.update(welcome["payload"]["server_seq"])
    await theirs.close()
    todo(issue, op="note", item="2", note="while away")
    theirs, _ = await attach(second, epoch=welcome["payload"]["epoch"], **known)
    missed = await until(theirs, "todo.changed") + await until(theirs, "todo.changed")
    assert missed[-1]["payload"]["note"] == "while away", missed
    await theirs.close()
    await ws.close()


async def system_issues():
    """The system's socket tells of issues to those who may see them, and to nobody else."""
    ws = await socket("/system/socket")
    token = api.ok("POST", "/tokens", {"uid": 54321})["token"]
    stranger = await socket("/system/socket", token=token)
    await frame(ws)
    issue = api.ok("POST", "/projects/default/issues", {"title": "Mend it"})["id"]
    made = await frame(ws)
    assert (made["type"], made["payload"]["issue_id"]) == ("issue.created", issue), made
    assert made["payload"]["project"] == "default" and made["payload"]["number"] == 1, made
    for act in (
        lambda: todo(issue, op="init", items=["a"]),
        lambda: todo(issue, op="done", item="a"),
        lambda: api.ok("PATCH", f"/issues/{issue}", {"status": "resolved"}),
    ):
        act()
        changed = await frame(ws)
        assert (changed["type"], changed["payload"]["issue_id"]) == ("issue.changed", issue), changed
    assert changed["payload"]["status"] == "resolved", changed
    assert (changed["payload"]["todos"], changed["payload"]["todos_left"]) == (1, 0), changed
    await control(stranger, "ping")
    kinds = [f["type"] for f in await until(stranger, "pong")]
    assert kinds == ["sessions.running_count", "pong"], kinds
    await stranger.close()
    await ws.close()


async def stranger():
    """Another user's token hears nothing of what the owner does."""
    token = api.ok("POST", "/tokens", {"uid": 54321})["token"]
    ws = await socket("/system/socket", token=token)
    session = talk()
    own, _ = await attach(session)
    api.post(session, script({"text": "private"}))
    await done(own)
    await ws.send(json.dumps({"channel": "control", "type": "ping", "payload": {}}))
    frames = [f for f in await until(ws, "pong") if f["channel"] == "events"]
    assert [(f["type"], f["payload"]["total"]) for f in frames] == [("sessions.running_count", 0)], frames
    assert frames[0]["payload"]["per_project"] == {} and frames[0]["payload"]["per_operator"] == {}
    for query in ("", "?mode=observe", "?takeover=true"):
        try:
            await socket(f"/sessions/{session}/socket{query}", token=token)
            raise AssertionError("was let in")
        except InvalidStatus as error:
            assert error.response.status_code == 404
    await own.close()
    await ws.close()


asyncio.run(asyncio.wait_for(globals()[sys.argv[1]](), 120))
