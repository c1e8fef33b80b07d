//! The code blocks of `object-abi.txt` and `session-abi.txt`, as they are written there: with `/ctx` as the root and
//! `/usr/bin/cortexfs-object-runner` as the runner. Both are in a mount namespace of the test's own; the model is played.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::Place;
use testkit::models::{ModelServer, Reply};

use super::support::{deltas, frames, types};

/// Lays a file system over the machine's that has `/ctx` and the installed programs, and starts a daemon in it. What follows
/// is run by bash.
const WORLD: &str = r#"
set -euo pipefail
base=$1 program=$2 script=$3
mkdir "$base/ns" && mount -t tmpfs none "$base/ns" && mkdir "$base/ns/upper" "$base/ns/work" "$base/ns/all"
mount -t overlay over -o "lowerdir=/,upperdir=$base/ns/upper,workdir=$base/ns/work" "$base/ns/all"
all=$base/ns/all
for dir in proc dev sys tmp; do mount --rbind "/$dir" "$all/$dir"; done
mkdir "$all/ctx"
for name in ctx cortexfs-object-runner; do touch "$all/usr/bin/$name"; mount --bind "$program" "$all/usr/bin/$name"; done
chroot "$all" /bin/bash -euo pipefail -c '
    cd "$1/work"
    /usr/bin/ctx serve --workspace "$1/work" 2> "$1/daemon.log" &
    daemon=$!
    trap "kill $daemon; wait $daemon || true" EXIT
    until [ -S /ctx/agent/coder.sock ] && [ -e /ctx/status ]; do kill -0 $daemon; sleep 0.02; done
    eval "$2"' bash "$base" "$script"
"#;

struct World {
    place: Place,
    server: ModelServer,
}

impl World {
    fn new() -> World {
        let place = Place::new(env!("CARGO_BIN_EXE_ctx"));
        std::fs::write(place.workspace().join("README.md"), "read me\n").unwrap();
        World { place, server: ModelServer::start() }
    }

    /// What a script prints in it.
    fn run(&self, script: &str) -> String {
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", WORLD, "bash"]);
        command.arg(self.place.path("")).arg(env!("CARGO_BIN_EXE_ctx")).arg(script);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.place.home());
        command
            .env("OPENAI_API_KEY", "sk-of-the-test")
            .env("OPENAI_BASE_URL", format!("{}/v1", self.server.url()));
        command.env("CTX_SERVE_LISTEN", "127.0.0.1:0").env("CTX_AUTOSTART", "false").env("LESSHISTFILE", "-");
        let output = command.stdin(Stdio::null()).output().expect("unshare starts");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let log = std::fs::read_to_string(self.place.path("daemon.log")).unwrap_or_default();
        assert!(output.status.success(), "{}\n{out}\n{err}\n{log}", output.status);
        out.into_owned()
    }

    /// The model answers every question with `hello`.
    fn plays(&self, answers: usize) {
        self.server.offer(&["gpt-4o"]);
        for _ in 0..answers {
            self.server.reply(Reply::text("hello"));
        }
    }
}

/// The parts of an output between lines that begin with `== `, by what those lines say.
fn part<'a>(out: &'a str, name: &str) -> &'a str {
    let begin = out.find(&format!("== {name}\n")).unwrap_or_else(|| panic!("no part {name} in {out}"));
    let rest = &out[begin..].split_once('\n').unwrap().1;
    rest.split("== ").next().unwrap()
}

/// Makes `openai/gpt-4o` an object, as anyone does who asks for it by name.
const GPT_4O: &str = r#"
ctx model test openai:gpt-4o > /dev/null
until [ -x /ctx/model/openai/gpt-4o ] && [ -S /ctx/model/openai/gpt-4o.sock ]; do sleep 0.02; done
"#;

#[test]
fn the_exec_protocol_of_the_object_abi() {
    let world = World::new();
    world.plays(12);
    let out = world.run(&format!(
        r#"{GPT_4O}
echo "== model"
/ctx/model/openai/gpt-4o "hello"
echo "hello" | /ctx/model/openai/gpt-4o
echo '{{"messages":[{{"role":"user","content":"hello"}}]}}' | /ctx/model/openai/gpt-4o
echo "== agent"
/ctx/agent/coder "fix this project"
echo '{{"task":"fix tests"}}' | /ctx/agent/coder
echo "== tool"
/ctx/tool/fs.read '{{"path":"README.md"}}'
echo '{{"path":"README.md"}}' | /ctx/tool/fs.read
echo "== shebang"
head -qn1 /ctx/model/openai/gpt-4o /ctx/model/debug/echo /ctx/agent/coder /ctx/tool/fs.read
"#
    ));
    let starts = |name: &str| -> Vec<Vec<Value>> {
        let all = frames(part(&out, name));
        all.chunk_by(|_, next| next["type"] != "start").map(<[Value]>::to_vec).collect()
    };
    for run in starts("model") {
        assert_eq!((&run[0]["model"], deltas(&run).as_str()), (&json!("openai/gpt-4o"), "hello"));
        assert_eq!(run.last().unwrap()["status"], "ok");
        assert!(run.iter().all(|frame| frame["run"] == run[0]["run"]));
    }
    assert_eq!([starts("model").len(), starts("agent").len(), starts("tool").len()], [3, 2, 2]);
    for run in starts("tool") {
        assert_eq!(types(&run), ["start", "message", "done"]);
        assert!(run[1]["content"][0]["text"].as_str().unwrap().contains("read me"));
    }
    assert_eq!(part(&out, "shebang"), "#!/usr/bin/cortexfs-object-runner\n".repeat(4));
}

