//! Agents as objects.

use serde_json::json;
use testkit::until;

use super::support::{Tree, deltas, frames, own_uid, types};

#[test]
fn an_agent_takes_a_task_as_words_or_stdin() {
    let tree = Tree::start();
    for script in [
        "$R/agent/coder 'fix this project'",
        "echo 'fix this project' | $R/agent/coder",
        r#"echo '{"task":"fix this project"}' | $R/agent/coder"#,
        r#"$R/agent/coder --json '{"task":"fix this project"}'"#,
    ] {
        let frames = frames(&tree.sh(script).ok());
        assert_eq!(
            (types(&frames)[0], deltas(&frames).trim_end()),
            ("start", "fix this project"),
            "{script}"
        );
        assert_eq!(frames.last().unwrap()["status"], "ok", "{script}");
    }
    let shelf = tree.root().join(format!("home/{}/agent/coder/session", own_uid()));
    assert!(!shelf.exists(), "a task by itself leaves no session");
    tree.sh("$R/agent/coder --session kept hello").ok();
    assert_eq!(
        tree.read(&format!("home/{}/agent/coder/session/kept/latest.md", own_uid())).trim_end(),
        "hello"
    );
}

#[test]
fn two_agents_make_a_pipeline() {
    let tree = Tree::start();
    tree.sh("cp -r $R/agent/coder.d $R/agent/second.d").ok();
    until("the second agent", || tree.root().join("agent/second").exists().then_some(()));
    let said = tree.sh("$R/agent/coder --text 'pass this on' | $R/agent/second --text").ok();
    assert_eq!(said, "pass this on\n");
    // The frames that a pipe gets are read as what was answered; a failure ends the pipeline.
    assert_eq!(
        tree.sh("$R/agent/coder 'and this' | $R/agent/second | $R/model/debug/echo --text").ok(),
        "and this\n"
    );
    let failing = r#"$R/model/debug/script '{"script":[{"error":"empty"}]}' | $R/model/debug/echo --text"#;
    assert_eq!(tree.sh(failing).code, 2);
    let said =
        tree.sh("echo hi | $R/model/debug/echo | jq -r 'select(.type == \"delta\").text' | tr -d '\\n'").ok();
    assert_eq!(said, "hi");
}

#[test]
fn exit_codes_are_those_of_the_abi() {
    let mut tree = Tree::start();
    let code = |script: &str| tree.sh(script).code;
    assert_eq!(code("$R/model/debug/echo hi"), 0);
    assert_eq!(code("$R/model/debug/echo --nonsense"), 2);
    assert_eq!(code("$R/model/debug/echo ''"), 2);
    assert_eq!(code(r#"$R/model/debug/echo '{"messages":7}'"#), 2);
    assert_eq!(code(r#"$R/agent/coder '{"task":"x","cwd":"/nowhere"}'"#), 1, "ENOENT");
    assert_eq!(code(r#"$R/agent/coder '{"task":"x","cwd":"/../etc"}'"#), 13, "EACCES");
    let failing = r#"{"script":[{"text":"so far"},{"error":"unreachable"}]}"#;
    let ended = tree.sh(&format!("$R/model/debug/script '{failing}'"));
    assert_eq!(ended.code, 69, "{ended:?}");
    let told = frames(&ended.stdout);
    let [.., error, done] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("EHOSTDOWN")));
    assert_eq!((&done["type"], &done["status"]), (&json!("done"), &json!("error")));
    tree.stop();
    for object in ["model/debug/echo", "agent/coder"] {
        let down = tree.sh(&format!("$R/{object} hi"));
        assert!(down.clone().fails(69).contains("ctx serve"), "{down:?}");
        assert_eq!(down.stdout, "", "nothing has begun");
    }
}

#[test]
fn an_object_whose_daemon_is_gone_is_unavailable() {
    let mut tree = Tree::start();
    tree.kill();
    for object in ["model/debug/echo", "agent/coder"] {
        let socket = tree.root().join(format!("{object}.sock"));
        let refused = testkit::connect(&socket).unwrap_err();
        assert_eq!(
            refused.kind(),
            std::io::ErrorKind::ConnectionRefused,
            "it was killed and has left its socket"
        );
        assert_eq!(tree.sh(&format!("$R/{object} hi")).code, 69);
    }
    tree.start_again();
    assert_eq!(tree.stop(), 0);
    for object in ["model/debug/echo", "agent/coder"] {
        assert!(
            !tree.root().join(format!("{object}.sock")).exists(),
            "one that stops takes its sockets along"
        );
        assert_eq!(tree.sh(&format!("$R/{object} hi")).code, 69);
    }
    assert_eq!(tree.sh("$R/tool/fs.list '{\"path\":\".\"}'").code, 0, "a tool needs no daemon");
}

#[test]
fn an_interrupt_cancels_the_run_first() {
    let tree = Tree::start();
    let script = r#"
        $R/model/debug/script '{"script":[{"text":"begun"},{"sleep_ms":600000},{"text":"never"}]}' > out &
        pid=$!
        until grep -q begun out; do sleep 0.01; done
        kill -INT $pid
        wait $pid; echo "code $?"; cat out"#;
    let said = tree.sh(&format!("set -m; {script}")).ok();
    assert!(said.starts_with("code 1\n") && said.contains(r#""status":"cancelled""#), "{said}");
}
