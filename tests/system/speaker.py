"""A model server on loopback that says one sentence, whatever it is asked, and keeps what it was asked.

It speaks what three agents speak: OpenAI responses (Codex), Anthropic messages (Claude Code) and OpenAI chat completions (OpenCode).
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SENTENCE = "It goes on."


def responses_events():
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": SENTENCE, "annotations": []}]}
    usage = {"input_tokens": 10, "input_tokens_details": None, "output_tokens": 4, "output_tokens_details": None, "total_tokens": 14}
    yield "response.created", {"response": {"id": "resp_1"}}
    yield "response.output_item.added", {"output_index": 0, "item": item | {"status": "in_progress", "content": []}}
    yield "response.output_text.delta", {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": SENTENCE}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}}


def message(content, stop):
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "local", "content": content, "stop_reason": stop,
            "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 4}}


def messages_events():
    yield "message_start", {"message": message([], None)}
    yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
    yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": SENTENCE}}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 4}}
    yield "message_stop", {}


def chat_chunks():
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "local"}
    yield base | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": SENTENCE}, "finish_reason": None}]}
    yield base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                  "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}}


class Speaker:
    """The server; `asked` are the bodies of all requests, in order."""

    def __init__(self):
        self.asked, speaker = [], self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer({"object": "list", "data": [], "models": []})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                path = self.path.split("?")[0]
                if path.endswith("/count_tokens"):
                    return self.answer({"input_tokens": 10})
                speaker.asked.append(body)
                if path.endswith("/responses"):
                    return self.events(responses_events())
                if path.endswith("/messages"):
                    whole = message([{"type": "text", "text": SENTENCE}], "end_turn")
                    return self.events(messages_events()) if body.get("stream") else self.answer(whole)
                if path.endswith("/chat/completions"):
                    whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": "local", "choices": [
                        {"index": 0, "message": {"role": "assistant", "content": SENTENCE}, "finish_reason": "stop"}]}
                    return self.events((None, chunk) for chunk in chat_chunks()) if body.get("stream") else self.answer(whole)
                return self.answer({})

            def answer(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def events(self, events):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for name, data in events:
                    head = f"event: {name}\n" if name else ""
                    data = {"type": name} | data if name else data
                    self.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
                if not name:
                    self.wfile.write(b"data: [DONE]\n\n")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
