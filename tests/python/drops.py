"""A client that loses its connection at random during runs, and must not lose a frame.

Usage: drops.py DROPS STOP_FILE
Goes on until it has lost the connection DROPS times and STOP_FILE exists. Prints what it saw as JSON.
The daemon may be killed and started again meanwhile: then `resume_failed` is right, and the messages are read again.
"""

import asyncio
import sys
import time

from ctx_client import *

DROPS, STOP = int(sys.argv[1]), sys.argv[2]
TEXT = "0123456789abcdef" * 6
RUN = script(*[step for _ in range(6) for step in ({"text": TEXT}, {"sleep_ms": 4})])


class Client:
    def __init__(self, session):
        self.session = session
        self.known = None  # epoch, output, events
        self.drops = self.frames = self.resume_failed = self.busy = 0
        self.deltas = {}  # message id -> text so far, since the last gap
        self.whole = set()  # messages of which every delta was seen
        self.seen = {}  # message id -> content

    def on_frame(self, got):
        channel, seq, payload = got["channel"], got["seq"], got["payload"]
        if channel == "control":
            return
        epoch, output, events = self.known
        expected = (output if channel == "output" else events) + 1
        assert seq == expected, f"{channel}: {seq} came where {expected} was due"
        self.known = (epoch, seq, events) if channel == "output" else (epoch, output, seq)
        self.frames += 1
        if got["type"] == "delta":
            if payload["message_id"] in self.deltas:
                self.deltas[payload["message_id"]] += payload["text"]
        elif got["type"] == "message":
            assert payload["id"] not in self.seen, "a message came twice"
            self.seen[payload["id"]] = payload["content"]
            text = self.deltas.pop(payload["id"], None)
            if text is not None and payload.get("finish_reason") == "stop":
                assert text == payload["content"], "the deltas are not the message"
                self.whole.add(payload["id"])
        elif got["type"] == "run.step":
            self.deltas[payload["message_id"]] = ""

    async def visit(self):
        """One connection, for a random time."""
        takeover = "?takeover=true" if rng.random() < 0.3 else ""
        async with socket(f"/sessions/{self.session}/socket{takeover}", close_timeout=0.1) as ws:
            await ws.send(hello(*self.known) if self.known else hello())
            end = time.monotonic() + rng.random() * 0.04
            while time.monotonic() < end or self.known is None:
                try:
                    got = await asyncio.wait_for(frame(ws), max(0.001, end - time.monotonic()))
                except TimeoutError:
                    continue
                if got["type"] == "welcome":
                    if self.known is None:
                        seqs = got["payload"]["server_seq"]
                        self.known = (got["payload"]["epoch"], seqs["output"], seqs["events"])
                elif got["type"] == "closing":
                    code = got["payload"]["code"]
                    assert code in ("resume_failed", "shutdown", "taken_over"), code
                    if code == "resume_failed":
                        self.resume_failed += 1
                        self.known = None
                        self.deltas = {}
                    return
                else:
                    self.on_frame(got)
            # No close frame: the connection is just gone.
            ws.transport.abort()
            self.drops += 1

    async def watch(self, stop):
        while not stop.is_set() or self.known is None:
            try:
                await self.visit()
            except InvalidStatus as refused:
                assert refused.response.status_code in (409, 503), refused
                self.busy += 1
                await asyncio.sleep(0.002)
            except GONE:
                await asyncio.sleep(0.01)


def work(api, session, client):
    """Runs one after the other, through whatever happens to the daemon."""
    runs = 0
    while client.drops < DROPS or not os.path.exists(STOP):
        try:
            status, answer = api.call("POST", f"/sessions/{session}/messages", {"text": RUN})
            if status == 202:
                runs += 1
            else:
                assert status in (409, 503), (status, answer)
                time.sleep(0.01)
        except GONE:
            time.sleep(0.02)
    while True:
        try:
            if api.ok("GET", f"/sessions/{session}")["state"] == "idle":
                return runs
        except GONE:
            pass
        time.sleep(0.02)


async def main():
    api = Api()
    session = api.session()
    api.ok("PUT", f"/sessions/{session}", {"model_override": "debug:script"})
    client, stop = Client(session), asyncio.Event()
    watching = asyncio.create_task(client.watch(stop))
    while client.known is None and not watching.done():
        await asyncio.sleep(0.01)
    working = asyncio.create_task(asyncio.to_thread(work, api, session, client))
    await asyncio.wait([watching, working], return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        watching.result()
    runs = await working
    # One last visit sees everything that is left.
    stop.set()
    await watching
    deadline = time.monotonic() + 30
    while client.resume_failed == 0 and time.monotonic() < deadline:
        said = {m["id"]: m["content"] for m in Api().messages(session)}
        if set(said) <= set(client.seen):
            break
        try:
            await client.visit()
        except (InvalidStatus, *GONE):
            await asyncio.sleep(0.01)
    said = {m["id"]: m["content"] for m in Api().messages(session)}
    for message, content in client.seen.items():
        assert said.get(message) == content, f"{message} was shown and is not in the conversation"
    missing = set(said) - set(client.seen)
    if client.resume_failed == 0:
        assert not missing, f"{len(missing)} messages were never shown"
    print(json.dumps({"runs": runs, "drops": client.drops, "frames": client.frames, "busy": client.busy,
                      "resume_failed": client.resume_failed, "messages": len(said), "whole": len(client.whole)}))


asyncio.run(main())
