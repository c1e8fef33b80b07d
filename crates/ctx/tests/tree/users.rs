//! Two users on the daemon of the whole machine: what is private stays so, and each acts as themselves.

use std::os::unix::fs::MetadataExt;

use serde_json::json;

use super::support::{Tree, deltas, frames};

/// The users that every machine has besides root.
pub const NOBODY: u32 = 65_534;
pub const DAEMON: u32 = 1;

/// A script as another user.
pub fn as_user(uid: u32, script: &str) -> String {
    let words = format!("setpriv --reuid={uid} --regid={uid} --clear-groups bash -o pipefail -c");
    format!("{words} '{}'", script.replace('\'', "'\\''"))
}

#[test]
fn the_sessions_with_a_model_are_their_users_alone() {
    let tree = Tree::start();
    tree.sh(&as_user(NOBODY, "$R/model/debug/echo --session mine secret-word")).ok();
    let home = tree.root().join(format!("home/{NOBODY}"));
    let session = home.join("model/debug/echo.d/session/mine");
    assert_eq!(std::fs::metadata(session.join("events.jsonl")).unwrap().uid(), 0, "the daemon's");
    let read = format!("cat {}/messages.jsonl", session.display());
    assert!(tree.sh(&as_user(NOBODY, &read)).ok().contains("secret-word"));
    assert!(
        tree.sh(&as_user(DAEMON, &read)).code != 0
            && tree.sh(&as_user(DAEMON, &format!("ls {}", home.display()))).code != 0
    );
    let theirs = tree.sh(&as_user(DAEMON, "$R/model/debug/echo --session mine hello")).ok();
    assert_eq!(deltas(&frames(&theirs)), "hello", "another session of the same name");
    let ctx = env!("CARGO_BIN_EXE_ctx");
    let found = tree.sh(&as_user(DAEMON, &format!("{ctx} search secret-word; {ctx} ls --json")));
    assert!(
        !found.stdout.contains("secret-word") && !found.stdout.contains(&format!("\"owner\":{NOBODY}")),
        "{found:?}"
    );
    for wrong in ["echo x > {}/events.jsonl", "rm -r {}", "mv {} /tmp/taken", "touch {}/more"] {
        let script = wrong.replace("{}", &session.display().to_string());
        assert!(tree.sh(&as_user(NOBODY, &script)).code != 0, "not even its own user: {script}");
    }
}

#[test]
fn members_of_a_space_resume_a_session_with_a_model() {
    let tree = Tree::start();
    tree.ctx(&["space", "new", "team", "--group", "daemon"]).ok();
    let ask = |text: &str| {
        let request = json!({"input": text, "session": "plan", "scope": "shared", "space": "team"});
        format!("$R/model/debug/echo '{request}'")
    };
    tree.sh(&ask("from one")).ok();
    let session = tree.root().join("shared/team/model/debug/echo.d/session");
    tree.sh(&as_user(DAEMON, &ask("from two"))).ok();
    let read = format!("cat {}/plan/messages.jsonl", session.display());
    let both = tree.sh(&as_user(DAEMON, &read)).ok();
    assert!(both.contains("from one") && both.contains("from two"), "{both}");
    let denied = tree.sh(&as_user(NOBODY, &ask("from outside")));
    assert!(denied.code != 0 && denied.stdout.is_empty(), "{denied:?}");
    assert!(tree.sh(&as_user(NOBODY, &read)).code != 0);
    testkit::until("its index", || session.join("index/list").exists().then_some(()));
    let list = tree.sh(&as_user(DAEMON, &format!("cat {}/index/list", session.display()))).ok();
    assert_eq!(list, "plan\n");
}

#[test]
fn a_user_keeps_aliases_and_tools_and_leaves_the_daemons_directories_alone() {
    let tree = Tree::start();
    tree.sh(&as_user(NOBODY, "$R/model/debug/echo --session mine hello")).ok();
    let own = format!("$R/home/{NOBODY}");
    tree.sh(&as_user(
        NOBODY,
        &format!("ln -s $R/model/debug/echo {own}/model/quick && {own}/model/quick hi"),
    ))
    .ok();
    assert!(
        tree.sh(&as_user(NOBODY, &format!("mv {own}/model/debug {own}/model/other"))).code != 0,
        "it is sticky"
    );
    assert!(tree.sh(&as_user(NOBODY, &format!("mv {own}/model {own}/other"))).code != 0);
    assert!(tree.sh(&as_user(DAEMON, &format!("ls {own}/tool"))).code != 0);
    let escape = format!("ln -s /etc {own}/model/bad; $R/agent/coder --json hi >/dev/null; cat $R/status");
    assert!(tree.sh(&as_user(NOBODY, &escape)).ok().contains("version"));
    let program = "#!/bin/sh\ntouch /home/agent/made && echo made\n";
    let new = format!("printf '{program}' > {own}/tool/who && chmod +x {own}/tool/who");
    tree.sh(&as_user(NOBODY, &new)).ok();
    let script = json!({"script": [{"tool": {"name": "who", "input": {}}}, {"text": "done"}]}).to_string();
    tree.ctx(&["set", "coder", "model", "debug/script"]).ok();
    std::fs::write(tree.path("call.json"), json!({"task": script}).to_string()).unwrap();
    let run = |uid: u32| {
        let said = tree
            .sh(&as_user(uid, &format!("$R/agent/coder --allow who < {}", tree.path("call.json").display())))
            .ok();
        frames(&said).into_iter().find(|frame| frame["type"] == "tool_result").expect("a result")
    };
    let made = run(NOBODY);
    assert_eq!((&made["status"], &made["output"]), (&json!("ok"), &json!("made\n")), "{made}");
    let file = tree.root().join(format!("home/{NOBODY}/agent/coder/home/made"));
    assert_eq!(std::fs::metadata(file).unwrap().uid(), NOBODY, "it runs as them");
    assert!(run(DAEMON)["output"].as_str().unwrap().contains("unknown tool"), "it is not another's");
}
