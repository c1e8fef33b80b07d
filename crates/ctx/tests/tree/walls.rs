//! What users of one daemon do not get from each other: through links, mounts, control files, claims and counts.

use std::os::unix::fs::{PermissionsExt, chown, symlink};

use serde_json::{Value, json};
use testkit::until;

use super::support::{Tree, frames};
use super::users::{DAEMON, NOBODY, as_user};

const CTX: &str = env!("CARGO_BIN_EXE_ctx");

/// A tree whose agent does what it is told, in a workspace that everyone may write to.
fn told() -> Tree {
    let tree = Tree::start();
    tree.ctx(&["set", "coder", "model", "debug/script"]).ok();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(tree.workspace(), open).unwrap();
    tree
}

/// The result of a call that the agent of a user is made to make.
fn called(tree: &Tree, uid: u32, name: &str, input: &Value) -> Value {
    let script = json!({"script": [{"tool": {"name": name, "input": input}}, {"text": "done"}]}).to_string();
    std::fs::write(tree.path("call.json"), json!({"task": script}).to_string()).unwrap();
    let run = format!("$R/agent/coder --yes < {}", tree.path("call.json").display());
    let said = tree.sh(&as_user(uid, &run)).ok();
    frames(&said).into_iter().find(|frame| frame["type"] == "tool_result").expect("a result")
}

