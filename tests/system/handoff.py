"""Real agents resume sessions that `ctx handoff` gave them, and their model is asked with the whole history.

    python3 tests/system/handoff.py CTX NODE_MODULES [AGENT...]

For Codex, Claude Code and OpenCode: a session of another agent is imported and handed on, and so is a session of ctx itself. The real
program resumes it under the id that ctx printed and asks a model server of ours; what the server was asked must have every message, the
tool calls and their results, each as that program writes them. Prints a line for each. Nothing leaves the machine, and no file of the
user's is touched: each program has a home directory of its own.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from speaker import SENTENCE, Speaker

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "crates/ctx-interop/tests/fixtures"
QUESTION = "And what now?"
PATIENCE = 240


class Codex:
    name, package, source = "codex", "@openai/codex", "claude"

    def set_up(self, home, model):
        (home / ".codex").mkdir()
        provider = f'[model_providers.local]\nname = "local"\nbase_url = "{model.url}/v1"\nwire_api = "responses"\nenv_key = "LOCAL_KEY"\n'
        (home / ".codex/config.toml").write_text(
            f'model = "gpt-5.5"\nmodel_provider = "local"\n{provider}request_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false\n')
        return {"LOCAL_KEY": "none"}

    def first_use(self, _modules):
        return None

    def resume(self, modules, session):
        return [modules / ".bin/codex", "exec", "--skip-git-repo-check", "-s", "read-only", "resume", session, QUESTION]

    def calls(self, body):
        """The tool calls in a request, each with what the tool gave."""
        results = {item["call_id"]: item["output"] for item in body["input"] if item["type"].endswith("_call_output")}
        return [(item["name"], results.get(item["call_id"])) for item in body["input"] if item["type"] in ("function_call", "custom_tool_call")]


class Claude:
    name, package, source = "claude", "@anthropic-ai/claude-code", "codex"

    def set_up(self, home, model):
        return {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}

    def first_use(self, _modules):
        return None

    def resume(self, modules, session):
        return [modules / ".bin/claude", "-p", QUESTION, "--model", "claude-sonnet-4-5", "--output-format", "json", "--resume", session]

    def calls(self, body):
        blocks = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
        results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
        return [(block["name"], results.get(block["id"])) for block in blocks if block["type"] == "tool_use"]


class OpenCode:
    name, package, source = "opencode", "opencode-ai", "claude"

    def set_up(self, home, model):
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Local", "options": {"baseURL": f"{model.url}/v1", "apiKey": "none"},
                    "models": {"local": {"name": "Local", "tool_call": True, "limit": {"context": 200_000, "output": 8192}}}}
        config = {"autoupdate": False, "share": "disabled", "provider": {"local": provider}, "model": "local/local", "small_model": "local/local"}
        (home / ".config/opencode").mkdir(parents=True)
        (home / ".config/opencode/opencode.json").write_text(json.dumps(config))
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}

    def first_use(self, modules):
        """It makes its database when it is first used."""
        return [modules / ".bin/opencode", "run", "-m", "local/local", "Hello"]

    def resume(self, modules, session):
        return [modules / ".bin/opencode", "run", "-m", "local/local", "-s", session, QUESTION]

    def calls(self, body):
        results = {message["tool_call_id"]: message["content"] for message in body["messages"] if message["role"] == "tool"}
        calls = [call for message in body["messages"] for call in message.get("tool_calls") or []]
        return [(call["function"]["name"], results.get(call["id"])) for call in calls]


def run(command, env, cwd, patience=PATIENCE):
    done = subprocess.run([str(word) for word in command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=patience)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def imported(ctx, env, agent, home, work):
    """A session of another agent, as if it had worked in this directory: its id here, what was said in it, and its calls."""
    source = home / "source"
    shutil.copytree(FIXTURES / agent.source / "resumed/files", source)
    for path in source.rglob("*.jsonl"):
        path.write_text(path.read_text().replace("/home/dev/inventory", str(work)))
    line = json.loads(run([ctx, "import", "--json", "--path", source], env, work).splitlines()[0])
    said = ["Which word did I ask you to remember?", "Noted: marmalade.", "It has 3 lines"]
    return line["session"], said, line["tool_calls"]


def native(ctx, env, work):
    """A session of ctx itself, with a call of a tool."""
    (work / "NOTES").write_text("the heron stands in the reeds\n")
    script = {"script": [{"text": "I will look."}, {"tool": {"name": "fs.read", "input": {"path": str(work / "NOTES")}}},
                         {"text": "There is a heron in it."}]}
    run([ctx, "send", "--session", "birds", "--model", "debug:script", json.dumps(script)], env, work)
    # A directory without a project has an agent named after it.
    return f"{work.name}/birds", ["I will look.", "There is a heron in it."], 1


def hand_on(ctx, modules, agent, kind):
    with tempfile.TemporaryDirectory() as place:
        home, work = pathlib.Path(place) / "home", pathlib.Path(place) / "work"
        for directory in (home, work):
            directory.mkdir()
        model = Speaker()
        base = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "NO_PROXY": "127.0.0.1"}
        own = base | {"CTX_ROOT": str(pathlib.Path(place) / "root")}
        theirs = base | agent.set_up(home, model)
        try:
            began = time.monotonic()
            session, said, calls = imported(ctx, own, agent, home, work) if kind == "imported" else native(ctx, own, work)
            if first := agent.first_use(modules):
                run(first, theirs, work)
            handed = json.loads(run([ctx, "handoff", session, "--to", agent.name, "--home", home, "--json"], own, work))
            assert pathlib.Path(handed["cwd"]).samefile(work), handed["cwd"]
            answer = run(agent.resume(modules, handed["native_id"]), theirs, handed["cwd"])
            assert SENTENCE in answer, answer[-2000:]
            asked = [body for body in model.asked if QUESTION in json.dumps(body)]
            assert asked, f"{len(model.asked)} requests, none with the question"
            body = max(asked, key=lambda body: len(json.dumps(body)))
            text = json.dumps(body, ensure_ascii=False)
            missing = [words for words in said if words not in text]
            assert not missing, f"the request lacks {missing}: {text[-3000:]}"
            found = agent.calls(body)
            assert len(found) == calls, f"{len(found)} calls instead of {calls}: {found}"
            assert all(result for _, result in found), f"a call without a result: {found}"
            version = json.loads((modules / agent.package / "package.json").read_text())["version"]
            return f"{agent.name} {version} resumed a session {'of ' + agent.source if kind == 'imported' else 'of ctx'}: " \
                   f"{len(said)} messages looked for and {calls} calls with results in the request, {time.monotonic() - began:.0f} s"
        finally:
            subprocess.run([ctx, "stop"], env=own, capture_output=True, timeout=60)
            model.close()


def main():
    ctx, modules = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    wanted = sys.argv[3:]
    for agent in (Codex(), Claude(), OpenCode()):
        for kind in ("imported", "native"):
            if not wanted or agent.name in wanted:
                print(hand_on(ctx, modules, agent, kind), flush=True)


if __name__ == "__main__":
    main()