#[test]
fn names_and_aliases_of_the_object_abi() {
    let world = World::new();
    world.plays(6);
    let out = world.run(&format!(
        r#"{GPT_4O}
echo "== id"; cat /ctx/model/openai/gpt-4o.d/id
ln -s /ctx/model/openai/gpt-4o /ctx/home/$(id -u)/model/main
echo "== alias"; /ctx/home/$(id -u)/model/main hi | head -n1
echo "== link"; readlink /ctx/home/$(id -u)/model/main
cp -r /ctx/model/openai/gpt-4o.d /ctx/model/openai/gpt-4o-coder.d
echo max_output=77 > /ctx/model/openai/gpt-4o-coder.d/default
until [ -x /ctx/model/openai/gpt-4o-coder ] && [ -S /ctx/model/openai/gpt-4o-coder.sock ]; do sleep 0.02; done
echo "== own"; /ctx/model/openai/gpt-4o-coder hi | head -n1
echo "== there"; ls /ctx/model /ctx/model/openai /ctx/home/$(id -u)/model
"#
    ));
    assert_eq!(part(&out, "id"), "openai/gpt-4o\n");
    assert_eq!(frames(part(&out, "alias"))[0]["model"], "openai/gpt-4o", "readlink decides");
    assert_eq!(part(&out, "link"), "/ctx/model/openai/gpt-4o\n");
    assert_eq!(frames(part(&out, "own"))[0]["model"], "openai/gpt-4o-coder");
    assert!(!part(&out, "there").contains("main.d") && !part(&out, "there").contains("main.sock"));
    let body = world.server.bodies().last().unwrap().to_string();
    assert!(
        body.contains("77") && body.contains("\"gpt-4o\""),
        "its own parameters, and the provider's name: {body}"
    );
}

#[test]
fn the_socket_protocol_and_the_session_files_of_the_seeds() {
    let world = World::new();
    world.plays(12);
    let out = world.run(&format!(
        r#"{GPT_4O}
say() {{ socat -t30 - "UNIX-CONNECT:$1"; }}
for sock in /ctx/model/openai/gpt-4o.sock /ctx/agent/coder.sock; do
    echo "== send $sock"
    echo '{{"op":"send","id":"msg-1","session":"default","cwd":"/work","input":"hello"}}' | say $sock
    echo "== full $sock"
    echo '{{"op":"send","id":"client-msg-id","session":"default","scope":"private","cwd":"/work","input":"hello"}}' | say $sock
    echo "== resume $sock"
    echo '{{"op":"resume","session":"default","after":"0.0"}}' | say $sock
    echo "== ping $sock"
    echo '{{"op":"ping"}}' | say $sock
    echo "== cancel $sock"
    echo '{{"op":"cancel","id":"run-id"}}' | say $sock
done
echo "== history"; ctx history coder
echo "== latest"; ctx latest coder
echo "== less"; less /ctx/home/$(id -u)/agent/coder/session/default/messages.jsonl
home=/ctx/home/$(id -u)/agent/coder/session
until [ -s $home/index/list ]; do sleep 0.02; done
echo "== list"; cat $home/index/list
echo "== current"; cat $home/index/current
echo "== cwd"; cat $home/index/by-cwd/$(printf /work | sha256sum | cut -d' ' -f1)
echo "== files"; ls $home/default /ctx/home/$(id -u)/model/openai/gpt-4o.d/session/default | sort -u
echo "== root"; ls /ctx
echo "== rebuilt"; rm -rf /ctx/home/$(id -u)/agent/coder/root; ctx latest coder
"#
    ));
    for sock in ["/ctx/model/openai/gpt-4o.sock", "/ctx/agent/coder.sock"] {
        let of = |what: &str| frames(part(&out, &format!("{what} {sock}")));
        for run in [of("send"), of("full")] {
            let kinds = types(&run);
            assert_eq!((kinds[0], *kinds.last().unwrap()), ("start", "done"), "{kinds:?}");
            assert!(kinds.contains(&"delta") && kinds.contains(&"message"), "{kinds:?}");
        }
        assert_eq!(types(&of("resume")).iter().filter(|kind| **kind == "done").count(), 2);
        assert_eq!(of("ping"), [json!({"type": "pong"})]);
        assert_eq!((&of("cancel")[0]["type"], &of("cancel")[0]["code"]), (&json!("error"), &json!("EINVAL")));
    }
    assert!(part(&out, "history").contains("hello") && part(&out, "less").contains("hello"));
    assert_eq!([part(&out, "latest"), part(&out, "rebuilt")], ["hello\n", "hello\n"]);
    assert_eq!([part(&out, "list"), part(&out, "current"), part(&out, "cwd")], ["default\n"; 3]);
    for file in [
        "messages.jsonl",
        "events.jsonl",
        "latest.md",
        "state",
        "cwd",
        "created_at",
        "updated_at",
        "meta.json",
        "context",
    ] {
        assert!(part(&out, "files").lines().any(|line| line == file), "{file}");
    }
    assert_eq!(
        part(&out, "root"),
        "agent\nbin\nhome\nmodel\nshared\nstatus\ntool\n",
        "no history, memory, context, swap or task"
    );
}