/// Calls that would read or change a file.
fn on(path: &str) -> [(&'static str, Value); 3] {
    [
        ("fs.read", json!({"path": path})),
        ("fs.write", json!({"path": path, "content": "changed"})),
        ("fs.edit", json!({"path": path, "edits": [{"old": "top", "new": "no"}]})),
    ]
}

#[test]
fn a_hard_link_to_what_a_user_may_not_read_is_eacces() {
    let tree = told();
    let secret = tree.path("secret");
    std::fs::write(&secret, "top secret\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::hard_link(&secret, tree.workspace().join("hard")).unwrap();
    for (tool, input) in on("hard") {
        let result = called(&tree, NOBODY, tool, &input);
        let output = result["output"].as_str().unwrap();
        assert!(result["status"] == "error" && output.starts_with("EACCES"), "{tool}: {result}");
    }
    let shell = json!({"command": "cat hard; echo changed > hard"});
    let result = called(&tree, NOBODY, "shell.exec", &shell);
    assert!(!result["output"].as_str().unwrap().contains("top secret"), "{result}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "top secret\n");
}

#[test]
fn what_is_bound_into_the_view_of_an_agent_is_eacces_for_who_may_not_enter_it() {
    let tree = told();
    let private = tree.path("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::write(private.join("file"), "top secret\n").unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&private, tree.workspace().join("link")).unwrap();
    let work = tree.workspace().display().to_string();
    let mounts = format!("{work} /work rw\n{} /private rw\n{work}/link /linked rw\n", private.display());
    tree.write("agent/coder.d/mount", &mounts);
    for place in ["/private", "/linked"] {
        for (tool, input) in on(&format!("{place}/file")) {
            let result = called(&tree, NOBODY, tool, &input);
            let output = result["output"].as_str().unwrap();
            assert!(result["status"] == "error" && output.starts_with("EACCES"), "{tool} {place}: {result}");
        }
        let listed = called(&tree, NOBODY, "fs.list", &json!({"path": place}));
        assert!(listed["output"].as_str().unwrap().starts_with("EACCES"), "{listed}");
        let there = as_user(NOBODY, &format!("$R/agent/coder '{}'", json!({"task": "x", "cwd": place})));
        let ended = tree.sh(&there);
        assert!(ended.code == 13 && ended.stderr.contains("EACCES"), "{place}: {ended:?}");
    }
    assert_eq!(std::fs::read_to_string(private.join("file")).unwrap(), "top secret\n");
}

#[test]
fn a_link_of_the_user_in_the_way_of_a_bind_target_leads_nowhere_else() {
    let tree = told();
    called(&tree, NOBODY, "shell.exec", &json!({"command": "true"}));
    let outside = tree.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let root = tree.root().join(format!("home/{NOBODY}/agent/coder/root"));
    std::fs::create_dir_all(&root).unwrap();
    chown(&root, Some(NOBODY), Some(NOBODY)).unwrap();
    let plant = format!("ln -s {} {}/out", outside.display(), root.display());
    tree.sh(&as_user(NOBODY, &plant)).ok();
    let work = tree.workspace().display().to_string();
    tree.write("agent/coder.d/mount", &format!("{work} /work rw\n{work} /out/place rw\n"));
    for (tool, input) in [
        ("fs.write", json!({"path": "/out/made", "content": "x"})),
        ("shell.exec", json!({"command": "echo x > /out/made; mkdir -p /out/place/deep"})),
    ] {
        let result = called(&tree, NOBODY, tool, &input);
        let left = std::fs::read_dir(&outside).unwrap().count();
        assert_eq!(left, 0, "{tool}: {result}");
    }
}

#[test]
fn a_control_file_of_another_owner_is_refused_on_use_and_the_rest_works() {
    let tree = Tree::start();
    tree.sh("cp -r $R/agent/coder.d $R/agent/other.d").ok();
    until("the other agent", || tree.root().join("agent/other.sock").exists().then_some(()));
    for (file, object, well) in [
        ("agent/other.d/policy", "agent/other", "agent/coder"),
        ("agent/other.d/mount", "agent/other", "agent/coder"),
        ("agent/other.d/model", "agent/other", "agent/coder"),
        ("agent/other.d/env", "agent/other", "agent/coder"),
        ("model/debug/script.d/default", "model/debug/script", "model/debug/echo"),
    ] {
        let path = tree.root().join(file);
        chown(&path, Some(NOBODY), None).unwrap();
        let used = tree.sh(&format!("$R/{object} hi"));
        let words = format!("{file} belongs to uid {NOBODY}");
        assert!(used.code != 0, "{file}: {used:?}");
        assert!(used.stderr.contains(&words) || used.stdout.contains(&words), "{file}: {used:?}");
        assert_eq!(tree.sh(&format!("$R/{well} hi")).code, 0, "{file}");
        chown(&path, Some(0), None).unwrap();
        assert_eq!(tree.sh(&format!("$R/{object} hi")).code, 0, "{file}");
    }
}

#[test]
fn a_peer_is_who_the_kernel_says_whatever_it_claims() {
    let tree = Tree::start();
    let claim = json!({"input": "mine", "session": "claimed", "uid": 0, "owner": 0, "user": "root", "by": 0});
    let send = json!({"op": "send", "id": "1", "session": "by-socket", "input": "mine", "uid": 0, "owner": 0,
        "by": 0, "pid": 1});
    let python = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(\"{}/agent/coder.sock\")\n\
         s.sendall(b\"\"\"{send}\\n\"\"\")\n\
         for line in s.makefile():\n  print(line, end=\"\")\n  if \"done\" in line: break\n",
        tree.root().display()
    );
    std::fs::write(tree.path("send.py"), python).unwrap();
    let root = "USER=root LOGNAME=root SUDO_UID=0 UID_=0";
    for script in [
        format!("{root} $R/model/debug/echo '{claim}'"),
        format!(
            "{root} $R/agent/coder '{}'",
            json!({"task": "mine", "session": "claimed", "uid": 0, "owner": 0})
        ),
        format!("{root} python3 {}", tree.path("send.py").display()),
    ] {
        tree.sh(&as_user(NOBODY, &script)).ok();
    }
    for session in
        ["model/debug/echo.d/session/claimed", "agent/coder/session/claimed", "agent/coder/session/by-socket"]
    {
        let at = |uid: u32| tree.root().join(format!("home/{uid}/{session}"));
        assert!(at(NOBODY).is_dir() && !at(0).exists(), "{session}");
        let log = std::fs::read_to_string(at(NOBODY).join("events.jsonl")).unwrap();
        assert!(log.contains(&format!("\"owner\":{NOBODY}")) && !log.contains("\"owner\":0"), "{log}");
    }
}

#[test]
fn the_private_sessions_of_another_are_in_no_count() {
    let tree = Tree::start();
    // The facts of the daemon itself go on: how long it has run.
    let seen = || {
        let script = format!(
            "{CTX} ls --json; {CTX} stats --json; {CTX} search secret-word --json; {CTX} status | grep -v -i uptime; \
             grep -v uptime $R/status"
        );
        tree.sh(&as_user(DAEMON, &script)).ok()
    };
    tree.sh(&as_user(DAEMON, "$R/agent/coder --session own hello")).ok();
    let settled = || {
        until("the index", || {
            let (one, two) = (seen(), seen());
            (one == two && one.contains("own")).then_some(one)
        })
    };
    let before = settled();
    for n in 1..=3 {
        tree.sh(&as_user(NOBODY, &format!("$R/agent/coder --session s{n} secret-word"))).ok();
    }
    tree.sh(&as_user(NOBODY, "$R/model/debug/echo --session s secret-word")).ok();
    let all = as_user(NOBODY, &format!("{CTX} ls --json"));
    until("their own to be listed", || (tree.sh(&all).stdout.lines().count() >= 3).then_some(()));
    assert_eq!(settled(), before);
}
