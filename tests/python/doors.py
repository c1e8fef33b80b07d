"""One session through the agent's socket, HTTP and the command line at once, watched on its WebSocket.

Everyone posts as often as the session lets them. In the end all doors show the same ids in the same order.
"""

import asyncio
import socket as sockets
import subprocess
import threading
import time

from ctx_client import *

EACH = 12
ROOT, BINARY = os.environ["CTX_ROOT"], os.environ["CTX_BINARY"]
failures, begin = [], threading.Barrier(3)
api = Api()
session = api.session(name="all")


def by_http(n):
    status, answer = Api().call("POST", f"/sessions/{session}/messages", {"text": f"http {n}", "client_id": f"h{n}"})
    assert status in (202, 409), answer
    return status == 202


class Socket:
    """The agent's own socket: a JSON line each way."""

    def __init__(self):
        self.stream = sockets.socket(sockets.AF_UNIX)
        self.stream.settimeout(60)
        self.stream.connect(os.path.join(ROOT, "agent/coder.sock"))
        self.lines = self.stream.makefile()

    def __call__(self, n):
        request = {"op": "send", "session": "all", "id": f"s{n}", "input": f"socket {n}"}
        self.stream.sendall(json.dumps(request).encode() + b"\n")
        while True:
            frame = json.loads(self.lines.readline())
            if frame["type"] == "done":
                return True
            if frame["type"] == "error":
                assert frame["code"] == "EBUSY", frame
                return False


def by_command(n):
    command = [BINARY, "send", "--root", ROOT, "-a", "coder", "--session", "all", "--id", f"c{n}", f"command {n}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or "EBUSY" in done.stderr, done
    return done.returncode == 0


def post_all(make):
    try:
        post = make()
        begin.wait()
        for n in range(EACH):
            while not post(n):
                time.sleep(0.002)
    except BaseException as error:
        failures.append(error)
        raise


async def watch(threads):
    seen = []
    async with socket(f"/sessions/{session}/socket?mode=observe") as ws:
        await ws.send(hello())
        assert (await frame(ws))["type"] == "welcome"
        for thread in threads:
            thread.start()
        while len(seen) < 6 * EACH:
            assert not failures, failures
            try:
                got = await asyncio.wait_for(frame(ws), 60)
            except TimeoutError:
                raise AssertionError(f"{len(seen)} messages, and no more") from None
            if got["type"] == "message":
                seen.append((got["payload"]["id"], got["payload"]["role"], got["payload"]["content"]))
    return seen


makers = [lambda: by_http, Socket, lambda: by_command]
threads = [threading.Thread(target=post_all, args=(make,)) for make in makers]
watched = asyncio.run(watch(threads))
for thread in threads:
    thread.join()
assert not failures, failures
over_http = [(m["id"], m["role"], m["content"]) for m in api.messages(session)]
assert watched == over_http, "the WebSocket and HTTP differ"
history = subprocess.run([BINARY, "history", "--root", ROOT, "coder/all", "--json"], capture_output=True, text=True)
listed = [json.loads(line) for line in history.stdout.splitlines()]
assert [m["id"] for m in listed] == [m[0] for m in over_http], "the command line and HTTP differ"
dir_name = api.ok("GET", f"/sessions/{session}")["dir_name"]
with open(f"{ROOT}/home/{os.getuid()}/agent/coder/session/{dir_name}/messages.jsonl") as file:
    on_disk = [json.loads(line)["id"] for line in file]
assert on_disk == [m[0] for m in over_http], "the files and HTTP differ"
posted = sorted(m[2] for m in over_http if m[1] == "user")
assert posted == sorted(f"{door} {n}" for door in ("http", "socket", "command") for n in range(EACH)), posted
runs, cursor = [], ""
while True:
    page = api.ok("GET", f"/sessions/{session}/runs?limit=100{cursor}")
    runs += page["items"]
    if page["next"] is None:
        break
    cursor = f"&cursor={page['next']}"
assert len(runs) == 3 * EACH and all(run["state"] == "done" for run in runs), len(runs)
