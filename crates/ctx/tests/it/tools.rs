//! Tools that change files, as a user meets them: what is asked, shown, allowed and kept out of sight.

use serde_json::{Value, json};
use testkit::{Pty, TestDaemon, until};

use crate::support::{daemon, json_lines};

/// Never a token of anyone's.
const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

fn script(steps: Value) -> String {
    json!({ "script": steps }).to_string()
}

fn writing(path: &str, content: &str) -> Value {
    json!({ "tool": { "name": "fs.write", "input": { "path": path, "content": content } } })
}

/// Sends a script without a terminal and waits for its end.
fn send(daemon: &TestDaemon, session: &str, flags: &[&str], steps: Value) -> testkit::Outcome {
    let text = script(steps);
    let args =
        [&["send", "-a", "coder", "--model", "debug:script", "--session", session], flags, &[text.as_str()]]
            .concat();
    daemon.ctx(&args)
}

/// The records of a session's log that have this type.
fn records(daemon: &TestDaemon, session: &str, kind: &str) -> Vec<Value> {
    let log = daemon.ctx(&["log", &format!("coder/{session}"), "--json"]).ok();
    json_lines(&log).into_iter().filter(|record| record["type"] == kind).collect()
}

#[test]
fn without_a_terminal_a_question_is_denied_unless_the_message_answers_it() {
    let daemon = daemon();
    let work = daemon.workspace();
    let steps = |path: &str| json!([writing(path, "x\n"), { "text": "went on" }]);

    let denied = send(&daemon, "none", &[], steps("/work/a"));
    assert_eq!(denied.code, 0, "{}", denied.stderr);
    let hint = "needs an approval, and nobody is at a terminal to give it";
    let finished = records(&daemon, "none", "tool_finished");
    let told = finished[0]["output"].as_str().unwrap();
    assert!(told.contains(hint) && told.contains("--allow fs.write") && told.contains("--detach"), "{told}");
    assert!(
        denied.stderr.contains("denied: EACCES: fs.write on /work/a needs an approval"),
        "{}",
        denied.stderr
    );
    assert!(!work.join("a").exists() && denied.stdout == "went on\n", "{}", denied.stdout);
    assert_eq!(records(&daemon, "none", "context")[0]["approvals"], "deny");
    assert!(records(&daemon, "none", "approval_requested").is_empty());

    send(&daemon, "yes", &["--yes"], steps("/work/a")).ok();
    assert_eq!(std::fs::read_to_string(work.join("a")).unwrap(), "x\n");
    assert_eq!(records(&daemon, "yes", "context")[0]["approvals"], "allow");
    assert!(daemon.ctx(&["log", "coder/yes"]).ok().contains("everything is allowed"));

    // A retry has what came with the message.
    send(&daemon, "again", &["--yes"], json!([{ "error": "broken_stream" }]));
    daemon.ctx(&["retry", "coder/again"]).ok();
    daemon.ctx(&["wait", "coder/again"]);
    assert_eq!(records(&daemon, "again", "context")[1]["approvals"], "allow");

    let both = json!([writing("/work/b", "x"), writing("/work/c", "x"), { "text": "end" }]);
    send(&daemon, "rule", &["--allow", "fs.write *b"], both).ok();
    assert!(work.join("b").exists() && !work.join("c").exists());
    assert_eq!(records(&daemon, "rule", "context")[0]["policy"][0], "allow fs.write *b");
    assert!(send(&daemon, "bad", &["--allow", "fs/write"], json!([])).fails(2).contains("TOOL [PATTERN]"));

    // What the policy denies stays denied.
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "deny fs.write *d\n").unwrap();
    send(&daemon, "deny", &["--yes"], steps("/work/d")).ok();
    assert!(!work.join("d").exists());
}

