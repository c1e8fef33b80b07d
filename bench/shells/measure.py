"""Measures shells over MCP: the cost of `:`, 50 MB of output, memory, and 64 shells at once.

The clients are as thin as they can be and written alike: JSON lines over pipes for an MCP server, frames over
pipes for the bare bash. Ours and the others run alternately in one run, because machines differ and are noisy.
"""

import argparse
import getpass
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CALLS_PER_ROUND = 25
ROUNDS = 12
OUTPUT_BYTES = 50_000_000
OUTPUT_ROUNDS = 20
LONG_BYTES = 200_000
LONG_ROUNDS = 15
SHELLS = 64
# About 30 ms of work for one core, in the shell itself.
BUSY = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done"


class Server:
    """An MCP server on stdio."""

    def __init__(self, command, variables=None):
        environment = {**os.environ, **(variables or {})}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir()
        )
        self.next_id = 0
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.wait(self.send("initialize", hello))
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method, params):
        self.next_id += 1
        self.write({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})
        return self.next_id

    def read(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the server has ended")
            message = json.loads(line)
            if "id" in message and "method" not in message:
                return message

    def wait(self, wanted):
        while True:
            message = self.read()
            if message["id"] == wanted:
                return result(message)

    def start(self, tool, arguments):
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool, arguments):
        return self.wait(self.start(tool, arguments))

    def shell(self):
        return self.call("session_create", {"transport": "local"})["session_id"]

    def exec(self, shell, command):
        return self.call("session_exec", {"session_id": shell, "command": command})

    def memory_kb(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def result(message):
    if "error" in message:
        raise RuntimeError(message["error"]["message"])
    answer = message["result"]
    if answer.get("isError"):
        raise RuntimeError(answer["content"][0]["text"])
    if "structuredContent" in answer:
        return answer["structuredContent"]
    if "content" in answer:
        return json.loads(answer["content"][0]["text"])
    return answer


class Bash:
    """A bare bash over pipes with a frame as short as one can be: the command by eval, stdin closed, and an end marker
    with a fresh nonce, the exit code and the cwd on both streams."""

    program = ["bash", "--norc", "--noprofile"]

    def __init__(self):
        self.process = subprocess.Popen(
            self.program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.stdin = self.process.stdin.fileno()
        self.pipes = [self.process.stdout.fileno(), self.process.stderr.fileno()]

    def frame(self, command, nonce):
        end = f"__{nonce}_"
        quoted = command.replace("'", "'\\''")
        return (
            f"builtin eval '{quoted}' </dev/null; __s=$?; builtin printf '\\n{end}%s %s\\n' \"$__s\" \"$PWD\"; "
            f"builtin printf '\\n{end}%s %s\\n' \"$__s\" \"$PWD\" >&2\n"
        )

    def has_ended(self, held, nonce):
        """Whether what was read of a stream has the command's end in it."""
        before, marker, after = held.partition(f"__{nonce}_".encode())
        return b"\n" in after

    def exec(self, command):
        nonce = os.urandom(16).hex()
        os.write(self.stdin, self.frame(command, nonce).encode())
        held = {pipe: b"" for pipe in self.pipes}
        waiting = set(self.pipes)
        while waiting:
            for pipe in select.select(list(waiting), [], [])[0]:
                held[pipe] += os.read(pipe, 65536)
                if self.has_ended(held[pipe], nonce):
                    waiting.discard(pipe)
        return held

    def close(self):
        os.close(self.stdin)
        self.process.wait()


class FramedBash(Bash):
    """A bare bash with the frame that `ctx mcp` sends it (crates/ctx-host/src/frame/bash.rs), word for word, for commands
    without special characters. Its client waits for what ours waits for: the end marker, the exit code, the cwd, and that
    the shell has its streams back."""

    def __init__(self):
        self.dir = tempfile.mkdtemp()
        self.names = [os.urandom(8).hex() for _ in range(3)]
        commands, stdout, stderr = [os.path.join(self.dir, name) for name in self.names]
        ends = []
        for path in (commands, stdout, stderr):
            os.mkfifo(path)
            first = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            ends.append((os.open(path, os.O_WRONLY), os.open(path, os.O_RDONLY)))
            os.close(first)
        (self.stdin, script), (out_in, out), (err_in, _) = ends
        program = ["bash", "--norc", "--noprofile", "/dev/stdin"]
        self.process = subprocess.Popen(program, stdin=script, stdout=out_in, stderr=err_in)
        os.close(script)
        self.pipes = [out]
        os.write(self.stdin, b"__ctx= BASH_ARGV0=bash\n")

    def frame(self, command, nonce):
        commands, out, err = [f"\"$__ctx_p\"$'{name}'" for name in self.names]
        streams = f"<{commands} >{out} 2>{err}"
        text = (
            f"\\command exec </dev/null||\\builtin exit 1;\\builtin unset -v __ctx;\\builtin :;\\builtin eval $'\n{command}';"
            f"{{ __ctx=$? __ctx_f=0 __ctx_o=${{__ctx_o-$-}} __ctx_p=$'{self.dir}/';\\builtin set +xv;\\builtin enable printf;"
            "[[ ${__ctx_x-} ]]&&BASH_XTRACEFD=$__ctx_x;\\builtin declare -F command&&__ctx_f=1;"
            f"\\builtin printf '\\36%sE%s\\0%s %s %s\\0%s\\0' {nonce} \"$__ctx\" \"$__ctx_o$__ctx_f${{!+2}}${{__ctx_long+!}}\" "
            f"\"${{BASH_XTRACEFD-}}\" \"$SHELLOPTS\" \"${{PWD-}}\" >{out};"
            f"[[ $SHELLOPTS == *history* ]]&&\\builtin set +o history;\\builtin trap -p ERR DEBUG EXIT >{out};"
            "\\builtin trap - ERR DEBUG;}>/dev/./null\"${-:(__ctx_c=$?,0):0}\" "
            "2>/dev/./null\"${BASH_XTRACEFD:+${-:(__ctx_x=${__ctx_x-BASH_XTRACEFD},BASH_XTRACEFD=2,0):0}}\";"
            "{ ((${__ctx_f-0}))&&{ \\builtin declare -F exec >/dev/./null&&"
            f"{{ \\builtin printf \"%s\\n\" \"/dev/./null: exec and command are functions\" >{err};\\builtin exit \"${{__ctx_c-1}}\";}};"
            f"\\exec {streams};}}||\\command exec {streams};}}||\\builtin exit \"${{__ctx_c-1}}\";\\builtin printf '\\0';"
            "\\builtin unset -v __ctx_long __ctx_o __ctx_x __ctx_d __ctx_c __ctx_p __ctx_f;"
            f"\\builtin export -p;\\builtin printf '\\36%s.' {nonce}"
        )
        run = "{ \\builtin eval \"$__ctx\";}<&\"$((LINENO=-1,0))\""
        return f"\\builtin read -rN{len(text)} __ctx;{run}\n{text}"

    def has_ended(self, held, nonce):
        before, marker, after = held.partition(f"\x1e{nonce}E".encode())
        return after.count(b"\0") >= 4

    def close(self):
        super().close()
        shutil.rmtree(self.dir)


class Channel(Bash):
    """The shortest frame over a channel that is open already: `ssh` over a multiplexed connection, or `exec -i`."""

    def __init__(self, program):
        self.program = program
        super().__init__()
        self.exec(":")


class Elsewhere:
    """An sshd on loopback and a container with busybox alone, as the tests have them; gone at the end."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="ctx-bench-")
        self.cleanup = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def sshd(self):
        for name in ("host", "id"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True)
        shutil.copy(self.path("id.pub"), self.path("authorized"))
        os.makedirs("/run/sshd", exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(self.path("config"), "w") as config:
            config.write(
                f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {self.path('host')}\nAuthorizedKeysFile {self.path('authorized')}\n"
                "StrictModes no\nUsePAM no\nPidFile none\nMaxStartups 100\nPermitRootLogin yes\n"
            )
        server = subprocess.Popen([shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-f", self.path("config")])
        self.cleanup.append(server.kill)
        with open(self.path("host.pub")) as key, open(self.path("known"), "w") as known:
            known.write(f"[127.0.0.1]:{port} {key.read()}")
        with open(self.path("ssh_config"), "w") as config:
            config.write(
                f"Host far\n HostName 127.0.0.1\n Port {port}\n IdentityFile {self.path('id')}\n UserKnownHostsFile {self.path('known')}\n"
            )
        ssh = ["ssh", "-F", self.path("ssh_config"), "-T", "-S", self.path("mux")]
        for _ in range(100):
            if subprocess.run([*ssh, "-f", "-N", "-o", "ControlMaster=yes", "far"], stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        self.cleanup.append(lambda: subprocess.run([*ssh, "-O", "exit", "far"], stderr=subprocess.DEVNULL))
        return port, [*ssh, "far", "bash --norc --noprofile"]

    def for_execkit(self, port):
        """Its keys are in the home directory."""
        os.makedirs(self.path(".ssh"), mode=0o700)
        shutil.copy(self.path("id"), self.path(".ssh/id"))
        listed = subprocess.run(["ssh-keygen", "-lf", self.path("host.pub")], check=True, capture_output=True, text=True).stdout
        key, user = self.path(".ssh/id"), getpass.getuser()
        return {"transport": "ssh", "host": "127.0.0.1", "port": port, "user": user, "key_path": key, "fingerprint": listed.split()[1]}

    def container(self):
        engine = self.path("engine")
        store = f"--root {self.path('store')} --runroot {self.path('run')} --storage-driver vfs --cgroup-manager cgroupfs --events-backend file --runtime runc"
        with open(engine, "w") as script:
            script.write(f'#!/bin/sh\nexec podman {store} "$@"\n')
        os.chmod(engine, 0o755)
        image = (
            f"mkdir -p {self.dir}/image/bin {self.dir}/image/tmp {self.dir}/image/proc && cp $(command -v busybox) {self.dir}/image/bin/busybox && "
            f"for a in $(busybox --list); do [ $a = busybox ] || ln -s busybox {self.dir}/image/bin/$a; done && "
            f"tar -C {self.dir}/image -c . | {engine} import - ctx-bench:1 && "
            f"{engine} run -d --name box --network none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 ctx-bench:1 /bin/sleep 100000"
        )
        subprocess.run(["sh", "-ec", image], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.cleanup.append(lambda: subprocess.run([engine, "rm", "-f", "-t", "0", "box"], stdout=subprocess.DEVNULL))
        return engine, [engine, "exec", "-i", "box", "sh"]

    def close(self):
        for one in reversed(self.cleanup):
            one()
        shutil.rmtree(self.dir, ignore_errors=True)


class PlainChannel(Channel):
    """The same for a shell without `builtin`."""

    def frame(self, command, nonce):
        return super().frame(command, nonce).replace("builtin ", "")


def alternate(work):
    """The median of each, in rounds of all of them."""
    times = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, one in work.items():
            one()
            times[name] += [seconds(one) for _ in range(CALLS_PER_ROUND)]
    return {name: statistics.median(all_times) for name, all_times in times.items()}


def compare_elsewhere(command, execkit):
    """`:` over ssh and in a container, beside a bare channel that is open, and over ssh beside execkit."""
    places = Elsewhere()
    try:
        port, bare = places.sshd()
        engine, bare_exec = places.container()
        set_up = {"CTX_SHELLS_SSH_CONFIG": places.path("ssh_config"), "CTX_SHELLS_CONTAINER_ENGINE": engine, "CTX_SHELLS_KEY_DIR": places.dir}
        ours, theirs = Server(command, set_up), Server([execkit], {"HOME": places.dir})
        try:
            over_ssh = ours.call("session_create", {"transport": "ssh", "host": "far"})["session_id"]
            boxed = ours.call("session_create", {"transport": "docker", "container": "box"})["session_id"]
            channel, box = Channel(bare), PlainChannel(bare_exec)
            work = {
                "ssh": lambda: ours.exec(over_ssh, ":"),
                "channel": lambda: channel.exec(":"),
                "docker": lambda: ours.exec(boxed, ":"),
                "exec": lambda: box.exec(":"),
            }
            try:
                there = theirs.call("session_create", places.for_execkit(port))["session_id"]
                work["execkit"] = lambda: theirs.exec(there, ":")
            except RuntimeError as error:
                print(f"execkit opens no shell over ssh: {error}", file=sys.stderr)
            found = alternate(work)
            channel.close()
            box.close()
        finally:
            ours.close()
            theirs.close()
    finally:
        places.close()
    for name, beside, what in [("ssh", "channel", "an open channel of the connection"), ("docker", "exec", "an open `exec -i`")]:
        more = found[name] - found[beside]
        row(f"`:` over {name}, p50", milliseconds(found[name]), f"{what} {milliseconds(found[beside])}", f"{more * 1e3:.2f} ms more", "at most 1 ms more", more <= 0.001)
    if "execkit" in found:
        row("`:` over ssh, p50", milliseconds(found["ssh"]), f"execkit {milliseconds(found['execkit'])}", f"{found['execkit'] / found['ssh']:.1f}× faster", "10×", found["execkit"] / found["ssh"] >= 10)


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure_empty(ours, execkit):
    """The median time of `:` for ours, execkit, and the bare bash with our frame and with the shortest."""
    framed, bash = FramedBash(), Bash()
    our_shell, their_shell = ours.shell(), execkit.shell()
    work = {
        "ours": lambda: ours.exec(our_shell, ":"),
        "execkit": lambda: execkit.exec(their_shell, ":"),
        "framed": lambda: framed.exec(":"),
        "bash": lambda: bash.exec(":"),
    }
    times = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, one in work.items():
            one()
            times[name] += [seconds(one) for _ in range(CALLS_PER_ROUND)]
    framed.close()
    bash.close()
    ours.call("session_destroy", {"session_id": our_shell})
    execkit.call("session_destroy", {"session_id": their_shell})
    return {name: statistics.median(all_times) for name, all_times in times.items()}


def measure_long(ours, execkit):
    """The median time of a command of 200 KB, and of bash with the same text as a script."""
    line = "x='some text that a script might hold, ü and € and all'; : \"$x\"\n"
    command = line * (LONG_BYTES // len(line.encode()) + 1)
    our_shell, their_shell = ours.shell(), execkit.shell()
    with tempfile.NamedTemporaryFile(suffix=".sh") as script:
        script.write(command.encode())
        script.flush()
        work = {
            "bash": lambda: subprocess.run(["bash", script.name], check=True),
            "ours": lambda: ours.exec(our_shell, command),
            "execkit": lambda: execkit.exec(their_shell, command),
        }
        rounds = {"bash": LONG_ROUNDS, "ours": LONG_ROUNDS, "execkit": 1}
        times = {name: [seconds(one) for _ in range(rounds[name])] for name, one in work.items()}
    ours.call("session_destroy", {"session_id": our_shell})
    execkit.call("session_destroy", {"session_id": their_shell})
    return {name: statistics.median(all_times) for name, all_times in times.items()}


def build_log(path):
    """Ordinary build output, 50 MB."""
    lines = [
        "   Compiling serde_derive v1.0.229 (/home/tom/.cargo/registry/src/index/serde_derive-1.0.229)",
        "test session::rules::a_run_ends_once ... ok",
        "gcc -O2 -Wall -Wextra -fPIC -I../include -c src/tokenizer.c -o build/tokenizer.o",
        "[2026-11-15T08:11:02Z] INFO GET /api/sessions?page=2&limit=50 200 3.1 ms",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b Merge branch 'main'",
        "",
    ]
    block = "".join(f"{number} {line}\n" for number in range(2000) for line in lines).encode()
    with open(path, "wb") as log:
        log.write((block * (OUTPUT_BYTES // len(block) + 1))[:OUTPUT_BYTES])


def read_pipe(command):
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE) as process:
        while os.read(process.stdout.fileno(), 65536):
            pass


def measure_output(ours, execkit, command):
    """The mean time of a command that prints 50 MB, and the ratios of the medians and of the best rounds. On two cores, where
    the printer and its reader run at the same time, a round of theirs takes 20 or 35 ms by where they happen to run, and which
    of the two their median is changes from run to run."""
    our_shell, their_shell = ours.shell(), execkit.shell()
    times = {"ours": [], "bash": [], "execkit": []}
    for _ in range(OUTPUT_ROUNDS):
        times["bash"].append(seconds(lambda: read_pipe(command)))
        times["ours"].append(seconds(lambda: ours.exec(our_shell, command)))
    try:
        times["execkit"].append(seconds(lambda: execkit.exec(their_shell, command)))
    except RuntimeError as error:
        print(f"execkit gives no 50 MB: {error}", file=sys.stderr)
    ours.call("session_destroy", {"session_id": our_shell})
    execkit.call("session_destroy", {"session_id": their_shell})
    means = {name: statistics.mean(all) if all else None for name, all in times.items()}
    return means, [of(times["ours"]) / of(times["bash"]) for of in (statistics.median, min)]


def measure_many(server):
    """64 shells at once: the slowest beside its turn (a bare bash alone, times 64, over the cores), calls a
    second, memory for each shell."""
    before = server.memory_kb()
    shells = [server.shell() for _ in range(SHELLS)]
    for shell in shells:
        server.exec(shell, ":")
    per_shell = (server.memory_kb() - before) / SHELLS
    bash = Bash()
    alone = min(seconds(lambda: bash.exec(BUSY)) for _ in range(5))
    bash.close()
    start = time.perf_counter()
    waiting = {server.start("session_exec", {"session_id": shell, "command": BUSY}) for shell in shells}
    slowest = 0.0
    while waiting:
        message = server.read()
        result(message)
        waiting.discard(message["id"])
        slowest = time.perf_counter() - start
    turn = alone * SHELLS / len(os.sched_getaffinity(0))
    start = time.perf_counter()
    waiting, calls = {}, 0
    for shell in shells:
        waiting[server.start("session_exec", {"session_id": shell, "command": ":"})] = (shell, 19)
    while waiting:
        message = server.read()
        result(message)
        shell, left = waiting.pop(message["id"])
        calls += 1
        if left:
            waiting[server.start("session_exec", {"session_id": shell, "command": ":"})] = (shell, left - 1)
    rate = calls / (time.perf_counter() - start)
    for shell in shells:
        server.call("session_destroy", {"session_id": shell})
    return {"per_shell_kb": per_shell, "slowest": slowest, "turn": turn, "rate": rate}


def bash_kb():
    """The memory of one idle bash of its own."""
    bash = Bash()
    bash.exec(":")
    with open(f"/proc/{bash.process.pid}/status") as status:
        kb = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    bash.close()
    return kb


missed = []


def row(work, ours, beside, ratio, target, met=True):
    """Prints a row; a target that is not met is marked in it, and told again at the end."""
    if not met:
        missed.append(f"{work}: {ratio or ours}, {target} wanted")
        target += ", missed"
    print(f"| {work} | {ours} | {beside} | {ratio} | {target} |", flush=True)


def kilobytes(value):
    """Memory for one more shell: what was freed meanwhile may be more than what it takes."""
    return "not measurable" if value <= 0 else f"{value:.0f} KB"


def milliseconds(value):
    return "none" if value is None else f"{value * 1e3:.2f} ms"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--execkit", required=True)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--elsewhere", action="store_true", help="only shells over ssh and in a container")
    parser.add_argument("server", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    while arguments.server[:1] and arguments.server[0] in ("--rows", "--elsewhere"):
        setattr(arguments, arguments.server[0][2:], True)
        arguments.server = arguments.server[1:]
    if not arguments.server:
        parser.error("give the MCP server to measure, for example: target/release/ctx mcp")
    program = os.path.abspath(arguments.server[0])
    command = [program if os.path.exists(program) else arguments.server[0], *arguments.server[1:]]
    if not arguments.rows:
        print("| work | ours | beside | ratio | target |\n|---|---|---|---|---|")
    ours, execkit = Server(command), Server([arguments.execkit])
    try:
        if not arguments.elsewhere:
            compare(ours, execkit)
        compare_elsewhere(command, arguments.execkit)
    finally:
        ours.close()
        execkit.close()
    print("\n".join(["missed targets:", *missed]) if missed else "every target is met", file=sys.stderr)


def compare(ours, execkit):
    idle = ours.memory_kb(), execkit.memory_kb()
    row("`ctx mcp` without a shell, memory", f"{idle[0] / 1e3:.1f} MB", f"execkit {idle[1] / 1e3:.1f} MB", f"{idle[0] / idle[1]:.2f}", "")
    empty = measure_empty(ours, execkit)
    mine = milliseconds(empty["ours"])
    row("`session_exec` of `:`, p50", mine, f"execkit {milliseconds(empty['execkit'])}", f"{empty['execkit'] / empty['ours']:.1f}× faster", "20×", empty["execkit"] / empty["ours"] >= 20)
    row("`session_exec` of `:`, p50", mine, f"bash, same frame {milliseconds(empty['framed'])}", f"{empty['ours'] / empty['framed']:.2f}", "at most 3", empty["ours"] / empty["framed"] <= 3)
    row("`session_exec` of `:`, p50", mine, f"bash, the shortest frame {milliseconds(empty['bash'])}", f"{empty['ours'] / empty['bash']:.2f}", "")
    long = measure_long(ours, execkit)
    mine = milliseconds(long["ours"])
    row("a command of 200 KB, p50", mine, f"bash, the same as a script {milliseconds(long['bash'])}", f"{long['ours'] / long['bash']:.2f}", "at most 2", long["ours"] / long["bash"] <= 2)
    row("a command of 200 KB, p50", mine, f"execkit {milliseconds(long['execkit'])}", f"{long['execkit'] / long['ours']:.1f}× faster", "")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "build.log")
        build_log(path)
        for name, command in [
            ("`cat` of a log", f"cat {path}"),
            ("`seq`", "seq 6388888"),
            ("`grep` through a log", f"grep -v nothing {path}"),
        ]:
            output, (median, best) = measure_output(ours, execkit, command)
            mine = milliseconds(output["ours"])
            # Nothing prints faster than `cat` of a file in the page cache.
            most = 4 if command.startswith("cat") else 2
            row(f"50 MB of output: {name}", mine, f"bash and a pipe reader {milliseconds(output['bash'])}", f"{output['ours'] / output['bash']:.2f} (medians {median:.2f}, best rounds {best:.2f})", f"at most {most}", output["ours"] / output["bash"] <= most)
            if output["execkit"]:
                row(f"50 MB of output: {name}", mine, f"execkit {milliseconds(output['execkit'])}", f"{output['execkit'] / output['ours']:.1f}× faster", "")
    peak = ours.memory_kb("VmHWM"), execkit.memory_kb("VmHWM")
    row("largest memory after 50 MB", f"{peak[0] / 1e3:.1f} MB", f"execkit {peak[1] / 1e3:.1f} MB", f"{peak[0] / peak[1]:.2f}", "bounded")
    many, theirs = measure_many(ours), measure_many(execkit)
    row("64 shells busy at once, the slowest", milliseconds(many["slowest"]), f"its turn {milliseconds(many['turn'])}", f"{many['slowest'] / many['turn']:.2f}", "at most 2", many["slowest"] / many["turn"] <= 2)
    row("64 shells busy at once, the slowest", milliseconds(many["slowest"]), f"execkit {milliseconds(theirs['slowest'])}", f"{theirs['slowest'] / many['slowest']:.1f}× faster", "")
    row("`:` in 64 shells at once", f"{many['rate']:.0f}/s", f"execkit {theirs['rate']:.0f}/s", f"{many['rate'] / theirs['rate']:.1f}×", "")
    row("server memory for one more shell", kilobytes(many["per_shell_kb"]), f"execkit {kilobytes(theirs['per_shell_kb'])}, bash itself {bash_kb()} KB", "", "at most 200 KB", many["per_shell_kb"] <= 200)


main()
