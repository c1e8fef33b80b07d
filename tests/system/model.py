"""A model server on loopback for real agents: OpenAI chat completions and Gemini generateContent.

It plays one part: it opens a shell of ctx, runs commands in it, and keeps what the agent's tools answered. What it does next
depends only on the conversation that comes with a request, as with a real model.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMANDS = ["cd / && GREETING=hello && echo $GREETING-from-ctx", "pwd; echo $GREETING; seq -f 'line %.0f of a long output' 1 100000", "exit 3"]
END = "the model has seen enough"


def text_of(value):
    """All text in a tool's answer, however its agent wraps it."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(text_of(item) for item in value.values())
    if isinstance(value, list):
        return "\n".join(text_of(item) for item in value)
    return ""


class Conversation:
    """What the tools of ctx have answered so far, and what to do next."""

    def __init__(self, tools, answers):
        self.tools, self.answers = tools, answers

    def tool(self, name):
        found = [tool for tool in self.tools if tool.endswith(name)]
        if not found:
            raise LookupError(f"no tool {name} among {sorted(self.tools)}")
        return found[0]

    def next(self):
        """The next call as (name, arguments), or None when there is nothing left to do."""
        if not self.answers:
            return self.tool("session_create"), {}
        shell = re.search(r"\d+_local", self.answers[0])
        done = len(self.answers) - 1
        if shell is None or done >= len(COMMANDS):
            return None
        return self.tool("session_exec"), {"session_id": shell.group(), "command": COMMANDS[done]}


def of_chat(body):
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    answers = [text_of(message["content"]) for message in body["messages"] if message["role"] == "tool"]
    return Conversation(tools, answers)


def of_gemini(body):
    declared = [one for group in body.get("tools") or [] for one in group.get("functionDeclarations", [])]
    parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
    answers = [text_of(part["functionResponse"].get("response")) for part in parts if "functionResponse" in part]
    return Conversation([one["name"] for one in declared], answers)


def chat_chunks(call):
    message = {"role": "assistant", "content": "" if call else END}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "local"}
    yield base | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]}
    yield base | {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}


def gemini_chunk(call):
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": END}
    candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}
    return {"candidates": [candidate], "modelVersion": "local",
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}}


class Model:
    """The server; `seen` is the longest conversation that an agent came with."""

    def __init__(self):
        self.seen, self.trouble, lock = Conversation([], []), None, threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer({"object": "list", "data": []})

            def do_POST(self):
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                path = self.path.split("?")[0]
                if path.endswith("/chat/completions"):
                    talk = of_chat(body)
                elif "enerateContent" in path:
                    talk = of_gemini(body)
                else:
                    return self.answer({"totalTokens": 10})
                call = None
                # What an agent asks on its own account (a title, which model to take) comes without our tools.
                if any(tool.endswith("session_create") for tool in talk.tools):
                    with lock:
                        if len(talk.answers) >= len(model.seen.answers):
                            model.seen = talk
                    call = talk.next()
                if path.endswith("/chat/completions"):
                    return self.stream(chat_chunks(call), "[DONE]") if body.get("stream") else self.whole(call)
                if "stream" in path:
                    return self.stream([gemini_chunk(call)])
                return self.answer(gemini_chunk(call))

            def whole(self, call):
                message = {"role": "assistant", "content": END}
                self.answer({"id": "c1", "object": "chat.completion", "created": 1, "model": "local", "choices": [
                    {"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})

            def answer(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def stream(self, chunks, end=None):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for chunk in chunks:
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                if end:
                    self.wfile.write(f"data: {end}\n\n".encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