#[test]
fn an_edit_is_shown_before_it_is_allowed_and_after_it_was_made() {
    let daemon = daemon();
    std::fs::write(daemon.workspace().join("f"), "one\ntwo\n").unwrap();
    let edit = json!({ "path": "/work/f", "edits": [{ "old": "two", "new": "2" }] });
    let steps = json!([
        { "tool": { "name": "fs.read", "input": { "path": "/work/f" } } },
        { "tool": { "name": "fs.edit", "input": edit } },
        { "text": "edited" }
    ]);
    send(&daemon, "work", &["--detach"], steps).ok();
    let listed = until("the approval", || {
        let listed = json_lines(&daemon.ctx(&["approve", "coder/work", "--list", "--json"]).stdout);
        listed.first().cloned()
    });
    let diff = "--- /work/f\n+++ /work/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!((&listed["diff"], &listed["subject"]), (&json!(diff), &json!("/work/f")));
    let table = daemon.ctx(&["approve", "coder/work", "--list"]).ok();
    assert!(
        table.contains("would change:\n  --- /work/f\n") && table.contains("\n  -two\n  +2\n"),
        "{table}"
    );
    let mut chat = Pty::ctx(&daemon, &["chat", "coder/work"]);
    chat.wait_for("-two");
    chat.wait_for("approval needed: fs.edit /work/f?");
    chat.answer("y\r");
    chat.wait_for("edited /work/f in 1 place");
    chat.wait_for("+2");
    daemon.ctx(&["wait", "coder/work"]).ok();
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("f")).unwrap(), "one\n2\n");
    let finished = records(&daemon, "work", "tool_finished");
    assert_eq!(finished[1]["diff"], diff);
    assert_eq!(finished[1]["summary"], json!({ "bytes": 6, "lines_added": 1, "lines_removed": 1 }));
    let shown = daemon.ctx(&["show", "coder/work"]).ok();
    assert!(shown.contains("    -two\n    +2\n"), "{shown}");
    let log = daemon.ctx(&["log", "coder/work"]).ok();
    assert!(log.contains(" ms, +1 -1 \"edited /work/f in 1 place"), "{log}");
}

#[test]
fn what_is_allowed_for_the_session_is_not_asked_again_until_it_ends() {
    let mut daemon = daemon();
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.write *.md\n").unwrap();
    let work = daemon.workspace();
    // Two that wait at once, and one that another line of the policy asks for: here, none.
    let steps = |paths: &[&str]| {
        let calls: Vec<Value> = paths.iter().map(|path| writing(path, "x")["tool"].clone()).collect();
        json!([{ "tools": calls }, { "text": "end" }])
    };
    send(&daemon, "work", &["--detach"], steps(&["/work/a.md", "/work/b.md", "/work/c.txt"])).ok();
    let waiting = until("the approvals", || {
        let listed = json_lines(&daemon.ctx(&["approve", "coder/work", "--list", "--json"]).stdout);
        (listed.len() == 3).then_some(listed)
    });
    let of = |path: &str| waiting.iter().find(|one| one["subject"] == path).unwrap().clone();
    assert_eq!((&of("/work/a.md")["pattern"], &of("/work/c.txt")["pattern"]), (&json!("*.md"), &Value::Null));
    let allow = |path: &str, flags: &[&str]| {
        let id = of(path)["id"].as_str().unwrap().to_owned();
        daemon.ctx(&[&["approve", "coder/work", &id], flags].concat())
    };
    let both = allow("/work/a.md", &["--deny", "--always"]).fails(2);
    assert!(both.contains("cannot be used with"), "{both}");
    let told = allow("/work/a.md", &["--always"]);
    assert!(
        told.stderr.contains("until the session ends, fs.write *.md is not asked for again"),
        "{}",
        told.stderr
    );
    until("the other to be written too", || work.join("b.md").exists().then_some(()));
    assert!(!work.join("c.txt").exists(), "another line of the policy asks for it");
    allow("/work/c.txt", &[]).ok();
    daemon.ctx(&["wait", "coder/work"]).ok();
    let settled = records(&daemon, "work", "approval_settled");
    let scopes: Vec<&Value> = settled.iter().map(|record| &record["scope"]).collect();
    assert_eq!(scopes, [&json!("session"), &Value::Null, &Value::Null]);

    // It is in the log: also after a restart, and where nobody is at a terminal to be asked.
    daemon.kill();
    daemon.start_again();
    send(&daemon, "work", &[], steps(&["/work/d.md", "/work/d.txt"])).ok();
    assert!(work.join("d.md").exists() && !work.join("d.txt").exists());
    send(&daemon, "other", &[], steps(&["/work/e.md"])).ok();
    assert!(!work.join("e.md").exists(), "in another session it is asked for");
    // What a policy denies by now stays denied.
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "deny fs.write *f.md\nask fs.write *.md\n")
        .unwrap();
    send(&daemon, "work", &[], steps(&["/work/f.md"])).ok();
    assert!(!work.join("f.md").exists());
    daemon.ctx(&["fork", "coder/work", "--name", "copy"]).ok();
    send(&daemon, "copy", &[], steps(&["/work/g.md"])).ok();
    assert!(!work.join("g.md").exists(), "a fork is another session");
}

