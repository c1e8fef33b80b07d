#!/usr/bin/env python3
"""Proof of `ctx handoff` with the real programs: each resumes the session that it was handed, and the history is in the request
that its model receives.

Usage: handoff.py CTX    (the program under test)
AGENT_MODULES: a node_modules with @openai/codex, @anthropic-ai/claude-code and opencode-ai; installed from npm where it is not set.
AGENTS_MOCK: the directory with mock.py and adapters.py; `../shared/tools/agents-mock` beside the repository where it is not set.
"""
import glob, json, os, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CTX = os.path.abspath(sys.argv[1])
MOCK = os.environ.get('AGENTS_MOCK', os.path.join(ROOT, '..', 'shared', 'tools', 'agents-mock'))
FIXTURES = os.path.join(ROOT, 'crates', 'ctx-interop', 'tests', 'fixtures')
PACKAGES = ['@openai/codex', '@anthropic-ai/claude-code', 'opencode-ai']
sys.path.insert(0, MOCK)

# What the handed-on session says: a message, a call, its output and the answer.
SAID = ['Which word did I ask you to remember?', 'Noted: marmalade.', 'Keeps track of parts.', 'It has 3 lines']


def modules(work):
    given = os.environ.get('AGENT_MODULES')
    if given:
        return given
    subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--prefix', work, *PACKAGES], check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(work, 'node_modules')


def ctx(env, *args):
    done = subprocess.run([CTX, *args], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f'ctx {" ".join(args)} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}')
    return done.stdout


def program(name, node):
    return {
        'codex': ['node', f'{node}/@openai/codex/bin/codex.js'],
        'claude': [f'{node}/@anthropic-ai/claude-code/bin/claude.exe'],
        'opencode': [f'{node}/opencode-linux-x64/bin/opencode'],
    }[name]


def session_in(project, agent, to):
    """A session that an agent had, as if it had worked in this project."""
    shutil.copytree(os.path.join(FIXTURES, agent, 'resumed', 'files'), to)
    for path in glob.glob(f'{to}/**/*.jsonl', recursive=True, include_hidden=True):
        text = open(path).read().replace('/home/dev/inventory', project)
        open(path, 'w').write(text)
    return to


def resume(name, node, work):
    """Imports a session of Claude, hands it on, and has the real program answer a question in it."""
    import adapters, mock
    home = os.path.join(work, name)
    project = os.path.join(home, 'project')
    os.makedirs(project)
    subprocess.run(['git', 'init', '-q', project], check=True)
    adapters.HOME = home
    adapters.BASEENV['HOME'] = home
    agent = {'codex': adapters.Codex, 'claude': adapters.Claude, 'opencode': adapters.OpenCode}[name]()
    agent.bin = program(name, node)
    logs = os.path.join(home, 'requests')
    server = mock.Mock(name, agent.map, [mock.S(mock.txt('It goes on.'))] * 4, logs)
    agent.setup(server.port, project)
    env = dict(os.environ, HOME=home, CTX_ROOT=os.path.join(home, 'ctx'))
    for variable in ('CODEX_HOME', 'CLAUDE_CONFIG_DIR', 'XDG_DATA_HOME', 'XDG_STATE_HOME', 'XDG_CONFIG_HOME'):
        env.pop(variable, None)
    try:
        source = session_in(project, 'claude' if name != 'claude' else 'codex', os.path.join(home, 'source'))
        line = json.loads(ctx(env, 'import', '--json', '--path', source).splitlines()[0])
        if name == 'opencode':
            # It makes its database when it is first used.
            subprocess.run(agent.cmd('Say hello', 'new', None), cwd=project, env=agent.env, check=True, timeout=300,
                           stdin=subprocess.DEVNULL, capture_output=True)
        handed = json.loads(ctx(env, 'handoff', line['session'], '--to', name, '--home', home, '--json'))
        command = agent.cmd('And what now?', 'resume', handed['native_id'])
        if name == 'codex':
            command.insert(len(agent.bin) + 1, '--skip-git-repo-check')
        done = subprocess.run(command, cwd=project, env=agent.env, capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL)
        requests = [open(path).read() for path in sorted(glob.glob(f'{logs}/*.json'))]
        asked = [text for text in requests if 'And what now?' in text]
        missing = [words for words in SAID if not any(words in text for text in asked)]
        if done.returncode or not asked or missing:
            sys.exit(f'{name}: exit {done.returncode}, {len(asked)} requests, missing {missing}\n{done.stderr[-2000:]}')
        print(f'{name}: resumed {handed["native_id"]}; the history was in the request')
    finally:
        subprocess.run([CTX, 'stop'], env=env, capture_output=True)
        server.close()


def main():
    with tempfile.TemporaryDirectory() as work:
        node = modules(work)
        for name in ('codex', 'claude', 'opencode'):
            resume(name, node, work)


main()
