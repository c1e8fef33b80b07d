"""A small client of the HTTP API for the tests: the standard library and `websockets`, nothing of ours."""

import http.client
import json
import os
import random

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

TOKEN = os.environ["CTX_TOKEN"]
ADDRESS = os.environ["CTX_ADDRESS"]
GONE = (OSError, EOFError, ConnectionClosed, InvalidHandshake, http.client.HTTPException)


class Api:
    """One kept connection, made again when it breaks."""

    def __init__(self, token=TOKEN):
        self.token = token
        self.connection = None

    def call(self, method, path, body=None, headers=()):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(ADDRESS, timeout=60)
        all_headers = {"Authorization": f"Bearer {self.token}", **dict(headers)}
        data = None if body is None else json.dumps(body)
        try:
            self.connection.request(method, "/api/v1" + path, body=data, headers=all_headers)
            response = self.connection.getresponse()
            text = response.read()
        except GONE:
            self.connection = None
            raise
        return response.status, (json.loads(text) if text else None)

    def ok(self, method, path, body=None, headers=()):
        status, answer = self.call(method, path, body, headers)
        assert status < 300, (method, path, status, answer)
        return answer

    def session(self, **fields):
        return self.ok("POST", "/projects/default/sessions", fields)["id"]

    def post(self, session, text, **fields):
        return self.ok("POST", f"/sessions/{session}/messages", {"text": text, **fields})

    def messages(self, session):
        """All of them, oldest first, page by page."""
        pages, cursor = [], ""
        while True:
            page = self.ok("GET", f"/sessions/{session}/messages?limit=100{cursor}")
            pages.insert(0, page["items"])
            if page["next"] is None:
                return [message for items in pages for message in items]
            cursor = f"&cursor={page['next']}"


def script(*steps):
    return json.dumps({"script": list(steps)})


def socket(path, token=TOKEN, **options):
    headers = {"Authorization": f"Bearer {token}"}
    return connect(f"ws://{ADDRESS}/api/v1{path}", additional_headers=headers, max_size=None, **options)


def hello(epoch=None, output=None, events=None):
    payload = {}
    if epoch is not None:
        payload["epoch"] = epoch
    if output is not None:
        payload["resume_from_seq"] = {"output": output, "events": events}
    return json.dumps({"channel": "control", "type": "hello", "payload": payload})


async def frame(ws):
    return json.loads(await ws.recv())


async def until(ws, kind, channel=None):
    """Frames up to the first of this type, which is the last of them."""
    frames = []
    while True:
        got = await frame(ws)
        frames.append(got)
        if got["type"] == kind and channel in (None, got["channel"]):
            return frames


rng = random.Random(int(os.environ.get("CTX_SEED", "7")))
__all__ = [name for name in dir() if not name.startswith("_")]
