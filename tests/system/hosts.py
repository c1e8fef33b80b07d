"""Real MCP hosts call the tools of `ctx mcp`, over stdio and over HTTP, with a model server of our own.

    python3 tests/system/hosts.py CTX NODE_MODULES

Prints one line for each host and way, and fails if a host does not get what ctx answered. Nothing leaves the machine, and no
file of the user's is touched: each host has a home directory of its own.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from model import COMMANDS, Model

PROMPT = "Open a shell with ctx and look around."
PATIENCE = 240


class Gemini:
    name = "gemini-cli"
    package = "@google/gemini-cli"

    def set_up(self, home, model, server):
        entry = {"httpUrl": server["url"], "headers": server["headers"]} if "url" in server else {
            "command": server["command"][0], "args": server["command"][1:], "env": server["env"]}
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
            "mcpServers": {"ctx": entry | {"trust": True, "timeout": 60_000}},
        }
        (home / ".gemini").mkdir(parents=True)
        (home / ".gemini/settings.json").write_text(json.dumps(settings))
        return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def command(self, modules):
        return [str(modules / ".bin/gemini"), "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "--skip-trust", "-p", PROMPT]


class OpenCode:
    name = "opencode"
    package = "opencode-ai"

    def set_up(self, home, model, server):
        entry = {"type": "remote", "url": server["url"], "headers": server["headers"], "oauth": False} if "url" in server else {
            "type": "local", "command": server["command"], "environment": server["env"]}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Local", "options": {"baseURL": f"{model.url}/v1", "apiKey": "none"},
                    "models": {"local": {"name": "Local", "tool_call": True, "limit": {"context": 200_000, "output": 8192}}}}
        config = {"autoupdate": False, "share": "disabled", "provider": {"local": provider},
                  "model": "local/local", "small_model": "local/local", "mcp": {"ctx": entry | {"enabled": True}}}
        (home / ".config/opencode").mkdir(parents=True)
        (home / ".config/opencode/opencode.json").write_text(json.dumps(config))
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}

    def command(self, modules):
        return [str(modules / ".bin/opencode"), "run", "-m", "local/local", PROMPT]


def daemon(ctx, root, home):
    """A daemon with a token; the process, and how a host reaches it."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    process = subprocess.Popen([ctx, "serve", "--root", str(root), "--listen", "127.0.0.1:0"], env=env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        made = subprocess.run([ctx, "token", "new", "--root", str(root)], env=env, capture_output=True, text=True)
        if made.returncode == 0:
            break
        assert time.monotonic() < deadline and process.poll() is None, made.stderr
        time.sleep(0.1)
    address = json.loads((root / ".state/daemon.json").read_text())["address"]
    return process, {"url": f"http://{address}/api/v1/mcp", "headers": {"Authorization": f"Bearer {made.stdout.strip()}"}}


def check(answers):
    """What a model must have read of each call."""
    assert len(answers) == 1 + len(COMMANDS), f"{len(answers)} answers, not {1 + len(COMMANDS)}: {[a[:300] for a in answers]}"
    _, first, long, ended = answers
    assert "hello-from-ctx" in first, first[:500]
    assert "100000" in long and re.search(r"\[… \d+ lines …\]", long), f"{len(long)} characters: {long[:300]} … {long[-300:]}"
    assert "hello" in long and len(long) < 80_000, len(long)
    assert re.search(r'exit_code"?: 3', ended), ended[:500]
    return len(long)


def run(host, way, ctx, modules):
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        home, work, root = place / "home", place / "work", place / "root"
        for directory in (home, work):
            directory.mkdir()
        env = {"CTX_ROOT": str(root)}
        process, server = None, {"command": [ctx, "mcp"], "env": env}
        if way == "http":
            process, server = daemon(ctx, root, place)
        model = Model()
        try:
            own = host.set_up(home, model, server)
            base = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "NO_PROXY": "127.0.0.1"}
            began = time.monotonic()
            done = subprocess.run(host.command(modules), env=base | own, cwd=work, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=PATIENCE)
            try:
                shown = check(model.seen.answers)
            except AssertionError as error:
                raise AssertionError(f"{host.name} over {way}: {error}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}") from None
            version = json.loads((modules / host.package / "package.json").read_text())["version"]
            names = sorted(tool for tool in model.seen.tools if "session_" in tool)
            return f"{host.name} {version} over {way}: {len(names)} tools, {len(COMMANDS)} commands, {shown} characters of a long answer, " \
                   f"{time.monotonic() - began:.0f} s"
        finally:
            model.close()
            if process:
                process.terminate()
                process.wait(30)


def main():
    ctx, modules = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    wanted = sys.argv[3:]
    for host in (Gemini(), OpenCode()):
        for way in ("stdio", "http"):
            if not wanted or host.name in wanted:
                print(run(host, way, ctx, modules), flush=True)


if __name__ == "__main__":
    main()