#[test]
fn a_secret_that_a_tool_meets_is_in_no_file_of_ours() {
    let daemon = daemon();
    let env = daemon.workspace().join(".env");
    std::fs::write(&env, format!("A=1\nGITHUB_TOKEN={TOKEN}\n")).unwrap();
    let steps = json!([
        { "tool": { "name": "fs.read", "input": { "path": "/work/.env" } } },
        { "tool": { "name": "fs.edit", "input": { "path": "/work/.env", "edits": [{ "old": "A=1", "new": "A=2" }] } } },
        writing("/work/copy", &format!("{TOKEN}\n")),
        { "dump": true }
    ]);
    // The script itself is a message of the user's, which is kept as it is: so its token is written by a file.
    let file = daemon.path("script.json");
    std::fs::write(&file, script(steps)).unwrap();
    std::fs::write(
        daemon.root().join("model/debug/script.d/default"),
        format!("script={}\n", file.display()),
    )
    .unwrap();
    let sent = daemon
        .ctx(&["send", "-a", "coder", "--yes", "--model", "debug:script", "--session", "work", "go"])
        .ok();
    assert!(sent.contains("[REDACTED:github-token]") && !sent.contains(TOKEN), "{sent}");
    assert_eq!(std::fs::read_to_string(&env).unwrap(), format!("A=2\nGITHUB_TOKEN={TOKEN}\n"));
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("copy")).unwrap(), format!("{TOKEN}\n"));
    daemon.ctx(&["stop"]).ok();
    let grep = std::process::Command::new("grep")
        // Snapshots hold files as they are, for their owner alone.
        .args(["-rl", "--binary-files=text", "--exclude-dir=snapshot", TOKEN])
        .arg(daemon.root())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&grep.stdout),
        "",
        "neither in the log, nor in views, nor in the index"
    );
}

#[test]
fn the_examples_of_the_guide_to_coding_work() {
    let daemon = daemon();
    // Of somebody who pastes it: no file, and not the directory that the daemon was given.
    let app = daemon.home().join("app");
    std::fs::create_dir(&app).unwrap();
    let page = include_str!("../../../../docs/guides/coding.md");
    let walk: String = page
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("\n```\n").next())
        .map(|block| format!("{block}\n"))
        .collect();
    let bin = std::path::Path::new(crate::support::CTX).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut bash = std::process::Command::new("timeout");
    bash.args(["60", "bash", "-eu", "-o", "pipefail", "-c", &walk]).stdin(std::process::Stdio::null());
    bash.env("PATH", path).env("HOME", daemon.home()).env("CTX_ROOT", daemon.root()).current_dir(&app);
    let said = testkit::finish(&mut bash).ok();
    let expected = [
        "sum.sh subtracted; now it adds.",
        "needs an approval",
        "-1",
        "sum.sh subtracted; now it adds.",
        "5",
        "allow fs.read",
        "allow fs.edit *.sh",
        "-echo $(( $1 - $2 ))",
        "+echo $(( $1 + $2 ))",
        r#"{"bytes":20,"lines_added":1,"lines_removed":1}"#,
        "read it",
        "GITHUB_TOKEN=[REDACTED:github-token]",
    ];
    assert_eq!(said.trim_end().lines().collect::<Vec<_>>(), expected, "{said}");
}
